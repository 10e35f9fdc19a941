"""The options of an index. The existing index or the language decides the options that are not set."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparta.base.checks import MOST_THREADS, limit, path_of, seconds, whole
from sparta.base.errors import InputError, ModelError, SpartaError
from sparta.base.remedies import Option, remedy
from sparta.data.corpus import Corpus, open_corpus
from sparta.data.formats.fields import Fields
from sparta.data.languages import DEFAULT_LANGUAGE, check_language, language_of
from sparta.data.readers.corpus_reader import CorpusReader
from sparta.data.units import check_unit, same_chunks
from sparta.index.changes import how_to_rebuild
from sparta.index.channels import split_channels
from sparta.index.folder import IndexFolder
from sparta.index.generation import BM25, BOTH_CHANNELS, GROWING, Generation, IndexState
from sparta.index.jobs import DEFAULT_COMMIT_SECONDS, JSON_VECTORS, WriteOptions
from sparta.models.resolve import (
    DEFAULT_MODEL,
    FORMER_MODELS,
    find_model,
    how_to_get,
    model_for,
    no_model,
    shipped_for,
)

if TYPE_CHECKING:
    from sparta.shards.encode import EncodeOptions

logger = logging.getLogger(__name__)

_PASSAGES_PER_BATCH = 512  # Ctrl-C loses at most one batch


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The options for creating or extending an index.

    `None` means the setting of the index that a command extends (model and bits included). A new index, also
    one that replaces another, gets the defaults: the unit `passage`, the language `en`, all terms, the fast
    codec and the language's shipped model. An index in a language without a shipped model has BM25 only.

    `channels` is `impact,bm25`, or `bm25` to encode nothing; a list of names works, too. With `,dense` at the
    end, the shipped dense model, or the model of the index's dense channel, encodes vectors in the same pass.
    `model` is a folder or a hub id, `bits` the number of bits of an impact, `query_encoder` is `network` or
    `none` (for models whose network also encodes queries), `device` one torch device or several separated by
    commas. `unit` is `passage`, `sentence` or `sparta.chunk_unit(200, 50)`. `top_k` keeps each passage's
    strongest terms, `min_weight` the terms of at least this weight; both count wordpieces only.
    `lexical_terms` decides whether passages also have the model's lexical terms, words and pairs. `id_field`,
    `text_field` (a name, or several whose texts are joined) and `title_field` name the fields of the records,
    `query` the rows of an SQLite database. The writer commits every `commit_seconds`.
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
        if self.language is not None:
            check_language(self.language)
        limit("bits", self.bits)
        whole("threads", self.threads, most=MOST_THREADS)
        seconds("commit_seconds", self.commit_seconds)

    @classmethod
    def of(cls, options: IndexOptions | None) -> IndexOptions:
        """Return the options; None means the defaults."""
        if not isinstance(options, cls | None):
            raise InputError(f"options must be IndexOptions(…), found {type(options).__name__}")
        return options or cls()

    def without_form(self) -> IndexOptions:
        """Return only the options of the writing itself, which fit an index of any form."""
        return IndexOptions(
            device=self.device, dtype=self.dtype, threads=self.threads, commit_seconds=self.commit_seconds
        )

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


def resolve_options(folder: IndexFolder, options: IndexOptions, mode: str, *, encodes: bool) -> IndexOptions:
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
        return _of_new_index(options, state, mode, encodes=encodes)
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
    return filled if live.channels == BM25 else _with_model(filled)


def _of_new_index(options: IndexOptions, state: IndexState, mode: str, *, encodes: bool) -> IndexOptions:
    """Return the options of a new index, or of the interrupted build that a job resumes."""
    new = replace(options, language=options.language or DEFAULT_LANGUAGE, unit=options.unit or "passage")
    existing = state.extended_by(mode, resume=options.resume)
    if encodes and mode == "overwrite" and not existing and state.searchable:
        _warn_of_other_settings(state.searchable, options, new)
    if existing and options.resume:
        job = existing.job  # perhaps of a BM25-only index, whose impacts the job adds
        new = _with_open_settings(new, {"top_k": job.top_k, "min_weight": job.min_weight})
    if existing and existing.model["name"]:
        new = _with_index_queries(new, existing)
        if options.resume:
            new = _with_open_settings(new, {"bits": existing.model["quantizer"]["bits"]})
    return _with_model(new) if encodes else new


def _warn_of_other_settings(replaced: Generation, options: IndexOptions, new: IndexOptions) -> None:
    """Warn of settings that differ from those of the replaced index, although no option names them."""
    names = [
        name
        for name in ("language", "unit")
        if getattr(options, name) is None and replaced.form[name] != getattr(new, name)
    ]
    if names:
        logger.warning(
            "the replaced index has %s, the new index has %s. To keep a setting, name its option",
            " and ".join(f"{name} {replaced.form[name]}" for name in names),
            " and ".join(f"{name} {getattr(new, name)}" for name in names),
        )


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
    return resolve_options(folder, replace(options, channels=in_lucene), "update", encodes=True)


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
            return filled  # no impacts to encode: the query side has the index's tokenizer
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


def _with_model(options: IndexOptions) -> IndexOptions:
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
