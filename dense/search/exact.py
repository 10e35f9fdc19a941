"""Exact search by inner product, in NumPy alone, and the order of what any search found."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dense.search.store import Floats, Rows, VectorFolder

_QUESTIONS = 256
_IN_MEMORY = 2**32  # bytes
_COPIED = 2**26  # bytes of some rows, which are then kept once more
_SPARE = 16
_ROUNDING = 2.0**-18  # of a product of lengths: what float32 sums in another order may differ by

Kept = npt.NDArray[np.bool_]


class Candidates(Protocol):
    """What finds rows of a folder of vectors for questions.

    `exact` says that none is left out: a row that is not returned scores no more than the last returned, but
    for rounding.
    """

    exact: bool

    def __call__(self, questions: Floats, k: int, threads: int = 1) -> tuple[Rows, Floats]:
        """The k best rows for each question.

        :param questions: `(q, width) float32`
        :returns: rows `(q, k) int64`, −1 where there are fewer, and their scores `(q, k) float32`, descending
        """

    def within(self, kept: Kept) -> Candidates:
        """Return what finds some of the rows alone: `kept (n,) bool`, in the order of the rows."""


class ExactSearch:
    """Multiplies the questions with all rows, in memory where they fit, else from their files.

    :param keep: whether they may stay in memory
    """

    exact = True

    def __init__(self, vectors: VectorFolder, rows: Rows, *, keep: bool = True) -> None:
        self.vectors, self.rows, self._keep = vectors, rows, keep
        self._kept: list[Floats] = []
        self._left_out: Kept | None = None

    def __call__(self, questions: Floats, k: int, threads: int = 1) -> tuple[Rows, Floats]:
        """As `Candidates` says; threads are those of NumPy's own."""
        rows = np.full((len(questions), k), -1, np.int64)
        scores = np.full((len(questions), k), -np.inf, np.float32)
        for start in range(0, len(questions), _QUESTIONS):
            part = slice(start, start + _QUESTIONS)
            rows[part], scores[part] = self._best(questions[part], k)
        return rows, scores

    def within(self, kept: Kept) -> Candidates:
        """As `Candidates` says; many rows are left out of the products with all, few are multiplied alone."""
        if 4 * self.vectors.width * int(kept.sum()) <= _COPIED:
            return ExactSearch(self.vectors, self.rows[kept])
        part = copy.copy(self)
        part._blocks, part._left_out = self._blocks, ~kept  # type: ignore[method-assign]
        return part

    def _blocks(self) -> Iterable[Floats]:
        """All rows as float32; to make them so takes longer than to multiply them, so it is done once."""
        if not self._keep or 4 * self.vectors.width * len(self.rows) > _IN_MEMORY:
            return self.vectors.blocks(self.rows)
        if not self._kept:
            self._kept = list(self.vectors.blocks(self.rows))
        return self._kept

    def _best(self, questions: Floats, k: int) -> tuple[Rows, Floats]:
        scores = np.full((len(questions), k), -np.inf, np.float32)
        places = np.full((len(questions), k), -1, np.int64)
        start = 0
        for block in self._blocks():
            of_block = questions @ block.T
            if self._left_out is not None:
                of_block[:, self._left_out[start : start + len(block)]] = -np.inf
            best = _largest(of_block, k)
            scores = np.concatenate([scores, np.take_along_axis(of_block, best, 1)], axis=1)
            places = np.concatenate([places, best + start], axis=1)
            best = _largest(scores, k)
            scores, places = np.take_along_axis(scores, best, 1), np.take_along_axis(places, best, 1)
            start += len(block)
        order = np.argsort(-scores, axis=1, kind="stable")
        scores, places = np.take_along_axis(scores, order, 1), np.take_along_axis(places, order, 1)
        nothing = (places < 0) | np.isneginf(scores)
        return np.where(nothing, -1, self.rows[places] if len(self.rows) else -1), scores


def _largest(scores: Floats, k: int) -> Rows:
    """Where the k largest numbers of every line stand, in any order; all, where there are fewer."""
    if scores.shape[1] <= k:
        return np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    return np.argpartition(scores, -k, axis=1)[:, -k:]


def rank(
    find: Candidates, vectors: VectorFolder, questions: Floats, k: int, n: int, threads: int = 1
) -> list[tuple[Rows, Floats]]:
    """The k best of n rows for each question, and their scores: descending, then by corpus position.

    An exact search is widened until nothing that may equal the last row was cut off.
    """
    ranked = [(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in questions]
    open_, width = np.arange(len(questions)), min(k + _SPARE, n)
    while len(open_) and width:
        rows, scores = find(questions[open_], width, threads)
        cut = []
        for q, found, last in zip(open_, rows, scores[:, -1], strict=True):
            ranked[q], slack = _rescored(vectors, questions[q], found[found >= 0], k)
            if find.exact and width < n and last >= ranked[q][1][-1] - slack:
                cut.append(q)
        open_, width = np.array(cut, np.int64), min(4 * width, n)
    return ranked


def _rescored(
    vectors: VectorFolder, question: Floats, rows: Rows, k: int
) -> tuple[tuple[Rows, Floats], float]:
    """The k best of some rows, with scores summed in double precision and rounded once; and by how much a
    float32 sum may be off.

    So a score is the same whoever found the row, and equal vectors have equal scores.
    """
    taken = vectors.take(rows).astype(np.float64)
    scores = np.einsum("nw,w->n", taken, question.astype(np.float64)).astype(np.float32)
    order = np.lexsort((vectors.positions[rows], -scores))[:k]
    longest = np.sqrt(np.einsum("nw,nw->n", taken, taken).max(initial=0.0))
    return (rows[order], scores[order]), float(longest * np.linalg.norm(question) * _ROUNDING)
