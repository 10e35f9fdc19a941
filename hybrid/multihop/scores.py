"""How scores of retrieval, linking and reranking become one (Chain-of-Skills, Appendix A, eq. 6 to 8)."""

from __future__ import annotations

from collections.abc import Mapping

Scores = Mapping[str, float]
"""By passage id."""


def aligned(links: Scores, retrieved: Scores) -> dict[str, float]:
    """Eq. 6: linking scores that are higher than the highest retrieval score are scaled down to it.

    Without retrieved passages, and where no score is above 0, they stay as they are.
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


def reranked(scores: Scores, rerank: Scores, weight: float) -> dict[str, float]:
    """Eq. 8: each score plus `weight` (β) times that of reranking."""
    return {name: score + weight * rerank[name] for name, score in scores.items()}
