"""Exact search by inner product in NumPy, and the final ranking of every search's candidates."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dense.search.store import Floats, Rows, VectorFolder

_QUERIES_PER_BATCH = 256
_LARGEST_IN_MEMORY = 2**32
_LARGEST_COPY = 2**26
_EXTRA_ROWS = 16
"""Number of candidates beyond k, because exact scores may reorder the last ones."""
_ROUNDING = 2.0**-18
"""Largest rounding error of a float32 dot product, relative to the product of the vectors' lengths."""

RowMask = npt.NDArray[np.bool_]


class Candidates(Protocol):
    """Searches a fixed set of rows of a folder of vectors.

    `exact` is true if the search looks at all of these rows. Then every row that it does not return scores at
    most as high as the last returned row, apart from rounding.
    """

    exact: bool

    def __call__(self, query_vectors: Floats, k: int, threads: int = 1) -> tuple[Rows, Floats]:
        """Return the k best rows for each query vector, and their scores.

        An approximate search may return more than k rows, if its scores are rough.

        :param query_vectors: `(q, width) float32`
        :returns: rows `(q, k) int64`, filled up with −1, and scores `(q, k) float32`, descending
        """

    def within(self, mask: RowMask) -> Candidates:
        """Return a search limited to the rows where `mask (n,) bool` is true, in the order of the rows."""


class ExactSearch:
    """Multiplies the query vectors with all rows, in blocks.

    :param largest_in_memory: keep float32 rows of at most this many bytes in memory; for more, each search
        reads the files
    :param largest_copy: copy the rows of a filter if they take at most this many bytes
    """

    exact = True

    def __init__(
        self,
        vectors: VectorFolder,
        rows: Rows,
        *,
        largest_in_memory: int = _LARGEST_IN_MEMORY,
        largest_copy: int = _LARGEST_COPY,
    ) -> None:
        self.vectors, self.rows = vectors, rows
        self._largest_in_memory, self._largest_copy = largest_in_memory, largest_copy
        self._cached_blocks: list[Floats] = []
        self._excluded: RowMask | None = None

    def __call__(self, query_vectors: Floats, k: int, threads: int = 1) -> tuple[Rows, Floats]:
        """Return the k best rows and their scores; see `Candidates`. NumPy sets the number of threads."""
        rows = np.full((len(query_vectors), k), -1, np.int64)
        scores = np.full((len(query_vectors), k), -np.inf, np.float32)
        for start in range(0, len(query_vectors), _QUERIES_PER_BATCH):
            batch = slice(start, start + _QUERIES_PER_BATCH)
            rows[batch], scores[batch] = self._best_rows(query_vectors[batch], k)
        return rows, scores

    def within(self, mask: RowMask) -> Candidates:
        """Return a search that is limited to some rows; see `Candidates`.

        Few rows are copied. For many rows, the search multiplies all rows and drops the scores of the others.
        """
        if 4 * self.vectors.width * int(mask.sum()) <= self._largest_copy:
            return ExactSearch(self.vectors, self.rows[mask])
        search = copy.copy(self)
        search._float_blocks, search._excluded = self._float_blocks, ~mask  # type: ignore[method-assign]
        return search

    def _float_blocks(self) -> Iterable[Floats]:
        """Return all rows in blocks, as float32. Caches them: converting takes longer than multiplying."""
        if 4 * self.vectors.width * len(self.rows) > self._largest_in_memory:
            return self.vectors.blocks(self.rows)
        if not self._cached_blocks:
            self._cached_blocks = list(self.vectors.blocks(self.rows))
        return self._cached_blocks

    def _best_rows(self, query_vectors: Floats, k: int) -> tuple[Rows, Floats]:
        scores = np.full((len(query_vectors), k), -np.inf, np.float32)
        places = np.full((len(query_vectors), k), -1, np.int64)
        start = 0
        for block in self._float_blocks():
            block_scores = query_vectors @ block.T
            if self._excluded is not None:
                block_scores[:, self._excluded[start : start + len(block)]] = -np.inf
            best = _largest(block_scores, k)
            scores = np.concatenate([scores, np.take_along_axis(block_scores, best, 1)], axis=1)
            places = np.concatenate([places, best + start], axis=1)
            best = _largest(scores, k)
            scores, places = np.take_along_axis(scores, best, 1), np.take_along_axis(places, best, 1)
            start += len(block)
        order = np.argsort(-scores, axis=1, kind="stable")
        scores, places = np.take_along_axis(scores, order, 1), np.take_along_axis(places, order, 1)
        no_row = (places < 0) | np.isneginf(scores)
        return np.where(no_row, -1, self.rows[places] if len(self.rows) else -1), scores


def _largest(scores: Floats, k: int) -> Rows:
    """Return the places of the k largest numbers of each row, in any order; all places if there are fewer."""
    if scores.shape[1] <= k:
        return np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    return np.argpartition(scores, -k, axis=1)[:, -k:]


def rank(
    search: Candidates, vectors: VectorFolder, query_vectors: Floats, k: int, n: int, threads: int = 1
) -> list[tuple[Rows, Floats]]:
    """Return the k best of n rows for each query vector, with their scores.

    Rows are ordered by descending score, then by corpus position. An exact search is repeated with more
    candidates while a row that was cut off may have the score of the last row.

    :param search: finds the candidates, whose scores are then computed again
    :returns: rows `(k,) int64` and scores `(k,) float32` for each query vector
    """
    ranked = [(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in query_vectors]
    unfinished, n_candidates = np.arange(len(query_vectors)), min(k + _EXTRA_ROWS, n)
    while len(unfinished) and n_candidates:
        rows, scores = search(query_vectors[unfinished], n_candidates, threads)
        cut_off = []
        for query, found_rows, last in zip(unfinished, rows, scores[:, -1], strict=True):
            ranked[query], rounding_error = _rescored(
                vectors, query_vectors[query], found_rows[found_rows >= 0], k
            )
            if search.exact and n_candidates < n and last >= ranked[query][1][-1] - rounding_error:
                cut_off.append(query)
        unfinished, n_candidates = np.array(cut_off, np.int64), min(4 * n_candidates, n)
    return ranked


def _rescored(
    vectors: VectorFolder, query_vector: Floats, rows: Rows, k: int
) -> tuple[tuple[Rows, Floats], float]:
    """Return the k best of some rows with exact scores, and the largest rounding error of a float32 score.

    Scores are summed in double precision and rounded once to float32. So a score does not depend on the kind
    of search, and equal vectors have equal scores.
    """
    row_vectors = vectors.take(rows)
    longest = np.sqrt(np.einsum("nw,nw->n", row_vectors, row_vectors).max(initial=0.0))
    rounding_error = float(longest * np.linalg.norm(query_vector) * _ROUNDING)
    if len(rows) > 2 * k:  # most of many rows are out of the question, even with the rounding of float32
        scores = row_vectors @ query_vector
        is_near = scores >= np.partition(scores, -k)[-k] - 2 * rounding_error
        rows, row_vectors = rows[is_near], row_vectors[is_near]
    products = np.einsum("nw,w->n", row_vectors.astype(np.float64), query_vector.astype(np.float64))
    scores = products.astype(np.float32)
    order = np.lexsort((vectors.positions[rows], -scores))[:k]
    return (rows[order], scores[order]), rounding_error
