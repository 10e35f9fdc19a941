"""Tunes the weights and the number of candidates of a fusion on questions with known answers."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from hybrid.evaluation.measures import can_measure, kind_of, measures_of, parse_any
from hybrid.evaluation.rankings import Retrieved, depth_of, search_all, warn_of_few_candidates
from hybrid.evaluation.tables import Cell, Exact, Table
from hybrid.evaluation.testsets import QuestionSet
from hybrid.retrieval.channels import Channels
from hybrid.retrieval.fusion import Fusion
from sparta.base.checks import list_of, whole
from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy

ALPHAS = tuple(round(0.5 + 0.1 * i, 1) for i in range(16))
"""The default weights of BM25 to try (TASER, §4.3 and appendix D)."""
FOLDS = 5
MOST_ALPHAS = 1000
MOST_SETTINGS = 20_000

Weights = tuple[float, ...]
"""The weights of the tuned channels, in channel order."""


class Setting(NamedTuple):
    """A setting to choose: the tuned channels' weights, and the number of candidates per channel (K')."""

    weights: Weights
    candidates: int


Values = Mapping[Setting, Mapping[str, float]]
"""A measure by setting and query id."""


class Fold(NamedTuple):
    """A cross-validation fold: the setting chosen on the other folds, and its values on this fold.

    `values` has the measure of the fold's questions, by query id.
    """

    number: int
    setting: Setting
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Tuned:
    """The means of a measure, by setting: one mean for each question set, in the order of `names`.

    `folds` is set only for a single question set: each setting is chosen on four fifths of the questions and
    measured on the last fifth. `singles` has the means of each channel without fusion, by channel name.
    """

    channels: Sequence[str]
    measure: str
    names: Sequence[str]
    means: Mapping[Setting, Sequence[float]]
    folds: Sequence[Fold] = ()
    singles: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def best(self) -> Setting:
        """The setting with the highest mean over the sets; ties go to the smallest weights and candidates."""
        return _best({setting: fmean(set_means) for setting, set_means in self.means.items()})

    @property
    def cross_validated(self) -> float:
        """The mean over all questions, each measured with the setting chosen on the other folds."""
        return fmean(value for fold in self.folds for value in fold.values.values())

    @property
    def fused(self) -> float:
        """The fusion's mean, for comparison with channels: cross-validated, or without folds the best mean.

        The best mean is of the questions that chose the setting, so it is too high for other questions.
        """
        return self.cross_validated if self.folds else fmean(self.means[self.best])


def _best(values: Mapping[Setting, float]) -> Setting:
    """Return the setting with the highest value; ties go to the smallest setting."""
    return min(values, key=lambda setting: (-values[setting], setting))


def measure_for(sets: Sequence[QuestionSet]) -> str:
    """Return the default measure to tune for: RR if all sets have judged passages, else answer_recall@20."""
    return "RR" if all(query_set.qrels for query_set in sets) else "answer_recall@20"


def _check_measure(measure: str, sets: Sequence[QuestionSet]) -> None:
    """Raise if a measure cannot be computed for all sets."""
    kind = kind_of(measure)
    if kind.of_chains:
        raise InputError(
            f"cannot tune a fusion for {measure}: only chains have this measure",
            remedy=remedy("choose another measure, for example {}", Option("measure", "passage_Rprec")),
        )
    for query_set in sets:
        if not can_measure(query_set, measure):
            measurable = [name for name in measures_of(query_set) if can_measure(query_set, name)]
            advice = remedy(f"name question sets with {kind.needs}")
            if measurable:
                advice += remedy(", or choose another measure: {}", Option("measure", measurable[0]))
            raise InputError(
                f"the measure {measure} needs {kind.needs}, which the questions lack",
                where=query_set.name,
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
    """Measure a fusion with each combination of weights from `alphas` and numbers of candidates.

    Each channel is searched once.

    :param tuned: the channels whose weights vary, in all combinations; the other channels keep the fusion's
        weights
    :param candidates: the numbers of candidates to try with all weights; empty means only the fusion's number
    :raises InputError: there is nothing to try or to measure, there are more than 20,000 settings, or a set
        lacks the data for the measure.
    """
    sets, measure = list_of(sets, "sets of questions"), parse_any(measure)
    alphas, tuned = list_of(alphas, "weights to try"), list_of(tuned, "channels to tune")
    candidate_counts = [whole("candidates", count) for count in list_of(candidates, "numbers of candidates")]
    _check_measure(measure, sets)
    _check_tried(fusion, sets, alphas, tuned)
    fusions = [
        replace(fusion, candidates=count) for count in sorted(set(candidate_counts)) or [fusion.candidates]
    ]
    if (settings := len(alphas) ** len(tuned) * len(fusions)) > MOST_SETTINGS:
        raise InputError(
            f"the grid has {settings:,} settings; at most {MOST_SETTINGS:,} can be measured",
            remedy=remedy(
                "try fewer {}, {} or {}",
                Option("alphas"),
                Option("tuned", flag="channels"),
                Option("candidates"),
            ),
        )
    warn_of_few_candidates(fusions, [measure])
    grid = list(itertools.product(alphas, repeat=len(tuned)))
    values: list[Values] = []
    singles: dict[str, list[float]] = {}
    for query_set in sets:
        depth = depth_of(fusions[-1], measure)
        retrieved = search_all(channels, query_set, depth, threads)
        measured: dict[Setting, Mapping[str, float]] = {}
        for candidate_fusion in fusions:
            measured |= _values(retrieved, candidate_fusion, measure, tuned, grid)
        values.append(measured)
        for name in fusion.weights:
            single = retrieved.measured(name, retrieved.runs[name], [measure])
            singles.setdefault(name, []).append(single.mean(measure))
    means = {setting: [fmean(set_values[setting].values()) for set_values in values] for setting in values[0]}
    folds = cross_validate(values[0]) if len(sets) == 1 else []
    return Tuned(tuned, measure, [query_set.name for query_set in sets], means, folds, singles)


def _check_tried(
    fusion: Fusion, sets: Sequence[QuestionSet], alphas: Sequence[float], tuned: Sequence[str]
) -> None:
    """Raise if there are no sets, weights or channels to tune, or if a channel is not part of the fusion."""
    needed = {"set of questions": sets, "weight to try": alphas, "channel to tune": tuned}
    for description, values in needed.items():
        if not values:
            raise InputError(f"no {description} is named: at least one is needed")
    Fusion({str(alpha): alpha for alpha in alphas})  # raises for an invalid weight
    if unknown := [name for name in tuned if name not in fusion.weights]:
        raise InputError(
            f"cannot tune the channel {unknown[0]!r}; channels of the fusion: {', '.join(fusion.weights)}"
        )


def _values(
    retrieved: Retrieved, fusion: Fusion, measure: str, tuned: Sequence[str], grid: Sequence[Weights]
) -> dict[Setting, Mapping[str, float]]:
    """Return the measure of each question, by setting, for each combination of weights in the grid."""
    candidates, depth = fusion.gather_runs(retrieved.runs), depth_of(fusion, measure)
    retrieved = retrieved.with_fusion(fusion.label, fusion)
    values: dict[Setting, Mapping[str, float]] = {}
    for grid_weights in grid:
        weights = list({**fusion.weights, **dict(zip(tuned, grid_weights, strict=True))}.values())
        run = {
            query_id: query_candidates.ranked(weights, depth)
            for query_id, query_candidates in candidates.items()
        }
        evaluation = retrieved.measured(fusion.label, run, [measure])
        values[Setting(grid_weights, fusion.candidates)] = evaluation.per_query[measure]
    return values


def fold_of(query_id: str) -> int:
    """Return the number of a question's fold, from 0; only the query id decides."""
    return int.from_bytes(hashlib.sha256(query_id.encode()).digest()[:8]) % FOLDS


def cross_validate(values: Values) -> list[Fold]:
    """Choose a setting on all folds except one and measure the setting on that fold, for each fold.

    The list is empty if all questions are in one fold.
    """
    query_ids = sorted(next(iter(values.values())))
    folds = []
    for number in range(FOLDS):
        fold_ids = [query_id for query_id in query_ids if fold_of(query_id) == number]
        other_ids = [query_id for query_id in query_ids if fold_of(query_id) != number]
        if fold_ids and other_ids:
            means = {
                setting: fmean(query_values[query_id] for query_id in other_ids)
                for setting, query_values in values.items()
            }
            best_setting = _best(means)
            fold_values = {query_id: values[best_setting][query_id] for query_id in fold_ids}
            folds.append(Fold(number + 1, best_setting, fold_values))
    return folds


def tune_table(tuned: Tuned, *, only_settings: bool = False) -> Table:
    """Return a table with one row for each weight α of the first tuned channel, with the best other settings.

    The number of candidates is a column if several numbers were tried. For several sets, a column has the
    mean over the sets. The note says if the best weight is the smallest or largest of the tried weights,
    because a weight outside the range may then be better.

    :param only_settings: omit the further rows: the folds, the cross-validated mean, and each channel without
        fusion, whose note says if the channel is better than the fusion. `fold_table`, `channel_table`
        and `verdict` have the same results
    """
    settings = _setting_columns(tuned)
    header = [*settings, *_measure_columns(tuned), "note"]
    best = tuned.best
    rows: list[list[Cell]] = []
    for alpha in dict.fromkeys(setting.weights[0] for setting in tuned.means):
        alpha_means = {
            setting: fmean(means) for setting, means in tuned.means.items() if setting.weights[0] == alpha
        }
        alpha_best = _best(alpha_means)
        note = _remark(tuned) if alpha_best == best else ""
        rows.append([*_setting_cells(tuned, alpha_best), *_mean_cells(tuned.means[alpha_best]), note])
    if only_settings:
        return Table(header, rows, digits=2, n_names=len(settings))
    for fold in tuned.folds:
        note = f"fold {fold.number} of {FOLDS}, setting chosen on the other folds"
        rows.append([*_setting_cells(tuned, fold.setting), 100 * fmean(fold.values.values()), note])
    if tuned.folds:
        note = "cross-validated: mean over the questions of all folds"
        rows.append([*[None] * len(settings), 100 * tuned.cross_validated, note])
    fusion_name = "cross-validated fusion" if tuned.folds else "best fusion"
    for name, means in tuned.singles.items():
        remark = f": better than the {fusion_name}" if fmean(means) > tuned.fused else ""
        rows.append([*[None] * len(settings), *_mean_cells(means), f"{name} alone{remark}"])
    return Table(header, rows, digits=2, n_names=len(settings))


def channel_table(tuned: Tuned) -> Table:
    """Return a table with one row for each channel without fusion."""
    rows = [[name, *_mean_cells(means)] for name, means in tuned.singles.items()]
    return Table(["channel", *_measure_columns(tuned)], rows, digits=2)


def verdict(tuned: Tuned) -> str:
    """Return in words whether the fusion is better than the best single channel.

    With folds, the cross-validated mean is compared: each setting is measured on other questions than those
    that chose it.
    """
    name, means = max(tuned.singles.items(), key=lambda item: fmean(item[1]))
    relation = f"is{'' if tuned.fused > fmean(means) else ' not'} better than the best channel"
    measure = f"mean {tuned.measure}" if len(tuned.names) > 1 else tuned.measure
    figures = f"{measure} {100 * tuned.fused:.2f} against {100 * fmean(means):.2f} ({name})"
    if tuned.folds:
        return f"In cross-validation, the fusion {relation}: {figures}"
    return f"On the questions that chose its setting, the best fusion {relation}: {figures}"


def _measure_columns(tuned: Tuned) -> list[str]:
    """Return the headers of the means: the measure, or for several sets each set's measure and the mean."""
    if len(tuned.names) == 1:
        return [tuned.measure]
    return [*(f"{name} {tuned.measure}" for name in tuned.names), "mean"]


def _mean_cells(means: Sequence[float]) -> list[Cell]:
    """Return the cells of the means in percent, in the order of `_measure_columns`."""
    return [100 * mean for mean in (means if len(means) == 1 else (*means, fmean(means)))]


def fold_table(tuned: Tuned) -> Table:
    """Return a table with one row for each fold: its number of questions, its setting and its mean.

    The last row has the mean over the questions of all folds. Without folds, the table has no rows.
    """
    settings = _setting_columns(tuned)
    rows: list[list[Cell]] = [
        [
            str(fold.number),
            len(fold.values),
            *_setting_cells(tuned, fold.setting),
            100 * fmean(fold.values.values()),
        ]
        for fold in tuned.folds
    ]
    if rows:
        n_questions = sum(len(fold.values) for fold in tuned.folds)
        rows.append(["all", n_questions, *[None] * len(settings), 100 * tuned.cross_validated])
    return Table(["fold", "questions", *settings, tuned.measure], rows, digits=2)


def _setting_columns(tuned: Tuned) -> list[str]:
    """Return the headers of a setting: tuned weights, and candidates if several numbers were tried."""
    names = [f"weight of {name}" for name in tuned.channels]
    return [*names, "candidates"] if _varies_candidates(tuned) else names


def _setting_cells(tuned: Tuned, setting: Setting) -> list[Cell]:
    """Return the cells of a setting, in the order of `_setting_columns`."""
    return [*map(Exact, setting.weights), *([setting.candidates] if _varies_candidates(tuned) else [])]


def _varies_candidates(tuned: Tuned) -> bool:
    """Return whether several numbers of candidates were tried."""
    return len({setting.candidates for setting in tuned.means}) > 1


def _remark(tuned: Tuned) -> str:
    """Return the note on the best setting."""

    def numbers_of(setting: Setting) -> tuple[float, ...]:
        return (*setting.weights, setting.candidates)

    names = [*tuned.channels, "candidates"]
    tried_values = [sorted(set(values)) for values in zip(*map(numbers_of, tuned.means), strict=True)]
    ends = [
        f"{name}: the {'lowest' if value == values[0] else 'highest'} value tried"
        for name, value, values in zip(names, numbers_of(tuned.best), tried_values, strict=True)
        if len(values) > 1 and value in (values[0], values[-1])
    ]
    return f"best ({'; '.join(ends)})" if ends else "best"


def best_fusion(fusion: Fusion, tuned: Tuned) -> Fusion:
    """Return the fusion with the best weights and the best number of candidates."""
    best = dict(zip(tuned.channels, tuned.best.weights, strict=True))
    return replace(fusion, weights={**fusion.weights, **best}, candidates=tuned.best.candidates)


def parse_alphas(text: str) -> tuple[float, ...]:
    """Parse weights to try, such as `0.1,0.5,1` or `0.1:2:0.1` (from, to, step); sort them.

    :raises InputError: a number is not finite, the step is not above 0, or there are more than 1,000 weights.
    """
    first, *bounds = text.split(":")
    try:
        if not bounds:
            alphas = sorted({float(item) for item in text.split(",")})
        else:
            low, high, step = (float(item) for item in (first, *bounds))
            steps = math.floor((high - low) / step + 1e-9) if step > 0 else -1
            alphas = sorted({float(f"{low + step * i:.9g}") for i in range(min(steps, MOST_ALPHAS) + 1)})
    except (ValueError, OverflowError):
        alphas = []
    if not 0 < len(alphas) <= MOST_ALPHAS or not all(map(math.isfinite, alphas)):
        raise InputError(
            f"expected up to {MOST_ALPHAS:,} weights as FROM:TO:STEP or W1,W2, found {text!r}",
            remedy=remedy("write {}, or {}", Option("alphas", "0.1:2:0.1"), Option("alphas", "0.2,0.5,1")),
        )
    return tuple(alphas)
