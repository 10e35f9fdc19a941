"""Measures a skill on held-out examples."""

from __future__ import annotations

import random

import numpy as np

from dense.encoding.skills import Skills
from dense.models.batches import Vectors
from dense.models.skill_config import LINK, RERANK, SPAN
from dense.training.skill_batches import TARGET_READER, BatchMaker, query_key, query_reader
from dense.training.skill_examples import Columns, SkillSet, distinct, is_among, right_of

NEGATIVES = 4


def validate_set(skills: Skills, data: SkillSet) -> float:
    """Return the measure of a set, between 0 and 1.

    The measure is the mean reciprocal rank of the best positive among the passages of the whole set. For
    reranking, the positive competes with the example's negatives. For spans, the measure is F1.
    """
    if data.skill == SPAN:
        return _span_f1(skills, data)
    if data.skill == RERANK:
        return _rerank(skills, data)
    examples = data.examples
    columns = Columns(p for item in examples for p in (*item.positives, *item.negatives[:NEGATIVES]))
    queries = [BatchMaker(skills).query(item, data.skill, data.task) for item in examples]
    if data.skill == LINK:
        query_vectors = skills.encoded_mentions(queries)
    else:
        query_vectors = skills.encoded_by(query_reader(skills, data.skill, data.task), queries)
    targets = skills.encoded_by(TARGET_READER[data.skill], skills.passages(columns.passages))
    scores = query_vectors @ targets.T
    ranks = []
    known = right_of(map(query_key, queries), data.examples)
    for row, example, keys in zip(scores, data.examples, known, strict=True):
        best = max(row[columns.number(p)] for p in example.positives)
        ranks.append(_rank(best, np.delete(row, list(columns.having(keys)))))
    return float(np.mean([1 / rank for rank in ranks]))


def _rank(score: np.float32, others: Vectors) -> int:
    """Return the rank of a score among others, after equal scores, so that a constant score gets no credit.

    NaN ranks last, because no comparison puts it above a score.
    """
    return 1 + int((~(others < score)).sum())


def _rerank(skills: Skills, data: SkillSet) -> float:
    """Return the mean reciprocal rank of the first positive among its negatives, or among random passages."""
    rng, ranks = random.Random(0), []
    pool = distinct(p for e in data.examples for p in (*e.positives, *e.negatives))
    known = right_of((example.query for example in data.examples), data.examples)
    for example, right in zip(data.examples, known, strict=True):
        candidates = [p for p in pool if not is_among(p, right)]
        negatives = [p for p in example.negatives[:NEGATIVES] if not is_among(p, right)]
        wrong = negatives or rng.sample(candidates, min(NEGATIVES, len(candidates)))
        passages = [example.positives[0], *wrong]
        scores = skills.rerank([example.query] * len(passages), passages)
        ranks.append(_rank(scores[0], scores[1:]))
    return float(np.mean([1 / rank for rank in ranks]))


def _span_f1(skills: Skills, data: SkillSet) -> float:
    text_spans = skills.find_spans([item.query for item in data.examples])
    n_right = n_found = n_gold = 0
    for example, spans in zip(data.examples, text_spans, strict=True):
        gold = set(example.spans)
        n_right += sum((span.start, span.end) in gold for span in spans)
        n_found, n_gold = n_found + len(spans), n_gold + len(gold)
    return 2 * n_right / max(1, n_found + n_gold)
