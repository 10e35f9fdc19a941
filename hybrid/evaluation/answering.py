"""How good the answers are that a reader gives from each ranking: EM and F1, as SQuAD measures them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hybrid.answering.answerer import SPANS
from hybrid.answering.answers import Answer, combine, folded_texts, ranker_scores
from hybrid.evaluation.measures import Evaluation
from hybrid.evaluation.rankings import Retrieved
from sparta.base.records import Hit, Run, ScoredPassage
from sparta.data.answers import exact_match, token_f1
from sparta.data.languages import language_of
from sparta.reader.records import Span, no_texts, text_of
from sparta.search.retriever import hit_of

if TYPE_CHECKING:
    from sparta.reader.reader import Reader

_AT_ONCE = 16
RESAMPLES = 1000
JUDGED = "judged passages"
"""The ranking that measures the reader alone."""


@dataclass(frozen=True, slots=True)
class Answering:
    """How rankings are read: the reader, how many passages (the largest of `depths` at most), and how the
    ranker's score counts (None: as the reader was tuned).
    """

    reader: Reader
    depths: Sequence[int] = (10,)
    weight: float | None = None

    def names(self) -> list[tuple[int, str]]:
        """Each depth with what its measures are called: EM and F1, or of several depths EM@10 and so on."""
        return [(d, f"@{d}" if len(self.depths) > 1 else "") for d in self.depths]


class Readings:
    """What a reader found in the best passages of some rankings.

    Each passage of a question is read once, but by a reader with global tokens: to it, passages are what they
    are beside each other, and each ranking is read for itself, at each depth.

    :raises LackingError: the passages have no texts.
    """

    def __init__(self, retrieved: Retrieved, runs: Mapping[str, Run], answering: Answering) -> None:
        self.config = answering.reader.config.with_weight(answering.weight)
        self.language = retrieved.query_set.language
        self._hits: dict[tuple[str, str], Hit] = {}
        self._spans: dict[tuple[str, tuple[str, ...]], dict[str, Sequence[Span]]] = {}
        self._record, self._by_question = retrieved.record, retrieved.by_question
        self._in_context = retrieved.in_context
        fold = language_of(self.language).fold
        asked = [query for query in retrieved.query_set.queries if query.answers]
        for some in itertools.batched(asked, _AT_ONCE):
            jobs = [(query, ids) for query in some for ids in self._together(query.query_id, runs, answering)]
            texts = [[text_of(self.hit(query.query_id, i)) for i in ids] for query, ids in jobs]
            if any(texts) and not any(one.text for own in texts for one in own):
                raise no_texts()
            once = [list(dict.fromkeys(own)) for own in texts]
            questions, folded = [fold(q.text) for q, _ in jobs], [folded_texts(own, fold) for own in once]
            read = answering.reader.read_all(questions, folded, SPANS)
            for (query, ids), own, distinct, spans in zip(jobs, texts, once, read, strict=True):
                found = dict(zip(distinct, spans, strict=True))
                self._spans[query.query_id, self._key(ids)] = {
                    i: found[text] for i, text in zip(ids, own, strict=True)
                }

    def _together(
        self, query_id: str, runs: Mapping[str, Run], answering: Answering
    ) -> Iterator[tuple[str, ...]]:
        """Yield which passages of a question are read in one call."""
        rankings = [tuple(p.passage_id for p in run[query_id]) for run in runs.values()]
        if self.config.global_tokens:
            yield from dict.fromkeys(ids[:depth] for ids in rankings for depth in answering.depths)
        else:
            deepest = max(answering.depths)
            yield tuple(dict.fromkeys(i for ids in rankings for i in ids[:deepest]))

    def _key(self, ids: Sequence[str]) -> tuple[str, ...]:
        return tuple(ids) if self.config.global_tokens else ()

    def _spans_of(self, query_id: str, best: Sequence[ScoredPassage]) -> list[Sequence[Span]]:
        ids = [p.passage_id for p in best]
        by_passage = self._spans[query_id, self._key(ids)]
        return [by_passage[i] for i in ids]

    def hit(self, query_id: str, passage_id: str) -> Hit:
        """A passage as it is read for a question."""
        key = query_id if self._by_question else "", passage_id
        if key not in self._hits:
            found = hit_of(passage_id, 0.0, self._record(query_id, passage_id))
            [self._hits[key]] = self._in_context([found])
        return self._hits[key]

    def best_spans(self, query_id: str, ranking: Sequence[ScoredPassage]) -> Iterator[tuple[str, Span]]:
        """Yield the text and the best span of each passage that has one."""
        for passage, spans in zip(ranking, self._spans_of(query_id, ranking), strict=True):
            if spans:
                yield text_of(self.hit(query_id, passage.passage_id)).text, spans[0]

    def answer(
        self, query_id: str, ranking: Sequence[ScoredPassage], depth: int, weight: float
    ) -> Answer | None:
        """The best answer from the first passages of a ranking; None where there is none."""
        best = ranking[:depth]
        hits = [self.hit(query_id, p.passage_id) for p in best]
        spans = self._spans_of(query_id, best)
        scores = ranker_scores([p.score for p in best])
        found = combine(
            self.config, hits, [text_of(hit) for hit in hits], scores, spans, weight, 1, self.language
        )
        return found[0] if found else None


def measure_answers(
    retrieved: Retrieved,
    runs: Mapping[str, Run],
    evaluations: Sequence[Evaluation],
    answering: Answering,
    *,
    judged: bool = False,
    own: Mapping[str, Mapping[str, Answer | None]] | None = None,
) -> tuple[list[Evaluation], dict[str, dict[str, Answer | None]]]:
    """Add EM and F1 to the evaluations of rankings; return them with the answers at the greatest depth.

    :param judged: read the judged passages too, as a ranking `JUDGED` that comes last: the reader alone
    :param own: rankings that have answers of their own; these are measured, at each depth
    """
    asked = retrieved.query_set
    expected, match, language = asked.answers, asked.match, asked.language
    if not expected:
        return list(evaluations), {}
    if judged:
        runs = {**runs, JUDGED: _judged(retrieved)}
    own = own or {}
    readings = Readings(retrieved, {n: run for n, run in runs.items() if n not in own}, answering)
    same = partial(exact_match, match=match, language=language)
    weight = readings.config.weight
    known = {one.name: one.per_query for one in evaluations}
    measured: list[Evaluation] = []
    answers: dict[str, dict[str, Answer | None]] = {}
    for name, run in runs.items():
        measures: dict[str, Mapping[str, float]] = dict(known.get(name, {}))
        for depth, suffix in answering.names():
            answers[name] = {
                q: own[name][q] if name in own else readings.answer(q, run[q], depth, weight)
                for q in expected
            }
            by_query = answers[name]
            measures[f"EM{suffix}"] = {
                q: float(one is not None and same(one.answer, expected[q])) for q, one in by_query.items()
            }
            if match == "string":
                measures[f"F1{suffix}"] = {
                    q: token_f1(one.answer, expected[q], language=language) if one else 0.0
                    for q, one in by_query.items()
                }
        measured.append(Evaluation(name, measures))
    return measured, answers


def _judged(retrieved: Retrieved) -> Run:
    qrels = retrieved.query_set.qrels
    return {
        query.query_id: [
            ScoredPassage(p, 1.0) for p, relevance in qrels[query.query_id].items() if relevance > 0
        ]
        for query in retrieved.query_set.queries
    }


def interval(values: Sequence[float], seed: int = 1) -> tuple[float, float]:
    """95 % interval of a mean over questions, by the bootstrap."""
    sample = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(0, len(sample), (RESAMPLES, len(sample)))
    low, high = np.percentile(sample[draws].mean(1), [2.5, 97.5])
    return float(low), float(high)


def half_width(one: Evaluation, measure: str) -> float:
    """Half the width of the 95 % interval of a measure's mean."""
    low, high = interval(list(one.per_query[measure].values()))
    return (high - low) / 2


def calibration_error(probabilities: Sequence[float], right: Sequence[bool], bins: int = 10) -> float:
    """Expected calibration error: how far shares of right answers are from the probabilities shown."""
    groups: dict[int, list[tuple[float, bool]]] = {}
    for probability, is_right in zip(probabilities, right, strict=True):
        groups.setdefault(min(bins - 1, int(probability * bins)), []).append((probability, is_right))
    gaps = (abs(math.fsum(p for p, _ in own) - sum(r for _, r in own)) for own in groups.values())
    return math.fsum(gaps) / max(1, len(probabilities))
