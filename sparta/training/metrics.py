"""Validation measures, based on the ranks of the positives among the candidates."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

import torch

from sparta.base.errors import InputError

Measure = Callable[[torch.Tensor, Sequence[int], Sequence[Collection[int]]], float]
RECIPROCAL, AVERAGE = "rr", "average-rank"
_RECALL = re.compile(r"recall@([1-9]\d*)")


def ranks(scores: torch.Tensor, gold: Sequence[int], others: Sequence[Collection[int]]) -> torch.Tensor:
    """Return the ranks of the positives, `(n,) float32`, from 1; a tie takes the last rank.

    The rank is infinite for a score of 0, which retrieves nothing, and for NaN, a sign of a diverged
    training.

    :param scores: `(n_questions, n_candidates)`.
    :param gold: the positive of each question.
    :param others: each question's other right candidates, which are left out of the ranking.
    """
    gold_scores = scores[torch.arange(len(gold)), torch.tensor(gold)]
    is_ranked_before = ~(scores < gold_scores[:, None])
    for row, (answer, positives) in enumerate(zip(gold, others, strict=True)):
        is_ranked_before[row, [i for i in positives if i != answer and i < scores.shape[1]]] = False
    return is_ranked_before.sum(1).float().masked_fill((gold_scores == 0) | gold_scores.isnan(), float("inf"))


def reciprocal_rank(scores: torch.Tensor, gold: Sequence[int], others: Sequence[Collection[int]]) -> float:
    """Return the mean reciprocal rank; a model that scores everything 0 gets 0."""
    return float((1 / ranks(scores, gold, others)).mean())


def negative_average_rank(
    scores: torch.Tensor, gold: Sequence[int], others: Sequence[Collection[int]]
) -> float:
    """Return the negated average rank (DPR, from 1), so that higher is better.

    Missing positives rank last.
    """
    return -float(ranks(scores, gold, others).clamp_max(scores.shape[1]).mean())


def measure_named(name: str) -> Measure:
    """Return the measure with the name `rr`, `average-rank` or `recall@K`.

    :raises InputError: another name.
    """
    if name == RECIPROCAL:
        return reciprocal_rank
    if name == AVERAGE:
        return negative_average_rank
    if match := _RECALL.fullmatch(name):
        k = int(match[1])
        return lambda *arguments: float((ranks(*arguments) <= k).float().mean())
    raise InputError(
        f"the validation measure must be rr, average-rank or recall@K, found {name!r}",
        remedy="name a measure, for example recall@20",
    )


def shown(name: str, value: float) -> str:
    """Format a measure's value, as in `MRR 0.8123`, `average rank 3.20` or `recall@20 0.9510`."""
    if name == AVERAGE:
        return f"average rank {-value:.2f}"
    return f"{'MRR' if name == RECIPROCAL else name} {value:.4f}"
