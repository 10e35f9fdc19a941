"""The losses of the skills (Chain-of-Skills, §3.1, eq. 1 to 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn import functional


class SpanScores(NamedTuple):
    """The scores of one text's entities `(n,)`, of its other spans `(n,)`, and of [CLS] `()`."""

    positives: torch.Tensor
    negatives: torch.Tensor
    threshold: torch.Tensor


def ranking_loss(
    scores: torch.Tensor, gold: Sequence[int], masked: Sequence[frozenset[int]] = ()
) -> torch.Tensor:
    """Return the mean cross-entropy of the positives (eq. 1, 4 and 5).

    :param scores: `(n_queries, n_candidates)`
    :param gold: the place of each query's positive
    :param masked: for each query, the places of candidates that are no negatives
    """
    target = torch.tensor(gold, device=scores.device)
    if any(masked):
        hidden = torch.zeros(scores.shape, dtype=torch.bool)
        for row, (masked_candidates, positive) in enumerate(zip(masked, gold, strict=True)):
            hidden[row, [candidate for candidate in masked_candidates if candidate != positive]] = True
        scores = scores.masked_fill(hidden.to(scores.device), -torch.inf)
    return functional.cross_entropy(scores.float(), target)


def span_loss(texts: Sequence[SpanScores]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two losses of the span skill (eq. 2 and 3); their mean is the skill's loss.

    The first compares each entity with the other spans and [CLS], averaged over entities. The second compares
    [CLS] with the other spans, averaged over texts.
    """
    entities, thresholds = [], []
    for text in texts:
        below = torch.cat([text.negatives, text.threshold[None]]).float()
        log_sum = below.logsumexp(0)
        entities.append(torch.logaddexp(text.positives.float(), log_sum) - text.positives)
        thresholds.append(log_sum - text.threshold)
    entity_losses = torch.cat(entities)
    first = entity_losses.mean() if len(entity_losses) else entity_losses.sum()
    return first, torch.stack(thresholds).mean()
