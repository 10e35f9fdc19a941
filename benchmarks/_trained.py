"""What benchmarks of trainings share: their arguments, trainings that are not repeated, exact search."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hybrid.evaluation.evaluate import corpus_of, search_exactly
from hybrid.evaluation.measures import ANSWERS, Evaluation, can_measure, evaluate, kind_of
from hybrid.evaluation.rankings import Holds, answer_recall
from hybrid.evaluation.testsets import open_test_set
from sparta.data.corpus import open_corpus
from sparta.training.options import TrainResult
from sparta.training.paragraphs import LAYOUTS, ParagraphSet, open_set

DEPTH = 100
ANSWER_RECALL = "answer_recall@20"
"""R@20 of DPR and TASER: an answer is in the text of the first 20 passages."""
QUICK_STEPS = 20


def training_arguments(description: str) -> argparse.ArgumentParser:
    """Test sets, an encoder, training files, steps, batch size, seed, device."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--work", type=Path, required=True)
    for layout in LAYOUTS:
        parser.add_argument(f"--{layout}", action="append", default=[], metavar="FILE[=WEIGHT]")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--device")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STEPS} steps: the figures mean nothing")
    return parser


def open_sets(given: argparse.Namespace) -> list[ParagraphSet]:
    """The training sets that the arguments name."""
    if given.quick:
        given.steps = QUICK_STEPS
    return [open_set(f, layout, given.batch_size) for layout in LAYOUTS for f in getattr(given, layout)]


def data_settings(sets: list[ParagraphSet]) -> list[list[Any]]:
    """What of the sets must be the same for a finished training to count."""
    return [[s.name, s.fingerprint(), s.weight, s.batch_size] for s in sets]


class Trained(NamedTuple):
    """The folder of the best model of a training, and how well it validated."""

    folder: Path
    validation: float


def train_once(
    work: Path, name: str, settings: dict[str, Any], train: Callable[[Path], TrainResult]
) -> Trained:
    """Train into `work/name` unless that is done."""
    done = work / f"{name}.json"
    if done.exists():
        known = json.loads(done.read_text())
        if known["settings"] != settings:
            raise SystemExit(f"{work / name} was trained otherwise: choose another --work")
        return Trained(work / name / "best", known["validation"])
    started = time.monotonic()
    result = train(work / name)  # goes on where it was stopped, or refuses other settings
    seconds = time.monotonic() - started
    done.write_text(json.dumps({"settings": settings, "validation": result.validation}))
    print(f"{name}: validation {result.validation:.4f} at step {result.step}, {seconds:.0f} s", flush=True)
    return Trained(work / name / "best", result.validation)


def evaluate_dense(name: str, folder: Path, path: Path, measures: tuple[str, ...]) -> Evaluation:
    """Exact search over all passages of a test set. Recall of answers needs a set with answers."""
    with tempfile.TemporaryDirectory() as work:
        tested = open_test_set(path, Path(work))
        passages = list(open_corpus(corpus_of(tested)))
        run, _ = search_exactly(folder, passages, tested, DEPTH)
    judged = [measure for measure in measures if kind_of(measure) is not ANSWERS]
    per_query = dict(evaluate(name, run, tested.qrels, judged).per_query)
    if len(judged) < len(measures) and can_measure(tested, ANSWER_RECALL):
        texts = {passage.passage_id: passage.text for passage in passages}
        holds = Holds(tested.answers, lambda _, passage_id: texts[passage_id], match=tested.match)
        per_query |= answer_recall(name, run, holds, [20]).per_query
    return Evaluation(name, per_query)
