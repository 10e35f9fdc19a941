"""TASER's variants and DPR, trained alike: same encoder, data, batches, steps, seeds (TASER, Table A1).

    python benchmarks/taser_variants.py --encoder bge-small-en-v1.5 --work FOLDER --articles FILE[=W]…
                                        --pairs FILE[=W]… --passages FILE[=W]… [--steps 600] [--seeds 1]
                                        [--experts 2 4] [--learning-rate 5e-5] [--pooling cls] [--dot]
                                        [--quick] SET…

SETs are BEIR folders, SQuAD JSON or MRQA JSONL, searched exactly. Shared has one encoder, DPR two; Det-R
gives each side its own experts, and the routers of Seq-R and Tok-R choose among as many as --experts names.
What is finished in FOLDER, trainings, measurements and times, is not repeated.

With one seed, an interval holds 95 % of the means of 2,000 samples of the questions, drawn with a fixed seed;
with several, ± is the standard deviation over the seeds. p is that of a paired t-test of the reciprocal rank,
its mean over the seeds, against Shared (Holm). A step's seconds are the best median of three rounds, in which
the variants take turns; an epoch is as many steps as it takes to ask each question once. Parameters are
counted without poolers. `Table A1` is answer recall@20 on NQ test as the paper has it, with BERT-base; sets
with answers have the same measure beside it. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _trained import ANSWER_RECALL, data_settings, evaluate_dense, open_sets, train_once, training_arguments

from dense.models.bi_encoder import DenseModel
from dense.training.train import Recipe, train_dense
from hybrid.evaluation.measures import Evaluation, p_values, shown_p
from hybrid.evaluation.tables import Cell, Table
from sparta.base.files import atomic_write, sha256_file
from sparta.training.batches import make_batch
from sparta.training.options import TrainResult
from sparta.training.paragraphs import ParagraphSet

MEASURES = ("RR", ANSWER_RECALL)
PAPER = {"Shared": 79.3, "Det-R": 80.7, "Seq-R 2": 80.6, "Seq-R 4": 80.1, "Tok-R 2": 79.8, "Tok-R 4": 79.8}
PAPER["DPR"] = 78.4
RESAMPLED = 2_000
ROUNDS, TIMED_STEPS = 3, 8
DRAWN = 200


@dataclass(frozen=True, slots=True)
class Variant:
    """A name, its number of experts, and what makes it other than the rest."""

    name: str
    experts: int
    change: dict[str, Any]

    def folder(self, seed: int) -> str:
        """Where its training with a seed lies."""
        return f"{self.name.lower().replace(' ', '-')}-{seed}"


def variants(experts: Sequence[int]) -> list[Variant]:
    """In the order of Table A1."""
    learned = [
        Variant(f"{name} {n}", n, {"routing": routing, "experts": n})
        for name, routing in (("Seq-R", "seq"), ("Tok-R", "tok"))
        for n in experts
    ]
    det = Variant("Det-R", 2, {"routing": "det"})
    return [Variant("DPR", 1, {"shared": False}), Variant("Shared", 1, {}), det, *learned]


def recipe_of(given: argparse.Namespace, seed: int) -> dict[str, Any]:
    """What all variants have in common."""
    return {
        "encoder": given.encoder,
        "steps": given.steps,
        "learning_rate": given.learning_rate,
        "validate_every": max(1, given.steps // 3),
        "seed": seed,
        "pooling": given.pooling,
        "cosine": not given.dot,
        "device": given.device,
    }


def _train(sets: list[ParagraphSet], recipe: dict[str, Any], output: Path) -> TrainResult:
    return train_dense(sets, Recipe(**recipe), output, resume=True)


def measured(folder: Path, name: str, path: Path) -> Evaluation:
    """The measures of a model on a set, kept beside its training."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    of = hashlib.sha256("".join(map(sha256_file, files)).encode()).hexdigest()[:12]
    kept = folder.parent / f"measured-{path.name}-{of}.json"
    if not kept.exists():
        atomic_write(kept, json.dumps(evaluate_dense(name, folder, path, MEASURES).per_query).encode())
    return Evaluation(name, json.loads(kept.read_text()))


def seconds_a_step(recipe: dict[str, Any], sets: list[ParagraphSet]) -> float:
    """Median over the steps of a training that begins anew."""
    begun: list[float] = []
    with tempfile.TemporaryDirectory() as work:
        usual = {**recipe, "steps": TIMED_STEPS, "validate_every": TIMED_STEPS, "held_out": 0}
        training = Recipe(**usual).training(sets, Path(work))
        original = training.loss

        def loss(step: int) -> Any:
            begun.append(time.monotonic())
            return original(step)

        training.loss = loss  # type: ignore[method-assign]
        training.run()
    return statistics.median(np.diff(begun[1:]))


def timed(given: argparse.Namespace, tried: Sequence[Variant], sets: list[ParagraphSet]) -> dict[str, float]:
    """Seconds of a step, for each variant."""
    kept = given.work / "times.json"
    found: dict[str, float] = json.loads(kept.read_text()) if kept.exists() else {}
    if not {v.name for v in tried} <= found.keys():
        rounds = [
            {v.name: seconds_a_step({**recipe_of(given, given.seed), **v.change}, sets) for v in tried}
            for _ in range(ROUNDS)
        ]
        found = {v.name: min(one[v.name] for one in rounds) for v in tried}
        kept.write_text(json.dumps(found))
    return found


def steps_of_an_epoch(sets: list[ParagraphSet], recipe: dict[str, Any]) -> float:
    """Questions of all sets by questions of a step, on average over some."""
    with tempfile.TemporaryDirectory() as work:
        training = Recipe(**recipe).training(sets, Path(work))
    asked = []
    for step in range(DRAWN):
        paragraphs, rng = training.draw(step)
        asked.append(len(make_batch(paragraphs, rng, training.ranking_config.questions).questions))
    return sum(one.n_questions for one in training.sets) / statistics.fmean(asked)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Where 95 % of the means of samples of the questions lie."""
    known = np.array(values)
    drawn = np.random.default_rng(0).integers(0, len(known), (RESAMPLED, len(known)))
    low, high = np.percentile(known[drawn].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def shown(evaluations: Sequence[Evaluation], measure: str) -> str:
    """The mean in percent, and how far it may be off."""
    means = [100 * e.mean(measure) for e in evaluations]
    if len(means) > 1:
        return f"{statistics.fmean(means):.1f} ± {statistics.stdev(means):.1f}"
    low, high = interval(list(evaluations[0].per_query[measure].values()))
    return f"{means[0]:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def averaged(name: str, evaluations: Sequence[Evaluation]) -> Evaluation:
    """Each question's mean over the seeds."""
    first = evaluations[0].per_query
    return Evaluation(
        name,
        {m: {q: statistics.fmean(e.per_query[m][q] for e in evaluations) for q in first[m]} for m in first},
    )


def main() -> None:
    parser = training_arguments(__doc__.splitlines()[0])
    parser.add_argument(
        "--seeds", type=int, default=1, help="trainings of each variant: --seed and those after"
    )
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--experts", type=int, nargs="+", default=[2], help="of Seq-R and Tok-R")
    parser.add_argument("--pooling", choices=["cls", "mean"], default="cls")
    parser.add_argument("--dot", action="store_true", help="dot product instead of cosine")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    sets, tried = open_sets(given), variants(given.experts)
    models: dict[str, list[Path]] = {v.name: [] for v in tried}
    for seed in range(given.seed, given.seed + given.seeds):
        for v in tried:
            recipe = {**recipe_of(given, seed), **v.change}
            settings = {**recipe, "sets": data_settings(sets)}
            trained = train_once(given.work, v.folder(seed), settings, partial(_train, sets, recipe))
            models[v.name].append(trained.folder)
    seconds = timed(given, tried, sets)
    epoch = steps_of_an_epoch(sets, recipe_of(given, given.seed))
    rows: list[list[Cell]] = []
    for path in given.sets:
        found = {v.name: [measured(folder, v.name, path) for folder in models[v.name]] for v in tried}
        means = {name: averaged(name, own) for name, own in found.items()}
        others = [e for name, e in means.items() if name != "Shared"]
        p = dict(zip([e.name for e in others], p_values(means["Shared"], others, MEASURES[0]), strict=True))
        for v in tried:
            parameters = sum(q.numel() for q in DenseModel.load(models[v.name][0]).parameters()) / 1e6
            chance = shown_p(p[v.name]) if v.name in p else ""
            step = seconds[v.name]
            figures: list[Cell] = [
                shown(found[v.name], m) if m in found[v.name][0].per_query else "" for m in MEASURES
            ]
            own: list[Cell] = [f"{parameters:.1f}M", *figures, chance, f"{step:.2f}", f"{step * epoch:.0f}"]
            rows.append([path.name, v.name, str(v.experts), *own, PAPER.get(v.name)])
    header = ["set", "model", "I", "parameters", *MEASURES, "p", "s a step", "s an epoch", "Table A1"]
    print(Table(header, rows).write("markdown"))


if __name__ == "__main__":
    main()
