"""Index a test set, search it in every channel, and measure; or measure runs that are there."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hybrid.evaluation.measures import DEFAULT_MEASURES, Evaluation, against_best, evaluate
from hybrid.evaluation.plots import figure
from hybrid.evaluation.tables import Cell, Table
from hybrid.evaluation.testsets import Qrels, open_test_set
from sparta.base.errors import InputError
from sparta.base.files import make_folder
from sparta.base.records import Query, Run, ScoredPassage
from sparta.data.trec import read_qrels, read_run, write_run
from sparta.search.searcher import CHANNELS

if TYPE_CHECKING:
    from sparta.models.sparse import SparseEncoder
    from sparta.shards.encode import EncodeOptions

SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What was measured on one set: an evaluation and some facts (latency, size) for each ranking.

    `domain` says which mean the set counts in: "in-domain" or "out-of-domain" of what a model was trained
    on, or nothing. `left_out` questions of the set have no judged passage.
    """

    name: str
    evaluations: Sequence[Evaluation]
    facts: Sequence[dict[str, float]] = field(default_factory=list)
    domain: str = ""
    left_out: int = 0


def evaluate_runs(
    paths: Sequence[Path], qrels: Path, measures: Sequence[str] = DEFAULT_MEASURES
) -> Evaluated:
    """Measure TREC runs against judgments in TREC's or BEIR's form."""
    judged = read_qrels(qrels)
    names = [path.stem for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    found = []
    for name, path in zip(names, paths, strict=True):
        found.append(evaluate(name, read_judged_run(path, judged, qrels), judged, measures))
    return Evaluated(qrels.stem, found)


def read_judged_run(path: Path, judged: Qrels, qrels: Path) -> Run:
    """Read a run, which must share questions with the judgments of the file `qrels`."""
    run = read_run(path)
    if not run.keys() & judged.keys():
        raise InputError(
            "expected a run for the judged questions, found none of their ids in it",
            where=str(path),
            remedy=f"check that it belongs to {qrels}",
        )
    return run


def evaluate_set(
    path: Path,
    model: SparseEncoder,
    options: EncodeOptions,
    *,
    channels: Sequence[str] = CHANNELS,
    measures: Sequence[str] = DEFAULT_MEASURES,
    depth: int = 100,
    threads: int = 2,
    runs: Path | None = None,
    skip_invalid: bool = False,
    advance: Callable[[int], object] | None = None,
) -> Evaluated:
    """Encode and index a test set in a temporary folder, search it, measure.

    The milliseconds are those of all questions together, searched by `threads`, divided by their number.

    :param depth: how many passages are ranked for each question.
    :param runs: a folder in which to leave the TREC runs.
    """
    from sparta.index.build import write_index
    from sparta.index.folder import IndexFolder
    from sparta.index.jobs import WriteOptions
    from sparta.index.sources import corpus_source

    if runs:
        make_folder(runs)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        tested = open_test_set(path, work)
        check_unit(path, options.unit)
        index = IndexFolder(work / "index")
        started = time.monotonic()
        source = corpus_source(tested.corpus, model, options, skip_invalid=skip_invalid, advance=advance)
        write_index(index, source, WriteOptions())
        indexing = time.monotonic() - started
        evaluations, facts = [], []
        for channel in channels:
            run, seconds = search_index(index.path, channel, tested.queries, depth, threads)
            evaluations.append(evaluate(channel, run, tested.qrels, measures))
            facts.append({"ms": 1000 * seconds / len(tested.queries), "indexing": indexing})
            if runs:
                write_run(runs / f"{tested.name}-{channel}.trec", run.items(), f"sparta-{channel}")
        return Evaluated(tested.name, evaluations, facts, left_out=tested.left_out)


def check_unit(path: Path, unit: str) -> None:
    """Refuse sentences of a BEIR folder, whose judgments are of its passages."""
    if path.is_dir() and unit == "sentence":
        raise InputError(
            "expected --unit passage for a BEIR folder, whose judgments are of passages, found sentence",
            where=str(path),
            remedy="leave --unit out",
        )


def search_index(
    index: Path, channel: str, queries: Sequence[Query], depth: int, threads: int
) -> tuple[dict[str, list[ScoredPassage]], float]:
    """Search one channel of an index; the run, and the seconds it took, warm."""
    from sparta.search.searcher import Searcher

    with Searcher(index, channel=channel) as searcher:
        texts = [query.text for query in queries]
        ids = [query.query_id for query in queries]
        searcher.run(texts[:10], ids[:10], depth, threads)
        started = time.monotonic()
        run = searcher.run(texts, ids, depth, threads)
        return run, time.monotonic() - started


def table_of(sets: Sequence[Evaluated], measures: Sequence[str]) -> Table:
    """Means in percent, one row for each set and ranking; `p` is of the first measure, against the best.

    The means over several sets stand below them, for each domain its own.
    """
    rows: list[list[Cell]] = []
    for domain in dict.fromkeys(one.domain for one in sets):
        own = [one for one in sets if one.domain == domain]
        rows += _rows(own, measures)
        if len(own) > 1:
            rows += _means(own, measures)
    timed = ["ms a question"] if any(one.facts for one in sets) else []
    return Table(["set", "ranking", *measures, f"p ({measures[0]})", *timed], rows)


def _rows(sets: Sequence[Evaluated], measures: Sequence[str]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for one in sets:
        best, p = against_best(one.evaluations, measures[0])
        facts = one.facts or [{}] * len(one.evaluations)
        for evaluation, fact in zip(one.evaluations, facts, strict=True):
            name = evaluation.name
            differs = "" if evaluation is best else chance(p[name])
            means: list[Cell] = [100 * evaluation.mean(m) for m in measures]
            rows.append([one.name, name, *means, differs, *([fact["ms"]] if fact else [])])
    return rows


def chance(p: float) -> str:
    """Show a p-value, with a star where it is significant."""
    return f"{p:.3f}" + ("*" if p < SIGNIFICANT else "")


def _means(sets: Sequence[Evaluated], measures: Sequence[str]) -> list[list[Cell]]:
    """One row for each ranking that all sets have: its mean over the sets."""
    named = [{e.name: e for e in one.evaluations} for one in sets]
    filled = [""] * (1 + any(one.facts for one in sets))
    label = f"mean, {sets[0].domain}" if sets[0].domain else "mean"
    return [
        [label, name, *(100 * fmean(one[name].mean(m) for one in named) for m in measures), *filled]
        for name in named[0]
        if all(name in one for one in named)
    ]


def draw(sets: Sequence[Evaluated], measure: str, path: Path) -> None:
    """Draw one measure of every ranking, set by set; the file's name says in which form (PNG, SVG, PDF)."""
    names = list(dict.fromkeys(e.name for one in sets for e in one.evaluations))
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


def per_query_lines(sets: Sequence[Evaluated]) -> Iterator[dict[str, Any]]:
    """Yield one object for each set, ranking and question."""
    for one in sets:
        for evaluation in one.evaluations:
            for query_id in next(iter(evaluation.per_query.values())):
                values = {m: figures[query_id] for m, figures in evaluation.per_query.items()}
                yield {"set": one.name, "ranking": evaluation.name, "query_id": query_id, **values}
