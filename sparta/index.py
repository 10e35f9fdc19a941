"""Building an index: what is written, when it is committed, and how it goes on after a crash."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sparta.base.errors import IndexStateError, InputError, SpartaError, StorageError
from sparta.base.files import storage_errors
from sparta.base.languages import check_language
from sparta.layout import GROWING, Generation, IndexFolder, IndexState
from sparta.lucene import ImpactSearcher, ImpactWriter
from sparta.quantize import QuantizationCounts
from sparta.sentences import passage_of
from sparta.tokenize import QuerySide
from sparta.vectors import ImpactBatch

DEFAULT_COMMIT_SECONDS = 30.0
DEFAULT_CODEC = "lucene"
MODES = ("create", "overwrite", *GROWING)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How an index is written: `mode` says what may happen to an existing one."""

    mode: str = "create"
    resume: bool = False
    language: str = "en"
    threads: int = 2
    ram_buffer_mb: int = 64
    codec: str | None = None
    optimize: bool = False
    commit_seconds: float = DEFAULT_COMMIT_SECONDS


@dataclass(frozen=True, slots=True)
class Source:
    """Where impacts come from.

    `job` identifies the input (path, hash, how it is cut); `batches(n)` gives those after the first n
    passages. `describe()` is called at the end for counts of what was read. `language` is that of the texts,
    where the source knows it.
    """

    job: dict[str, Any]
    side: QuerySide
    batches: Callable[[int], Iterator[ImpactBatch]]
    describe: Callable[[], dict[str, Any]] = dict
    expect_last: Callable[[str], object] = str
    fixed_vocabulary: bool = True
    language: str | None = None


@dataclass
class Progress:
    """What a Lucene commit carries: how far the input was read and what was written.

    `job` is the id of the job that wrote last; `last_id` the last passage of it that is in the index;
    `source` what was read, once the job is done; `deleted` how many passages were deleted since it began.
    """

    job: str = ""
    consumed: int = 0
    last_id: str = ""
    next_position: int = 0
    done: bool = False
    counts: dict[str, float] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    deleted: int = 0

    def add(self, batch: ImpactBatch) -> None:
        """Count a batch that was handed to the writer."""
        self.consumed += len(batch)
        self.next_position += len(batch)
        self.last_id = batch.passage_ids[-1]
        lost = batch.quantization
        for name, value in (
            ("passages", len(batch)),
            ("postings", len(batch.term_ids)),
            ("clipped", lost.clipped),
            ("absolute_error", lost.absolute_error),
            ("zeros", batch.zeros),
            ("windowed", batch.windowed),
        ):
            self.counts[name] = self.counts.get(name, 0) + value

    def dumps(self) -> str:
        """As a commit carries it."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Progress:
        """Read a commit's string; an empty one is the beginning."""
        return Progress(**json.loads(text)) if text else Progress()


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What happened: `unchanged` when the index already held this input."""

    path: Path
    documents: int
    written: dict[str, float] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    unchanged: bool = False
    seconds: float = 0.0


def write_index(index: IndexFolder, source: Source, options: WriteOptions) -> IndexReport:
    """Write a source into an index, as `options.mode` says; a crash at any moment leaves the last commit."""
    if options.mode not in MODES:
        raise InputError(f"expected a mode of {', '.join(MODES)}, found {options.mode!r}")
    if options.mode in GROWING:
        index.require_live()  # before the lock makes a folder
    else:
        check_language(options.language)
    started = time.monotonic()
    with index.lock(), storage_errors(index.path):
        before = index.state() if index.exists() else IndexState()
        open_generation = _plan(index, before, source, options)
        if open_generation is None:
            return IndexReport(index.path, _documents(index), unchanged=True)
        generation = open_generation()
        try:
            progress = _write(index, generation, source, options)
        except BaseException as error:
            if isinstance(error, StorageError):
                _free_space(index, generation)
            if options.mode in GROWING and not _has_written(index, generation):
                index.write_state(before)
            raise
        written = _job_counts(progress.counts)
        index.finish(replace(generation, counts={**written, **progress.source}))
        seconds = time.monotonic() - started
        return IndexReport(index.path, _documents(index), written, progress.source, seconds=seconds)


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
    if not index.exists() or _plan(index, index.state(), source, options):
        return None
    return IndexReport(index.path, _documents(index), unchanged=True)


def kept_passages(index: IndexFolder, mode: str) -> int:
    """How many passages of a job of this mode that was begun and not finished are committed."""
    state = index.state() if index.exists() else IndexState()
    begun = state.live if mode in GROWING else state.building
    if begun is None or begun.complete or not _has_passages(index, begun):
        return 0
    progress = _committed(index, begun)
    return progress.consumed if progress.job == job_id(begun.job) else 0


def delete_passages(index: IndexFolder, passage_ids: Sequence[str]) -> tuple[int, list[str]]:
    """Delete by id: how many were deleted, and the ids that the index does not hold."""
    index.require_live()  # before the lock makes a folder
    with index.lock(), storage_errors(index.path):
        live = index.require_live()
        with ImpactSearcher(index.lucene_path(live), language=live.language) as searcher:
            named = _with_sentences(searcher, passage_ids, live.unit)
            progress = Progress.loads(searcher.user_data or "")
        missing = [i for i, found in named.items() if not found]
        with ImpactWriter(index.lucene_path(live), language=live.language, codec=live.codec) as writer:
            deleted = writer.delete([i for found in named.values() for i in found])
            # In one commit with the deletions: no kill comes between, and a job that is resumed keeps them.
            writer.commit(replace(progress, deleted=progress.deleted + deleted).dumps())
    return deleted, missing


def _with_sentences(searcher: ImpactSearcher, passage_ids: Sequence[str], unit: str) -> dict[str, list[str]]:
    """The ids that go with each passage id: itself and, in an index of sentences, its sentences."""
    there = zip(passage_ids, searcher.docids(passage_ids), strict=True)
    found = {i: [i] if docid >= 0 else [] for i, docid in there}
    for name in searcher.sentences(passage_ids) if unit == "sentence" else ():
        found[passage_of(name)].append(name)
    return found


def _documents(index: IndexFolder) -> int:
    generation = index.state().searchable
    if generation is None:
        return 0
    with ImpactSearcher(index.lucene_path(generation), language=generation.language) as searcher:
        return searcher.num_docs


# ---------------------------------------------------------------- which generation to write


def _begun(job: dict[str, Any]) -> dict[str, Any]:
    """A job as it is begun: another one each time, also with the same input."""
    return {**job, "run": secrets.token_hex(8)}


def _input_of(job: dict[str, Any]) -> dict[str, Any]:
    """What a job reads and how: all but when it was begun."""
    return {k: v for k, v in job.items() if k != "run"}


def job_id(job: dict[str, Any]) -> str:
    """A fingerprint of a job."""
    return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:16]


def _plan(
    index: IndexFolder, state: IndexState, source: Source, options: WriteOptions
) -> Callable[[], Generation] | None:
    """What opens the generation to write into; None when the index holds this input. Writes nothing."""
    job = {**source.job, "mode": options.mode}
    if options.mode in GROWING:
        return _grow(index, state, source, job, options)
    job["language"] = options.language
    job["codec"] = options.codec or DEFAULT_CODEC
    building = state.building
    if options.resume and building:
        _must_match(index, building, source, job)
        return lambda: building
    live = state.live
    if live and _holds(index, live, source, job) and (options.mode == "create" or options.resume):
        return None
    if options.mode == "create" and (live or _has_passages(index, state.building)):
        raise _exists(index, state)
    return lambda: index.begin(source.side, options.language, _begun(job), options.codec or DEFAULT_CODEC)


def _holds(index: IndexFolder, live: Generation, source: Source, job: dict[str, Any]) -> bool:
    """Whether a generation was made from just this input; what cannot be compared is never the same."""
    old, new = ({k: v for k, v in _input_of(one).items() if k != "mode"} for one in (live.job, job))
    whole = live.complete and live.job["mode"] not in GROWING
    same = whole and old == new and new.get("sha256") is not None and not _misfits(live, source)
    return same and not _committed(index, live).deleted


def _grow(
    index: IndexFolder, state: IndexState, source: Source, job: dict[str, Any], options: WriteOptions
) -> Callable[[], Generation] | None:
    """Append to, or update, the live generation; the manifest names the job before anything is written."""
    live = index.require_live()
    _must_fit(index, live, source)
    _must_be_alike(index, live, source, options)
    comparable = job.get("sha256") is not None
    if _input_of(live.job) == job and (comparable or (options.resume and not live.complete)):
        if not live.complete:
            return lambda: live
        if not _committed(index, live).deleted:
            return None
    if not live.complete and _has_written(index, live) and not _replaces(job, live.job):
        raise IndexStateError(
            f"expected the {live.job.get('mode')} of {live.job.get('source')} to be finished first,"
            " found it interrupted",
            where=str(index.path),
            remedy="repeat that command with --resume; if its input was mended since, sparta update with it",
        )
    grown = replace(live, job=_begun(job), complete=False, origin=live.first_source)

    def begin() -> Generation:
        index.write_state(replace(state, live=grown))
        return grown

    return begin


def _must_be_alike(index: IndexFolder, live: Generation, source: Source, options: WriteOptions) -> None:
    """Refuse to add to an index in another form than its own."""
    own = {"codec": live.codec, **live.form}
    language = _language_that_counts(source)
    given = {**source.job, "codec": options.codec or live.codec, "language": language or live.language}
    for name in own:
        if name not in given or own[name] == given[name]:
            continue
        option = f"--{name.replace('_', '-')}"
        raise InputError(
            f"expected the index's own {name.replace('_', '-')} {_shown(own[name])},"
            f" found {_shown(given[name])}",
            where=str(index.path),
            remedy=(f"leave {option} out" if own[name] is None else f"give {option} {own[name]}")
            + ", or rebuild with --overwrite",
        )


def _shown(value: object) -> str:
    return "none" if value is None else repr(value)


def _language_that_counts(source: Source) -> str | None:
    """The language that a source's sentences were cut in; vectors of whole passages know of none."""
    return source.language if source.job.get("unit") == "sentence" else None


def _replaces(job: dict[str, Any], interrupted: dict[str, Any]) -> bool:
    """Whether a job does all that an interrupted one had to do: it updates from the same place."""
    return job["mode"] == "update" and job["source"] == interrupted["source"]


def _has_written(index: IndexFolder, generation: Generation) -> bool:
    """Whether the last commit is of the job that the manifest names."""
    return _committed(index, generation).job == job_id(generation.job)


def _committed(index: IndexFolder, generation: Generation) -> Progress:
    """What the last commit carries."""
    with ImpactSearcher(index.lucene_path(generation), language=generation.language) as searcher:
        return Progress.loads(searcher.user_data or "")


def _has_passages(index: IndexFolder, building: Generation | None) -> bool:
    """Whether an unfinished build has committed anything; one that has not may be begun again."""
    return building is not None and any(index.lucene_path(building).glob("segments_*"))


def _exists(index: IndexFolder, state: IndexState) -> IndexStateError:
    if state.building:
        return IndexStateError(
            f"an unfinished index of {state.building.job.get('source')} is here",
            where=str(index.path),
            remedy="continue with --resume, or start again with --overwrite",
        )
    return IndexStateError(
        "an index of other input, or made with other options, is here",
        where=str(index.path),
        remedy="add to it with --append, replace it with --overwrite, or name another with --index",
    )


def _must_match(index: IndexFolder, generation: Generation, source: Source, job: dict[str, Any]) -> None:
    """Refuse to resume with another input or other options than the build was begun with."""
    _must_fit(index, generation, source)
    old, new = generation.job, job
    differing = [k for k in new if k != "mode" and old.get(k) != new[k]]
    if differing:
        raise IndexStateError(
            "expected the input and options that this index was begun with, found another"
            f" {', '.join(differing)}",
            where=str(index.path),
            remedy="repeat the original command with --resume, or start again with --overwrite",
        )


def _must_fit(index: IndexFolder, generation: Generation, source: Source) -> None:
    """Refuse vectors of another model, tokenizer or quantizer."""
    old, new = generation.model, source.side.identity()
    differing = _misfits(generation, source)
    if differing:
        raise IndexStateError(
            f"expected vectors of the index's own model {old['name']!r}, found those of {new['name']!r}"
            f" (differing: {', '.join(differing)})",
            where=str(index.path),
            remedy=f"encode with --model {old['name']} and its --bits, or rebuild with --overwrite",
        )


def _misfits(generation: Generation, source: Source) -> list[str]:
    """In what a source's vectors differ from those of a generation."""
    old, new = generation.model, source.side.identity()
    return [k for k in new if k != "name" and old.get(k) != new[k]]


# ---------------------------------------------------------------- writing


def _write(index: IndexFolder, generation: Generation, source: Source, options: WriteOptions) -> Progress:
    path = index.lucene_path(generation)
    job = job_id(generation.job)
    progress, existing = _start(path, generation, job)
    try:
        if progress.done:
            return progress
        with ImpactWriter(
            path,
            language=generation.language,
            threads=options.threads,
            ram_buffer_mb=options.ram_buffer_mb,
            codec=generation.codec,
        ) as writer:
            if source.fixed_vocabulary:
                writer.add_terms(source.side.vocabulary())
            _write_batches(writer, source, options, progress, existing)
    finally:
        if existing:
            existing.close()
    return progress


def _free_space(index: IndexFolder, generation: Generation) -> None:
    """Have Lucene remove what a writer left behind that met a full disk; it does so as it opens."""
    with suppress(SpartaError), ImpactWriter(index.lucene_path(generation), language=generation.language):
        pass


def _start(path: Path, generation: Generation, job: str) -> tuple[Progress, ImpactSearcher | None]:
    """How far this job got, and a view of the documents that were there before."""
    if not path.is_dir() or not any(path.glob("segments_*")):
        return Progress(job=job), None
    existing = ImpactSearcher(path, language=generation.language)
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
) -> None:
    last_commit = time.monotonic()
    kept = progress.consumed
    counted = True  # whether all that the writer has is in progress
    cut = existing if options.mode == "update" and source.job.get("unit") == "sentence" else None
    try:
        source.expect_last(progress.last_id)
        for batch in source.batches(progress.consumed):
            positions = _positions(batch, progress, options, existing)
            counted = False
            if cut:
                _remove_rest(writer, cut, _last_units([progress.last_id, *batch.passage_ids]))
            _hand_over(writer, batch, positions, update=options.mode == "update")
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
        raise KeyboardInterrupt(f"{kept:,} passages are") from None
    except InputError:
        if counted and progress.consumed and options.mode not in GROWING:
            writer.commit(progress.dumps())  # with --skip-invalid it goes on from here
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


def _hand_over(writer: ImpactWriter, batch: ImpactBatch, positions: np.ndarray, *, update: bool) -> None:
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
        update=update,
    )


def _positions(
    batch: ImpactBatch, progress: Progress, options: WriteOptions, existing: ImpactSearcher | None
) -> np.ndarray:
    """Corpus positions of a batch: they count on; an updated passage keeps its own."""
    positions = np.arange(progress.next_position, progress.next_position + len(batch), dtype=np.int64)
    if existing is None:
        return positions
    docids = existing.docids(batch.passage_ids)
    known = docids >= 0
    if not known.any():
        return positions
    if options.mode != "update":
        taken = batch.passage_ids[int(np.argmax(known))]
        raise InputError(
            f"expected new passages, found the id {taken!r}, which the index already holds",
            remedy="replace passages with: sparta update --corpus FILE",
        )
    positions[known] = existing.positions(docids[known])
    return positions


def skip_passages(
    batches: Iterable[ImpactBatch], count: int, check: Callable[[int, str], object] = lambda *_: None
) -> Iterator[ImpactBatch]:
    """The batches after the first `count` passages; commits fall between batches, so none is cut.

    Terms that skipped batches brought along come with the first batch that is left. `check` gets the number
    of passages that were skipped, fewer when there are no more, and the id of the last of them.
    """
    seen, last = 0, ""
    skipped_terms: list[str] = []
    for batch in batches:
        seen += len(batch)
        if seen <= count:
            skipped_terms += batch.new_terms
            last = batch.passage_ids[-1]
            if seen == count:
                check(seen, last)
            continue
        if seen - len(batch) < count:
            raise cut_in_another_way()
        yield replace(batch, new_terms=[*skipped_terms, *batch.new_terms])
        skipped_terms = []
    if seen < count:
        check(seen, last)


def cut_in_another_way() -> IndexStateError:
    """Say that a commit does not fall between two batches of this input."""
    return IndexStateError(
        "the input is cut in another way than when the index was begun",
        remedy="start again with --overwrite",
    )
