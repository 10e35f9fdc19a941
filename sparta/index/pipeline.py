"""Build an index from a corpus or from ready vectors, for `sparta index` and `Index.create`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparta.base.checks import limit, path_of, seconds, whole
from sparta.base.errors import InputError, Interrupted, ModelError, SpartaError
from sparta.base.extras import optional_packages
from sparta.base.filters import Filter, FilterLike
from sparta.base.progress import ReadingProgress
from sparta.base.records import Advance
from sparta.base.remedies import Option, remedy
from sparta.data.corpus import Corpus, open_corpus
from sparta.data.formats.fields import Fields
from sparta.data.formats.objects import rows_of
from sparta.data.languages import DEFAULT_LANGUAGE, language_of
from sparta.data.readers.corpus_reader import CorpusReader
from sparta.data.units import check_unit, same_chunks
from sparta.index.build import (
    IndexReport,
    delete_matching,
    delete_passages,
    kept_passages,
    optimize_index,
    up_to_date,
    write_index,
)
from sparta.index.changes import how_to_rebuild
from sparta.index.channels import (
    begin_passes,
    begun_channels,
    other_channels,
    split_channels,
    sync_channels,
)
from sparta.index.folder import IndexFolder
from sparta.index.generation import BM25, BOTH_CHANNELS, GROWING, JSON, Generation, Job
from sparta.index.inputs.sources import corpus_job, corpus_source, text_source, vectors_source
from sparta.index.jobs import DEFAULT_COMMIT_SECONDS, JSON_VECTORS, Source, WriteOptions
from sparta.index.plan import with_lexical_terms
from sparta.index.snapshot import read_newest
from sparta.index.writer import refuse_stored
from sparta.lucene.jvm import find_runtime
from sparta.models.query_encoder import QuerySide
from sparta.models.resolve import (
    DEFAULT_MODEL,
    FORMER_MODELS,
    find_model,
    how_to_get,
    known_query_side,
    model_for,
    no_model,
    shipped_for,
)

if TYPE_CHECKING:
    from sparta.index.channels import ChannelPass
    from sparta.index.inputs.open_encoder import OpenEncoder
    from sparta.shards.encode import EncodeOptions

logger = logging.getLogger(__name__)

_PASSAGES_PER_BATCH = 512  # Ctrl-C loses at most one batch


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The options for creating or extending an index.

    `None` means: the existing index's setting (model and bits included), or the default for a new index. The
    defaults are the unit `passage`, the language `en`, all terms, the fast codec and the language's shipped
    model. An index in a language without a shipped model has BM25 only.

    `channels` is `impact,bm25`, or `bm25` to encode nothing; a list of names works, too. With `,dense` at the
    end, the shipped dense model, or the model of the index's dense channel, encodes vectors in the same pass.
    `model` is a folder or a hub id, `bits` the number of bits of an impact, `query_encoder` is `network` or
    `none` (for models whose network also encodes queries), `device` one torch device or several separated by
    commas. `unit` is `passage`, `sentence` or `chunk_unit(200, 50)`. `top_k` keeps each passage's strongest
    terms, `min_weight` the terms of at least this weight; both count wordpieces only. `lexical_terms` decides
    whether passages also have the model's lexical terms, words and pairs. `id_field`, `text_field` (a name,
    or several whose texts are joined) and `title_field` name the fields of the records, `query` the rows of
    an SQLite database. The writer commits every `commit_seconds`.
    """

    channels: str | Sequence[str] | None = None
    model: str | None = None
    bits: int | None = None
    query_encoder: str | None = None
    device: str | None = None
    dtype: str = "auto"
    unit: str | None = None
    language: str | None = None
    top_k: int | None = None
    min_weight: float | None = None
    lexical_terms: bool | None = None
    codec: str | None = None
    threads: int = 2
    optimize: bool = False
    skip_invalid: bool = False
    id_field: str | None = None
    text_field: str | Sequence[str] | None = None
    title_field: str | None = None
    query: str | None = None
    resume: bool = False
    commit_seconds: float = DEFAULT_COMMIT_SECONDS

    def __post_init__(self) -> None:
        if self.model is not None:
            path_of(self.model, "a model")
        for name in ("device", "query"):
            if not isinstance(value := getattr(self, name), str | None):
                raise InputError(f"{name} must be a string, found {value!r}")
        limit("bits", self.bits)
        whole("threads", self.threads)
        seconds("commit_seconds", self.commit_seconds)

    @classmethod
    def of(cls, options: IndexOptions | None) -> IndexOptions:
        """Return the options; None means the defaults."""
        if not isinstance(options, cls | None):
            raise InputError(f"options must be IndexOptions(…), found {type(options).__name__}")
        return options or cls()

    @property
    def fields(self) -> Fields:
        """The fields of a record that hold id, text and title."""
        return Fields.of(self.id_field, self.text_field, self.title_field)

    def reader(self, corpus: Corpus, index_fields: Mapping[str, Any] | None = None) -> CorpusReader:
        """Open a corpus with the options for reading.

        :param index_fields: the names of fields of an index, where these options name none
        """
        fields = self.fields.or_those_of(index_fields or {})
        return open_corpus(corpus, skip_invalid=self.skip_invalid, fields=fields, query=self.query)

    def for_writing(self, mode: str) -> WriteOptions:
        """Return the options for writing Lucene's index."""
        return WriteOptions(
            mode=mode,
            resume=self.resume,
            language=self.language or DEFAULT_LANGUAGE,
            threads=self.threads,
            codec=self.codec,
            optimize=self.optimize,
            commit_seconds=self.commit_seconds,
        )

    def for_encoding(self) -> EncodeOptions:
        """Return the options for encoding passages."""
        from sparta.neural.devices import parse_devices
        from sparta.shards.encode import EncodeOptions

        return EncodeOptions(
            unit=self.unit or "passage",
            language=self.language or DEFAULT_LANGUAGE,
            top_k=self.top_k,
            min_weight=self.min_weight or 0.0,
            dtype=self.dtype,
            devices=parse_devices(self.device),
            shard_size=_PASSAGES_PER_BATCH,
        )


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
    chosen = _resolved(folder, requested, mode, encodes=True)
    find_runtime()  # missing Java fails here, before hours of encoding
    channels = str(chosen.channels or BOTH_CHANNELS)
    job = corpus_job(reader, chosen.unit or "passage", chosen.top_k, chosen.min_weight or 0.0, channels)
    passes = _begun(folder, chosen, names)
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
        reader.close()
    return _with_channels(folder, report, chosen, passes, mode)


def _begun(folder: IndexFolder, options: IndexOptions, names: Sequence[str]) -> dict[str, ChannelPass]:
    """Return the passes that encode these channels, and those that an interrupted job has begun."""
    unit, language = options.unit or "passage", options.language or DEFAULT_LANGUAGE
    if options.resume:
        names = [*names, *begun_channels(folder.path)]
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
    chosen = _resolved(folder, requested, mode, encodes=False)
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
    return _with_channels(folder, report, chosen, _begun(folder, chosen, names), mode)


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


def _resolved(folder: IndexFolder, options: IndexOptions, mode: str, *, encodes: bool) -> IndexOptions:
    """Return the options with every open setting filled in from the existing index or from the language.

    :param encodes: whether a model will encode the passages
    :raises IndexStateError: the mode extends an index, and there is none.
    """
    if options.channels not in (None, BOTH_CHANNELS, BM25):
        raise InputError(
            f"an index has the channels {BOTH_CHANNELS} or bm25, each also with dense,"
            f" found {options.channels!r}"
        )
    if options.unit is not None:
        check_unit(options.unit)  # before a manifest names it
    state = folder.state_for(mode)
    if mode != "overwrite":
        options = _with_index_chunks(options, state.searchable)
    live = folder.state().searchable if mode in GROWING else None
    if live is None:
        new = replace(options, language=options.language or DEFAULT_LANGUAGE, unit=options.unit or "passage")
        existing = state.extended_by(mode, resume=options.resume)
        if existing and options.resume:
            job = existing.job  # perhaps of a BM25-only index, whose impacts the job adds
            new = _with_open_settings(new, {"top_k": job.top_k, "min_weight": job.min_weight})
        if existing and existing.model["name"]:
            new = _with_index_queries(new, existing)
            if options.resume:
                new = _with_open_settings(new, {"bits": existing.model["quantizer"]["bits"]})
        return with_model(new) if encodes else new
    index_form = live.form
    if options.language not in (None, index_form["language"]):
        raise InputError(
            f"the language of the index is {index_form['language']!r}, not {options.language!r}",
            where=str(folder.path),
            remedy=remedy(
                "omit {}, or index these texts in another folder with {}",
                Option("language"),
                Option("path", flag="index"),
            ),
        )
    filled = _with_open_settings(options, index_form)
    if not encodes:
        return filled
    filled = _with_index_model(filled, live, folder)
    return filled if live.channels == BM25 else with_model(filled)


def _with_index_chunks(options: IndexOptions, generation: Generation | None) -> IndexOptions:
    """Return the options with the index's chunks, if they differ only in where the chunks end."""
    if generation and same_chunks(options.unit, generation.unit):
        return replace(options, unit=generation.unit)
    return options


def fields_of_index(folder: IndexFolder) -> Mapping[str, Any]:
    """Return the options that name the fields that the index's last job read; empty without an index.

    Otherwise, an update without the options would read other ids or no titles.
    """
    if folder.exists():
        with suppress(SpartaError):  # a damaged manifest is reported where it is needed
            if generation := folder.state().searchable:
                return generation.job.named_fields
    return {}


def options_to_grow(path: str | Path, options: IndexOptions) -> IndexOptions:
    """Return the options for adding passages to an index, with open settings filled in from the index.

    The channels are those in Lucene's index.

    :raises InputError: the options name a channel of Lucene's index that this index lacks.
    :raises IndexStateError: there is no index.
    :raises ModelError: the index's model was moved, and the options name no model.
    """
    folder, (in_lucene, _) = IndexFolder(path), split_channels(options.channels)
    live = folder.state().searchable
    if live and in_lucene not in (None, live.channels):
        raise InputError(
            f"the index has the channels {live.channels!r}, not {in_lucene!r}",
            where=str(path),
            remedy=remedy(
                "omit {}, or build another index with {}", Option("channels"), Option("path", flag="index")
            ),
        )
    return _resolved(folder, replace(options, channels=in_lucene), "update", encodes=True)


def update_channels(path: str | Path, options: IndexOptions) -> tuple[str, ...]:
    """Update the other channels of an existing index, and build those that the options name and it lacks.

    A channel that fails to update causes a logged warning.

    :param options: the options of `options_to_grow`, with the channels that the user named
    :returns: the names of the channels that failed to update
    """
    folder, (_, names) = IndexFolder(path), split_channels(options.channels)
    missing = [name for name in names if name not in other_channels(folder.path)]
    passes, device = _begun(folder, options, missing), _first_device(options)
    return sync_channels(folder.path, device=device, dtype=options.dtype, passes=passes).behind


def _with_open_settings(options: IndexOptions, settings: Mapping[str, Any]) -> IndexOptions:
    """Return the options with the settings that they leave open (None)."""
    return replace(
        options, **{name: value for name, value in settings.items() if getattr(options, name) is None}
    )


def _with_index_queries(options: IndexOptions, generation: Generation) -> IndexOptions:
    """Return the options with the way in which an index encodes queries, if the options leave it open."""
    as_index = None if generation.model.get("query_network") else "none"
    return replace(options, query_encoder=options.query_encoder or as_index)


def _with_index_model(options: IndexOptions, live: Generation, folder: IndexFolder) -> IndexOptions:
    """Return the options with the index's model and bits, where the options leave them open.

    :raises ModelError: the index has impacts, and its model was moved.
    """
    name = str(live.model["name"])
    if not name or name.startswith(JSON_VECTORS):
        return options  # the index has no model that sparta can encode with
    filled = _with_index_queries(replace(options, bits=options.bits or live.model["quantizer"]["bits"]), live)
    if options.model is not None:
        return filled
    try:
        name = find_model(name, live.model["sha256"])
    except ModelError as error:
        if live.channels == BM25:
            return filled  # no impacts to encode: `_known_side` reads the index's own tokenizer
        if name in FORMER_MODELS:
            raise ModelError(
                f"the model of the index, {name}, no longer ships with sparta",
                where=str(folder.path),
                remedy=remedy(
                    "rebuild the index: {}; or {}",
                    how_to_rebuild(folder.path, live),
                    how_to_get(name),
                ),
            ) from error
        raise ModelError(
            f"the model of the index, {name!r}, is missing: {error.message}",
            where=str(folder.path),
            remedy=remedy(
                "name the model's new folder with {}, or rebuild the index: {}",
                Option("model"),
                how_to_rebuild(folder.path, live, model=None),
            ),
        ) from error
    return replace(filled, model=name)


def with_model(options: IndexOptions) -> IndexOptions:
    """Return the options with the language's shipped model if they name none, or with BM25 only.

    :raises ModelError: the options ask for impacts, and no model ships for the language.
    """
    language = options.language or DEFAULT_LANGUAGE
    if options.model is not None or language_of(language).model == DEFAULT_MODEL:
        return options
    if name := shipped_for(language):
        return replace(options, model=name)
    if options.channels == BOTH_CHANNELS:
        model_for(None, language)
    if options.channels is None:
        error = no_model(language)
        logger.warning(
            "%s, so the index has BM25 only and no impacts. To get impacts: %s", error.message, error.remedy
        )
    return replace(options, channels=BM25)


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
    try:
        yield
    except KeyboardInterrupt as stopped:
        committed = stopped.kept if isinstance(stopped, Interrupted) else kept_passages(folder, mode)
        index_name = "the index" if folder.exists() and folder.state().live else ""
        raise Interrupted(committed, "passage", index_name) from None
