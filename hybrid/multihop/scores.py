"""How scores of retrieval, linking and reranking become one (Chain-of-Skills, Appendix A)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Scores = Mapping[str, float]
"""By passage id."""


def aligned(links: Scores, retrieved: Scores) -> dict[str, float]:
    """Eq. 6: linking scores that are higher than the highest retrieval score are scaled down to it.

    Without retrieved passages, and where no retrieval score is above 0, they stay as they are: the equation's
    factor would be 0, or turn their order round.
    """
    if not links or not retrieved:
        return dict(links)
    highest = max(retrieved.values())
    over = max(highest, *links.values())
    factor = highest / over if highest > 0 else 1.0
    return {name: score * factor for name, score in links.items()}


def merged(retrieved: Scores, links: Scores, promote: float = 1.0) -> dict[str, float]:
    """Eq. 6 and 7: all passages; one that both found has the higher score, times `promote` (α)."""
    found = aligned(links, retrieved)
    both = {n: promote * max(found[n], retrieved[n]) for n in retrieved if n in found}
    return {**retrieved, **found, **both}


class Cover:
    """How passages cover the terms of one question: a path covers each term as its best passage does.

    A passage counts what it adds to its path: the sum over terms of what it scores more than the path so far,
    as a share of the highest that any passage of the first hop scores, over all terms. So a path scores what
    SPARTA would give its passages as one (the maximum over the words of a text), and the shares of different
    questions and channels compare.
    """

    def __init__(self) -> None:
        self.rows: dict[str, npt.NDArray[np.float32]] = {}
        self._most = 0.0

    def add(self, ids: Sequence[str], rows: npt.NDArray[np.float32]) -> None:
        """Add passages, with what each term scores in them: `(n_passages, n_terms)`."""
        if not self.rows:
            self._most = float(rows.max(0).sum()) or 1.0
        self.rows.update(zip(ids, rows / self._most, strict=True))

    def gains(self, path: Sequence[str], ids: Sequence[str]) -> list[float]:
        """What each of some passages adds to those of a path."""
        rows = np.stack([self.rows[i] for i in ids])
        before = np.max([self.rows[i] for i in path], axis=0) if path else 0.0
        gains: list[float] = np.maximum(rows - before, 0).sum(1).tolist()
        return gains
