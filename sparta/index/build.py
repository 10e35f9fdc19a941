"""Write an index: create, overwrite, append, update, delete. A crash keeps the last commit."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sparta.base.errors import InputError, MostOfIndexError, SpartaError, StorageError
from sparta.base.files import storage_errors
from sparta.base.filters import Filter
from sparta.base.interrupts import interrupt_held
from sparta.base.remedies import Option, remedy
from sparta.data.languages import check_language
from sparta.data.readers.corpus_reader import describe_skips
from sparta.data.units import is_cut, passage_of, unit_noun
from sparta.index.changes import RESUME, how_to_correct
from sparta.index.folder import IndexFolder, progress_of, require_fields
from sparta.index.generation import GROWING, Generation, Progress
from sparta.index.jobs import MODES, InputChangedError, Source, WriteOptions
from sparta.index.plan import committed, has_passages, has_written, plan
from sparta.index.writer import write
from sparta.lucene.bridge import ImpactSearcher
from sparta.models.quantize import QuantizationCounts


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The result of an indexing job; `unchanged` means that the index already held the input.

    `documents` is the number of passages in the index now. `written` and `source` hold the job's counts.
    `channels` holds the reports of the other updated channels, `behind` the names of channels that failed to
    update.
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
        """Describe how many records were skipped, why, and the first skip; empty if no record was skipped."""
        return describe_skips(self.source)


def write_index(index: IndexFolder, source: Source, options: WriteOptions) -> IndexReport:
    """Write a source into an index in the mode of the options.

    A crash at any moment keeps the last commit.
    """
    if options.mode not in MODES:
        raise InputError(f"expected the index mode {', '.join(MODES)}, found {options.mode!r}")
    if options.mode in GROWING:
        index.require_live()  # a missing index fails here, before the lock creates a folder
    else:
        check_language(options.language)
        index.refuse_foreign()  # a folder of other files fails here, before the lock creates a file
    started = time.monotonic()
    with index.lock(), storage_errors(index.path):
        old_state = index.state_for(options.mode)
        open_generation = plan(index, old_state, source, options)
        if open_generation is None:
            return IndexReport(index.path, _count_passages(index), unchanged=True)
        generation = open_generation()
        with _reporting_committed(index, generation, options.mode):
            try:
                with _freeing_space(index, generation):
                    progress = write(index, generation, source, options)
            except BaseException as error:
                index.check_not_replaced()
                if options.mode in GROWING and not has_written(index, generation):
                    index.write_state(old_state)
                if options.mode in GROWING and isinstance(error, InputChangedError):
                    error.remedy = how_to_correct(generation, index.path)
                raise
            index.finish(_finished(generation, progress))
        seconds = time.monotonic() - started
        written = _job_counts(progress.counts)
        return IndexReport(index.path, _count_passages(index), written, progress.source, seconds=seconds)


@contextmanager
def _reporting_committed(index: IndexFolder, generation: Generation, mode: str) -> Iterator[None]:
    """Add the number of committed passages and the command that resumes the job to a storage error."""
    try:
        with storage_errors(index.path):
            yield
    except StorageError as error:
        with suppress(SpartaError, OSError):
            live = index.state().live
            if live and live.number == generation.number and live.complete and live.job == generation.job:
                committed_now = "all passages of this job are committed"
            else:
                committed_now = f"{kept_passages(index, mode, live):,} passages of this job are committed"
            repeat = remedy("repeat the command")
            if mode != "update":  # which continues in any case
                repeat += remedy(" with {}", RESUME)
            error.remedy += remedy(f"; {committed_now}, {{}} to continue", repeat)
        raise


def as_committed(index: IndexFolder, generation: Generation) -> Generation:
    """Return a generation as the last commit describes it: complete, if the commit ends its job."""
    if generation.complete:
        return generation
    progress = committed(index, generation)
    ends_job = progress.done and progress.job == generation.job.id
    return _finished(generation, progress) if ends_job else generation


def _finished(generation: Generation, progress: Progress) -> Generation:
    """Return a generation whose job is done, with the job's counts."""
    return replace(generation, complete=True, counts={**_job_counts(progress.counts), **progress.source})


def _job_counts(counts: dict[str, float]) -> dict[str, float]:
    """Return a job's counts for the manifest: the mean quantization error replaces the summed error."""
    quantization = QuantizationCounts(
        int(counts.get("postings", 0)), int(counts.get("clipped", 0)), counts.get("absolute_error", 0.0)
    )
    plain_counts = {name: value for name, value in counts.items() if name != "absolute_error"}
    return {**plain_counts, "clipped": quantization.clipped, "mean_error": quantization.mean_error}


def up_to_date(index: IndexFolder, source: Source, options: WriteOptions) -> IndexReport | None:
    """Return a report if `write_index` would change nothing, or None; raise if `write_index` would refuse.

    The check reads only the source's `job` and `side`, so it opens neither a model nor a corpus.
    """
    if options.mode in GROWING:
        index.require_live()
    if options.mode == "overwrite" and not options.resume:
        return None
    if not index.exists() or plan(index, index.state(), source, options):
        return None
    return IndexReport(index.path, _count_passages(index), unchanged=True)


def optimize_index(index: IndexFolder) -> None:
    """Merge the live generation into one segment, and keep the progress stored in the last commit."""
    index.require_live()  # a missing index fails here, before the lock creates a folder
    with index.lock(), storage_errors(index.path):
        live = index.require_live()
        with index.searcher(live) as searcher:
            user_data = searcher.user_data or ""
        with _freeing_space(index, live), index.writer(live) as writer:
            with interrupt_held() as interrupted:  # a merge that is not committed is lost
                writer.force_merge(1)
                writer.commit(user_data)
            if interrupted:
                raise KeyboardInterrupt


def kept_passages(index: IndexFolder, mode: str, before: Generation | None) -> int:
    """Return the number of committed passages of an unfinished job of this mode.

    :param before: the live generation when the present job began; if another one is complete since, the job
        has made it
    """
    state = index.state_for(mode)
    live = state.live
    is_done = live is not None and live.complete and live != before
    written = live if mode in GROWING or is_done else state.for_resuming.building
    if written is None or (written.complete and not is_done) or not has_passages(index, written):
        return 0
    progress = committed(index, written)
    return progress.consumed if progress.job == written.job.id else 0


def delete_passages(index: IndexFolder, passage_ids: Sequence[str]) -> tuple[int, list[str]]:
    """Delete passages by id. Returns the number of deleted units and the ids that the index does not hold.

    If the index holds none of the ids, no commit is made.
    """
    return _delete(index, lambda _generation, _searcher: passage_ids)[1:]


def delete_matching(index: IndexFolder, filter: Filter, *, yes: bool = False) -> tuple[int, int]:
    """Delete the passages that match a filter. Returns the numbers of deleted passages and units.

    :param yes: whether more than half of the index may be deleted
    :raises InputError: the filter matches more than half of the index; nothing is deleted
    """

    def matching(generation: Generation, searcher: ImpactSearcher) -> list[str]:
        require_fields(generation, index.path, filter.fields, searcher.fields)
        unit_ids = searcher.ids(np.flatnonzero(searcher.matching(filter)))
        if is_cut(generation.unit):  # a match deletes the whole passage, so all its units count
            passage_ids = list(dict.fromkeys(map(passage_of, unit_ids)))
            unit_ids = list(itertools.chain(*_unit_ids(searcher, passage_ids, generation.unit).values()))
        if 2 * len(unit_ids) > searcher.num_docs and not yes:
            raise MostOfIndexError(
                f"the filter matches {len(unit_ids):,} of the index's {searcher.num_docs:,}"
                f" {unit_noun(generation.unit)}s, which is more than half",
                where=str(index.path),
                remedy=remedy(
                    "check the filter with a search; to delete all matches, add {}", Option("yes", True)
                ),
            )
        return list(dict.fromkeys(map(passage_of, unit_ids))) if is_cut(generation.unit) else unit_ids

    passages, deleted, _ = _delete(index, matching)
    return passages, deleted


def _delete(
    index: IndexFolder, choose: Callable[[Generation, ImpactSearcher], Sequence[str]]
) -> tuple[int, int, list[str]]:
    """Delete the passages that `choose` names.

    Returns the numbers of named passages and deleted units, and the ids that the index does not hold.
    """
    index.require_live()  # a missing index fails here, before the lock creates a folder
    with index.lock(), storage_errors(index.path):
        live = index.require_live()
        with index.searcher(live) as searcher:
            passage_ids = choose(live, searcher)
            unit_ids_by_passage = _unit_ids(searcher, passage_ids, live.unit)
            progress = progress_of(live, searcher)
        missing = [passage_id for passage_id, unit_ids in unit_ids_by_passage.items() if not unit_ids]
        stored_ids = [unit_id for unit_ids in unit_ids_by_passage.values() for unit_id in unit_ids]
        if not stored_ids:
            return len(passage_ids), 0, missing
        with _freeing_space(index, live), index.writer(live) as writer:
            deleted = writer.delete(stored_ids)
            # One commit holds the deletions and their count, so a kill cannot separate the two.
            writer.commit(replace(progress, deleted=progress.deleted + deleted).dumps())
    return len(passage_ids), deleted, missing


def _unit_ids(searcher: ImpactSearcher, passage_ids: Sequence[str], unit: str) -> dict[str, list[str]]:
    """Return the stored unit ids of each passage: its own id and, in a sentence index, its sentences' ids."""
    pairs = zip(passage_ids, searcher.docids(passage_ids), strict=True)
    unit_ids = {passage_id: [passage_id] if docid >= 0 else [] for passage_id, docid in pairs}
    for sentence_id in searcher.sentences(passage_ids) if is_cut(unit) else ():
        unit_ids[passage_of(sentence_id)].append(sentence_id)
    return unit_ids


def _count_passages(index: IndexFolder) -> int:
    generation = index.state().searchable
    if generation is None:
        return 0
    with index.searcher(generation) as searcher:
        return searcher.num_docs


@contextmanager
def _freeing_space(index: IndexFolder, generation: Generation) -> Iterator[None]:
    """Remove the files of a writer that fails in the block, as on a full disk.

    Lucene removes them when it opens the index.
    """
    try:
        yield
    except (StorageError, OSError):
        index.check_not_replaced()
        with suppress(SpartaError), index.writer(generation):
            pass
        raise
