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
import json
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from dense.encoders import DenseModel
from dense.train import train_dense
from hybrid.evaluate import Evaluated, evaluate_set, table_of
from hybrid.measures import DEFAULT_MEASURES, Evaluation, evaluate
from hybrid.testsets import open_test_set
from sparta.base.corpus import CorpusReader
from sparta.base.records import ScoredPassage
from sparta.encode import EncodeOptions
from sparta.load import load_model
from sparta.train import train_model
from sparta.traindata import LAYOUTS, ParagraphSet, open_set

DEPTH = 100
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
    settings = {**usual, "sets": [[s.name, s.fingerprint(), s.weight, s.batch_size] for s in sets]}
    trainings = {
        "sparta": lambda out: train_model(sets, output=out, pressure=0.001, terms=1000, **usual),
        "dual": lambda out: train_dense(sets, output=out, shared=False, **usual),
        "poly": lambda out: train_dense(sets, output=out, shared=False, codes=4, **usual),
    }
    for name, train in trainings.items():
        done = given.work / f"{name}.json"
        if done.exists():
            if json.loads(done.read_text())["settings"] != settings:
                raise SystemExit(f"{given.work / name} was trained otherwise: choose another --work")
            continue
        started = time.monotonic()
        result = train(given.work / name)  # goes on where it was stopped, or refuses other settings
        done.write_text(json.dumps({"settings": settings, "validation": result.validation}))
        seconds = time.monotonic() - started
        print(
            f"{name}: validation {result.validation:.4f} at step {result.step}, {seconds:.0f} s", flush=True
        )
    return {name: given.work / name / "best" for name in trainings}


def evaluate_dense(name: str, folder: Path, path: Path) -> Evaluation:
    """Exact search over all passages of a test set."""
    model = DenseModel.load(folder)
    with tempfile.TemporaryDirectory() as work:
        tested = open_test_set(path, Path(work))
        passages = list(CorpusReader(tested.corpus))
    vectors = model.encode_passages(passages)
    asked = model.encode_questions([q.text for q in tested.queries])
    run = {}
    for query, vector in zip(tested.queries, asked, strict=True):
        products = vectors @ vector
        weights = np.exp(products - products.max(axis=1, keepdims=True))
        scores = (products * weights).sum(axis=1) / weights.sum(axis=1)
        best = np.argsort(-scores, kind="stable")[:DEPTH]
        run[query.query_id] = [ScoredPassage(passages[i].passage_id, float(scores[i])) for i in best]
    return evaluate(NAMES[name], run, tested.qrels, DEFAULT_MEASURES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--work", type=Path, required=True)
    for layout in LAYOUTS:
        parser.add_argument(f"--{layout}", action="append", default=[], metavar="FILE[=WEIGHT]")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--device")
    parser.add_argument("--quick", action="store_true", help="20 steps: the figures mean nothing")
    given = parser.parse_args()
    if given.quick:
        given.steps = 20
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    sets = [open_set(f, layout, given.batch_size) for layout in LAYOUTS for f in getattr(given, layout)]
    models = train_all(given, sets)
    sparta = load_model(models["sparta"])
    found = []
    for path in given.sets:
        own = evaluate_set(path, sparta, EncodeOptions(), depth=DEPTH)
        others = [evaluate_dense(name, models[name], path) for name in NAMES]
        found.append(Evaluated(own.name, [*own.evaluations, *others]))
    print(table_of(found, DEFAULT_MEASURES).write("markdown"))


if __name__ == "__main__":
    main()
