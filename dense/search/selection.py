"""Search limited to some rows: exact for few rows, and never with fewer than k hits if k rows match."""

from __future__ import annotations

import numpy as np

from dense.search.exact import Candidates, ExactSearch, RowMask
from dense.search.store import Floats, Rows, VectorFolder

_LARGEST_EXACT = 20_000
"""Up to this many rows, exact search takes no longer than a small encoder takes to encode the query."""


def select(
    search: Candidates,
    vectors: VectorFolder,
    rows: Rows,
    mask: RowMask,
    *,
    largest_exact: int = _LARGEST_EXACT,
) -> Candidates:
    """Return a search that is limited to the rows where `mask (n,) bool` is true.

    :param search: the search over all `rows`
    :param largest_exact: the largest number of rows that an exact search replaces an approximate one for
    """
    if search.exact:
        return search.within(mask)
    if mask.sum() <= largest_exact:
        return ExactSearch(vectors, rows[mask])
    return _SearchWithFallback(search.within(mask), ExactSearch(vectors, rows[mask], largest_in_memory=0))


class _SearchWithFallback:
    """An approximate search that repeats a query with exact search if it returns fewer than k rows."""

    exact = False

    def __init__(self, search: Candidates, exact_search: ExactSearch) -> None:
        self.search, self.exact_search = search, exact_search

    def __call__(self, query_vectors: Floats, k: int, threads: int = 1) -> tuple[Rows, Floats]:
        """Return the k best rows and their scores; see `Candidates`."""
        rows, scores = self.search(query_vectors, k, threads)
        is_short = (rows >= 0).sum(1) < min(k, len(self.exact_search.rows))
        if is_short.any():
            rows[is_short], scores[is_short] = -1, -np.inf
            exact_rows, exact_scores = self.exact_search(query_vectors[is_short], k, threads)
            rows[is_short, :k], scores[is_short, :k] = exact_rows, exact_scores
        return rows, scores

    def within(self, mask: RowMask) -> Candidates:
        """Return a search that is limited to some rows; see `Candidates`."""
        exact = ExactSearch(self.exact_search.vectors, self.exact_search.rows[mask], largest_in_memory=0)
        return _SearchWithFallback(self.search.within(mask), exact)
