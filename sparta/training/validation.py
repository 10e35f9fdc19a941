"""Validation of retrievers: the held-out questions, and measures of the ranks of their positives."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import replace

import torch

from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy
from sparta.training.known import question_key
from sparta.training.paragraphs import ParagraphSet, distinct

logger = logging.getLogger(__name__)

Measure = Callable[[torch.Tensor, Sequence[int], Sequence[Collection[int]]], float]
RECIPROCAL, AVERAGE = "rr", "average-rank"
_RECALL = re.compile(r"recall@([1-9]\d*)")


def hold_out(sets: Sequence[ParagraphSet], questions: int) -> tuple[list[ParagraphSet], list[ParagraphSet]]:
    """Split off the last paragraphs of each set for validation, so that neighbors stay together.

    A set gives at most about a tenth of its questions and at most about `questions`. A set that would lose
    all its questions gives none. The paragraphs that stay in a training set are the distractors of its
    validation set. Equal paragraphs of both count once. If there are dev sets, they validate, and the other
    sets are not split.

    Questions of the validation are removed from the training. A training set that would lose all its
    questions keeps them, and the validation loses them.

    :raises InputError: the dev sets have all questions of a set.
    """
    if dev := [data for data in sets if data.dev]:
        training, validation = [data for data in sets if not data.dev], dev
    else:
        training, validation = _split(sets, questions)
    held_out = _questions_of(validation)
    separate = [data.without(held_out) for data in training]
    for data, left in zip(training, separate, strict=True):
        if dev and not left.n_questions:
            raise InputError(
                "all questions of this set are also in the dev files",
                where=data.name,
                remedy=remedy("name other files with {}", Option("dev")),
            )
        if 0 < left.n_questions < data.n_questions:
            n = data.n_questions - left.n_questions
            logger.warning(
                "%s: left out %d of %d questions, which are validation questions",
                data.name,
                n,
                data.n_questions,
            )
    trained = [left if left.n_questions else data for data, left in zip(training, separate, strict=True)]
    if not dev:
        validation = [
            replace(data, distractors=left.paragraphs) for data, left in zip(validation, trained, strict=True)
        ]
    unseen = [data.without(_questions_of(trained)) for data in validation]
    if held_out and not any(data.n_questions for data in unseen):
        logger.warning("no question is left for validation: all are also training questions")
    return trained, [
        replace(
            data,
            paragraphs=distinct(data.paragraphs),
            distractors=distinct(data.distractors, data.paragraphs),
        )
        for data in unseen
        if data.n_questions
    ]


def _questions_of(sets: Iterable[ParagraphSet]) -> Set[str]:
    """Return the `question_key` of each question of sets."""
    paragraphs = (paragraph for data in sets for paragraph in data.paragraphs)
    return {question_key(question) for paragraph in paragraphs for question, _ in paragraph.questions}


def _split(sets: Sequence[ParagraphSet], questions: int) -> tuple[list[ParagraphSet], list[ParagraphSet]]:
    """Return each set without its last paragraphs, and each set of these, as `hold_out` chooses them."""
    training, validation = [], []
    for data in sets:
        held_out_questions = min(questions, data.n_questions // 10)
        paragraph_count = question_count = 0
        while question_count < held_out_questions and paragraph_count + 1 < len(data.paragraphs):
            paragraph_count += 1
            question_count += len(data.paragraphs[-paragraph_count].questions)
        if not any(
            paragraph.questions for paragraph in data.paragraphs[: len(data.paragraphs) - paragraph_count]
        ):
            paragraph_count = 0  # no other text has questions, so all texts stay in the training
        n_kept = len(data.paragraphs) - paragraph_count
        training.append(replace(data, paragraphs=data.paragraphs[:n_kept]))
        validation.append(replace(data, paragraphs=data.paragraphs[n_kept:]))
    return training, validation


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
