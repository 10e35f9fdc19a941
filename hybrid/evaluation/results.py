"""What was measured on a test set: as a table, a plot, one line per query, and TREC runs."""

from __future__ import annotations

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
from hybrid.evaluation.plots import figure
from hybrid.evaluation.tables import Cell, Table
from hybrid.evidence.measures import PAGE_PRECISION, R_PRECISION
from sparta.base.checks import path_of
from sparta.base.files import atomic_write, make_folder
from sparta.base.records import Run
from sparta.data.trec import write_run

SIGNIFICANT = 0.05
LEGEND = (
    f"p: paired t-test against the best single ranking (Holm); * below {SIGNIFICANT:g}, ↑ better, ↓ worse"
)
"""Below a table that has such marks."""
EXACT = "EM"
OF_ANSWERS = (EXACT, "F1")


@dataclass(frozen=True, slots=True)
class SetResults:
    """The rankings of one test set, measured.

    `fused` names the rankings that are fusions: p-values compare with the best of the others. `ms` is the
    latency of a query, by ranking, where it was measured; `steps` has that of the steps of chains. `domain`
    says which mean the set counts in: "in-domain" or "out-of-domain" of what a model was trained on, or
    nothing. `left_out` queries of the set have no judged passage, and `misplaced` answers do not stand where
    the file says.
    """

    name: str
    evaluations: Sequence[Evaluation]
    fused: Collection[str] = ()
    ms: Mapping[str, float] = field(default_factory=dict)
    domain: str = ""
    left_out: int = 0
    misplaced: int = 0
    answers: Mapping[str, Mapping[str, Answer | None]] = field(default_factory=dict)
    steps: Mapping[str, ChainRun] = field(default_factory=dict)

    @property
    def main_measure(self) -> str:
        """What p-values are of, where none is chosen: EM (of the last depth), RR, page_Rprec or the first."""
        known = list(self.evaluations[0].per_query)
        exact = [measure for measure in known if measure.startswith(EXACT)]
        usual = [measure for measure in ("RR", PAGE_PRECISION) if measure in known]
        return [*exact[-1:], *usual, *known][0]

    def answer_lines(self) -> Iterator[dict[str, Any]]:
        """Yield every ranking's answer to every question, with its EM and F1."""
        for one in self.evaluations:
            for query_id, answer in self.answers.get(one.name, {}).items():
                measured = {m: v[query_id] for m, v in one.per_query.items() if m.startswith(OF_ANSWERS)}
                said = answer.as_dict() if answer else {"answer": ""}
                yield {"set": self.name, "ranking": one.name, "query_id": query_id, **said, **measured}


def results_table(
    sets: Sequence[SetResults], measures: Sequence[str] = (), *, label: str = "channel", digits: int = 2
) -> Table:
    """One row for each set and ranking, means in percent; below several sets, their means by domain,
    where measures were chosen or all sets are tasks of KILT.

    p is that of a paired t-test (Holm) against the best ranking that is no fusion: with a star below
    `SIGNIFICANT`, and ↑ where the ranking is better than that one, ↓ where it is worse. ± is half of the 95 %
    interval of EM, F1 and R-precision (bootstrap over questions).

    :param measures: columns, beside those of answers; p is of the first. Without any, or with answers, p is
        of `SetResults.main_measure`.
    :param label: the header of the rankings' names
    """
    measured = list(dict.fromkeys(m for one in sets for e in one.evaluations for m in e.per_query))
    of_answers = [m for m in measured if m.startswith(OF_ANSWERS)]
    columns = [*measures, *of_answers] if measures else measured
    chosen = measures[0] if measures and not of_answers else None
    mains = {chosen or one.main_measure for one in sets}
    timed = any(one.ms for one in sets)
    named = [name for m in columns for name in ([m, "±"] if _has_interval(m) else [m])]
    header = ["set", label, *named, f"p ({mains.pop()})" if len(mains) == 1 else "p"]
    rows: list[list[Cell]] = []
    for domain in dict.fromkeys(one.domain for one in sets):
        own = [one for one in sets if one.domain == domain]
        for one in own:
            rows += _rows(one, columns, chosen or one.main_measure)
        of_tasks = all(PAGE_PRECISION in one.evaluations[0].per_query for one in own)
        if (measures or of_tasks) and len(own) > 1:
            rows += _means(own, columns)
    if not timed:
        return Table(header, [row[:-2] for row in rows], digits=digits)
    if not any(one.steps for one in sets):
        return Table([*header, "ms/query"], [row[:-1] for row in rows], digits=digits)
    return Table([*header, "ms/query", "ms/step"], rows, digits=digits)


def _rows(one: SetResults, columns: Sequence[str], main: str) -> list[list[Cell]]:
    channels = [ranking for ranking in one.evaluations if ranking.name not in one.fused]
    best, p = against_best(one.evaluations, main, among=channels)
    rows: list[list[Cell]] = []
    for ranking in one.evaluations:
        means: list[Cell] = []
        for m in columns:
            known = m in ranking.per_query
            means.append(100 * ranking.mean(m) if known else None)
            if _has_interval(m):
                means.append(100 * half_width(ranking, m) if known else None)
        differs = ""
        if ranking is not best:
            way = "↑" if ranking.mean(main) > best.mean(main) else "↓"
            chance = p[ranking.name]
            differs = shown_p(chance)
            differs += f"*{way}" if chance < SIGNIFICANT else ""
        steps = one.steps[ranking.name].by_step() if ranking.name in one.steps else ""
        rows.append([one.name, ranking.name, *means, differs, one.ms.get(ranking.name), steps])
    return rows


def _means(sets: Sequence[SetResults], columns: Sequence[str]) -> list[list[Cell]]:
    """One row for each ranking that all sets have: its mean over the sets."""
    named = [{e.name: e for e in one.evaluations} for one in sets]
    label = f"mean, {sets[0].domain}" if sets[0].domain else "mean"
    return [
        [label, name, *_mean_cells([one[name] for one in named], columns), "", None, ""]
        for name in named[0]
        if all(name in one for one in named)
    ]


def _mean_cells(rankings: Sequence[Evaluation], columns: Sequence[str]) -> Iterator[Cell]:
    for m in columns:
        yield (
            100 * fmean(one.mean(m) for one in rankings) if all(m in r.per_query for r in rankings) else None
        )
        if _has_interval(m):
            yield None


def _has_interval(measure: str) -> bool:
    return measure.startswith(OF_ANSWERS) or measure.endswith((R_PRECISION, PASSAGE_EM))


def draw(sets: Sequence[SetResults], measure: str, path: Path) -> None:
    """Draw one measure of every ranking, set by set; the file's name says in which form (PNG, SVG, PDF)."""
    names = list(dict.fromkeys(e.name for one in sets for e in one.evaluations if measure in e.per_query))
    width = 0.8 / len(names)
    with figure(path, figsize=(2 + 1.6 * len(sets), 3.6)) as axis:
        for i, name in enumerate(names):
            values = [
                next((100 * e.mean(measure) for e in one.evaluations if e.name == name), 0) for one in sets
            ]
            bars = axis.bar([n + i * width for n in range(len(sets))], values, width, label=name)
            axis.bar_label(bars, fmt="%.1f", fontsize=7)
        axis.set_xticks([n + 0.4 - width / 2 for n in range(len(sets))], [s.name for s in sets], fontsize=8)
        axis.set(ylabel=f"{measure}, %", ylim=(0, 105))
        axis.legend(fontsize=8, loc="lower right")


def per_query_lines(sets: Sequence[SetResults]) -> Iterator[dict[str, Any]]:
    """Yield one object for each set, ranking and query."""
    for one in sets:
        for evaluation in one.evaluations:
            ids = dict.fromkeys(q for figures in evaluation.per_query.values() for q in figures)
            for query_id in ids:
                known = evaluation.per_query.items()
                values = {m: figures[query_id] for m, figures in known if query_id in figures}
                chain = one.steps.get(evaluation.name)
                spent = {"ms": chain.ms[query_id]} if chain and query_id in chain.ms else {}
                line = {"set": one.name, "ranking": evaluation.name, "query_id": query_id}
                yield {**line, **values, **spent}


def write_per_query(sets: Sequence[SetResults], output: Path | None) -> None:
    """Write the measures of every query as JSONL; without an output, nothing."""
    if output:
        _write_lines(output, per_query_lines(sets))


def _write_lines(output: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    atomic_write(output, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())


def save_run(folder: str | Path, of: str, name: str, run: Run) -> None:
    """Write a TREC run into a folder, named after the test set and the ranking."""
    folder = path_of(folder, "a folder")
    make_folder(folder)
    write_run(folder / f"{file_word(of)}-{file_word(name)}.trec", run.items(), file_word(name))


def file_word(name: str) -> str:
    """`impact + 1.2·bm25` as a file's name: `impact+1.2xbm25`."""
    return re.sub(r"[^\w.+-]+", "-", name.replace(" + ", "+").replace("·", "x")).strip("-")


def write_answers(sets: Sequence[SetResults], output: Path | None) -> None:
    """Write all answers as JSONL; without an output, nothing."""
    if output:
        _write_lines(output, (line for one in sets for line in one.answer_lines()))


def plot_answers(sets: Sequence[SetResults], answering: Answering, plot: Path | None) -> None:
    """Draw EM against the number of passages read, of the sets that have answers, or EM alone where all
    rankings are read equally deep; without a file, nothing.
    """
    sets = [one for one in sets if one.main_measure.startswith(EXACT)]
    if plot and len(answering.depths) == 1:
        draw(sets, EXACT, plot)
    elif plot:
        with figure(plot, columns=len(sets), figsize=(1 + 3.4 * len(sets), 3.6)) as axes:
            for one, axis in zip(sets, axes if len(sets) > 1 else [axes], strict=True):
                for ranking in one.evaluations:
                    points = [(d, 100 * ranking.mean(f"{EXACT}{suffix}")) for d, suffix in answering.names()]
                    axis.plot(*zip(*points, strict=True), marker="o", label=ranking.name)
                axis.set(title=one.name, xlabel="passages read", ylabel="EM", xscale="log")
                axis.legend(frameon=False)
