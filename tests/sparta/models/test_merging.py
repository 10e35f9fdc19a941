"""Windows of one passage become one row, and pooling keeps to its limit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from sparta.base.records import Passage
from sparta.models.backends import torch as torch_backend
from sparta.models.backends.torch import TorchBackend
from sparta.models.document_encoder import DocumentEncoder, merge_windows
from sparta.models.prune import SparseRows
from sparta.models.sparta import SpartaModel


def rows_of(vectors: list[dict[int, float]]) -> SparseRows:
    indptr = np.cumsum([0, *map(len, vectors)])
    terms = [t for v in vectors for t in sorted(v)]
    weights = [v[t] for v in vectors for t in sorted(v)]
    return SparseRows(indptr, np.array(terms, np.int32), np.array(weights, np.float32))


def vectors_in(rows: SparseRows) -> list[dict[int, float]]:
    found = []
    for start, end in zip(rows.indptr, rows.indptr[1:], strict=False):
        assert (np.diff(rows.term_ids[start:end]) > 0).all(), "ids ascending"
        found.append(
            dict(zip(rows.term_ids[start:end].tolist(), rows.weights[start:end].tolist(), strict=True))
        )
    return found


@pytest.mark.parametrize("seed", range(40))
def test_windows_are_merged_by_their_maximum(seed: int) -> None:
    """Wherever passages of several windows stand; some windows have no terms."""
    draw = random.Random(seed)
    counts = [draw.choice([1, 1, 1, 2, 3]) for _ in range(draw.randint(1, 12))]
    owner = np.repeat(np.arange(len(counts)), counts)
    windows = [{draw.randrange(9): draw.randint(1, 8) / 8 for _ in range(draw.randrange(6))} for _ in owner]
    expected: list[dict[int, float]] = [{} for _ in counts]
    for passage, window in zip(owner, windows, strict=True):
        for term, weight in window.items():
            expected[passage][term] = max(weight, expected[passage].get(term, 0.0))
    assert vectors_in(merge_windows(rows_of(windows), owner, len(counts))) == expected


def test_a_passage_without_a_window_has_no_terms() -> None:
    """As many windows as passages do not mean one for each."""
    merged = merge_windows(rows_of([{1: 0.5}, {2: 1.0}, {1: 1.0, 3: 0.5}]), np.array([0, 2, 2]), 3)
    assert vectors_in(merged) == [{1: 0.5}, {}, {1: 1.0, 2: 1.0, 3: 0.5}]


def test_few_states_are_pooled_at_once(tiny_model: SpartaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers in one context are read in one row of the encoder, however many they are."""
    monkeypatch.setattr(torch_backend, "OTHER_TOKENS", 40)
    seen: list[int] = []
    original = TorchBackend._pool  # noqa: SLF001 (counts the states of each call)

    def watch(self: Any, pooled: torch.Tensor, *others: Any) -> torch.Tensor:
        seen.append(pooled.shape[0] * pooled.shape[1])
        return original(self, pooled, *others)

    monkeypatch.setattr(TorchBackend, "_pool", watch)
    same = [Passage(str(i), "the moon of the earth") for i in range(30)]
    rows, _ = DocumentEncoder(tiny_model, dtype="fp32").encode(same)
    assert len(seen) > 3
    assert max(seen) <= 40
    vectors = vectors_in(rows)
    assert all(v == pytest.approx(vectors[0], rel=1e-4) for v in vectors)
