"""Measures rankings with ir_measures, and tests differences between rankings for significance."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import ir_measures

from hybrid.evaluation.testsets import Qrels, QuestionSet
from hybrid.evidence.measures import NAMES, OF_PAGES, OF_PASSAGES, evidence_by_passage
from hybrid.evidence.supporting import OF_SENTENCES
from sparta.base.checks import check_passages, list_of
from sparta.base.errors import InputError
from sparta.base.records import Run, ScoredPassage

ANSWER_RECALL = "answer_recall@"
MEASURES = ("RR", "nDCG@10")
RECALL_AT = (20, 100)
DEFAULT_MEASURES = ("RR", "Success@1", "R@20", "nDCG@10")
_OTHER_NAMES = {"MRR": "RR", "MAP": "AP", "Recall": "R"}
_NOT_IN_UNIT_RANGE = ("Accuracy", "NumQ", "NumRet", "NumRel", "NumRelRet")
_ROUNDING = 1e-9
_HIGHEST_GRADE = 4
"""The highest grade in qrels that gdeval accepts; gdeval computes ERR and nDCG with exponential gains."""
_REMEDY = "name a measure of ir_measures, such as RR, RR@10, Success@5, R@100, nDCG@10, AP"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The measures of one run: `per_query[measure][query id]`, for each judged question, in [0, 1]."""

    name: str
    per_query: Mapping[str, Mapping[str, float]]

    def mean(self, measure: str) -> float:
        """Return the mean over all judged questions; a question that the run lacks counts 0."""
        values = self.per_query[measure].values()
        return math.fsum(values) / len(values)


@dataclass(frozen=True, slots=True)
class MeasureKind:
    """A kind of measures: their names, and the data that a question set must have.

    :param names: a pattern that matches the whole name of each measure
    :param needs: the required data, in words
    :param known: returns the required data of a set; an empty or None value if the set has no such data
    :param usual: the default measures of this kind
    :param of_chains: whether only chains have measures of this kind
    """

    names: str
    needs: str
    known: Callable[[QuestionSet], object]
    usual: tuple[str, ...] = ()
    of_chains: bool = False


def _evidence(query_set: QuestionSet) -> object:
    return evidence_by_passage(query_set.gold, query_set.qrels)


ANSWERS = MeasureKind(
    f"{ANSWER_RECALL}0*[1-9]\\d*",
    "answers that a text can hold",
    lambda query_set: query_set.text_answers,
    tuple(f"{ANSWER_RECALL}{k}" for k in RECALL_AT),
)
PAGES = MeasureKind(
    f"page{NAMES}", "KILT's provenance", lambda query_set: query_set.gold and query_set.gold.pages, OF_PAGES
)
PASSAGES = MeasureKind(f"passage{NAMES}", "judged passages", _evidence, OF_PASSAGES)
PATHS = MeasureKind(r"path_recall@[1-9]\d{0,5}", "judged passages", _evidence, of_chains=True)
SENTENCES = MeasureKind(
    "|".join(OF_SENTENCES), "supporting facts", lambda query_set: query_set.supporting, of_chains=True
)
JUDGED = MeasureKind(".*", "judged passages", lambda query_set: query_set.qrels, MEASURES)
"""The kind of all measures that ir_measures computes."""


def kind_of(measure: str) -> MeasureKind:
    """Return the kind of a measure, by the measure's name."""
    kinds = ANSWERS, PAGES, PASSAGES, PATHS, SENTENCES
    return next((kind for kind in kinds if re.fullmatch(kind.names, measure)), JUDGED)


def measures_of(query_set: QuestionSet) -> list[str]:
    """Return the names of the default measures for a question set."""
    kinds = (ANSWERS, PAGES, PASSAGES) if query_set.gold else (ANSWERS, JUDGED)
    return [name for kind in kinds if kind.known(query_set) for name in kind.usual]


def can_measure(query_set: QuestionSet, measure: str) -> bool:
    """Return whether a question set has the data (answers, evidence or judged passages) for a measure."""
    return bool(kind_of(measure).known(query_set))


def cutoff_of(measure: str) -> int:
    """Return the number of passages that a measure uses; 0 if the measure uses all passages."""
    cutoff = re.search(r"@(\d+)$", measure)
    return int(cutoff[1]) if cutoff else 0


def parse_any(name: str) -> str:
    """Return the normalized name of a measure of any kind.

    :raises InputError: the name is unknown.
    """
    if not isinstance(name, str) or kind_of(name.strip()) is JUDGED:
        return parse_measures([name])[0]
    head, separator, depth = name.strip().partition("@")
    return f"{head}@{int(depth)}" if separator else head


def split_measures(text: str) -> list[str]:
    """Split measures at the commas outside parentheses: `RR,P(rel=2,judged_only=True)@5` has two."""
    return re.split(r",(?![^(]*\))", text)


def parse_measures(names: Sequence[str]) -> list[str]:
    """Return measure names in ir_measures' form: RR, Success@1, R@20, nDCG@10, AP. MRR and MAP are accepted.

    A measure that is named twice, such as MAP and AP, is returned once.

    :raises InputError: a name is unknown, or there are no names.
    """
    name_list, parsed = list_of(names, "measures", _REMEDY), []
    if not name_list:
        raise InputError("no measure is named", remedy=_REMEDY)
    for name in name_list:
        if not isinstance(name, str):
            raise InputError(f"a measure must be a string, found {name!r}", remedy=_REMEDY)
        head, separator, cutoff = name.strip().partition("@")
        try:
            measure = ir_measures.parse_measure(_OTHER_NAMES.get(head, head) + separator + cutoff)
            measure.validate_params()
            if measure.NAME in _NOT_IN_UNIT_RANGE:
                raise ValueError("the measure is a count, or undefined if all hits are relevant")
            if measure.params.get("cutoff", 1) < 1:
                raise ValueError("the cutoff must be at least 1")
            if not ir_measures.DefaultPipeline.supports(measure):
                raise ValueError("no provider of this measure is installed")
            parsed.append(str(measure))
        except (ValueError, NameError, SyntaxError, AssertionError) as error:
            raise InputError(
                f"unknown or unsupported measure {name!r}",
                remedy=_REMEDY,
            ) from error
    return list(dict.fromkeys(parsed))


def evaluate(name: str, run: Run, qrels: Qrels, measures: Sequence[str]) -> Evaluation:
    """Measure a run on all questions of the qrels.

    The measures use the order of the passages, not the scores: evaluation tools break ties in different ways.

    :raises InputError: a ranking has the same passage twice, or a measure refuses a grade of the qrels.
    """
    for query_id, ranking in run.items():
        check_passages(ranking, f"{name}, query {query_id}")
    measure_names = {ir_measures.parse_measure(measure): measure for measure in measures}
    _check_grades(list(measure_names), qrels)
    # Compat gives a passage that was not retrieved the score 0, so the scores of a ranking are positive.
    rank_scores = {
        query_id: {passage.passage_id: float(len(ranking) - rank) for rank, passage in enumerate(ranking)}
        for query_id, ranking in run.items()
        if ranking
    }
    per_query: dict[str, dict[str, float]] = {measure: dict.fromkeys(qrels, 0.0) for measure in measures}
    # Some evaluation tools accept only numbers as query ids.
    query_ids = {str(number): query_id for number, query_id in enumerate(qrels, 1)}
    judgments = {number: dict(qrels[query_id]) for number, query_id in query_ids.items()}
    # pytrec_eval crashes on queries whose judgments are all -1. Without relevant passages, all measures of
    # relevance are 0 anyway; Judged is not.
    with_grades = {
        number: grades for number, grades in judgments.items() if max(grades.values(), default=0) >= 0
    }
    of_judgments = list(filter(ir_measures.judged.supports, measure_names))
    of_relevance = [measure for measure in measure_names if measure not in of_judgments]
    for group, judged in ((of_judgments, judgments), (of_relevance, with_grades)):
        scored = {
            number: rank_scores[query_ids[number]] for number in judged if query_ids[number] in rank_scores
        }
        for metric in ir_measures.iter_calc(group, judged, scored) if group else ():
            per_query[measure_names[metric.measure]][query_ids[metric.query_id]] = metric.value
    return Evaluation(name, per_query)


def _check_grades(measures: Sequence[ir_measures.Measure], qrels: Qrels) -> None:
    """Raise if a judgment is above the highest grade that gdeval accepts, for gdeval's measures."""
    of_gdeval = next(filter(ir_measures.gdeval.supports, measures), None)
    if of_gdeval is None:
        return
    for query_id, judgments in qrels.items():
        grade = max(judgments.values(), default=0)
        if grade > _HIGHEST_GRADE:
            raise InputError(
                f"the measure {of_gdeval} accepts grades up to {_HIGHEST_GRADE}, found {grade}",
                where=f"judgments of query {query_id}",
                remedy="lower the grades, or use a measure without this limit, such as nDCG@10",
            )


def without_query_ids(run: Run, depth: int | None) -> dict[str, list[ScoredPassage]]:
    """Return a run without hits whose passage id is the query id, as in BEIR (ArguAna, Quora).

    Each ranking is cut to `depth` hits.
    """
    return {
        query_id: [hit for hit in hits if hit.passage_id != query_id][:depth]
        for query_id, hits in run.items()
    }


def shown_p(p: float) -> str:
    """Return a p-value with three digits as text; smaller values are "<0.001"."""
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def p_values(base: Evaluation, evaluations: Sequence[Evaluation], measure: str) -> list[float]:
    """Return the p-values of two-sided paired t-tests against `base`, with Holm's correction.

    The p-value is 1 if no question differs. If all questions differ by the same amount, the t-test would
    divide by zero; the sign test replaces it.
    """
    query_ids = sorted(base.per_query[measure])
    raw = []
    for evaluation in evaluations:
        differences = [
            evaluation.per_query[measure][query_id] - base.per_query[measure][query_id]
            for query_id in query_ids
        ]
        if not any(differences):
            raw.append(1.0)
        elif max(differences) - min(differences) <= _ROUNDING * max(map(abs, differences)):
            raw.append(2.0 ** (1 - len(differences)))
        else:
            raw.append(_paired_t_test(differences))
    return holm(raw)


def _paired_t_test(differences: Sequence[float]) -> float:
    """Return the p-value of a two-sided paired t-test; `scipy.stats` has one, but takes 1 s to load."""
    import numpy as np
    from scipy.special import stdtr

    n = len(differences)
    t = np.mean(differences) / (np.std(differences, ddof=1) / n**0.5)
    return float(2 * stdtr(n - 1, -abs(t)))


def against_best(
    evaluations: Sequence[Evaluation], measure: str, among: Sequence[Evaluation] | None = None
) -> tuple[Evaluation, dict[str, float]]:
    """Return the best evaluation, and the p-value of each other evaluation against the best, by name.

    :param among: the evaluations that the best is chosen from; None is all evaluations
    """
    best = max(evaluations if among is None else among, key=lambda evaluation: evaluation.mean(measure))
    compared = [evaluation for evaluation in evaluations if evaluation is not best]
    values = p_values(best, compared, measure)
    return best, {evaluation.name: p for evaluation, p in zip(compared, values, strict=True)}


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values with Holm's correction, in input order.

    The i-th smallest of n p-values is multiplied by n − i + 1. Corrected values never fall with i and are at
    most 1.
    """
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        corrected[index] = highest
    return corrected
