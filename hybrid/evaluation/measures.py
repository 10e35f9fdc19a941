"""Measures of rankings, through ir_measures, and whether two rankings differ by more than chance."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import ir_measures

from hybrid.evaluation.testsets import Qrels, QuestionSet
from hybrid.evidence.measures import NAMES, OF_PAGES, OF_PASSAGES, evidence_by_passage
from hybrid.evidence.supporting import OF_SENTENCES
from sparta.base.checks import several
from sparta.base.errors import InputError
from sparta.base.records import Run, ScoredPassage

ANSWER_RECALL = "answer_recall@"
MEASURES = ("RR", "nDCG@10")
RECALL_AT = (20, 100)
DEFAULT_MEASURES = ("RR", "Success@1", "R@20", "nDCG@10")
_OTHER_NAMES = {"MRR": "RR", "MAP": "AP", "Recall": "R"}
_NO_SHARES = ("Accuracy", "NumQ", "NumRet", "NumRel", "NumRelRet")
_NOTHING = 1e-9
_REMEDY = "name one of ir_measures, as in RR, RR@10, Success@5, R@100, nDCG@10, AP"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One run's measures; `per_query[measure][query id]`, for every judged question, in [0, 1]."""

    name: str
    per_query: Mapping[str, Mapping[str, float]]

    def mean(self, measure: str) -> float:
        """The mean over all judged questions; one that the run does not answer counts 0."""
        values = self.per_query[measure].values()
        return math.fsum(values) / len(values)


@dataclass(frozen=True, slots=True)
class MeasureKind:
    """Measures that need the same: how they are named, and what a set of questions must know.

    :param names: a pattern of their whole names
    :param needs: what they need, in words
    :param known: returns what a set knows of it, nothing where they cannot be measured
    :param usual: those that are measured where nothing is chosen
    :param of_chains: whether chains alone have them
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
    "answers",
    lambda known: known.answers,
    tuple(f"{ANSWER_RECALL}{k}" for k in RECALL_AT),
)
PAGES = MeasureKind(
    f"page{NAMES}", "KILT's provenance", lambda known: known.gold and known.gold.pages, OF_PAGES
)
PASSAGES = MeasureKind(f"passage{NAMES}", "judged passages", _evidence, OF_PASSAGES)
PATHS = MeasureKind(r"path_recall@[1-9]\d{0,5}", "judged passages", _evidence, of_chains=True)
SENTENCES = MeasureKind(
    "|".join(OF_SENTENCES), "supporting facts", lambda known: known.supporting, of_chains=True
)
JUDGED = MeasureKind(".*", "judged passages", lambda known: known.qrels, MEASURES)
"""The measures of ir_measures."""


def kind_of(measure: str) -> MeasureKind:
    """Return the kind of a measure, by its name."""
    kinds = ANSWERS, PAGES, PASSAGES, PATHS, SENTENCES
    return next((kind for kind in kinds if re.fullmatch(kind.names, measure)), JUDGED)


def measures_of(query_set: QuestionSet) -> list[str]:
    """Return what can be measured on these questions."""
    kinds = (ANSWERS, PAGES, PASSAGES) if query_set.gold else (ANSWERS, JUDGED)
    return [name for kind in kinds if kind.known(query_set) for name in kind.usual]


def can_measure(query_set: QuestionSet, measure: str) -> bool:
    """Whether a set has the answers, the evidence or the judged passages that a measure needs."""
    return bool(kind_of(measure).known(query_set))


def cutoff_of(measure: str) -> int:
    """How many passages a measure looks at; 0 where it looks at all."""
    cutoff = re.search(r"@(\d+)$", measure)
    return int(cutoff[1]) if cutoff else 0


def parse_any(name: str) -> str:
    """Return the name of a measure of any kind.

    :raises InputError: an unknown name.
    """
    if not isinstance(name, str) or kind_of(name.strip()) is JUDGED:
        return parse_measures([name])[0]
    head, at, depth = name.strip().partition("@")
    return f"{head}@{int(depth)}" if at else head


def parse_measures(names: Sequence[str]) -> list[str]:
    """Return the names as ir_measures writes them: RR, Success@1, R@20, nDCG@10, AP; MRR and MAP will do.

    :raises InputError: an unknown name, or none.
    """
    listed, parsed = several(names, "measures", _REMEDY), []
    if not listed:
        raise InputError("expected a measure, found none", remedy=_REMEDY)
    for name in listed:
        if not isinstance(name, str):
            raise InputError(f"expected a measure, found {name!r}", remedy=_REMEDY)
        head, at, cutoff = name.strip().partition("@")
        try:
            measure = ir_measures.parse_measure(_OTHER_NAMES.get(head, head) + at + cutoff)
            measure.validate_params()
            if measure.NAME in _NO_SHARES:
                raise ValueError("a count, or undefined where each passage found is relevant")
            if not ir_measures.DefaultPipeline.supports(measure):
                raise ValueError("no provider of this measure is installed")
            parsed.append(str(measure))
        except (ValueError, NameError, SyntaxError, AssertionError) as error:
            raise InputError(
                f"expected a measure, found {name!r}",
                remedy=_REMEDY,
            ) from error
    return parsed


def evaluate(name: str, run: Run, qrels: Qrels, measures: Sequence[str]) -> Evaluation:
    """Measure a run on all questions of the qrels.

    The order of the passages counts, not their scores: tools of evaluation break ties each in its own way.
    """
    for query_id, ranking in run.items():
        if len({hit.passage_id for hit in ranking}) < len(ranking):
            raise InputError(
                "expected different passages in a ranking, found some twice",
                where=f"{name}, query {query_id}",
                remedy="rank every passage once",
            )
    names = {ir_measures.parse_measure(m): m for m in measures}
    found = {
        q: {p.passage_id: float(-rank) for rank, p in enumerate(ranking)}
        for q, ranking in run.items()
        if ranking
    }
    per_query: dict[str, dict[str, float]] = {m: dict.fromkeys(qrels, 0.0) for m in measures}
    ids = {str(number): q for number, q in enumerate(qrels, 1)}  # some tools take numbers alone
    # none of -1 alone, which pytrec_eval does not survive: they are 0 in any case
    judged = {n: dict(qrels[q]) for n, q in ids.items() if max(qrels[q].values(), default=0) >= 0}
    scored = {n: found[ids[n]] for n in judged if ids[n] in found}
    for metric in ir_measures.iter_calc(list(names), judged, scored):
        per_query[names[metric.measure]][ids[metric.query_id]] = metric.value
    return Evaluation(name, per_query)


def without_own_passages(run: Run, depth: int | None) -> dict[str, list[ScoredPassage]]:
    """Drop hits with the query's own id, as BEIR does (ArguAna, Quora), and cut rankings to `depth`."""
    return {q: [hit for hit in hits if hit.passage_id != q][:depth] for q, hits in run.items()}


def shown_p(chance: float) -> str:
    """A p-value with three digits; none is 0."""
    return f"{chance:.3f}" if chance >= 0.001 else "<0.001"


def p_values(base: Evaluation, others: Sequence[Evaluation], measure: str) -> list[float]:
    """Two-sided paired t-tests against `base`, corrected for their number (Holm); 1 where nothing differs.

    Where all questions differ by the same, the t-test divides by zero, and the sign test stands in for it.
    """
    from scipy.stats import ttest_1samp

    questions = sorted(base.per_query[measure])
    raw = []
    for other in others:
        differences = [other.per_query[measure][q] - base.per_query[measure][q] for q in questions]
        if not any(differences):
            raw.append(1.0)
        elif max(differences) - min(differences) <= _NOTHING * max(map(abs, differences)):
            raw.append(2.0 ** (1 - len(differences)))
        else:
            raw.append(float(ttest_1samp(differences, 0.0).pvalue))
    return holm(raw)


def against_best(
    evaluations: Sequence[Evaluation], measure: str, among: Sequence[Evaluation] | None = None
) -> tuple[Evaluation, dict[str, float]]:
    """Return the best evaluation, and the p-values of all others against it by name.

    :param among: what the best is chosen from, in place of all.
    """
    best = max(evaluations if among is None else among, key=lambda one: one.mean(measure))
    others = [one for one in evaluations if one is not best]
    values = p_values(best, others, measure)
    return best, {one.name: p for one, p in zip(others, values, strict=True)}


def holm(raw: Sequence[float]) -> list[float]:
    """Holm's correction: the i-th smallest of n times n − i + 1, never falling, at most 1."""
    corrected = [1.0] * len(raw)
    highest = 0.0
    for rank, i in enumerate(sorted(range(len(raw)), key=raw.__getitem__)):
        highest = max(highest, min(1.0, raw[i] * (len(raw) - rank)))
        corrected[i] = highest
    return corrected
