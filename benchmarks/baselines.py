"""SPARTA beside a dual encoder and a Poly-Encoder, trained alike: same encoder, data, batches, steps, seed.

    python benchmarks/baselines.py --encoder all-MiniLM-L6-v2 --work FOLDER --articles FILE[=W]…
                                   --pairs FILE[=W]… --passages FILE[=W]… [--steps 600]
                                   [--rates 5e-5 1.5e-4] [--quick] SET…

SETs are BEIR folders, SQuAD JSON or MRQA JSONL. The dual encoder has one vector an answer, the Poly-Encoder
four (SPARTA, §5.1); both have two encoders, and search exactly, in NumPy. Beside them stand a dual encoder
whose two encoders are one, and the encoder that all begin from, as it comes. All read an answer in its
context. What is trained is trained once with each of --rates, and what validates best is measured. BM25 is
that of SPARTA's index. Trainings that are finished in FOLDER are not repeated. Prints two Markdown tables:
what each learning rate validated at, and the measures; p is that of a paired t-test of the reciprocal rank
against the best of the set (Holm).
"""

from __future__ import annotations

import argparse
import logging
from functools import partial
from pathlib import Path
from typing import Any

from _trained import DEPTH, Trained, data_settings, evaluate_dense, open_sets, train_once, training_arguments

from dense.training.train import Recipe, train_dense
from hybrid.evaluation.evaluate import evaluate_set
from hybrid.evaluation.measures import DEFAULT_MEASURES
from hybrid.evaluation.results import SetResults, results_table
from hybrid.evaluation.tables import Cell, Table
from sparta.models.load import load_model
from sparta.shards.encode import EncodeOptions
from sparta.training.options import SpartaRecipe, TrainResult
from sparta.training.paragraphs import ParagraphSet
from sparta.training.train import train_model

UNTRAINED = "encoder, untrained"
DENSE: dict[str, dict[str, Any]] = {
    "dual encoder": {"shared": False},
    "one encoder": {"shared": True},
    "Poly-Encoder": {"shared": False, "codes": 4},
}
SPARTA: dict[str, Any] = {"paper": True}
RATES = (5e-5, 1.5e-4)


def train_all(given: argparse.Namespace, sets: list[ParagraphSet]) -> dict[str, dict[float, Trained]]:
    """Train what is not there yet; for each model what each learning rate gave."""
    found: dict[str, dict[float, Trained]] = {name: {} for name in ("sparta", *DENSE)}
    data = data_settings(sets)
    for rate in given.rates:
        usual: dict[str, Any] = {
            "encoder": given.encoder,
            "steps": given.steps,
            "learning_rate": rate,
            "validate_every": max(1, given.steps // 3),
            "seed": given.seed,
            "device": given.device,
        }
        for name, own in found.items():
            folder = f"{name.lower().replace(' ', '-')}-{rate:g}"
            settings = {**usual, "sets": data, **DENSE.get(name, SPARTA)}
            own[rate] = train_once(given.work, folder, settings, partial(train, name, sets, usual))
    return found


def train(name: str, sets: list[ParagraphSet], usual: dict[str, Any], output: Path) -> TrainResult:
    """Train one of the models."""
    if name == "sparta":
        return train_model(sets, SpartaRecipe(**SPARTA, **usual), output, resume=True)
    return train_dense(sets, Recipe(**DENSE[name], **usual), output, resume=True)


def untrained(given: argparse.Namespace) -> Path:
    """The encoder as it comes, as a folder."""
    none: dict[str, Any] = {"steps": 0, "learning_rate": 0.0, "validate_every": 1}
    recipe = Recipe(encoder=given.encoder, seed=given.seed, device=given.device, **none)
    folder: Path = given.work / "untrained"
    recipe.model().save_pretrained(folder)
    return folder


def rates_table(trained: dict[str, dict[float, Trained]]) -> Table:
    """The best validation MRR of each training."""
    rates = next(iter(trained.values()))
    rows: list[list[Cell]] = [
        [name, *(100 * own[rate].validation for rate in rates)] for name, own in trained.items()
    ]
    return Table(["validation MRR", *(f"learning rate {rate:g}" for rate in rates)], rows, digits=2)


def main() -> None:
    parser = training_arguments(__doc__.splitlines()[0])
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="learning rates to try")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    trained = train_all(given, open_sets(given))
    models = {name: max(own.values(), key=lambda one: one.validation) for name, own in trained.items()}
    sparta = load_model(models["sparta"].folder)
    folders = {**{name: models[name].folder for name in DENSE}, UNTRAINED: untrained(given)}
    found = []
    for path in given.sets:
        own = evaluate_set(path, sparta, EncodeOptions(), depth=DEPTH)
        others = [evaluate_dense(name, folder, path, DEFAULT_MEASURES) for name, folder in folders.items()]
        found.append(SetResults(own.name, [*own.evaluations, *others]))
    print(rates_table(trained).write("markdown"), end="\n\n")
    print(results_table(found, DEFAULT_MEASURES, label="ranking").write("markdown"))


if __name__ == "__main__":
    main()
