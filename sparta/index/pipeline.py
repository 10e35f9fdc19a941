"""From a corpus or from ready vectors to an index: what `sparta index` and `Index.create` both call."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparta.base.errors import InputError, Interrupted, ModelError
from sparta.base.extras import optional_packages
from sparta.base.progress import ReadingProgress
from sparta.base.records import Advance
from sparta.base.remedies import Option, remedy
from sparta.data.corpus import Corpus, CorpusReader, open_corpus
from sparta.data.languages import DEFAULT_LANGUAGE, language_of
from sparta.index.build import (
    IndexReport,
    delete_passages,
    kept_passages,
    optimize_index,
    up_to_date,
    write_index,
)
from sparta.index.channels import sync_channels
from sparta.index.folder import BM25, BOTH_CHANNELS, GROWING, Generation, IndexFolder
from sparta.index.jobs import DEFAULT_COMMIT_SECONDS, JSON_VECTORS, Source, WriteOptions
from sparta.index.sources import corpus_job, corpus_source, text_source, vectors_source
from sparta.lucene.jvm import find_runtime
from sparta.models.query_encoder import QuerySide
from sparta.models.resolve import DEFAULT_MODEL, find_model, known_query_side, model_for, shipped_for

if TYPE_CHECKING:
    from sparta.models.sparse import SparseEncoder
    from sparta.shards.encode import EncodeOptions

logger = logging.getLogger(__name__)

_ENCODED_AT_ONCE = 512  # passages that Ctrl-C may cost


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """How an index is made or extended.

    None keeps the setting of an index that is extended, its model and bits too, and is the default of a new
    one: unit `passage`, language `en`, all terms, the fast codec, the model that ships for the language;
    where none does, an index is for BM25 alone.

    `channels` is `impact,bm25`, or `bm25` alone, for which nothing is encoded. `model` is a folder or a hub
    id, `bits` the bits of an impact, `device` one or several torch devices with commas between them. `unit`
    is `passage` or `sentence`; `top_k` keeps the strongest terms of each passage and `min_weight` those of at
    least this weight. A commit is made every `commit_seconds`.
    """

    channels: str | None = None
    model: str | None = None
    bits: int | None = None
    device: str | None = None
    dtype: str = "auto"
    unit: str | None = None
    language: str | None = None
    top_k: int | None = None
    min_weight: float | None = None
    codec: str | None = None
    threads: int = 2
    optimize: bool = False
    skip_invalid: bool = False
    resume: bool = False
    commit_seconds: float = DEFAULT_COMMIT_SECONDS

    def for_writing(self, mode: str) -> WriteOptions:
        """The part of them that decides how Lucene's index is written."""
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
        """The part of them that decides how passages are encoded."""
        from sparta.neural.encoding import parse_devices
        from sparta.shards.encode import EncodeOptions

        return EncodeOptions(
            unit=self.unit or "passage",
            language=self.language or DEFAULT_LANGUAGE,
            top_k=self.top_k,
            min_weight=self.min_weight or 0.0,
            dtype=self.dtype,
            devices=parse_devices(self.device),
            shard_size=_ENCODED_AT_ONCE,
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
    encoder: SparseEncoder | None = None,
) -> IndexReport:
    """Encode a corpus and write it into an index; a crash at any moment leaves the last commit.

    A dense channel that cannot follow what was committed is a warning, and named in the report.

    :param corpus: a file or folder, `-` for standard input, or records: dictionaries, passages or texts
    :param mode: `create`, `overwrite`, `append` or `update` (replace passages by id, add those that are new)
    :param advance: called with the number of passages that were encoded
    :param progress: show a bar of the bytes of the corpus that are done; None does on a terminal
    :param encoder: the model of the options, where it is open already
    :raises InputError: a bad record or option.
    :raises IndexStateError: an index is there that `mode` may not change, or none that it could extend.
    :raises Interrupted: Ctrl-C; says how many passages are committed.
    """
    given = options or IndexOptions()
    if not isinstance(corpus, Iterable | Path):
        raise InputError(f"expected passages, or a file or folder of them, found {corpus!r}")
    reader = open_corpus(corpus, skip_invalid=given.skip_invalid)  # a wrong path is told before all else
    folder = IndexFolder(path)
    chosen = _resolved(folder, given, mode, encodes=True)
    find_runtime()  # without Java nothing can be written: an error before hours of encoding
    channels = chosen.channels or BOTH_CHANNELS
    job = corpus_job(reader, chosen.unit or "passage", chosen.top_k, chosen.min_weight or 0.0, channels)
    with _kept_on_interrupt(folder, mode):
        report = _nothing_to_do(folder, job, mode, chosen)
        if report is None:
            with ReadingProgress(shown=progress, advance=advance) as shown:
                source = _source(reader, job, chosen, shown, encoder)
                report = write_index(folder, source, chosen.for_writing(mode))
        reader.close()
    return _finished(folder, report, chosen)


def _source(
    reader: CorpusReader,
    job: dict[str, Any],
    options: IndexOptions,
    progress: ReadingProgress,
    encoder: SparseEncoder | None,
) -> Source:
    """The passages of a corpus with their impacts; for BM25 alone none are encoded."""
    alone = options.channels == BM25
    if alone and (side := _known_side(options)):
        return text_source(reader, job, side, options.language or DEFAULT_LANGUAGE, progress)
    from sparta.models.load import open_encoder

    encoding = options.for_encoding()
    model = encoder or open_encoder(options.model, options.bits, encoding.devices)
    if alone:
        return text_source(reader, job, model.query_side(), encoding.language, progress)
    return corpus_source(reader, model, encoding, progress=progress, job=job)


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

    :param tokenizer: for JSON vectors, the model whose wordpieces their terms are
    """
    folder = IndexFolder(path)
    given = options or IndexOptions()
    chosen = _resolved(folder, given, mode, encodes=False)
    find_runtime()
    with _kept_on_interrupt(folder, mode):
        source = vectors_source(vectors, tokenizer)
        if given.language is None and mode != "append" and source.language:
            chosen = replace(chosen, language=source.language)
        report = write_index(folder, source, chosen.for_writing(mode))
    return _finished(folder, report, chosen)


@dataclass(frozen=True, slots=True)
class DeleteReport:
    """What a deletion did; `deleted` counts units, which are sentences where those are indexed.

    `channels` and `behind` are as in `IndexReport`.
    """

    named: int
    deleted: int
    missing: tuple[str, ...]
    unit: str
    channels: tuple[Any, ...] = ()
    behind: tuple[str, ...] = ()


def delete_from_index(path: str | Path, passage_ids: Sequence[str]) -> DeleteReport:
    """Delete passages by id from all channels of an index; ids that it does not hold are reported.

    A channel that cannot follow is a warning: what was deleted is never found, and the report names it.
    """
    folder = IndexFolder(path)
    folder.state()  # where there is no index, none is made
    named = list(dict.fromkeys(passage_ids))
    deleted, missing = delete_passages(folder, named)
    unit = folder.require_live().unit
    return DeleteReport(len(named), deleted, tuple(missing), unit, *sync_channels(folder.path))


def _resolved(folder: IndexFolder, options: IndexOptions, mode: str, *, encodes: bool) -> IndexOptions:
    """The options with what the index itself, or its language, decides filled in; what is extended is there.

    :param encodes: whether a model is to encode the passages
    """
    if options.channels not in (None, BOTH_CHANNELS, BM25):
        raise InputError(f"expected the channels {BOTH_CHANNELS} or bm25, found {options.channels!r}")
    live = folder.state().searchable if mode in GROWING else None
    if live is None:
        new = replace(options, language=options.language or DEFAULT_LANGUAGE, unit=options.unit or "passage")
        return with_model(new) if encodes else new
    own = live.form
    if options.language not in (None, own["language"]):
        raise InputError(
            f"expected the index's own language {own['language']!r}, found {options.language!r}",
            where=str(folder.path),
            remedy=remedy(
                "leave {} out, or put these texts into another {}", Option("language"), Option("index")
            ),
        )
    filled = replace(options, **{name: own[name] for name in own if getattr(options, name) is None})
    return with_model(_with_own_model(filled, live, folder)) if encodes else filled


def options_to_grow(path: str | Path, options: IndexOptions) -> IndexOptions:
    """The options with which passages are added to an index: what they leave open is as the index has it.

    :raises IndexStateError: there is no index.
    :raises ModelError: the index's model is not where it was, and none is named.
    """
    return _resolved(IndexFolder(path), options, "update", encodes=True)


def _with_own_model(options: IndexOptions, live: Generation, folder: IndexFolder) -> IndexOptions:
    """The options with the model and the bits that the index was made with, where they name none.

    :raises ModelError: the model is not where it was.
    """
    name = str(live.model["name"])
    if not name or name.startswith(JSON_VECTORS):
        return options  # no model of ours to encode with
    own = replace(options, bits=options.bits or live.model["quantizer"]["bits"])
    if options.model is not None:
        return own
    try:
        name = find_model(name, live.model["sha256"])
    except ModelError as error:
        raise ModelError(
            f"expected the index's own model {name!r} where it was, found none: {error.message}",
            where=str(folder.path),
            remedy=remedy(
                "say where it lies now with {}, or rebuild with {}",
                Option("model"),
                Option("overwrite", True),
            ),
        ) from error
    return replace(own, model=name)


def with_model(options: IndexOptions) -> IndexOptions:
    """The options with the model that ships for their language, where none is named; or for BM25 alone.

    :raises ModelError: impacts are wanted, and there is no model to write them.
    """
    language = options.language or DEFAULT_LANGUAGE
    if options.model is not None or language_of(language).model == DEFAULT_MODEL:
        return options
    if name := shipped_for(language):
        return replace(options, model=name)
    if options.channels == BOTH_CHANNELS:
        model_for(None, language)
    if options.channels is None:
        logger.warning(
            "no SPARTA model ships for the language %r: indexed for BM25 alone, without impacts;"
            " name a model that reads it",
            language,
        )
    return replace(options, channels=BM25)


def _known_side(options: IndexOptions) -> QuerySide | None:
    """The query side of the model, where that needs no torch."""
    if (
        options.model is None
        and options.channels == BM25
        and shipped_for(options.language or DEFAULT_LANGUAGE) is None
    ):
        return QuerySide.none()
    return known_query_side(options.model, options.bits)


def _nothing_to_do(
    folder: IndexFolder, job: dict[str, Any], mode: str, options: IndexOptions
) -> IndexReport | None:
    """What can be said before torch and a model are loaded: the index is up to date, or must not change."""
    if not folder.exists():
        return None
    side = _known_side(options)
    if side is None:
        return None
    return up_to_date(folder, Source(job, side, lambda *_: iter(())), options.for_writing(mode))


def _finished(folder: IndexFolder, report: IndexReport, options: IndexOptions) -> IndexReport:
    """Tidy an index that held its input already, merge it if wanted, and bring other channels up to date."""
    if report.unchanged:
        folder.sweep_left_over()
        if options.optimize:
            optimize_index(folder)
    first = options.device.partition(",")[0] if options.device else None
    reports, behind = sync_channels(folder.path, device=first, dtype=options.dtype)
    return replace(report, channels=reports, behind=behind)


@contextmanager
def _kept_on_interrupt(folder: IndexFolder, mode: str) -> Iterator[None]:
    """Say at Ctrl-C how many passages are committed."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        kept = stopped.kept if isinstance(stopped, Interrupted) else kept_passages(folder, mode)
        there = "the index" if folder.exists() and folder.state().live else ""
        raise Interrupted(kept, "passage", there) from None
