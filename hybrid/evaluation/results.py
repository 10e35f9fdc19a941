"""The results of a test set, as a table, a plot, JSON lines per query, and TREC runs."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from hybrid.answering.answers import Answer
from hybrid.evaluation.answering import Answering, half_width
from hybrid.evaluation.chains import EM as PASSAGE_EM
from hybrid.evaluation.chains import ChainRun
from hybrid.evaluation.measures import Evaluation, against_best, shown_p
from hybrid.evaluation.plots import add_legend, colors, figure
from hybrid.evaluation.tables import INTERVAL, Cell, Table
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evidence.measures import PAGE_PRECISION, R_PRECISION
from sparta.base.checks import path_of
from sparta.base.errors import InputError
from sparta.base.files import atomic_write, make_folder
from sparta.base.records import Run
from sparta.base.remedies import Option, remedy
from sparta.base.renames import renamed_fields
from sparta.data.parsing import placed
from sparta.data.trec import check_query_ids, write_run

SIGNIFICANT = 0.05
LEGEND = (
    f"p: paired t-test against the best single ranking (Holm); * below {SIGNIFICANT:g}, ↑ better, ↓ worse"
)
"""The legend under a table with p-values."""
EXACT = "EM"
OF_ANSWERS = (EXACT, "F1")
"""Prefixes of the names of answer measures."""


@renamed_fields(left_out="omitted_questions")
@dataclass(frozen=True, slots=True)
class SetResults:
    """The measured rankings of one test set.

    `fused` has the names of rankings that are fusions: p-values compare with the best other ranking. `ms` is
    each ranking's latency in ms/query, if measured; `steps` has the times of chains' steps. `domain` is
    "in-domain", "out-of-domain" or empty; means are computed per domain. `omitted_questions` is the number of
    queries without judged passages. `misplaced` is the number of answers that are not at their stated
    position.
    """

    name: str
    evaluations: Sequence[Evaluation]
    fused: Collection[str] = ()
    ms: Mapping[str, float] = field(default_factory=dict)
    domain: str = ""
    omitted_questions: int = 0
    misplaced: int = 0
    answers: Mapping[str, Mapping[str, Answer | None]] = field(default_factory=dict)
    steps: Mapping[str, ChainRun] = field(default_factory=dict)

    @property
    def main_measure(self) -> str:
        """The default measure for p-values: EM (largest depth), else RR, else page_Rprec, else the first."""
        measures = list(self.evaluations[0].per_query)
        exact_measures = [measure for measure in measures if measure.startswith(EXACT)]
        ranking_measures = [measure for measure in ("RR", PAGE_PRECISION) if measure in measures]
        return [*exact_measures[-1:], *ranking_measures, *measures][0]

    def answer_lines(self) -> Iterator[dict[str, Any]]:
        """Yield each ranking's answer to each question, with the answer's EM and F1."""
        for evaluation in self.evaluations:
            for query_id, answer in self.answers.get(evaluation.name, {}).items():
                measured = {
                    measure: values[query_id]
                    for measure, values in evaluation.per_query.items()
                    if measure.startswith(OF_ANSWERS)
                }
                answer_fields = answer.as_dict() if answer else {"answer": ""}
                yield {
                    "set": self.name,
                    "ranking": evaluation.name,
                    "query_id": query_id,
                    **answer_fields,
                    **measured,
                }


def results_table(
    sets: Sequence[SetResults], measures: Sequence[str] = (), *, label: str = "channel", digits: int = 2
) -> Table:
    """Return a table with one row for each set and ranking; means are in percent.

    Below several sets, further rows have the sets' means by domain, if measures were chosen or all sets are
    KILT tasks.

    p is the p-value of a paired t-test (Holm) against the best ranking that is no fusion. A star marks p
    below `SIGNIFICANT`; ↑ marks a ranking that is better than this best ranking, ↓ a worse ranking. ± is half
    of the 95 % interval of EM, F1 and R-precision (bootstrap over questions).

    :param measures: the columns, in addition to the measures of answers; p is for the first measure. Without
        measures, or with answers, p is for `SetResults.main_measure`
    :param label: the header of the column of rankings
    """
    measured_names = list(
        dict.fromkeys(
            measure
            for results in sets
            for evaluation in results.evaluations
            for measure in evaluation.per_query
        )
    )
    answer_measures = [measure for measure in measured_names if measure.startswith(OF_ANSWERS)]
    columns = [*measures, *answer_measures] if measures else measured_names
    main_measure = measures[0] if measures and not answer_measures else None
    main_measures = {main_measure or results.main_measure for results in sets}
    has_times = any(results.ms for results in sets)
    measure_columns = [
        name for measure in columns for name in ([measure, INTERVAL] if _has_interval(measure) else [measure])
    ]
    p_header = f"p ({main_measures.pop()})" if len(main_measures) == 1 else "p"
    header = ["set", label, *measure_columns, p_header]
    rows: list[list[Cell]] = []
    for domain in dict.fromkeys(results.domain for results in sets):
        domain_sets = [results for results in sets if results.domain == domain]
        for results in domain_sets:
            rows += _rows(results, columns, main_measure or results.main_measure)
        are_kilt_tasks = all(PAGE_PRECISION in results.evaluations[0].per_query for results in domain_sets)
        if (measures or are_kilt_tasks) and len(domain_sets) > 1:
            rows += _means(domain_sets, columns)
    if not has_times:
        return Table(header, [row[:-2] for row in rows], digits=digits, n_names=2)
    if not any(results.steps for results in sets):
        return Table([*header, "ms/query"], [row[:-1] for row in rows], digits=digits, n_names=2)
    return Table([*header, "ms/query", "ms/step"], rows, digits=digits, n_names=2)


def verdict(results: SetResults, fusions: Collection[str], singles: str = "channel") -> str:
    """Return in words whether a fusion is better than the best single ranking; empty without a fusion.

    The measure and the p-values are those of `results_table` without `measures`.

    :param fusions: the names of the rankings that are fusions; chains are neither fusions nor single rankings
    :param singles: a noun for the single rankings
    """
    main = results.main_measure
    by_score = sorted(
        (evaluation for evaluation in results.evaluations if evaluation.name in fusions),
        key=lambda evaluation: -evaluation.mean(main),
    )
    if not by_score:
        return ""
    best, p_values = against_best(results.evaluations, main, among=_single_rankings(results))
    better = [evaluation for evaluation in by_score if evaluation.mean(main) > best.mean(main)]
    significant = [evaluation for evaluation in better if p_values[evaluation.name] < SIGNIFICANT]
    degree = "significantly better" if better else "better"
    if significant:
        count = len(significant)
        subject = f"{count} fusions are" if count > 1 else "A fusion is"
    else:
        subject = "The fusion is not" if len(by_score) == 1 else "No fusion is"
    fusion = [*significant, *by_score][0]
    return (
        f"{subject} {degree} than the best {singles}: {main} {100 * fusion.mean(main):.2f} ({fusion.name})"
        f" against {100 * best.mean(main):.2f} ({best.name})"
    )


def _single_rankings(results: SetResults) -> list[Evaluation]:
    """Return the rankings that are no fusions."""
    return [evaluation for evaluation in results.evaluations if evaluation.name not in results.fused]


def _rows(results: SetResults, columns: Sequence[str], main: str) -> list[list[Cell]]:
    """Return the table rows of one test set."""
    best, p_values = against_best(results.evaluations, main, among=_single_rankings(results))
    rows: list[list[Cell]] = []
    for evaluation in results.evaluations:
        means: list[Cell] = []
        for measure in columns:
            is_measured = measure in evaluation.per_query
            means.append(100 * evaluation.mean(measure) if is_measured else None)
            if _has_interval(measure):
                means.append(100 * half_width(evaluation, measure) if is_measured else None)
        p_text = ""
        if evaluation is not best:
            arrow = "↑" if evaluation.mean(main) > best.mean(main) else "↓"
            p_value = p_values[evaluation.name]
            p_text = shown_p(p_value)
            p_text += f"*{arrow}" if p_value < SIGNIFICANT else ""
        steps = results.steps[evaluation.name].by_step() if evaluation.name in results.steps else ""
        rows.append([results.name, evaluation.name, *means, p_text, results.ms.get(evaluation.name), steps])
    return rows


def _means(sets: Sequence[SetResults], columns: Sequence[str]) -> list[list[Cell]]:
    """Return one row for each ranking that several sets have, with its means over these sets.

    If a set lacks the ranking, the row names the sets of the means.
    """
    by_ranking: dict[str, dict[str, Evaluation]] = {}
    for results in sets:
        for evaluation in results.evaluations:
            by_ranking.setdefault(evaluation.name, {})[results.name] = evaluation
    label = f"mean, {sets[0].domain}" if sets[0].domain else "mean"
    return [
        [
            label if len(of_sets) == len(sets) else f"{label} of {', '.join(of_sets)}",
            *(name, *_mean_cells(list(of_sets.values()), columns), "", None, ""),
        ]
        for name, of_sets in by_ranking.items()
        if len(of_sets) > 1
    ]


def _mean_cells(rankings: Sequence[Evaluation], columns: Sequence[str]) -> Iterator[Cell]:
    """Yield the cells of a row of means; a measure that a ranking lacks has an empty cell."""
    for measure in columns:
        is_measured = all(measure in ranking.per_query for ranking in rankings)
        yield 100 * fmean(ranking.mean(measure) for ranking in rankings) if is_measured else None
        if _has_interval(measure):
            yield None


def _has_interval(measure: str) -> bool:
    """Return whether a measure's column is followed by its interval."""
    return measure.startswith(OF_ANSWERS) or measure.endswith((R_PRECISION, PASSAGE_EM))


def draw(sets: Sequence[SetResults], measure: str, path: Path) -> None:
    """Draw a bar chart of one measure for each set and ranking.

    The suffix of the file name decides the format (PNG, SVG, PDF).
    """
    names = list(
        dict.fromkeys(
            evaluation.name
            for results in sets
            for evaluation in results.evaluations
            if measure in evaluation.per_query
        )
    )
    width = 0.8 / len(names)
    with figure(path, figsize=(2 + max(1.6, 0.4 * len(names)) * len(sets), 3.6)) as axis:
        for i, name in enumerate(names):
            by_name = [
                {evaluation.name: evaluation for evaluation in results.evaluations} for results in sets
            ]
            values = [100 * rankings[name].mean(measure) if name in rankings else 0 for rankings in by_name]
            bars = axis.bar(
                [set_number + i * width for set_number in range(len(sets))], values, width, label=name
            )
            axis.bar_label(bars, fmt="%.1f", fontsize=7)
        centers = [set_number + 0.4 - width / 2 for set_number in range(len(sets))]
        axis.set_xticks(centers, [results.name for results in sets], fontsize=8)
        axis.set(ylabel=f"{measure}, %", ylim=(0, 105))
        add_legend(axis)


def per_query_lines(sets: Sequence[SetResults]) -> Iterator[dict[str, Any]]:
    """Yield one object for each set, ranking and query, with the query's measures."""
    for results in sets:
        for evaluation in results.evaluations:
            per_query = evaluation.per_query
            for query_id in dict.fromkeys(itertools.chain.from_iterable(per_query.values())):
                values = {
                    measure: by_query[query_id]
                    for measure, by_query in per_query.items()
                    if query_id in by_query
                }
                chain = results.steps.get(evaluation.name)
                times = {"ms": chain.ms[query_id]} if chain and query_id in chain.ms else {}
                line = {"set": results.name, "ranking": evaluation.name, "query_id": query_id}
                yield {**line, **values, **times}


def write_per_query(sets: Sequence[SetResults], output: Path | None) -> None:
    """Write the measures of each query as JSON lines; do nothing without an output file."""
    if output:
        _write_lines(output, per_query_lines(sets))


def _write_lines(output: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    atomic_write(output, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())


def check_runs(query_sets: Sequence[QuestionSet]) -> None:
    """Check before a search that `save_run` can write the rankings of these question sets into one folder.

    :raises InputError: two sets have the same file name, or a query id contains white space, or is repeated.
    """
    check_run_names([query_set.name for query_set in query_sets])
    for query_set in query_sets:
        with placed(query_set.name):
            check_query_ids(query.query_id for query in query_set.queries)


def check_run_names(names: Sequence[str]) -> None:
    """Check that the runs of test sets, or of rankings, have different file names."""
    for name, other in itertools.combinations(names, 2):
        if file_word(name) == file_word(other):
            raise InputError(
                f"the TREC runs of {name} and {other} would be the same file",
                remedy=remedy("rename one of the two, or omit {}", Option("output_runs")),
            )


def save_run(folder: str | Path, set_name: str, name: str, run: Run) -> None:
    """Write a TREC run into a folder, as a file named after the test set and the ranking."""
    folder = path_of(folder, "a folder")
    make_folder(folder)
    write_run(folder / f"{file_word(set_name)}-{file_word(name)}.trec", run.items(), file_word(name))


def file_word(name: str) -> str:
    """Return a ranking's or set's name as a file name: `impact + 1.2·bm25` becomes `impact+1.2xbm25`."""
    return re.sub(r"[^\w.+-]+", "-", name.replace(" + ", "+").replace("·", "x")).strip("-")


def write_answers(sets: Sequence[SetResults], output: Path | None) -> None:
    """Write all answers as JSON lines; do nothing without an output file."""
    if output:
        _write_lines(output, (line for results in sets for line in results.answer_lines()))


def plot_answers(sets: Sequence[SetResults], answering: Answering, plot: Path | None) -> None:
    """Draw EM against the number of read passages, for each set with answers; do nothing without a file.

    If there is only one depth, draw a bar chart of EM.
    """
    sets = [results for results in sets if results.main_measure.startswith(EXACT)]
    if plot and len(answering.depths) <= 1:
        draw(sets, EXACT, plot)
    elif plot:
        names = [ranking.name for results in sets for ranking in results.evaluations]
        color = colors(names)
        with figure(plot, columns=len(sets), figsize=(1 + 3.4 * len(sets), 3.6)) as axes:
            set_axes = list(axes) if len(sets) > 1 else [axes]
            for results, axis in zip(sets, set_axes, strict=True):
                for ranking in results.evaluations:
                    points = [
                        (depth, 100 * ranking.mean(f"{EXACT}{suffix}")) for depth, suffix in answering.names()
                    ]
                    axis.plot(
                        *zip(*points, strict=True), marker="o", label=ranking.name, color=color[ranking.name]
                    )
                axis.set(title=results.name, xlabel="passages read", ylabel="EM", xscale="log")
            add_legend(*set_axes)
