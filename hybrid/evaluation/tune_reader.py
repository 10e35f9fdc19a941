"""How a reader counts mentions and the ranker, and its probabilities, fitted on held-out questions."""

from __future__ import annotations

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
from sparta.base.errors import InputError
from sparta.base.files import check_new_folder, make_folder
from sparta.base.records import Run, ScoredPassage
from sparta.data.answers import exact_match
from sparta.reader.config import Calibration, ReaderConfig, reader_folder
from sparta.reader.reader import Reader
from sparta.reader.span_reader import SpanReader
from sparta.search.retriever import Retriever

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True, slots=True)
class TunedReader:
    """A reader's new configuration, EM by whether mentions add up and by weight of the ranker, and the
    calibration error.

    The error is that of probabilities fitted on one half of the questions and measured on the other; None
    where a half has only right or only wrong answers.
    """

    config: ReaderConfig
    by_setting: dict[tuple[bool, float], float]
    calibration_error: float | None
    questions: int


def fit(scores: Sequence[float], right: Sequence[bool]) -> Calibration:
    """Platt scaling: the `a > 0` and `b` under which right and wrong answers are most likely.

    The targets are Platt's, a little inside 0 and 1, so that a few questions do not give infinite odds.
    """
    from scipy.optimize import minimize

    x, y = np.asarray(scores, dtype=np.float64), np.asarray(right, dtype=bool)
    n_right, n_wrong = int(y.sum()), int((~y).sum())
    if not n_right or not n_wrong:
        raise InputError(
            f"expected right and wrong answers to fit probabilities to, found {n_right} and {n_wrong}",
            remedy="give more questions",
        )
    targets = np.where(y, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))
    scale = x.std() or 1.0

    def loss(parameters: np.ndarray) -> float:
        odds = np.exp(parameters[0]) / scale * x + parameters[1]
        return float(np.mean(np.logaddexp(0, odds) - targets * odds))

    found = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10})
    return Calibration(float(np.exp(found.x[0]) / scale), float(found.x[1]))


def tune_reader(retrieved: Retrieved, run: Run, reader: Reader, depth: int) -> TunedReader:
    """Fit a reader on questions that it was not trained on.

    First the probability that the best span of a passage is right, then by EM whether an answer's mentions
    add up and the ranker's weight, then the probability of an answer. Equal EM: the best mention, the least
    weight.

    :param run: the ranking that is read, one of those retrieved or fused
    """
    asked = retrieved.query_set
    expected, same = asked.answers, partial(exact_match, match=asked.match, language=asked.language)
    readings = Readings(retrieved, {"": run}, Answering(reader, (depth,)))
    spans = [
        (span.score, same(text[span.start : span.end], expected[q]))
        for q in expected
        for text, span in readings.best_spans(q, run[q][:depth])
    ]
    passage = fit([score for score, _ in spans], [right for _, right in spans])
    tried: dict[tuple[bool, float], tuple[ReaderConfig, dict[str, tuple[float, bool]]]] = {}
    plain = replace(reader.config, passage=passage, answer=None)
    both = [replace(plain, sum_mentions=sums) for sums in (False, True)]
    for config in [plain] if plain.global_tokens else both:
        readings.config = config
        for weight in WEIGHTS:
            answers = {q: readings.answer(q, run[q], depth, weight) for q in expected}
            scored = {q: (one.score, same(one.answer, expected[q])) for q, one in answers.items() if one}
            tried[config.adds_up, weight] = replace(config, weight=weight), scored
    by_setting = {
        setting: sum(right for _, right in scored.values()) / max(1, len(expected))
        for setting, (_, scored) in tried.items()
    }
    config, scored = tried[max(by_setting, key=by_setting.__getitem__)]
    config = replace(config, answer=fit(*zip(*scored.values(), strict=True)))
    return TunedReader(config, by_setting, _held_out_error(scored), len(expected))


def _held_out_error(scored: dict[str, tuple[float, bool]]) -> float | None:
    """None where a half of the questions has only right or only wrong answers, or none."""
    halves = [[one for q, one in scored.items() if fold_of(q) % 2 == half] for half in (0, 1)]
    if any(len({right for _, right in half}) < 2 for half in halves):
        return None
    shown: list[tuple[float, bool]] = []
    for fitted_on, measured in (halves, halves[::-1]):
        fitted = fit([score for score, _ in fitted_on], [right for _, right in fitted_on])
        shown += [(probability(fitted, score), right) for score, right in measured]
    return calibration_error([p for p, _ in shown], [right for _, right in shown])


def tune_and_save(
    reader: str | Path,
    questions: QuestionSet,
    retriever: Retriever,
    output: Path,
    *,
    depth: int = 10,
    threads: int = 1,
    int8: bool = False,
) -> TunedReader:
    """Tune a reader on what a retriever finds for held-out questions, and write it into a folder.

    :param int8: store its weights in 8 bits with row scales
    """
    folder = reader_folder(reader)
    check_new_folder(output)
    make_folder(output)  # before the reading
    asked = [q for q in questions.queries if q.answers]
    found = retriever.batch_search([q.text for q in asked], [q.query_id for q in asked], depth, threads)
    records = {
        (q, hit.passage_id): {**hit.metadata, "title": hit.title, "contents": hit.text}
        for q, hits in found.items()
        for hit in as_read(retriever, hits)
    }
    run = {q: [ScoredPassage(hit.passage_id, hit.score) for hit in hits] for q, hits in found.items()}
    language = getattr(retriever, "language", questions.language)
    known = replace(questions, queries=tuple(asked), language=language)
    holds = Holds({}, lambda *_: "")
    retrieved = Retrieved(known, {"": run}, holds, lambda *ids: records[ids], by_question=True)
    tuned = tune_reader(retrieved, run, Reader.open(folder), depth)
    model = SpanReader.load(folder)  # in full precision
    model.config = tuned.config
    model.save_pretrained(output, int8=int8)
    return tuned
