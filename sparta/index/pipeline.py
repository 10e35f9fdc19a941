"""Build an index from a corpus or from ready vectors, for `sparta index` and `Index.create`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparta.base.errors import InputError, Interrupted
from sparta.base.extras import optional_packages
from sparta.base.filters import Filter, FilterLike
from sparta.base.progress import ReadingProgress
from sparta.base.records import Advance
from sparta.base.remedies import Option, remedy
from sparta.data.corpus import Corpus
from sparta.data.formats.objects import rows_of
from sparta.data.languages import DEFAULT_LANGUAGE
from sparta.data.readers.corpus_reader import CorpusReader
from sparta.index.build import (
    IndexReport,
    delete_matching,
    delete_passages,
    kept_passages,
    optimize_index,
    up_to_date,
    write_index,
)
from sparta.index.changes import how_to_sync
from sparta.index.channels import begin_passes, begun_channels, other_channels, split_channels, sync_channels
from sparta.index.folder import IndexFolder
from sparta.index.generation import BM25, BOTH_CHANNELS, GROWING, JSON, Job
from sparta.index.inputs.options import IndexOptions, fields_of_index, resolve_options
from sparta.index.inputs.sources import corpus_job, corpus_source, text_source, vectors_source
from sparta.index.jobs import Source
from sparta.index.plan import with_lexical_terms
from sparta.index.snapshot import read_newest
from sparta.index.writer import refuse_stored
from sparta.lucene.java_runtime import find_runtime
from sparta.models.query_encoder import QuerySide
from sparta.models.resolve import known_query_side, shipped_for

if TYPE_CHECKING:
    from sparta.index.channels import ChannelPass
    from sparta.index.inputs.open_encoder import OpenEncoder

logger = logging.getLogger(__name__)


@optional_packages()
def build_index(
    path: str | Path,
    corpus: Corpus,
    mode: str = "create",
    options: IndexOptions | None = None,
    *,
    advance: Advance | None = None,
    progress: bool | None = False,
    encoder: OpenEncoder | None = None,
) -> IndexReport:
    """Encode a corpus and write it into an index. A crash at any moment keeps the last commit.

    If the dense channel fails to update, the function logs a warning and names the channel in the report.

    :param corpus: a file or folder, `-` for standard input, or records: dictionaries, passages or texts
    :param mode: `create`, `overwrite`, `append` or `update` (replace passages by id, add new passages)
    :param advance: called with the number of passages just encoded
    :param progress: whether to show a progress bar of the corpus's bytes; None shows it only on a terminal
    :param encoder: keeps the model open for later calls; None means the model is opened for this call
    :raises InputError: a bad record or option.
    :raises IndexStateError: `mode` forbids changing the existing index, or there is no index to extend.
    :raises Interrupted: Ctrl-C; reports how many passages are committed.
    """
    requested = IndexOptions.of(options)
    in_lucene, names = split_channels(requested.channels)
    requested = replace(requested, channels=in_lucene)
    if not isinstance(corpus, Iterable | Path) and rows_of(corpus) is corpus:
        kind = type(corpus).__name__
        raise InputError(f"the corpus must be a file, a folder or a list of passages, found {kind}")
    folder = IndexFolder(path)
    inherits = mode in GROWING and isinstance(corpus, str | Path)
    reader = requested.reader(corpus, fields_of_index(folder) if inherits else {})  # a wrong path fails first
    chosen = resolve_options(folder, requested, mode, encodes=True)
    find_runtime()  # missing Java fails here, before hours of encoding
    channels = str(chosen.channels or BOTH_CHANNELS)
    job = corpus_job(reader, chosen.unit or "passage", chosen.top_k, chosen.min_weight or 0.0, channels)
    passes = _begun(folder, chosen, names, mode)
    with _reporting_interrupts(folder, mode):
        report = read_newest(folder, mode, partial(_report_if_up_to_date, folder, job, mode, chosen))
        if report is None:
            if mode == "append" and not chosen.resume and reader.is_rereadable:
                read_newest(folder, mode, partial(refuse_stored, folder, reader))
            with ReadingProgress(shown=progress, advance=advance) as shown, ExitStack() as stack:
                for channel_pass in passes.values():
                    stack.callback(channel_pass.close)
                in_pass = () if mode in GROWING else passes.values()
                source = _source(folder, mode, reader, job, chosen, shown, encoder, in_pass)
                report = write_index(folder, source, chosen.for_writing(mode))
                if mode not in GROWING:
                    _warn_if_changed(folder, reader, job)
        reader.close()
    return _with_channels(folder, report, chosen, passes, mode)


def _warn_if_changed(folder: IndexFolder, reader: CorpusReader, job: Job) -> None:
    """Warn if the files of a corpus changed while a new index was built from them."""
    with suppress(ValueError):  # a resumed job may have had nothing left to read
        if job.sha256 is not None and reader.fingerprint()["sha256"] != job.sha256:
            logger.warning(
                "%s changed while it was read. To index the changes: %s",
                reader.source,
                remedy("{}", how_to_sync(folder.require_live(), folder.path)),
            )


def _begun(
    folder: IndexFolder, options: IndexOptions, names: Sequence[str], mode: str
) -> dict[str, ChannelPass]:
    """Return the passes that encode these channels, and those that the resumed job has begun."""
    unit, language = options.unit or "passage", options.language or DEFAULT_LANGUAGE
    if options.resume and options.channels is None:
        state = folder.state_for(mode)
        generation = state.live if mode in GROWING else state.for_resuming.building or state.live
        names = [*names, *begun_channels(folder.path, generation)]
    device = _first_device(options)
    return begin_passes(folder.path, names, unit=unit, language=language, device=device, dtype=options.dtype)


def _first_device(options: IndexOptions) -> str | None:
    return options.device.partition(",")[0] if options.device else None


def _source(
    folder: IndexFolder,
    mode: str,
    reader: CorpusReader,
    job: Job,
    options: IndexOptions,
    progress: ReadingProgress,
    encoder: OpenEncoder | None,
    passes: Collection[ChannelPass],
) -> Source:
    """Return the source of a corpus: passages with impacts, or without impacts for a BM25-only index."""
    bm25_only = options.channels == BM25
    writing = options.for_writing(mode)
    if bm25_only and (known_side := read_newest(folder, mode, partial(_known_side, folder, options, mode))):
        side = with_lexical_terms(known_side, folder, writing, options.lexical_terms)
        return text_source(reader, job, side, options.language or DEFAULT_LANGUAGE, progress)
    from sparta.models.load import open_encoder

    encoding = options.for_encoding()
    opened = encoder.open if encoder else open_encoder
    model = opened(options.model, options.bits, encoding.devices, options.query_encoder)
    side = with_lexical_terms(model.query_side(), folder, writing, options.lexical_terms)
    if bm25_only:
        return text_source(reader, job, side, encoding.language, progress)
    return corpus_source(reader, model, encoding, progress=progress, job=job, side=side, passes=passes)


@optional_packages()
def build_index_from_vectors(
    path: str | Path,
    vectors: Sequence[Path],
    mode: str = "create",
    options: IndexOptions | None = None,
    *,
    tokenizer: str | Path | None = None,
) -> IndexReport:
    """Write ready vectors into an index: folders of `sparta encode`, or Pyserini's JSON vectors.

    :param tokenizer: for JSON vectors, the model whose wordpieces are the vectors' terms; None means the
        tokenizer of the index, or of the shipped model if the index is new
    """
    folder = IndexFolder(path)
    requested = IndexOptions.of(options)
    in_lucene, names = split_channels(requested.channels)
    requested = replace(requested, channels=in_lucene)
    chosen = resolve_options(folder, requested, mode, encodes=False)
    find_runtime()
    with _reporting_interrupts(folder, mode):
        writing = chosen.for_writing(mode)
        choose = partial(with_lexical_terms, index=folder, options=writing, wanted=chosen.lexical_terms)
        side_of_json = partial(_side_of_json, folder, mode, resume=writing.resume)
        side = read_newest(folder, mode, side_of_json) if tokenizer is None else None
        source = vectors_source(vectors, tokenizer, choose, side)
        if requested.language is None and mode != "append" and source.language:
            chosen = replace(chosen, language=source.language)
        report = write_index(folder, source, chosen.for_writing(mode))
    return _with_channels(folder, report, chosen, _begun(folder, chosen, names, mode), mode)


def _side_of_json(folder: IndexFolder, mode: str, *, resume: bool) -> QuerySide | None:
    """Return the query side of the JSON vectors that a job extends or resumes; None for other jobs."""
    existing = folder.state_for(mode).extended_by(mode, resume=resume)
    return folder.query_side(existing) if existing and existing.job.kind == JSON else None


@dataclass(frozen=True, slots=True)
class DeleteReport:
    """The result of a deletion.

    `requested` counts the distinct ids in the request, or the matches of the filter. `deleted` counts units:
    sentences, if the index's unit is the sentence. `missing` lists the ids that the index does not hold.
    `channels` and `behind` are as in `IndexReport`.
    """

    requested: int
    deleted: int
    missing: tuple[str, ...]
    unit: str
    channels: tuple[Any, ...] = ()
    behind: tuple[str, ...] = ()


def delete_from_index(
    path: str | Path,
    passage_ids: Sequence[str] = (),
    *,
    filter: FilterLike | None = None,
    yes: bool = False,
) -> DeleteReport:
    """Delete passages by id, or by a filter, from all channels of an index.

    The report names ids that the index does not hold. If a channel fails to update, the function logs a
    warning and names the channel in the report. Searches never return deleted passages, even then.

    :param yes: whether the filter may match more than half of the index
    :raises InputError: ids and a filter are named, or neither; the filter matches more than half of the index
    """
    folder = IndexFolder(path)
    folder.state()  # raises if there is no index, before the lock creates a folder
    checked_filter, missing = Filter.of(filter), list[str]()
    if bool(passage_ids) == bool(checked_filter):
        raise ids_or_filter()
    if checked_filter:
        requested, deleted = delete_matching(folder, checked_filter, yes=yes)
    else:
        distinct_ids = list(dict.fromkeys(passage_ids))
        requested = len(distinct_ids)
        deleted, missing = delete_passages(folder, distinct_ids)
    unit = folder.require_live().unit
    return DeleteReport(requested, deleted, tuple(missing), unit, *sync_channels(folder.path))


def ids_or_filter() -> InputError:
    """Return the error for a deletion by both ids and a filter, or by neither."""
    return InputError(
        "a deletion needs either passage ids or a filter",
        remedy=remedy("name the passages by their ids, or by {}", Option("filter", "lang=en")),
    )


def update_channels(path: str | Path, options: IndexOptions) -> tuple[str, ...]:
    """Update the other channels of an existing index, and build those that the options name and it lacks.

    A channel that fails to update causes a logged warning.

    :param options: the options of `options_to_grow`, with the channels that the user named
    :returns: the names of the channels that failed to update
    """
    folder, (_, names) = IndexFolder(path), split_channels(options.channels)
    missing = [name for name in names if name not in other_channels(folder.path)]
    passes, device = _begun(folder, options, missing, "update"), _first_device(options)
    return sync_channels(folder.path, device=device, dtype=options.dtype, passes=passes).behind


def _known_side(folder: IndexFolder, options: IndexOptions, mode: str) -> QuerySide | None:
    """Return the model's query side, or None if loading it needs torch.

    A BM25-only index that grows without a model has the side that is stored in it.
    """
    live = folder.state().searchable if mode in GROWING else None
    if live and live.channels == BM25 and options.model is None:
        return folder.query_side(live)
    if (
        options.model is None
        and options.channels == BM25
        and shipped_for(options.language or DEFAULT_LANGUAGE) is None
    ):
        return QuerySide.none()
    return known_query_side(options.model, options.bits)


def _report_if_up_to_date(
    folder: IndexFolder, job: Job, mode: str, options: IndexOptions
) -> IndexReport | None:
    """Return a report if the index is up to date, or None; raise if the index must not change.

    The check loads neither torch nor a model.
    """
    if not folder.exists():
        return None
    side = _known_side(folder, options, mode)
    if side is None:
        return None
    side = with_lexical_terms(side, folder, options.for_writing(mode), options.lexical_terms)
    return up_to_date(folder, Source(job, side, lambda *_: iter(())), options.for_writing(mode))


def _with_channels(
    folder: IndexFolder,
    report: IndexReport,
    options: IndexOptions,
    passes: Mapping[str, ChannelPass],
    mode: str,
) -> IndexReport:
    """Clean up an unchanged index, merge it if the options say so, and update the other channels.

    Returns the report with the results of these channels.

    :param passes: channels that the options name; they may be new
    """
    if report.unchanged:
        folder.sweep_left_over()
        if options.optimize:
            optimize_index(folder)
    reencodes = mode == "overwrite" and options.dtype != "auto"
    reports, behind = sync_channels(
        folder.path,
        device=_first_device(options),
        dtype=options.dtype,
        passes=passes,
        reencodes=reencodes,
    )
    return replace(report, channels=reports, behind=behind)


@contextmanager
def _reporting_interrupts(folder: IndexFolder, mode: str) -> Iterator[None]:
    """Turn Ctrl-C into `Interrupted`, with the number of committed passages."""
    before = folder.state_for(mode).live
    try:
        yield
    except KeyboardInterrupt as stopped:
        committed = stopped.kept if isinstance(stopped, Interrupted) else kept_passages(folder, mode, before)
        index_name = "the index" if folder.exists() and folder.state().live else ""
        raise Interrupted(committed, "passage", index_name) from None
