"""Weak terms are dropped before they are written (SPARTA, §6.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparta.base.checks import whole


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Sparse vectors of passages in CSR form: row i is `term_ids[indptr[i]:indptr[i + 1]]`, ids ascending.

    `indptr (n + 1,) int64`, `term_ids (m,) int32`, `weights (m,) float32`, positive.
    """

    indptr: npt.NDArray[np.int64]
    term_ids: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @staticmethod
    def concatenate(rows: list[SparseRows]) -> SparseRows:
        """Return the rows of all, in order."""
        lengths = [np.zeros(1, np.int64), *(np.diff(r.indptr) for r in rows)]
        return SparseRows(
            np.cumsum(np.concatenate(lengths)),
            np.concatenate([np.empty(0, np.int32), *(r.term_ids for r in rows)]),
            np.concatenate([np.empty(0, np.float32), *(r.weights for r in rows)]),
        )

    def take(self, order: npt.NDArray[np.int64]) -> SparseRows:
        """Return the rows named by `order`, in that order."""
        lengths = np.diff(self.indptr)[order]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        source = np.repeat(self.indptr[order] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return SparseRows(indptr, self.term_ids[source], self.weights[source])

    def select(self, keep: npt.NDArray[np.bool_]) -> SparseRows:
        """Only the entries where `keep (m,)` is true."""
        before = np.concatenate([[0], np.cumsum(keep)])
        return SparseRows(before[self.indptr].astype(np.int64), self.term_ids[keep], self.weights[keep])


def check_top_k(top_k: int | None) -> None:
    """Refuse to keep less than one term of a passage."""
    if top_k is not None:
        whole("top_k", top_k, remedy="leave it out to keep every term")


def prune(rows: SparseRows, *, top_k: int | None = None, min_weight: float = 0.0) -> SparseRows:
    """Keep each row's `top_k` strongest terms (of equal ones the smaller id) of at least `min_weight`.

    With neither limit in force the result is the input.
    """
    check_top_k(top_k)
    if min_weight > 0:
        rows = rows.select(rows.weights >= min_weight)
    lengths = np.diff(rows.indptr)
    long = np.flatnonzero(lengths > top_k) if top_k is not None else np.zeros(0, np.int64)
    if not long.size:
        return rows
    keep = np.ones(len(rows.term_ids), dtype=bool)
    for row in long:
        start, end = rows.indptr[row], rows.indptr[row + 1]
        order = np.lexsort((rows.term_ids[start:end], -rows.weights[start:end]))
        keep[start + order[top_k:]] = False
    return rows.select(keep)
