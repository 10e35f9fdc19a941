"""Pruning keeps what sorting in Python keeps."""

from __future__ import annotations

import numpy as np
import pytest

from sparta.base.errors import InputError
from sparta.models.prune import SparseRows, prune


def random_rows(seed: int, n: int = 40, vocabulary: int = 60) -> SparseRows:
    """Rows of very different lengths, whose weights have many ties."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, vocabulary // 2, n) * rng.integers(0, 2, n)
    ids = [np.sort(rng.choice(vocabulary, length, replace=False)) for length in lengths]
    weights = rng.integers(1, 6, lengths.sum()) / 4
    return SparseRows(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate(ids).astype(np.int32),
        weights.astype(np.float32),
    )


def as_lists(rows: SparseRows) -> list[list[tuple[int, float]]]:
    assert rows.indptr.dtype == np.int64
    assert rows.term_ids.dtype == np.int32
    assert rows.weights.dtype == np.float32
    assert rows.indptr[0] == 0
    assert rows.indptr[-1] == len(rows.term_ids) == len(rows.weights)
    return [
        list(zip(rows.term_ids[a:b].tolist(), rows.weights[a:b].tolist(), strict=True))
        for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
    ]


def oracle(row: list[tuple[int, float]], top_k: int | None, min_weight: float) -> list[tuple[int, float]]:
    strong = [(term, weight) for term, weight in row if weight >= min_weight]
    return sorted(sorted(strong, key=lambda entry: (-entry[1], entry[0]))[:top_k])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("top_k", [None, 1, 2, 7, 29, 30, 1000])
@pytest.mark.parametrize("min_weight", [0.0, 0.5, 0.6, 1.25, 9.0])
def test_equal_to_sorting(seed: int, top_k: int | None, min_weight: float) -> None:
    rows = random_rows(seed)
    pruned = prune(rows, top_k=top_k, min_weight=min_weight)
    assert as_lists(pruned) == [oracle(row, top_k, min_weight) for row in as_lists(rows)]


def test_full_size_is_the_identity() -> None:
    rows = random_rows(3)
    longest = int(np.diff(rows.indptr).max())
    for pruned in (prune(rows), prune(rows, top_k=longest), prune(rows, top_k=10**9, min_weight=0.25)):
        np.testing.assert_array_equal(pruned.indptr, rows.indptr)
        np.testing.assert_array_equal(pruned.term_ids, rows.term_ids)
        np.testing.assert_array_equal(pruned.weights, rows.weights)


def test_of_equal_weights_the_smaller_id_stays() -> None:
    rows = SparseRows(
        np.array([0, 4]), np.array([3, 5, 8, 9], dtype=np.int32), np.array([1, 2, 1, 1], dtype=np.float32)
    )
    assert as_lists(prune(rows, top_k=2)) == [[(3, 1.0), (5, 2.0)]]


def test_nothing_to_prune() -> None:
    nothing = SparseRows.concatenate([])
    assert as_lists(prune(nothing, top_k=3, min_weight=1)) == []
    empty_rows = SparseRows(np.zeros(4, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
    assert as_lists(prune(empty_rows, top_k=3, min_weight=1)) == [[], [], []]


@pytest.mark.parametrize("top_k", [0, -1])
def test_top_k_must_be_positive(top_k: int) -> None:
    with pytest.raises(InputError, match="top_k must be at least 1"):
        prune(random_rows(0), top_k=top_k)


def test_concatenate() -> None:
    parts = [random_rows(seed, n=5) for seed in range(3)]
    assert as_lists(SparseRows.concatenate(parts)) == [row for part in parts for row in as_lists(part)]
    assert len(SparseRows.concatenate(parts)) == 15


def test_take() -> None:
    rows = random_rows(4)
    order = np.random.default_rng(0).permutation(len(rows))[:17]
    lists = as_lists(rows)
    assert as_lists(rows.take(order)) == [lists[i] for i in order]
    assert as_lists(rows.take(np.empty(0, dtype=np.int64))) == []
    assert as_lists(rows.take(np.array([3, 3]))) == [lists[3], lists[3]]


def test_select() -> None:
    rows = random_rows(5)
    keep = rows.term_ids % 3 == 0
    assert as_lists(rows.select(keep)) == [[e for e in row if e[0] % 3 == 0] for row in as_lists(rows)]
