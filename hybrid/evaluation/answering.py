"""Measures a reader's answers from rankings: EM and F1, as in SQuAD's evaluation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hybrid.answering.answerer import SPANS, default_depth
from hybrid.answering.answers import (
    Answer,
    combine,
    folded_texts,
    ranker_scores,
    rerank_offsets,
    with_offset,
)
from hybrid.evaluation.measures import Evaluation
from hybrid.evaluation.rankings import Retrieved
from sparta.base.records import Advance, Hit, Run, ScoredPassage
from sparta.data.answers import exact_match, token_f1
from sparta.data.languages import language_of
from sparta.reader.records import Span, Text, no_texts, text_of

if TYPE_CHECKING:
    from sparta.reader.reader import Reader

_BLOCK = 16
RESAMPLES = 1000
JUDGED = "judged passages"
"""The name of the ranking of relevant passages, which measures only the reader."""


@dataclass(frozen=True, slots=True)
class Answering:
    """The settings of answer evaluation: the reader, numbers of passages to read, and the ranker's weight.

    The reader reads at most the largest of `depths`. Without `depths` it reads as many passages as `Answerer`
    does. The weight None is the weight that the reader was tuned with.
    """

    reader: Reader
    depths: Sequence[int] = ()
    weight: float | None = None

    def names(self, rerank_depth: int = 0) -> list[tuple[int, str]]:
        """Return each depth with its measures' suffix: `@10` for depth 10, empty for a single depth.

        :param rerank_depth: the number of passages of the ranking that a cross-encoder ordered
        """
        depths = self.depths or [default_depth(rerank_depth)]
        return [(depth, f"@{depth}" if len(depths) > 1 else "") for depth in depths]


class Readings:
    """The spans that a reader found in the best passages of several rankings.

    The reader reads each passage of a question once. For a reader with global tokens, a reading depends on
    all passages that are read together; such a reader reads each ranking separately at each depth.

    :param advance: called with the number of questions that were read
    :param reranked: the numbers of passages that a cross-encoder ordered, by the names of such rankings
    :raises LackingError: the passages have no texts.
    """

    def __init__(
        self,
        retrieved: Retrieved,
        runs: Mapping[str, Run],
        answering: Answering,
        advance: Advance | None = None,
        reranked: Mapping[str, int] | None = None,
    ) -> None:
        reranked = reranked or {}
        self.config = answering.reader.config.with_weight(answering.weight)
        self.language = retrieved.query_set.language
        self._hits: dict[tuple[str, str, str], Hit] = {}
        self._spans: dict[tuple[str, tuple[Text, ...]], dict[Text, Sequence[Span]]] = {}
        self._retrieved = retrieved
        fold = language_of(self.language).fold
        queries = [query for query in retrieved.query_set.queries if query.answers]
        for block in itertools.batched(queries, _BLOCK):
            jobs = [
                (query, texts)
                for query in block
                for texts in self._read_groups(query.query_id, runs, answering, reranked)
            ]
            if any(texts for _, texts in jobs) and not any(text.text for _, texts in jobs for text in texts):
                raise no_texts()
            questions = [fold(query.text) for query, _ in jobs]
            folded = [folded_texts(texts, fold) for _, texts in jobs]
            readings = answering.reader.read_all(questions, folded, SPANS)
            for (query, texts), spans in zip(jobs, readings, strict=True):
                self._spans[query.query_id, self._key(texts)] = dict(zip(texts, spans, strict=True))
            if advance:
                advance(len(block))

    def _read_groups(
        self, query_id: str, runs: Mapping[str, Run], answering: Answering, reranked: Mapping[str, int]
    ) -> Iterator[tuple[Text, ...]]:
        """Yield the distinct texts of a question that the reader reads in one call."""
        groups = dict.fromkeys(
            tuple(dict.fromkeys(self._texts(name, query_id, run[query_id][:depth])))
            for name, run in runs.items()
            for depth, _ in answering.names(reranked.get(name, 0))
        )
        if self.config.global_tokens:
            yield from groups
        else:
            yield tuple(dict.fromkeys(itertools.chain.from_iterable(groups)))

    def _texts(self, name: str, query_id: str, best: Sequence[ScoredPassage]) -> list[Text]:
        """Return the text of each passage in `best`."""
        return [text_of(self.hit(name, query_id, passage.passage_id)) for passage in best]

    def _key(self, texts: Sequence[Text]) -> tuple[Text, ...]:
        """Return the texts in the key of `_spans`: the distinct `texts` with global tokens, else none.

        A reader with global tokens reads the passages of a question together, so a passage's spans depend on
        the other passages. Any other reader reads each passage separately.
        """
        return tuple(dict.fromkeys(texts)) if self.config.global_tokens else ()

    def _spans_of(self, query_id: str, texts: Sequence[Text]) -> list[Sequence[Span]]:
        """Return the reader's spans of each text."""
        spans_by_text = self._spans[query_id, self._key(texts)]
        return [spans_by_text[text] for text in texts]

    def hit(self, name: str, query_id: str, passage_id: str) -> Hit:
        """Return a passage of the ranking `name` with the text that the reader reads for a question."""
        retrieved = self._retrieved
        key = (
            name if retrieved.by_ranking else "",
            query_id if retrieved.by_question else "",
            passage_id,
        )
        if key not in self._hits:
            [self._hits[key]] = retrieved.in_context([retrieved.in_ranking(name).hit(query_id, passage_id)])
        return self._hits[key]

    def best_spans(
        self, name: str, query_id: str, ranking: Sequence[ScoredPassage]
    ) -> Iterator[tuple[str, Span]]:
        """Yield the text and the best span of each passage that has a span."""
        texts = self._texts(name, query_id, ranking)
        for text, spans in zip(texts, self._spans_of(query_id, texts), strict=True):
            if spans:
                yield text.text, spans[0]

    def answer(
        self,
        name: str,
        query_id: str,
        ranking: Sequence[ScoredPassage],
        depth: int,
        weight: float,
        *,
        is_reranked: bool = False,
    ) -> Answer | None:
        """Return the best answer from the first `depth` passages of a ranking; None without an answer.

        :param name: the name of the ranking
        :param is_reranked: the scores of the ranking are those of a cross-encoder
        """
        best = ranking[:depth]
        hits = [self.hit(name, query_id, passage.passage_id) for passage in best]
        texts = [text_of(hit) for hit in hits]
        spans = self._spans_of(query_id, texts)
        scores = [passage.score for passage in best]
        if is_reranked:
            spans = [*map(with_offset, spans, rerank_offsets(scores))]
        answers = combine(self.config, hits, texts, ranker_scores(scores), spans, weight, 1, self.language)
        return answers[0] if answers else None


def measure_answers(
    retrieved: Retrieved,
    runs: Mapping[str, Run],
    evaluations: Sequence[Evaluation],
    answering: Answering,
    *,
    judged: bool = False,
    chain_answers: Mapping[str, Mapping[str, Answer | None]] | None = None,
    advance: Advance | None = None,
    reranked: Mapping[str, int] | None = None,
) -> tuple[list[Evaluation], dict[str, dict[str, Answer | None]]]:
    """Return the evaluations with EM and F1 added, and each ranking's answers at the largest depth.

    :param judged: also read the judged passages, as a last ranking named `JUDGED`, which measures only the
        reader
    :param chain_answers: the answers of rankings that have answers already; measured without the reader
    :param advance: called with the number of questions that the reader has read
    :param reranked: the numbers of passages that a cross-encoder ordered, by the names of such rankings
    """
    query_set = retrieved.query_set
    expected, match, language = query_set.answers, query_set.match, query_set.language
    if not expected:
        return list(evaluations), {}
    if judged:
        runs = {**runs, JUDGED: _judged(retrieved)}
    chain_answers, reranked = chain_answers or {}, reranked or {}
    runs_to_read = {run_name: run for run_name, run in runs.items() if run_name not in chain_answers}
    readings = Readings(retrieved, runs_to_read, answering, advance, reranked)
    is_correct = partial(exact_match, match=match, language=language)
    weight = readings.config.weight
    measured_before = {evaluation.name: evaluation.per_query for evaluation in evaluations}
    measured: list[Evaluation] = []
    answers: dict[str, dict[str, Answer | None]] = {}
    for name, run in runs.items():
        measures: dict[str, Mapping[str, float]] = dict(measured_before.get(name, {}))
        for depth, suffix in answering.names(reranked.get(name, 0)):
            answers[name] = {
                query_id: chain_answers[name][query_id]
                if name in chain_answers
                else readings.answer(
                    name, query_id, run[query_id], depth, weight, is_reranked=name in reranked
                )
                for query_id in expected
            }
            by_query = answers[name]
            measures[f"EM{suffix}"] = {
                query_id: float(answer is not None and is_correct(answer.answer, expected[query_id]))
                for query_id, answer in by_query.items()
            }
            if match == "string":
                measures[f"F1{suffix}"] = {
                    query_id: token_f1(answer.answer, expected[query_id], language=language)
                    if answer
                    else 0.0
                    for query_id, answer in by_query.items()
                }
        measured.append(Evaluation(name, measures))
    return measured, answers


def _judged(retrieved: Retrieved) -> Run:
    """Return the relevant passages of each question as a run."""
    qrels = retrieved.query_set.qrels
    return {
        query.query_id: [
            ScoredPassage(passage_id, 1.0)
            for passage_id, relevance in qrels[query.query_id].items()
            if relevance > 0
        ]
        for query in retrieved.query_set.queries
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of a mean over questions, by the bootstrap."""
    values_array = np.asarray(values, dtype=np.float64)
    resampled_rows = np.random.default_rng(1).integers(0, len(values_array), (RESAMPLES, len(values_array)))
    low, high = np.percentile(values_array[resampled_rows].mean(1), [2.5, 97.5])
    return float(low), float(high)


def half_width(evaluation: Evaluation, measure: str) -> float:
    """Return half the width of the 95 % confidence interval of a measure's mean."""
    low, high = interval(list(evaluation.per_query[measure].values()))
    return (high - low) / 2


def calibration_error(probabilities: Sequence[float], is_correct: Sequence[bool], bins: int = 10) -> float:
    """Return the expected calibration error: the mean gap between predicted and actual accuracy per bin."""
    bins_by_number: dict[int, list[tuple[float, bool]]] = {}
    for probability, is_right in zip(probabilities, is_correct, strict=True):
        bins_by_number.setdefault(min(bins - 1, int(probability * bins)), []).append((probability, is_right))
    gaps: list[float] = []
    for bin_values in bins_by_number.values():
        expected_correct = math.fsum(probability for probability, _ in bin_values)
        gaps.append(abs(expected_correct - sum(is_right for _, is_right in bin_values)))
    return math.fsum(gaps) / max(1, len(probabilities))
