"""Search among some rows: exactly where they are few, and never with fewer hits than there are."""

from __future__ import annotations

from dense.search.exact import Candidates, ExactSearch, Kept
from dense.search.store import Floats, Rows, VectorFolder

_FEW = 20_000
"""So many rows are multiplied with a question in the time that a small encoder takes to read it."""


def select(find: Candidates, vectors: VectorFolder, rows: Rows, kept: Kept) -> Candidates:
    """Return what finds the kept ones of the rows that `find` finds: `kept (n,) bool`, in their order."""
    if find.exact:
        return find.within(kept)
    if kept.sum() <= _FEW:
        return ExactSearch(vectors, rows[kept])
    return _Completed(find.within(kept), ExactSearch(vectors, rows[kept], keep=False))


class _Completed:
    """An approximate search that falls back to the exact one where it finds fewer than k rows."""

    exact = False

    def __init__(self, find: Candidates, otherwise: ExactSearch) -> None:
        self.find, self.otherwise = find, otherwise

    def __call__(self, questions: Floats, k: int, threads: int = 1) -> tuple[Rows, Floats]:
        """As `Candidates` says."""
        rows, scores = self.find(questions, k, threads)
        short = (rows >= 0).sum(1) < min(k, len(self.otherwise.rows))
        if short.any():
            rows[short], scores[short] = self.otherwise(questions[short], k, threads)
        return rows, scores

    def within(self, kept: Kept) -> Candidates:
        """As `Candidates` says."""
        exact = ExactSearch(self.otherwise.vectors, self.otherwise.rows[kept], keep=False)
        return _Completed(self.find.within(kept), exact)
