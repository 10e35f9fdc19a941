"""Building an index: create, overwrite, append, update, delete; a crash leaves the last commit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError, SpartaError, StorageError
from sparta.base.files import storage_errors
from sparta.base.remedies import Option, remedy
from sparta.data.languages import check_language
from sparta.data.units import is_cut, passage_of
from sparta.index.folder import GROWING, Generation, IndexFolder
from sparta.index.jobs import MODES, Progress, Source, WriteOptions, job_id
from sparta.index.plan import committed, has_passages, has_written, plan
from sparta.index.writer import write
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter
from sparta.models.quantize import QuantizationCounts


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What happened: `unchanged` when the index already held this input.

    `documents` is the number of passages in the index now, `written` and `source` are counts of this job;
    `channels` has the reports of the other channels that were brought up to date, `behind` the names of those
    that could not follow.
    """

    path: Path
    documents: int
    written: dict[str, float] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    unchanged: bool = False
    seconds: float = 0.0
    channels: tuple[Any, ...] = ()
    behind: tuple[str, ...] = ()

    @property
    def skipped(self) -> str:
        """Say how many records were skipped, why, and which was the first; empty where none was."""
        if not self.source.get("skipped"):
            return ""
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.source["reasons"].items())
        first = self.source.get("first_skips") or [{"where": "", "reason": ""}]
        return (
            f"{self.source['skipped']:,} of {self.source['read']:,} records were skipped ({reasons});"
            f" the first: {first[0]['where']}: {first[0]['reason']}"
        )


def write_index(index: IndexFolder, source: Source, options: WriteOptions) -> IndexReport:
    """Write a source into an index, as `options.mode` says; a crash at any moment leaves the last commit."""
    if options.mode not in MODES:
        raise InputError(f"expected a mode of {', '.join(MODES)}, found {options.mode!r}")
    if options.mode in GROWING:
        index.require_live()  # before the lock makes a folder
    else:
        check_language(options.language)
        index.refuse_foreign()  # before the lock makes a file
    started = time.monotonic()
    with index.lock(), storage_errors(index.path):
        before = index.state_for(options.mode)
        open_generation = plan(index, before, source, options)
        if open_generation is None:
            return IndexReport(index.path, _documents(index), unchanged=True)
        generation = open_generation()
        with _told_what_is_committed(index, generation, options.mode):
            try:
                progress = write(index, generation, source, options)
            except BaseException as error:
                if isinstance(error, StorageError | OSError):
                    _free_space(index, generation)
                if options.mode in GROWING and not has_written(index, generation):
                    index.write_state(before)
                raise
            written = _job_counts(progress.counts)
            index.finish(replace(generation, counts={**written, **progress.source}))
        seconds = time.monotonic() - started
        return IndexReport(index.path, _documents(index), written, progress.source, seconds=seconds)


@contextmanager
def _told_what_is_committed(index: IndexFolder, generation: Generation, mode: str) -> Iterator[None]:
    """Let an error of the storage say how much of a job is committed, and how to go on."""
    try:
        with storage_errors(index.path):
            yield
    except StorageError as error:
        with suppress(SpartaError, OSError):
            live = index.state().live
            if live and live.number == generation.number and live.complete and live.job == generation.job:
                committed_now = "all passages of this job are committed"
            else:
                committed_now = f"{kept_passages(index, mode):,} passages of this job are committed"
            error.remedy += remedy(
                f"; {committed_now}, the same command with {{}} goes on", Option("resume", True)
            )
        raise


def _job_counts(counts: dict[str, float]) -> dict[str, float]:
    """A job's counts for the manifest, with the mean of the quantization error in place of its sum."""
    lost = QuantizationCounts(
        int(counts.get("postings", 0)), int(counts.get("clipped", 0)), counts.get("absolute_error", 0.0)
    )
    summed = {name: value for name, value in counts.items() if name != "absolute_error"}
    return {**summed, "clipped": lost.clipped, "mean_error": lost.mean_error}


def up_to_date(index: IndexFolder, source: Source, options: WriteOptions) -> IndexReport | None:
    """Say whether `write_index` would have nothing to do, or would refuse; changes nothing.

    Of the source only `job` and `side` are looked at, so that neither a model nor a corpus has to be opened.
    """
    if options.mode in GROWING:
        index.require_live()
    if options.mode == "overwrite" and not options.resume:
        return None
    if not index.exists() or plan(index, index.state(), source, options):
        return None
    return IndexReport(index.path, _documents(index), unchanged=True)


def optimize_index(index: IndexFolder) -> None:
    """Merge the live generation into one segment; what the last commit carries stays."""
    index.require_live()  # before the lock makes a folder
    with index.lock(), storage_errors(index.path):
        live = index.require_live()
        with ImpactSearcher(index.lucene_path(live), language=live.analysis) as searcher:
            carried = searcher.user_data or ""
        with ImpactWriter(index.lucene_path(live), language=live.analysis, codec=live.codec) as writer:
            writer.force_merge(1)
            writer.commit(carried)


def kept_passages(index: IndexFolder, mode: str) -> int:
    """How many passages of a job of this mode that was started and not finished are committed."""
    state = index.state_for(mode)
    unfinished = state.live if mode in GROWING else state.building
    if unfinished is None or unfinished.complete or not has_passages(index, unfinished):
        return 0
    progress = committed(index, unfinished)
    return progress.consumed if progress.job == job_id(unfinished.job) else 0


def delete_passages(index: IndexFolder, passage_ids: Sequence[str]) -> tuple[int, list[str]]:
    """Delete by id: how many were deleted, and the ids that the index does not hold.

    Where it holds none of them, there is no new commit.
    """
    index.require_live()  # before the lock makes a folder
    with index.lock(), storage_errors(index.path):
        live = index.require_live()
        with ImpactSearcher(index.lucene_path(live), language=live.analysis) as searcher:
            named = _with_sentences(searcher, passage_ids, live.unit)
            progress = Progress.loads(searcher.user_data or "")
        missing = [i for i, found in named.items() if not found]
        there = [i for found in named.values() for i in found]
        if not there:
            return 0, missing
        with ImpactWriter(index.lucene_path(live), language=live.analysis, codec=live.codec) as writer:
            deleted = writer.delete(there)
            # In one commit with the deletions: no kill comes between, and a job that is resumed keeps them.
            writer.commit(replace(progress, deleted=progress.deleted + deleted).dumps())
    return deleted, missing


def _with_sentences(searcher: ImpactSearcher, passage_ids: Sequence[str], unit: str) -> dict[str, list[str]]:
    """The ids that go with each passage id: itself and, in an index of sentences, its sentences."""
    there = zip(passage_ids, searcher.docids(passage_ids), strict=True)
    found = {i: [i] if docid >= 0 else [] for i, docid in there}
    for name in searcher.sentences(passage_ids) if is_cut(unit) else ():
        found[passage_of(name)].append(name)
    return found


def _documents(index: IndexFolder) -> int:
    generation = index.state().searchable
    if generation is None:
        return 0
    with ImpactSearcher(index.lucene_path(generation), language=generation.analysis) as searcher:
        return searcher.num_docs


def _free_space(index: IndexFolder, generation: Generation) -> None:
    """Have Lucene remove what a writer left behind that met a full disk; it does so as it opens."""
    with suppress(SpartaError), ImpactWriter(index.lucene_path(generation), language=generation.analysis):
        pass
