"""SPARTA beside a dual encoder and a Poly-Encoder, trained alike: same encoder, data, batches, steps, seed.

    python benchmarks/baselines.py --encoder all-MiniLM-L6-v2 --work FOLDER --articles FILE[=W]…
                                   --pairs FILE[=W]… --passages FILE[=W]… [--steps 600] [--quick] SET…

SETs are BEIR folders, SQuAD JSON or MRQA JSONL. The dual encoder has one vector an answer, the Poly-Encoder
four (SPARTA, §5.1); both have two encoders, and search exactly, in NumPy. All three read an answer in its
context. BM25 is that of SPARTA's index. Trainings that are finished in FOLDER are not repeated. Prints a
Markdown table; p is that of a paired t-test of the reciprocal rank against the best of the set (Holm).
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

from _trained import DEPTH, data_settings, evaluate_dense, open_sets, train_once, training_arguments

from dense.train import train_dense
from hybrid.evaluate import Evaluated, evaluate_set, table_of
from hybrid.measures import DEFAULT_MEASURES
from sparta.encode import EncodeOptions
from sparta.load import load_model
from sparta.train import train_model
from sparta.traindata import ParagraphSet

NAMES = {"dual": "dual encoder", "poly": "Poly-Encoder"}


def train_all(given: argparse.Namespace, sets: list[ParagraphSet]) -> dict[str, Path]:
    """Train what is not there yet; folders of the best models."""
    usual: dict[str, Any] = {
        "encoder": given.encoder,
        "steps": given.steps,
        "learning_rate": given.learning_rate,
        "validate_every": max(1, given.steps // 3),
        "seed": given.seed,
        "device": given.device,
        "resume": True,
    }
    settings = {**usual, "sets": data_settings(sets)}
    trainings = {
        "sparta": lambda out: train_model(
            sets, output=out, pressure=0.001, terms=1000, lexical=False, context_share=0.0, **usual
        ),
        "dual": lambda out: train_dense(sets, output=out, shared=False, **usual),
        "poly": lambda out: train_dense(sets, output=out, shared=False, codes=4, **usual),
    }
    return {name: train_once(given.work, name, settings, train) for name, train in trainings.items()}


def main() -> None:
    given = training_arguments(__doc__.splitlines()[0]).parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    models = train_all(given, open_sets(given))
    sparta = load_model(models["sparta"])
    found = []
    for path in given.sets:
        own = evaluate_set(path, sparta, EncodeOptions(), depth=DEPTH)
        others = [evaluate_dense(NAMES[n], models[n], path, DEFAULT_MEASURES) for n in NAMES]
        found.append(Evaluated(own.name, [*own.evaluations, *others]))
    print(table_of(found, DEFAULT_MEASURES).write("markdown"))


if __name__ == "__main__":
    main()
