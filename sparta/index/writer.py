"""Write a job's batches into a generation of the index, with commits in between."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import batched, pairwise

import numpy as np

from sparta.base.errors import InputError, Interrupted
from sparta.base.interrupts import interrupt_held
from sparta.base.records import Passage
from sparta.base.remedies import Command, Option, remedy
from sparta.data.units import is_cut, passage_of
from sparta.index.folder import IndexFolder
from sparta.index.generation import GROWING, NESTED, Generation, Progress
from sparta.index.inputs.impact_batches import ImpactBatch, field_terms
from sparta.index.jobs import Source, WriteOptions
from sparta.index.plan import has_passages
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter
from sparta.lucene.packing import EXACT_SCORES

logger = logging.getLogger(__name__)
_PASSAGES_PER_CHECK = 1000


def write(index: IndexFolder, generation: Generation, source: Source, options: WriteOptions) -> Progress:
    """Write the part of the job's input that is not yet committed. Returns the job's progress."""
    progress, existing = _start(index, generation)
    try:
        if progress.done:
            return progress
        with index.writer(generation, threads=options.threads, ram_buffer_mb=options.ram_buffer_mb) as writer:
            if source.fixed_vocabulary:
                writer.add_terms(source.side.vocabulary())
            _write_batches(writer, source, options, progress, existing, generation)
    finally:
        if existing:
            existing.close()
    return progress


def _start(index: IndexFolder, generation: Generation) -> tuple[Progress, ImpactSearcher | None]:
    """Return the job's progress, and a searcher of the documents that the index already holds, or None."""
    if not has_passages(index, generation):
        return Progress(job=generation.job.id), None
    existing = index.searcher(generation)
    progress = Progress.loads(existing.user_data)
    if progress.job != generation.job.id:
        position, later = progress.next_position, progress.later
        progress = Progress(job=generation.job.id, next_position=position, later=later)
    return progress, existing


def _write_batches(
    writer: ImpactWriter,
    source: Source,
    options: WriteOptions,
    progress: Progress,
    existing: ImpactSearcher | None,
    generation: Generation,
) -> None:
    last_commit = time.monotonic()
    committed = progress.consumed
    unindexed_fields = set[str]()
    fold = generation.analysis.fold
    warned_of_rounding = False
    progress_is_current = True  # False while the writer has a batch that `progress` does not count
    update = options.mode == "update"
    sentence_searcher = existing if update and is_cut(source.job.unit) else None
    try:
        for batch in source.batches(progress.consumed, progress.last_id):
            fields = field_terms(batch.objects, unindexed_fields, nested=generation.fields == NESTED)
            if existing and not update:
                _check_new(batch, progress, existing, has_sentences=is_cut(source.job.unit))
            positions = _positions(batch, progress, existing if update else None)
            folded = replace(batch, texts=[*map(fold, batch.texts)])
            warned_of_rounding = warned_of_rounding or _warn_of_rounded_scores(batch)
            with interrupt_held() as interrupted:
                progress_is_current = False
                _remove_shortened(writer, sentence_searcher, progress, batch)
                _add_batch(writer, folded, positions, fields, update=update)
                progress.add(batch.passage_ids, batch.counts)
                progress_is_current = True
            if interrupted:
                raise KeyboardInterrupt
            if time.monotonic() - last_commit >= options.commit_seconds:
                writer.commit(progress.dumps())
                last_commit, committed = time.monotonic(), progress.consumed
        if sentence_searcher:
            _remove_stale_units(writer, sentence_searcher, [progress.last_id])
    except KeyboardInterrupt:
        if progress_is_current and progress.consumed:
            writer.commit(progress.dumps())  # the writer has whole passages only, so they are worth keeping
            committed = progress.consumed
        raise Interrupted(committed, "passage") from None
    except InputError:
        if progress_is_current and progress.consumed and options.mode not in GROWING:
            writer.commit(progress.dumps())  # a run with skip_invalid resumes here
        raise
    _complete(writer, source, options, progress)


def _complete(writer: ImpactWriter, source: Source, options: WriteOptions, progress: Progress) -> None:
    """Commit a job after its last batch, and raise if a new index has no passage."""
    if not progress.consumed and options.mode not in GROWING:
        raise _no_passages_error(source)
    if options.optimize:
        writer.commit(progress.dumps())  # a merge takes long, so commit all passages first
    progress.done = True
    progress.source = source.describe()
    with interrupt_held() as interrupted:  # a merge that is not committed is lost
        if options.optimize:
            writer.force_merge(1)
        writer.commit(progress.dumps())
    if interrupted:
        raise KeyboardInterrupt


def _no_passages_error(source: Source) -> InputError:
    """Return the error for an input without passages, with the reasons for skipped records."""
    counts = source.describe()
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in counts.get("reasons", {}).items())
    skipped = f": all records were skipped ({reasons})" if reasons else ""
    return InputError(
        f"the input contains no passages{skipped}",
        where=source.job.source or "",
        remedy="correct the records (docs/formats.md lists the required fields), or name another input",
    )


def _remove_shortened(
    writer: ImpactWriter, existing: ImpactSearcher | None, progress: Progress, batch: ImpactBatch
) -> None:
    """Delete the units that the updated passages before the last passage of a batch no longer have."""
    if existing:
        _remove_stale_units(writer, existing, _last_units([progress.last_id, *batch.passage_ids]))


def _last_units(unit_ids: Sequence[str]) -> list[str]:
    """Return the last unit of each passage, except the last passage's: its units may continue.

    :param unit_ids: unit ids in the corpus's order
    """
    return [unit_id for unit_id, next_id in pairwise(unit_ids) if passage_of(unit_id) != passage_of(next_id)]


def _remove_stale_units(writer: ImpactWriter, existing: ImpactSearcher, last_units: Sequence[str]) -> None:
    """Delete the units that an updated passage no longer has.

    A passage that was split into sentences and now has a context loses its sentences, and vice versa. The
    function runs after a passage's last unit: until then, a resumed job reads the positions of the old
    sentences from the index.

    :param last_units: the last new unit of each updated passage
    """
    last_numbers = {passage_of(unit_id): _sentence_number(unit_id) for unit_id in last_units if unit_id}
    stale = [
        sentence_id
        for sentence_id in existing.sentences(list(last_numbers))
        if _sentence_number(sentence_id) > last_numbers[passage_of(sentence_id)]
    ]
    split_passages = [passage_id for passage_id, number in last_numbers.items() if number >= 0]
    stale += existing.stored(split_passages)
    if stale:
        writer.remove(stale)


def _sentence_number(unit_id: str) -> int:
    """Return the n of the sentence id p#n, or −1 if the unit is not a sentence."""
    passage_id = passage_of(unit_id)
    return -1 if passage_id == unit_id else int(unit_id[len(passage_id) + 1 :])


def _add_batch(
    writer: ImpactWriter,
    batch: ImpactBatch,
    positions: np.ndarray,
    fields: list[list[bytes]],
    *,
    update: bool,
) -> None:
    if batch.new_terms:
        writer.add_terms(batch.new_terms)
    writer.add(
        batch.passage_ids,
        batch.records,
        batch.texts,
        positions,
        batch.indptr,
        batch.term_ids,
        batch.impacts,
        own_terms=batch.own_terms,
        fields=fields,
        update=update,
    )


def _warn_of_rounded_scores(batch: ImpactBatch) -> bool:
    """Warn of a passage whose impacts sum to a rounded score.

    Returns whether the batch has such a passage.
    """
    ends = np.concatenate([[0], np.cumsum(batch.impacts, dtype=np.int64)])[batch.indptr]
    sums = np.diff(ends)
    largest = int(sums.argmax()) if len(sums) else 0
    if not len(sums) or sums[largest] < EXACT_SCORES:
        return False
    logger.warning(
        "the impacts of passage %r sum to %s: scores of %s or more are rounded to float32;"
        " scale the impacts down",
        batch.passage_ids[largest],
        f"{sums[largest]:,}",
        f"{EXACT_SCORES:,}",
    )
    return True


def _check_new(
    batch: ImpactBatch, progress: Progress, existing: ImpactSearcher, *, has_sentences: bool
) -> None:
    """Raise if the index already holds a passage of the batch.

    A resumed job may have written some sentences of its last passage, so this passage is not checked.

    :param has_sentences: whether the index holds sentences, so that the check covers sentence ids too
    """
    ids = list(batch.passage_ids)
    stored_ids = existing.stored(ids)
    if has_sentences and not stored_ids:
        unfinished = passage_of(progress.last_id)
        passage_ids = [name for name in dict.fromkeys(map(passage_of, ids)) if name != unfinished]
        stored_ids = existing.stored(passage_ids) + existing.sentences(passage_ids)
    if stored_ids:
        raise _already_stored(stored_ids[0], existing)


def refuse_stored(index: IndexFolder, passages: Iterable[Passage]) -> None:
    """Raise if the index already holds one of these passages, whole or in parts.

    An append reads its corpus for this check before it encodes anything.
    """
    live = index.require_live()
    with index.searcher(live) as existing:
        for some in batched(passages, _PASSAGES_PER_CHECK):
            ids = [passage.passage_id for passage in some]
            stored_ids = existing.stored(ids)
            if is_cut(live.unit):
                stored_ids += map(passage_of, existing.sentences(ids))
            if stored_ids:
                raise _already_stored(stored_ids[0], existing)


def _already_stored(passage_id: str, existing: ImpactSearcher) -> InputError:
    return InputError(
        f"the index already holds a passage with the id {passage_id!r}",
        remedy=remedy(
            "give every new passage an unused id, or replace passages with: {}",
            Command(
                "sparta update",
                options=(Option("corpus", "FILE"), Option("index", existing.path.parent)),
                python="Index.update",
            ),
        ),
    )


def _positions(batch: ImpactBatch, progress: Progress, existing: ImpactSearcher | None) -> np.ndarray:
    """Return the corpus positions of a batch: the next numbers, but updated passages keep their positions."""
    positions = np.arange(progress.next_position, progress.next_position + len(batch), dtype=np.int64)
    if existing is None:
        return positions
    docids = existing.docids(batch.passage_ids)
    is_stored = docids >= 0
    if not is_stored.any():
        return positions
    positions[is_stored] = existing.positions(docids[is_stored])
    return positions
