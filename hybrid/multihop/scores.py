"""Combines the scores of retrieval, linking and reranking (Chain-of-Skills, Appendix A)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Scores = Mapping[str, float]
"""Scores by passage id."""


def aligned(links: Scores, retrieved: Scores) -> dict[str, float]:
    """Scale linking scores down so that none exceeds the highest retrieval score (Chain-of-Skills, Eq. 6).

    The scores stay unchanged without retrieved passages. The scores also stay unchanged if no retrieval score
    is above 0, because the factor of the equation would then be 0 or reverse the order.
    """
    if not links or not retrieved:
        return dict(links)
    highest_retrieval = max(retrieved.values())
    highest_score = max(highest_retrieval, *links.values())
    factor = highest_retrieval / highest_score if highest_retrieval > 0 else 1.0
    return {passage_id: score * factor for passage_id, score in links.items()}


def merged(retrieved: Scores, links: Scores, promote: float = 1.0) -> dict[str, float]:
    """Return the merged retrieval and linking scores of all passages (Chain-of-Skills, Eq. 6 and 7).

    A passage that is both retrieved and linked gets the higher score times `promote` (α).
    """
    link_scores = aligned(links, retrieved)
    promoted = {
        passage_id: promote * max(link_scores[passage_id], retrieved[passage_id])
        for passage_id in retrieved
        if passage_id in link_scores
    }
    return {**retrieved, **link_scores, **promoted}


class Cover:
    """How well passages cover the terms of one question; a path covers a term as well as its best passage.

    A passage's gain is its improvement of the path's coverage: the sum over terms of the increase in term
    score. Gains are divided by the maximum coverage, the sum over terms of the highest term score in the
    first hop. So a path's score is the score that SPARTA, which takes maxima over words, gives the path's
    passages as a single text. Gains are comparable between questions and channels.
    """

    def __init__(self) -> None:
        self.rows: dict[str, npt.NDArray[np.float32]] = {}
        self._maximum = 0.0

    def add(self, ids: Sequence[str], rows: npt.NDArray[np.float32]) -> None:
        """Add passages with their term scores, `(n_passages, n_terms)`."""
        if not self.rows:
            self._maximum = float(rows.max(0).sum()) or 1.0
        self.rows.update(zip(ids, rows / self._maximum, strict=True))

    def gains(self, path: Sequence[str], ids: Sequence[str]) -> list[float]:
        """Return the gain of each passage when it extends a path."""
        rows = np.stack([self.rows[passage_id] for passage_id in ids])
        path_scores = np.max([self.rows[passage_id] for passage_id in path], axis=0) if path else 0.0
        gains: list[float] = np.maximum(rows - path_scores, 0).sum(1).tolist()
        return gains
