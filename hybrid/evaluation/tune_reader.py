"""Fits a reader's probabilities, mention counting and ranker weight on held-out questions."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from hybrid.answering.answers import as_read, probability
from hybrid.evaluation.answering import Answering, Readings, calibration_error
from hybrid.evaluation.rankings import Holds, Retrieved
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evaluation.tune import fold_of
from sparta.base.checks import fraction
from sparta.base.errors import InputError
from sparta.base.files import check_new_folder, make_folder
from sparta.base.records import Run, ScoredPassage
from sparta.data.answers import exact_match
from sparta.reader.config import Abstention, Calibration, ReaderConfig, reader_folder
from sparta.reader.reader import Reader
from sparta.reader.span_reader import SpanReader
from sparta.search.retriever import Retriever

logger = logging.getLogger(__name__)

COVERAGE = 0.8
"""The share of answerable questions that a reader answers with its default threshold."""
_EXCESS = 0.05
"""The share of questions above the requested coverage that needs no warning."""
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""The weights of the ranker that tuning tries."""


@dataclass(frozen=True, slots=True)
class TunedReader:
    """The new configuration of a reader, with the results of all tried settings.

    `by_setting` has EM by (mentions add up, weight of the ranker). `calibration_error` is the error of
    probabilities that are fitted on one half of the questions and measured on the other half; None if a half
    has only correct or only wrong answers. `coverage` is the share of the questions with an answer at or
    above the threshold: more than requested if several questions have the same score.
    """

    config: ReaderConfig
    by_setting: dict[tuple[bool, float], float]
    calibration_error: float | None
    questions: int
    coverage: float


def fit(scores: Sequence[float], is_correct: Sequence[bool]) -> Calibration:
    """Return Platt scaling's `a > 0` and `b` with the highest likelihood of the correct and wrong answers.

    The targets are Platt's, slightly inside 0 and 1, so that a few questions do not give infinite odds.
    """
    from scipy.optimize import minimize

    score_array, is_correct_array = np.asarray(scores, dtype=np.float64), np.asarray(is_correct, dtype=bool)
    n_correct, n_wrong = int(is_correct_array.sum()), int((~is_correct_array).sum())
    if not n_correct or not n_wrong:
        raise InputError(
            f"calibration needs correct and wrong answers, found {n_correct} correct and {n_wrong} wrong",
            remedy="tune with more questions",
        )
    targets = np.where(is_correct_array, (n_correct + 1) / (n_correct + 2), 1 / (n_wrong + 2))
    scale = score_array.std() or 1.0

    def loss(parameters: np.ndarray) -> float:
        odds = np.exp(parameters[0]) / scale * score_array + parameters[1]
        return float(np.mean(np.logaddexp(0, odds) - targets * odds))

    optimum = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10})
    return Calibration(float(np.exp(optimum.x[0]) / scale), float(optimum.x[1]))


def tune_reader(
    retrieved: Retrieved,
    run: Run,
    reader: Reader,
    depth: int,
    channel: str = "",
    coverage: float = COVERAGE,
) -> TunedReader:
    """Fit a reader's calibration and settings on questions that are not in its training data.

    The first fit is the probability that a passage's best span is correct. Then EM selects the ranker's
    weight and whether the scores of an answer's mentions are added up. The last fit is the probability of an
    answer. For equal EM, only the best mention counts and the weight is the smallest. The threshold of an
    answer is the score that the share `coverage` of the questions reaches.

    :param run: the ranking to read: one of the retrieved rankings, or a fusion of them
    :param channel: the channel of the ranking, for which the threshold holds
    """
    query_set = retrieved.query_set
    expected = query_set.answers
    is_correct = partial(exact_match, match=query_set.match, language=query_set.language)
    readings = Readings(retrieved, {"": run}, Answering(reader, (depth,)))
    spans = [
        (span.score, is_correct(text[span.start : span.end], expected[query_id]))
        for query_id in expected
        for text, span in readings.best_spans("", query_id, run[query_id][:depth])
    ]
    passage_calibration = fit([score for score, _ in spans], [is_right for _, is_right in spans])
    results_by_setting: dict[tuple[bool, float], tuple[ReaderConfig, dict[str, tuple[float, bool]]]] = {}
    base_config = replace(reader.config, passage=passage_calibration, answer=None)
    counting_configs = [replace(base_config, sum_mentions=sum_mentions) for sum_mentions in (False, True)]
    for config in [base_config] if base_config.global_tokens else counting_configs:
        readings.config = config
        for weight in WEIGHTS:
            answers = {
                query_id: readings.answer("", query_id, run[query_id], depth, weight) for query_id in expected
            }
            scored = {
                query_id: (answer.score, is_correct(answer.answer, expected[query_id]))
                for query_id, answer in answers.items()
                if answer
            }
            results_by_setting[config.combines_mentions, weight] = replace(config, weight=weight), scored
    by_setting = {
        setting: sum(is_right for _, is_right in scored.values()) / max(1, len(expected))
        for setting, (_, scored) in results_by_setting.items()
    }
    config, scored = results_by_setting[max(by_setting, key=by_setting.__getitem__)]
    answer = fit(*zip(*scored.values(), strict=True))
    scores = [probability(answer, score) for score, _ in scored.values()]
    scores += [0.0] * (len(expected) - len(scored))
    threshold = threshold_of(scores, coverage)
    config = replace(config, answer=answer, abstention=Abstention(threshold, channel, depth))
    answered = sum(score >= threshold for score in scores) / len(scores)
    if answered > coverage + _EXCESS:
        logger.warning(
            "the threshold lets %.0f %% of the questions be answered instead of %.0f %%,"
            " because many have the same score: tune with more questions",
            100 * answered,
            100 * coverage,
        )
    return TunedReader(config, by_setting, _held_out_error(scored), len(expected), answered)


def threshold_of(scores: Sequence[float], coverage: float) -> float:
    """Return the highest threshold, with three digits, that the share `coverage` of these scores reaches."""
    ranked = sorted(scores, reverse=True)
    return math.floor(1000 * ranked[max(1, math.ceil(coverage * len(ranked))) - 1]) / 1000


def _held_out_error(scored: dict[str, tuple[float, bool]]) -> float | None:
    """Return the calibration error with fits on one half of the questions and measurements on the other half.

    The error is None if a half has only correct or only wrong answers, or no answers.
    """
    halves = [
        [scored_answer for query_id, scored_answer in scored.items() if fold_of(query_id) % 2 == half]
        for half in (0, 1)
    ]
    if any(len({is_right for _, is_right in half}) < 2 for half in halves):
        return None
    predictions: list[tuple[float, bool]] = []
    for fitted_on, measured in (halves, halves[::-1]):
        calibration = fit([score for score, _ in fitted_on], [is_right for _, is_right in fitted_on])
        predictions += [(probability(calibration, score), is_right) for score, is_right in measured]
    return calibration_error(
        [predicted for predicted, _ in predictions], [is_right for _, is_right in predictions]
    )


def tune_and_save(
    reader: str | Path,
    questions: QuestionSet,
    retriever: Retriever,
    output: Path,
    *,
    depth: int = 10,
    threads: int = 1,
    int8: bool = False,
    coverage: float = COVERAGE,
) -> TunedReader:
    """Tune a reader on passages that a retriever returns for held-out questions, and save the reader.

    :param output: a new folder for the tuned reader
    :param int8: store the reader's weights in 8 bits with row scales
    :param coverage: the share of the questions that the tuned reader answers; it abstains from the others
    """
    folder = reader_folder(reader)
    fraction("a coverage", coverage)
    check_new_folder(output)
    make_folder(output)  # a folder that cannot be written raises before the long reading
    tuned = tune_on(
        Reader.open(folder), questions, retriever, depth=depth, threads=threads, coverage=coverage
    )
    model = SpanReader.load(folder)  # in full precision
    model.config = tuned.config
    model.save_pretrained(output, int8=int8)
    return tuned


def tune_on(
    reader: Reader,
    questions: QuestionSet,
    retriever: Retriever,
    *,
    depth: int = 10,
    threads: int = 1,
    coverage: float = COVERAGE,
) -> TunedReader:
    """Tune an open reader on passages that a retriever returns for held-out questions; see `tune_reader`."""
    queries = [query for query in questions.queries if query.answers]
    texts, ids = [query.text for query in queries], [query.query_id for query in queries]
    hits_by_query = retriever.batch_search(texts, ids, depth, threads)
    hits_read = {
        (query_id, hit.passage_id): hit
        for query_id, hits in hits_by_query.items()
        for hit in as_read(retriever, hits)
    }
    run = {
        query_id: [ScoredPassage(hit.passage_id, hit.score) for hit in hits]
        for query_id, hits in hits_by_query.items()
    }
    language = getattr(retriever, "language", questions.language)
    query_set = replace(questions, queries=tuple(queries), language=language)
    holds = Holds({}, lambda *_: "")
    retrieved = Retrieved(query_set, {"": run}, holds, lambda *ids: hits_read[ids], by_question=True)
    return tune_reader(retrieved, run, reader, depth, retriever.ranking_name, coverage)
