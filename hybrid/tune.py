"""The weights of a fusion, chosen on questions whose answers are known."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from hybrid.channels import Searchable
from hybrid.fusion import Fusion
from hybrid.questions import QuestionSet
from hybrid.searched import Searched, depth_of, search_all
from hybrid.tables import Cell, Table
from sparta.base.errors import InputError
from sparta.base.records import Run

ALPHAS = tuple(round(0.5 + 0.1 * i, 1) for i in range(16))
"""TASER, §4.3."""
FOLDS = 5

Weights = tuple[float, ...]
"""Of the channels that are tuned, in their order."""


@dataclass(frozen=True, slots=True)
class Fold:
    """One of the parts that the questions fall into: what the others chose, and what it is worth here."""

    number: int
    weights: Weights
    values: Mapping[str, float]

    @property
    def mean(self) -> float:
        """Over the questions of this part."""
        return fmean(self.values.values())


@dataclass(frozen=True, slots=True)
class Tuned:
    """The mean of a measure by weights: one for each set, in the order of `names`.

    `folds` is there for one set only: weights chosen on four fifths of the questions, measured on the last.
    `alone` is the mean of each channel by itself, for each set.
    """

    channels: Sequence[str]
    measure: str
    names: Sequence[str]
    means: Mapping[Weights, Sequence[float]]
    folds: Sequence[Fold] = ()
    alone: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def best(self) -> Weights:
        """The weights with the highest mean over the sets; of equals, the smallest."""
        return _best({weights: fmean(own) for weights, own in self.means.items()})

    @property
    def cross_validated(self) -> float:
        """The mean over all questions, each measured with weights that it had no part in choosing."""
        return fmean(value for fold in self.folds for value in fold.values.values())


def _best(values: Mapping[Weights, float]) -> Weights:
    return min(values, key=lambda weights: (-values[weights], weights))


def measure_for(sets: Sequence[QuestionSet]) -> str:
    """Return what to tune for: RR where all sets have judged passages, else answer_recall@20."""
    return "RR" if all(one.qrels for one in sets) else "answer_recall@20"


def check_measure(measure: str, sets: Sequence[QuestionSet]) -> None:
    """Refuse sets on which it cannot be measured."""
    by_answer = measure.startswith("answer_recall@")
    for one in sets:
        if not (one.answers if by_answer else one.qrels):
            wanted, other = ("answers", "RR") if by_answer else ("judged passages", "answer_recall@20")
            raise InputError(
                f"expected {wanted} to tune on for {measure}, found none",
                where=one.name,
                remedy=f"name sets that have them, or another measure, as in --measure {other}",
            )


def tune(
    channels: Searchable,
    sets: Sequence[QuestionSet],
    fusion: Fusion,
    measure: str,
    tuned: Sequence[str] = ("bm25",),
    alphas: Sequence[float] = ALPHAS,
    *,
    threads: int = 2,
) -> Tuned:
    """Measure the fusion with each of `alphas` as the weight of BM25; each channel is searched once.

    :param tuned: the channels whose weights are tried, each with each; the others keep the fusion's.
    """
    check_measure(measure, sets)
    grid = list(itertools.product(alphas, repeat=len(tuned)))
    tried = {given: {**fusion.weights, **dict(zip(tuned, given, strict=True))} for given in grid}
    values: list[Mapping[Weights, Mapping[str, float]]] = []
    alone: dict[str, list[float]] = {}
    for asked in sets:
        searched = search_all(channels, asked, depth_of(fusion, measure), threads)
        values.append(_values(searched, fusion, measure, tried))
        for name in fusion.weights:
            alone.setdefault(name, []).append(_of_run(searched, searched.runs[name], measure))
    means = {weights: [fmean(own[weights].values()) for own in values] for weights in grid}
    folds = cross_validate(values[0]) if len(sets) == 1 else []
    return Tuned(tuned, measure, [one.name for one in sets], means, folds, alone)


def _of_run(searched: Searched, run: Run, measure: str) -> float:
    return fmean(searched.measured("", run, [measure]).per_query[measure].values())


def _values(
    searched: Searched, fusion: Fusion, measure: str, tried: Mapping[Weights, Mapping[str, float]]
) -> dict[Weights, Mapping[str, float]]:
    """Return {weights: {query id: value}}."""
    candidates, depth = fusion.gather_runs(searched.runs), depth_of(fusion, measure)
    found: dict[Weights, Mapping[str, float]] = {}
    for given, weights in tried.items():
        run = {q: own.ranked(list(weights.values()), depth) for q, own in candidates.items()}
        found[given] = searched.measured("", run, [measure]).per_query[measure]
    return found


def fold_of(query_id: str) -> int:
    """Return which fold a question is in: a matter of its id alone."""
    return int.from_bytes(hashlib.sha256(query_id.encode()).digest()[:8]) % FOLDS


def cross_validate(values: Mapping[Weights, Mapping[str, float]]) -> list[Fold]:
    """Choose on all folds but one, measure on that one; none where all questions are in one fold."""
    questions = sorted(next(iter(values.values())))
    folds = []
    for number in range(FOLDS):
        inside = [q for q in questions if fold_of(q) == number]
        outside = [q for q in questions if fold_of(q) != number]
        if inside and outside:
            chosen = _best({w: fmean(own[q] for q in outside) for w, own in values.items()})
            folds.append(Fold(number + 1, chosen, {q: values[chosen][q] for q in inside}))
    return folds


def tune_table(tuned: Tuned) -> Table:
    """One row for each α of the first channel that is tuned, with the best weights of the others.

    Of one set, the folds and the cross-validated figure stand below; of several, their means beside them.
    Then each channel alone. The note says when the best weight is the least or the largest that was tried,
    so that another may be better, and when a channel alone is better than the best fusion.
    """
    several = len(tuned.names) > 1
    named = [f"{name} {tuned.measure}" for name in tuned.names] if several else [tuned.measure]
    header = [
        *(f"weight of {name}" for name in tuned.channels),
        *named,
        *(["mean"] if several else []),
        "note",
    ]
    best = tuned.best
    rows: list[list[Cell]] = []
    for alpha in dict.fromkeys(weights[0] for weights in tuned.means):
        row = _best({w: fmean(own) for w, own in tuned.means.items() if w[0] == alpha})
        means: list[Cell] = [100 * mean for mean in tuned.means[row]]
        if several:
            means.append(100 * fmean(tuned.means[row]))
        rows.append([*_shown(row), *means, _remark(tuned) if row == best else ""])
    for fold in tuned.folds:
        note = f"fold {fold.number} of {FOLDS}: chosen on the others"
        rows.append([*_shown(fold.weights), 100 * fold.mean, note])
    if tuned.folds:
        rows.append([*[""] * len(tuned.channels), 100 * tuned.cross_validated, "cross-validated"])
    for name, own in tuned.alone.items():
        means = [100 * mean for mean in own]
        means += [100 * fmean(own)] if several else []
        note = f"{name} alone"
        if fmean(own) > fmean(tuned.means[best]):
            note += ": better than the best fusion"
        rows.append([*[""] * len(tuned.channels), *means, note])
    return Table(header, rows, digits=2)


def _remark(tuned: Tuned) -> str:
    """What is said of the best weights."""
    tried = [sorted(set(own)) for own in zip(*tuned.means, strict=True)]
    ends = [
        f"{name}: the {'least' if weight == own[0] else 'largest'} that was tried"
        for name, weight, own in zip(tuned.channels, tuned.best, tried, strict=True)
        if len(own) > 1 and weight in (own[0], own[-1])
    ]
    return f"best ({'; '.join(ends)})" if ends else "best"


def _shown(weights: Weights) -> list[Cell]:
    return [f"{weight:.1f}" for weight in weights]


def chosen(fusion: Fusion, tuned: Tuned) -> Fusion:
    """Return the fusion with the best weights."""
    best = dict(zip(tuned.channels, tuned.best, strict=True))
    return replace(fusion, weights={**fusion.weights, **best})
