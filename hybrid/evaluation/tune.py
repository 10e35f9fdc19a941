"""The weights of a fusion, and how many candidates it takes, chosen on questions whose answers are known."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from hybrid.evaluation.measures import can_measure, kind_of, measures_of, parse_any
from hybrid.evaluation.rankings import Retrieved, depth_of, search_all
from hybrid.evaluation.tables import Cell, Exact, Table
from hybrid.evaluation.testsets import QuestionSet
from hybrid.retrieval.channels import Channels
from hybrid.retrieval.fusion import Fusion
from sparta.base.checks import several, whole
from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy

ALPHAS = tuple(round(0.5 + 0.1 * i, 1) for i in range(16))
"""TASER, §4.3."""
FOLDS = 5
MOST_ALPHAS = 1000
MOST_SETTINGS = 20_000

Weights = tuple[float, ...]
"""Of the channels that are tuned, in their order."""


class Setting(NamedTuple):
    """What is chosen: the weights, and K', how many candidates each channel gives."""

    weights: Weights
    candidates: int


Values = Mapping[Setting, Mapping[str, float]]
"""A measure by setting and query id."""


class Fold(NamedTuple):
    """One of the parts that the questions fall into: what the others chose, and what it is worth here."""

    number: int
    setting: Setting
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Tuned:
    """The mean of a measure by setting: one for each set, in the order of `names`.

    `folds` is there for one set only: settings chosen on four fifths of the questions, measured on the last.
    `singles` is the mean of each channel by itself, for each set.
    """

    channels: Sequence[str]
    measure: str
    names: Sequence[str]
    means: Mapping[Setting, Sequence[float]]
    folds: Sequence[Fold] = ()
    singles: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def best(self) -> Setting:
        """The setting with the highest mean over the sets; of equals the smallest weights and candidates."""
        return _best({setting: fmean(own) for setting, own in self.means.items()})

    @property
    def cross_validated(self) -> float:
        """The mean over all questions, each measured with a setting that it had no part in choosing."""
        return fmean(value for fold in self.folds for value in fold.values.values())


def _best(values: Mapping[Setting, float]) -> Setting:
    return min(values, key=lambda setting: (-values[setting], setting))


def measure_for(sets: Sequence[QuestionSet]) -> str:
    """Return what to tune for: RR where all sets have judged passages, else answer_recall@20."""
    return "RR" if all(one.qrels for one in sets) else "answer_recall@20"


def _check_measure(measure: str, sets: Sequence[QuestionSet]) -> None:
    kind = kind_of(measure)
    if kind.of_chains:
        raise InputError(
            f"expected a measure of single passages to tune for, found {measure}, which only chains have",
            remedy=remedy("name another, as in {}", Option("measure", "passage_Rprec")),
        )
    for one in sets:
        if not can_measure(one, measure):
            others = [m for m in measures_of(one) if can_measure(one, m)]
            advice = remedy("name sets that have them")
            if others:
                advice += remedy(", or another measure, as in {}", Option("measure", others[0]))
            raise InputError(
                f"expected {kind.needs} to tune on for {measure}, found none",
                where=one.name,
                remedy=advice,
            )


def tune(
    channels: Channels,
    sets: Sequence[QuestionSet],
    fusion: Fusion,
    measure: str,
    tuned: Sequence[str] = ("bm25",),
    alphas: Sequence[float] = ALPHAS,
    *,
    candidates: Sequence[int] = (),
    threads: int = 2,
) -> Tuned:
    """Measure the fusion with each of `alphas` as the weight of BM25, and with each number of candidates.

    Each channel is searched once.

    :param tuned: the channels whose weights are tried, each with each; the others keep the fusion's.
    :param candidates: the numbers of candidates to try, each with all weights; empty: the fusion's own.
    :raises InputError: nothing to try or to measure, more than 20,000 settings, or sets on which it cannot be
        measured.
    """
    sets, measure = several(sets, "sets of questions"), parse_any(measure)
    alphas, tuned = several(alphas, "weights to try"), several(tuned, "channels to tune")
    tried = [whole("candidates", k) for k in several(candidates, "numbers of candidates")]
    _check_measure(measure, sets)
    _check_tried(fusion, sets, alphas, tuned)
    fusions = [replace(fusion, candidates=k) for k in sorted(set(tried)) or [fusion.candidates]]
    if (settings := len(alphas) ** len(tuned) * len(fusions)) > MOST_SETTINGS:
        raise InputError(
            f"expected at most {MOST_SETTINGS:,} settings to measure, found {settings:,}",
            remedy=remedy(
                "give fewer {}, {} or {}",
                Option("alphas"),
                Option("tuned", flag="channels"),
                Option("candidates"),
            ),
        )
    grid = list(itertools.product(alphas, repeat=len(tuned)))
    values: list[Values] = []
    singles: dict[str, list[float]] = {}
    for query_set in sets:
        depth = depth_of(fusions[-1], measure)
        retrieved = search_all(channels, query_set, depth, threads)
        measured: dict[Setting, Mapping[str, float]] = {}
        for one in fusions:
            measured |= _values(retrieved, one, measure, tuned, grid)
        values.append(measured)
        for name in fusion.weights:
            alone = retrieved.measured("", retrieved.runs[name], [measure])
            singles.setdefault(name, []).append(alone.mean(measure))
    means = {setting: [fmean(own[setting].values()) for own in values] for setting in values[0]}
    folds = cross_validate(values[0]) if len(sets) == 1 else []
    return Tuned(tuned, measure, [one.name for one in sets], means, folds, singles)


def _check_tried(
    fusion: Fusion, sets: Sequence[QuestionSet], alphas: Sequence[float], tuned: Sequence[str]
) -> None:
    """Refuse to tune on nothing, with nothing to try, or what is not fused."""
    needed = {"set of questions": sets, "weight to try": alphas, "channel to tune": tuned}
    for what, values in needed.items():
        if not values:
            raise InputError(f"expected at least one {what}, found none")
    Fusion({str(alpha): alpha for alpha in alphas})  # refuses what is no weight
    if unknown := [name for name in tuned if name not in fusion.weights]:
        raise InputError(f"expected channels of {', '.join(fusion.weights)} to tune, found {unknown[0]!r}")


def _values(
    retrieved: Retrieved, fusion: Fusion, measure: str, tuned: Sequence[str], grid: Sequence[Weights]
) -> dict[Setting, Mapping[str, float]]:
    """Return the measure of each question with each weights of the grid, by setting."""
    candidates, depth = fusion.gather_runs(retrieved.runs), depth_of(fusion, measure)
    found: dict[Setting, Mapping[str, float]] = {}
    for tried in grid:
        weights = list({**fusion.weights, **dict(zip(tuned, tried, strict=True))}.values())
        run = {q: own.ranked(weights, depth) for q, own in candidates.items()}
        found[Setting(tried, fusion.candidates)] = retrieved.measured("", run, [measure]).per_query[measure]
    return found


def fold_of(query_id: str) -> int:
    """Return which fold a question is in: a matter of its id alone."""
    return int.from_bytes(hashlib.sha256(query_id.encode()).digest()[:8]) % FOLDS


def cross_validate(values: Values) -> list[Fold]:
    """Choose on all folds but one, measure on that one; none where all questions are in one fold."""
    questions = sorted(next(iter(values.values())))
    folds = []
    for number in range(FOLDS):
        inside = [q for q in questions if fold_of(q) == number]
        outside = [q for q in questions if fold_of(q) != number]
        if inside and outside:
            chosen = _best({s: fmean(own[q] for q in outside) for s, own in values.items()})
            folds.append(Fold(number + 1, chosen, {q: values[chosen][q] for q in inside}))
    return folds


def tune_table(tuned: Tuned) -> Table:
    """One row for each α of the first channel that is tuned, with the best of what else is tuned.

    The candidates are named where several numbers of them were tried. Of one set, the folds and the
    cross-validated figure stand below; of several, their means beside them. Then each channel alone. The note
    says when the best weight is the least or the largest that was tried, so that another may be better, and
    when a channel alone is better than the best fusion.
    """
    several = len(tuned.names) > 1
    by_candidates = len({setting.candidates for setting in tuned.means}) > 1
    settings = [f"weight of {name}" for name in tuned.channels] + ["candidates"] * by_candidates
    named = [f"{name} {tuned.measure}" for name in tuned.names] if several else [tuned.measure]
    header = [*settings, *named, *(["mean"] if several else []), "note"]

    def shown(setting: Setting) -> list[Cell]:
        return [*map(Exact, setting.weights), *([setting.candidates] if by_candidates else [])]

    def percent(means: Sequence[float]) -> list[Cell]:
        return [100 * mean for mean in (*means, *([fmean(means)] if several else []))]

    best = tuned.best
    rows: list[list[Cell]] = []
    for alpha in dict.fromkeys(setting.weights[0] for setting in tuned.means):
        row = _best({s: fmean(own) for s, own in tuned.means.items() if s.weights[0] == alpha})
        rows.append([*shown(row), *percent(tuned.means[row]), _remark(tuned) if row == best else ""])
    for fold in tuned.folds:
        note = f"fold {fold.number} of {FOLDS}: chosen on the others"
        rows.append([*shown(fold.setting), 100 * fmean(fold.values.values()), note])
    if tuned.folds:
        rows.append([*[None] * len(settings), 100 * tuned.cross_validated, "cross-validated"])
    for name, own in tuned.singles.items():
        better = ": better than the best fusion" if fmean(own) > fmean(tuned.means[best]) else ""
        rows.append([*[None] * len(settings), *percent(own), f"{name} alone{better}"])
    return Table(header, rows, digits=2)


def _remark(tuned: Tuned) -> str:
    """What is said of the best setting."""

    def flat(setting: Setting) -> tuple[float, ...]:
        return (*setting.weights, setting.candidates)

    names = [*tuned.channels, "candidates"]
    tried = [sorted(set(own)) for own in zip(*map(flat, tuned.means), strict=True)]
    ends = [
        f"{name}: the {'least' if value == own[0] else 'largest'} that was tried"
        for name, value, own in zip(names, flat(tuned.best), tried, strict=True)
        if len(own) > 1 and value in (own[0], own[-1])
    ]
    return f"best ({'; '.join(ends)})" if ends else "best"


def chosen(fusion: Fusion, tuned: Tuned) -> Fusion:
    """Return the fusion with the best weights and number of candidates."""
    best = dict(zip(tuned.channels, tuned.best.weights, strict=True))
    return replace(fusion, weights={**fusion.weights, **best}, candidates=tuned.best.candidates)


def parse_alphas(text: str) -> tuple[float, ...]:
    """Read `0.1,0.5,1` or `0.1:2:0.1`, from, to and step: weights to try, in ascending order.

    :raises InputError: no finite numbers, a step that is not above 0, or more than 1,000 weights.
    """
    first, *rest = text.split(":")
    try:
        if not rest:
            found = sorted({float(part) for part in text.split(",")})
        else:
            low, high, step = (float(part) for part in (first, *rest))
            steps = math.floor((high - low) / step + 1e-9) if step > 0 else -1
            found = sorted({float(f"{low + step * i:.9g}") for i in range(min(steps, MOST_ALPHAS) + 1)})
    except (ValueError, OverflowError):
        found = []
    if not 0 < len(found) <= MOST_ALPHAS or not all(map(math.isfinite, found)):
        raise InputError(
            f"expected 1 to {MOST_ALPHAS:,} weights, as FROM:TO:STEP or with commas, found {text!r}",
            remedy=remedy("{}, or {}", Option("alphas", "0.1:2:0.1"), Option("alphas", "0.2,0.5,1")),
        )
    return tuple(found)


def parse_candidates(text: str, option: str = "candidates") -> tuple[int, ...]:
    """Read `20,50,100`: numbers of candidates to try, or of passages to read.

    :raises InputError: not whole numbers above 0.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 10 and int(part) for part in parts):
        raise InputError(
            f"expected whole numbers from 1 to 999,999,999, with commas, found {text!r}",
            remedy=remedy("{}, or {} to compare them", Option(option, "100"), Option(option, "20,50,100")),
        )
    return tuple(int(part) for part in parts)
