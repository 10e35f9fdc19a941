"""The losses of the skills (Chain-of-Skills, §3.1, eq. 1 to 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn import functional


class SpanScores(NamedTuple):
    """Of one text the scores of its entities, of the other spans, `(n,)` each, and of [CLS], `()`."""

    positives: torch.Tensor
    negatives: torch.Tensor
    threshold: torch.Tensor


def ranking_loss(
    scores: torch.Tensor, gold: Sequence[int], masked: Sequence[frozenset[int]] = ()
) -> torch.Tensor:
    """Eq. 1, 4 and 5: minus the log of each positive's share, mean over the queries.

    :param scores: `(n_queries, n_candidates)`
    :param gold: the positive of each query
    :param masked: for each query the candidates that are no negatives of it
    """
    target = torch.tensor(gold, device=scores.device)
    if any(masked):
        hidden = torch.zeros(scores.shape, dtype=torch.bool)
        for row, (own, right) in enumerate(zip(masked, gold, strict=True)):
            hidden[row, [c for c in own if c != right]] = True
        scores = scores.masked_fill(hidden.to(scores.device), -torch.inf)
    return functional.cross_entropy(scores.float(), target)


def span_loss(texts: Sequence[SpanScores]) -> tuple[torch.Tensor, torch.Tensor]:
    """Eq. 2 and 3, whose mean is the span skill's loss.

    Each entity against the other spans and [CLS], mean over all entities; [CLS] against the other spans,
    mean over the texts.
    """
    entities, thresholds = [], []
    for one in texts:
        below = torch.cat([one.negatives, one.threshold[None]]).float()
        others = below.logsumexp(0)
        entities.append(torch.logaddexp(one.positives.float(), others) - one.positives)
        thresholds.append(others - one.threshold)
    found = torch.cat(entities)
    first = found.mean() if len(found) else found.sum()
    return first, torch.stack(thresholds).mean()
