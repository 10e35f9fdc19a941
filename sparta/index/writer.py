"""Writing a job's batches into a generation: positions, commits, what is kept when it is stopped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from sparta.base.errors import InputError, Interrupted
from sparta.base.remedies import Command, remedy
from sparta.data.units import is_cut, passage_of
from sparta.index.folder import GROWING, Generation, IndexFolder
from sparta.index.impact_batches import ImpactBatch, field_terms
from sparta.index.jobs import Progress, Source, WriteOptions, job_id
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter
from sparta.lucene.packing import EXACT_SCORES

logger = logging.getLogger(__name__)


def write(index: IndexFolder, generation: Generation, source: Source, options: WriteOptions) -> Progress:
    """Write what the generation's job has not written yet, and say how far it came."""
    path = index.lucene_path(generation)
    job = job_id(generation.job)
    progress, existing = _start(path, generation, job)
    try:
        if progress.done:
            return progress
        with ImpactWriter(
            path,
            language=generation.analysis,
            threads=options.threads,
            ram_buffer_mb=options.ram_buffer_mb,
            codec=generation.codec,
        ) as writer:
            if source.fixed_vocabulary:
                writer.add_terms(source.side.vocabulary())
            _write_batches(writer, source, options, progress, existing, generation.analysis.fold)
    finally:
        if existing:
            existing.close()
    return progress


def _start(path: Path, generation: Generation, job: str) -> tuple[Progress, ImpactSearcher | None]:
    """How far this job got, and a view of the documents that were there before."""
    if not path.is_dir() or not any(path.glob("segments_*")):
        return Progress(job=job), None
    existing = ImpactSearcher(path, language=generation.analysis)
    progress = Progress.loads(existing.user_data or "")
    if progress.job != job:
        progress = Progress(job=job, next_position=progress.next_position)
    return progress, existing


def _write_batches(
    writer: ImpactWriter,
    source: Source,
    options: WriteOptions,
    progress: Progress,
    existing: ImpactSearcher | None,
    fold: Callable[[str], str],
) -> None:
    last_commit = time.monotonic()
    kept = progress.consumed
    told = set[str]()  # fields that are not indexed
    warned = False
    counted = True  # whether all that the writer has is in progress
    update = options.mode == "update"
    cut = existing if update and is_cut(source.job.get("unit", "passage")) else None
    try:
        for batch in source.batches(progress.consumed, progress.last_id):
            if existing and not update:
                _check_new(batch, progress, existing, cut=is_cut(source.job.get("unit", "passage")))
            positions = _positions(batch, progress, existing if update else None)
            counted = False
            if cut:
                _remove_rest(writer, cut, _last_units([progress.last_id, *batch.passage_ids]))
            own = replace(batch, texts=[*map(fold, batch.texts)])
            _hand_over(writer, own, positions, told, update=update)
            warned = warned or _warn_of_rounded_scores(batch)
            progress.add(batch)
            counted = True
            if time.monotonic() - last_commit >= options.commit_seconds:
                writer.commit(progress.dumps())
                last_commit, kept = time.monotonic(), progress.consumed
        if cut:
            _remove_rest(writer, cut, [progress.last_id])
    except KeyboardInterrupt:
        if counted and progress.consumed:
            writer.commit(progress.dumps())  # what was handed over so far is whole passages: keep it
            kept = progress.consumed
        raise Interrupted(kept, "passage") from None
    except InputError:
        if counted and progress.consumed and options.mode not in GROWING:
            writer.commit(progress.dumps())  # with skip_invalid it goes on from here
        raise
    _complete(writer, source, options, progress)


def _complete(writer: ImpactWriter, source: Source, options: WriteOptions, progress: Progress) -> None:
    """Commit a job all of whose passages were handed over; a new index must have one."""
    if not progress.consumed and options.mode not in GROWING:
        raise _nothing_read(source)
    if options.optimize:
        writer.commit(progress.dumps())  # a merge takes long: what was handed over is safe before it begins
        writer.force_merge(1)
    progress.done = True
    progress.source = source.describe()
    writer.commit(progress.dumps())


def _nothing_read(source: Source) -> InputError:
    """Say that an input has no passage, and what became of its records."""
    counts = source.describe()
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in counts.get("reasons", {}).items())
    skipped = f": all records were skipped ({reasons})" if reasons else ""
    return InputError(
        f"expected at least one passage, found none{skipped}",
        where=str(source.job.get("source") or ""),
        remedy="mend the records (docs/formats.md says what one must have), or name another input",
    )


def _last_units(unit_ids: Sequence[str]) -> list[str]:
    """Of units in the corpus's order the last of each passage, but of the one that may go on."""
    return [i for i, following in pairwise(unit_ids) if passage_of(i) != passage_of(following)]


def _remove_rest(writer: ImpactWriter, existing: ImpactSearcher, last_units: Sequence[str]) -> None:
    """Remove what an updated passage no longer has: `last_units` are the last that are written of each.

    A passage that was cut and now is an answer in a context loses its sentences, and the other way round.
    This waits for a passage's last unit because a sentence that a later batch replaces keeps its position,
    which a job that is resumed in between reads from the index.
    """
    last = {passage_of(i): _sentence_number(i) for i in last_units if i}
    stale = [i for i in existing.sentences(list(last)) if _sentence_number(i) > last[passage_of(i)]]
    cut = [passage_id for passage_id, number in last.items() if number >= 0]
    stale += [i for i, docid in zip(cut, existing.docids(cut), strict=True) if docid >= 0]
    if stale:
        writer.remove(stale)


def _sentence_number(unit_id: str) -> int:
    """The n of sentence p#n; −1 for what is no sentence of a passage."""
    passage_id = passage_of(unit_id)
    return -1 if passage_id == unit_id else int(unit_id[len(passage_id) + 1 :])


def _hand_over(
    writer: ImpactWriter, batch: ImpactBatch, positions: np.ndarray, told: set[str], *, update: bool
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
        fields=field_terms(batch.objects, told),
        update=update,
    )


def _warn_of_rounded_scores(batch: ImpactBatch) -> bool:
    """Warn of a passage whose impacts sum to a rounded score; return whether the batch has such a passage."""
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


def _check_new(batch: ImpactBatch, progress: Progress, existing: ImpactSearcher, *, cut: bool) -> None:
    """Refuse passages that the index holds; of those that are `cut`, also under the ids of sentences.

    The passage that a resumed job stopped in may have sentences there, which it wrote itself.
    """
    ids = list(batch.passage_ids)
    taken = [i for i, docid in zip(ids, existing.docids(ids), strict=True) if docid >= 0]
    if cut and not taken:
        own = passage_of(progress.last_id)
        passages = [i for i in dict.fromkeys(map(passage_of, ids)) if i != own]
        there = zip(passages, existing.docids(passages), strict=True)
        taken = [i for i, docid in there if docid >= 0] + existing.sentences(passages)
    if taken:
        raise InputError(
            f"expected new passages, found the id {taken[0]!r}, which the index already holds",
            remedy=remedy(
                "give them ids of their own, or replace passages with: {}",
                Command.of("sparta update", corpus="FILE", index=existing.path.parent),
            ),
        )


def _positions(batch: ImpactBatch, progress: Progress, existing: ImpactSearcher | None) -> np.ndarray:
    """Corpus positions of a batch: they count on; an updated passage keeps its own."""
    positions = np.arange(progress.next_position, progress.next_position + len(batch), dtype=np.int64)
    if existing is None:
        return positions
    docids = existing.docids(batch.passage_ids)
    known = docids >= 0
    if not known.any():
        return positions
    positions[known] = existing.positions(docids[known])
    return positions
