"""Impacts in other arithmetics and batches: python benchmarks/arithmetics.py --corpus FILE [--texts 400].

Encodes the same passages with the shipped model in each arithmetic that this processor has, in torch, and a
second time in other batches. Prints a Markdown table: of the impacts (8 bits) that differ, by how much.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
import scipy.sparse

from sparta.base.records import Passage
from sparta.data.corpus import open_corpus
from sparta.models.document_encoder import DocumentEncoder
from sparta.models.load import load_model, load_module
from sparta.models.model import SparseModel
from sparta.runtime.processor import ARITHMETICS, capabilities, mixed_with


def impacts(model: SparseModel, passages: list[Passage], dtype: str) -> scipy.sparse.csr_matrix:
    """The impacts of passages, `(n, vocabulary)`."""
    rows, _ = DocumentEncoder(model, dtype=dtype).encode(passages)
    quantizer = model.config.quantizer
    assert quantizer
    numbers = np.clip(np.rint(rows.weights / quantizer.max_weight * 255), 1, 255)
    return scipy.sparse.csr_matrix((numbers, rows.term_ids, rows.indptr), shape=(len(rows), model.n_terms))


def row(name: str, left: scipy.sparse.csr_matrix, right: scipy.sparse.csr_matrix) -> str:
    steps = np.abs((left - right).tocoo().data)
    n = max(left.nnz, right.nnz)
    steps = np.concatenate([steps, np.zeros(max(0, n - len(steps)))])
    return (
        f"| {name} | {right.nnz / right.shape[0]:.0f} | {steps.mean():.2f} | {np.percentile(steps, 99):.0f}"
        f" | {steps.max():.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--texts", type=int, default=400)
    chosen = parser.parse_args()
    passages = list(itertools.islice(open_corpus(chosen.corpus), chosen.texts))
    model = load_model(device="cpu")
    exact = impacts(model, passages, "fp32")
    print("| compared with fp32 (OpenVINO) | terms/passage | mean steps | 99 % | largest |")
    print("|---|---|---|---|---|")
    for name in ARITHMETICS:
        if name != "fp32" and name in capabilities():
            print(row(f"{name}{mixed_with(name)} (OpenVINO)", exact, impacts(model, passages, name)))
    print(row("fp32 (torch)", exact, impacts(load_module(), passages, "fp32")))
    print(row("bf16 (torch)", exact, impacts(load_module(), passages, "bf16")))
    print("\n| in other batches (one passage each) | terms/passage | mean steps | 99 % | largest |")
    print("|---|---|---|---|---|")
    for name in ("fp32", model.arithmetic("auto")):
        together = impacts(model, passages, name)
        singles = scipy.sparse.vstack([impacts(model, [passage], name) for passage in passages[:100]])
        print(row(f"{name}{mixed_with(name)} (OpenVINO)", together[:100], singles.tocsr()))


if __name__ == "__main__":
    main()
