"""Every channel of an index beside their fusions, on questions whose answers or passages are known."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean, median

from hybrid.evaluation.evaluate import chance, read_judged_run
from hybrid.evaluation.measures import Evaluation, against_best, evaluate
from hybrid.evaluation.questions import QuestionSet
from hybrid.evaluation.rankings import MEASURES, depth_of, measures_of, search_all, warn_of_strangers
from hybrid.evaluation.tables import Cell, Table
from hybrid.retrieval.channels import Channels, Searchable
from hybrid.retrieval.fusion import Fusion
from hybrid.retrieval.searcher import fused_hits
from sparta.base.errors import InputError
from sparta.base.files import make_folder
from sparta.base.records import Run
from sparta.data.trec import read_qrels, write_run

TIMED_QUESTIONS = 50
_WARMING = 150
_WARMING_DENSE = 5


@dataclass(frozen=True, slots=True)
class Compared:
    """What was measured on one set: channels, fusions, and the milliseconds of a question asked alone."""

    name: str
    channels: Sequence[Evaluation]
    hybrids: Sequence[Evaluation]
    ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def evaluations(self) -> list[Evaluation]:
        """All of them, the channels first."""
        return [*self.channels, *self.hybrids]


def compare(
    channels: Searchable,
    asked: QuestionSet,
    fusions: Sequence[Fusion],
    *,
    threads: int = 2,
    runs: Path | None = None,
) -> Compared:
    """Search every channel once, fuse in every way, and measure all rankings to the same depth.

    :param runs: a folder in which to leave all rankings as TREC runs.
    """
    depth = max(map(depth_of, fusions))
    if runs:
        make_folder(runs)  # before hours of searching
    searched = search_all(channels, asked, depth, threads)
    warn_of_strangers(searched)
    fused = {
        fusion.label: searched.fused(fusion, depth)
        for fusion in fusions
        if fusion.label not in searched.runs  # one channel as it is
    }
    measures = measures_of(asked)
    if runs:
        for name, run in {**searched.runs, **fused}.items():
            leave_run(runs, asked.name, name, run)
    return Compared(
        asked.name,
        [searched.measured(name, run, measures) for name, run in searched.runs.items()],
        [searched.measured(name, run, measures) for name, run in fused.items()],
    )


def timed(compared: Compared, channels: Channels, asked: QuestionSet, fusions: Sequence[Fusion]) -> Compared:
    """Return what was measured, with the median milliseconds that a question takes in each way."""
    questions = [q.text for q in asked.queries[:TIMED_QUESTIONS]]
    return replace(
        compared, ms={name: median(own) for name, own in waits(channels, questions, fusions).items()}
    )


def waits(
    channels: Channels, questions: Sequence[str], fusions: Sequence[Fusion], *, k: int = 10, rounds: int = 1
) -> dict[str, list[float]]:
    """Return the milliseconds of questions asked alone, by channel and fusion, `rounds` times each.

    A channel is asked for as many passages as the fusions take of it, a fusion for its k best, as `hybrid
    search` does; a fusion's channels are searched side by side. All are asked one question before the next
    comes, so that what else the machine does is shared by them; those with the dense channel come last, since
    the threads of its encoder keep a processor for a while. Java is warm before: it compiles what is
    called often.
    """
    candidates = max(fusion.candidates for fusion in fusions)
    asking: dict[str, Callable[[str], object]] = {
        name: partial(searcher.search, k=candidates) for name, searcher in channels.searchers.items()
    }
    for fusion in fusions:
        asking.setdefault(fusion.label, partial(_ask, channels, fusion, k))
    dense = {"dense": True, **{fusion.label: "dense" in fusion.weights for fusion in fusions}}
    names = sorted(asking, key=lambda name: dense.get(name, False))
    for number, question in enumerate(islice(cycle(questions), _WARMING)):
        for name in names:
            if number < _WARMING_DENSE or not dense.get(name):
                asking[name](question)
    times: dict[str, list[float]] = {name: [] for name in asking}
    for question in list(questions) * rounds:
        for name in names:
            started = time.perf_counter()
            asking[name](question)
            times[name].append(1000 * (time.perf_counter() - started))
    return times


def _ask(channels: Channels, fusion: Fusion, k: int, question: str) -> object:
    found = channels.search(question, fusion.candidates, fusion.weights)
    return fused_hits(fusion, found, channels.searchers, k)


def by_group(compared: Compared, groups: Mapping[str, str]) -> Compared:
    """Return the same over groups of questions in place of questions; their mean is the macro average."""

    def grouped(one: Evaluation) -> Evaluation:
        means: dict[str, dict[str, float]] = {}
        for measure, values in one.per_query.items():
            members: dict[str, list[float]] = {}
            for query_id, value in values.items():
                members.setdefault(groups[query_id], []).append(value)
            means[measure] = {group: fmean(own) for group, own in members.items()}
        return Evaluation(one.name, means)

    return replace(
        compared, channels=[*map(grouped, compared.channels)], hybrids=[*map(grouped, compared.hybrids)]
    )


def with_macro(compared: Compared, asked: QuestionSet) -> list[Compared]:
    """Return what was measured; of questions in groups (EntityQuestions), over questions and over groups."""
    if not asked.groups:
        return [compared]
    macro = by_group(compared, asked.groups)
    return [replace(compared, name=f"{asked.name} (micro)"), replace(macro, name=f"{asked.name} (macro)")]


def leave_run(folder: Path, of: str, name: str, run: Run) -> None:
    """Write a TREC run into a folder, under the names of the set and of the ranking."""
    make_folder(folder)
    write_run(folder / f"{_word(of)}-{_word(name)}.trec", run.items(), _word(name))


def _word(name: str) -> str:
    """`sparta + 1.2·bm25` as a file's name: `sparta+1.2xbm25`."""
    return re.sub(r"[^\w.+-]+", "-", name.replace(" + ", "+").replace("·", "x")).strip("-")


def compare_runs(paths: Mapping[str, Path], qrels: Path, fusion: Fusion) -> tuple[Compared, Run]:
    """Fuse TREC runs that are there, by name, and measure all of them; the fused run comes with it."""
    judged = read_qrels(qrels)
    runs: dict[str, Run] = {name: read_judged_run(path, judged, qrels) for name, path in paths.items()}
    depth = max(len(found) for run in runs.values() for found in run.values())
    fused = fusion.fuse_runs(runs, depth)
    hybrid = evaluate(fusion.label, fused, judged, MEASURES)
    return Compared(
        qrels.stem, [evaluate(name, run, judged, MEASURES) for name, run in runs.items()], [hybrid]
    ), fused


def named_runs(paths: Sequence[Path]) -> dict[str, Path]:
    """Return runs by name: that of the file, or the whole path where these are not different.

    :raises InputError: one file comes twice.
    """
    stems = [path.stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    if len(set(names)) < len(names):
        raise InputError(
            f"expected different runs, found {', '.join(map(str, paths))}", remedy="name each run once"
        )
    return dict(zip(names, paths, strict=True))


def compare_table(sets: Sequence[Compared]) -> Table:
    """One row for each set and ranking, in percent; p is of RR, or of the first measure.

    p compares with the best single channel of the set (paired t-test; Holm): ↑ is better, ↓ worse than it.
    """
    measures = list(dict.fromkeys(m for one in sets for m in one.channels[0].per_query))
    firsts = {_first(one) for one in sets}
    timed = any(one.ms for one in sets)
    header = ["set", "channel", *measures, f"p ({firsts.pop()})" if len(firsts) == 1 else "p"]
    rows = [row for one in sets for row in _rows(one, measures, timed=timed)]
    return Table([*header, "ms a question"] if timed else header, rows, digits=2)


def _against(best: float, mean: float, p: float) -> str:
    """`0.004*↑`: a p-value and, where the difference is significant, which way it goes."""
    shown = chance(p)
    return shown + ("↑" if mean > best else "↓") if shown.endswith("*") else shown


def _first(one: Compared) -> str:
    known = one.channels[0].per_query
    return "RR" if "RR" in known else next(iter(known))


def _rows(one: Compared, measures: Sequence[str], *, timed: bool) -> list[list[Cell]]:
    first = _first(one)
    best, p = against_best(one.evaluations, first, among=one.channels)
    rows: list[list[Cell]] = []
    for found in one.evaluations:
        means: list[Cell] = [100 * found.mean(m) if m in found.per_query else None for m in measures]
        row: list[Cell] = [one.name, found.name, *means, ""]
        if found is not best:
            row[-1] = _against(best.mean(first), found.mean(first), p[found.name])
        rows.append([*row, one.ms.get(found.name)] if timed else row)
    return rows
