"""Sparse rows of term weights, and dropping weak terms before they are written (SPARTA, §6.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparta.base.checks import whole


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Sparse vectors in CSR form: row i has the term ids `term_ids[indptr[i]:indptr[i + 1]]`, ascending.

    `indptr (n + 1,) int64`, `term_ids (m,) int32`, `weights (m,) float32`, positive.
    """

    indptr: npt.NDArray[np.int64]
    term_ids: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @staticmethod
    def concatenate(rows: list[SparseRows]) -> SparseRows:
        """Return all rows in order."""
        lengths = [np.zeros(1, np.int64), *(np.diff(part.indptr) for part in rows)]
        return SparseRows(
            np.cumsum(np.concatenate(lengths)),
            np.concatenate([np.empty(0, np.int32), *(part.term_ids for part in rows)]),
            np.concatenate([np.empty(0, np.float32), *(part.weights for part in rows)]),
        )

    def take(self, order: npt.NDArray[np.int64]) -> SparseRows:
        """Return the rows with the indexes in `order`, in that order."""
        lengths = np.diff(self.indptr)[order]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        source = np.repeat(self.indptr[order] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return SparseRows(indptr, self.term_ids[source], self.weights[source])

    def select(self, keep: npt.NDArray[np.bool_]) -> SparseRows:
        """Return only the entries where `keep (m,)` is true."""
        before = np.concatenate([[0], np.cumsum(keep)])
        return SparseRows(before[self.indptr].astype(np.int64), self.term_ids[keep], self.weights[keep])


def check_top_k(top_k: int | None) -> None:
    """Check that `top_k` is None or an integer of at least 1.

    :raises InputError: `top_k` has another value.
    """
    if top_k is not None:
        whole("top_k", top_k, remedy="omit top_k to keep every term")


def prune(rows: SparseRows, *, top_k: int | None = None, min_weight: float = 0.0) -> SparseRows:
    """Keep each row's `top_k` strongest terms whose weights are at least `min_weight`.

    In ties, smaller term ids come first. Without limits, the input is returned.
    """
    check_top_k(top_k)
    if min_weight > 0:
        rows = rows.select(rows.weights >= min_weight)
    lengths = np.diff(rows.indptr)
    long_rows = np.flatnonzero(lengths > top_k) if top_k is not None else np.zeros(0, np.int64)
    if not long_rows.size:
        return rows
    keep = np.ones(len(rows.term_ids), dtype=bool)
    for row in long_rows:
        start, end = rows.indptr[row], rows.indptr[row + 1]
        order = np.lexsort((rows.term_ids[start:end], -rows.weights[start:end]))
        keep[start + order[top_k:]] = False
    return rows.select(keep)
