"""How well a skill works on examples that it was not trained on."""

from __future__ import annotations

import random

import numpy as np
import torch

from dense.models.bi_encoder import Vectors
from dense.models.skill_config import LINK, RERANK, SPAN
from dense.models.skills import Skills
from dense.training.skill_batches import TARGET_READER, BatchMaker, query_key, query_reader
from dense.training.skill_examples import Columns, SkillSet, distinct, is_among, right_of

NEGATIVES = 4


def validate_set(skills: Skills, one: SkillSet) -> float:
    """Return the figure of a set, between 0 and 1.

    Mean reciprocal rank of the best positive among the passages of the whole set (of reranking, among its
    own); of spans, F1.
    """
    if one.skill == SPAN:
        return _span_f1(skills, one)
    if one.skill == RERANK:
        return _rerank(skills, one)
    columns = Columns(p for e in one.examples for p in (*e.positives, *e.negatives[:NEGATIVES]))
    queries = [BatchMaker(skills).query(e, one.skill, one.task) for e in one.examples]
    if one.skill == LINK:
        found = skills.encoded(queries, skills.mentions)
    else:
        found = skills.encoded_by(query_reader(skills, one.skill, one.task), queries)
    targets = skills.encoded_by(TARGET_READER[one.skill], skills.passages(columns.passages))
    scores = found @ targets.T
    ranks = []
    known = right_of(map(query_key, queries), one.examples)
    for row, example, keys in zip(scores, one.examples, known, strict=True):
        best = max(row[columns.number(p)] for p in example.positives)
        ranks.append(_rank(best, np.delete(row, list(columns.having(keys)))))
    return float(np.mean([1 / rank for rank in ranks]))


def _rank(score: np.float32, others: Vectors) -> int:
    """The rank of a score among others, behind its equals: who cannot tell passages apart has not found one.

    The same holds for NaN, which no comparison puts above anything.
    """
    return 1 + int((~(others < score)).sum())


def _rerank(skills: Skills, one: SkillSet) -> float:
    """The first positive among the negatives; where there are none, those of other questions."""
    draw, ranks = random.Random(0), []
    pool = distinct(p for e in one.examples for p in (*e.positives, *e.negatives))
    known = right_of((example.query for example in one.examples), one.examples)
    for example, right in zip(one.examples, known, strict=True):
        others = [p for p in pool if not is_among(p, right)]
        own = [p for p in example.negatives[:NEGATIVES] if not is_among(p, right)]
        wrong = own or draw.sample(others, min(NEGATIVES, len(others)))
        passages = [example.positives[0], *wrong]
        scores = skills.rerank([example.query] * len(passages), passages)
        ranks.append(_rank(scores[0], scores[1:]))
    return float(np.mean([1 / rank for rank in ranks]))


@torch.no_grad()
def _span_f1(skills: Skills, one: SkillSet) -> float:
    found = skills.find_spans([e.query for e in one.examples])
    right = proposed = wanted = 0
    for example, own in zip(one.examples, found, strict=True):
        gold = set(example.spans)
        right += sum((f.start, f.end) in gold for f in own)
        proposed, wanted = proposed + len(own), wanted + len(gold)
    return 2 * right / max(1, proposed + wanted)
