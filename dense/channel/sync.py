"""Builds the dense channel of an index, and updates it after the Lucene index has changed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dense.channel.builder import SHARD_SIZES, ChannelBuilder, ShardSizes
from dense.channel.folder import Channel, ChannelFolder, find_or_replace_model
from dense.channel.passages import LivePassages, commit_of, folding_language
from dense.models.resolve import ModelIdentity, find_dense_model, identify
from dense.search import faiss_index
from dense.search.faiss_index import Parameters
from dense.search.store import VectorFolder, open_finished
from sparta.base.checks import paths_of
from sparta.base.errors import IndexStateError, InputError, Interrupted, ModelError
from sparta.base.extras import optional_packages
from sparta.base.files import storage_errors
from sparta.base.records import Advance
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.base.renames import renamed_fields
from sparta.data.languages import is_folded_alike
from sparta.data.units import options_of_unit
from sparta.index.folder import IndexFolder
from sparta.index.generation import Generation
from sparta.models.resolve import languages_of_dense_model, model_for


@renamed_fields(taken="copied_vectors", forgotten="removed_vectors", cut="truncated_passages")
@dataclass(frozen=True, slots=True)
class DenseReport:
    """The result of `build_dense`.

    Of the vectors of the channel's `passages`, `encoded` were computed now, `copied_vectors` came from
    folders, and `kept` from before. `removed_vectors` had passages that are gone. `truncated_passages` of the
    encoded passages were longer than one window; `share_read` is the share of all encoded wordpieces that was
    read. `unchanged` is true if the channel was already up to date.
    """

    path: Path
    passages: int
    kind: str
    model: str
    encoded: int = 0
    copied_vectors: int = 0
    removed_vectors: int = 0
    truncated_passages: int = 0
    share_read: float = 1.0
    unchanged: bool = False
    seconds: float = 0.0

    @property
    def kept(self) -> int:
        """The number of vectors that the channel kept from before."""
        return max(0, self.passages - self.encoded - self.copied_vectors)


@optional_packages()
def build_dense(
    index: str | Path,
    model: str | None = None,
    *,
    kind: str | None = None,
    vectors: Sequence[str | Path] = (),
    device: str | None = None,
    dtype: str = "auto",
    overwrite: bool = False,
    expect: Advance | None = None,
    advance: Advance | None = None,
    shard_sizes: ShardSizes = SHARD_SIZES,
) -> DenseReport:
    """Build or update the dense channel, so that each live passage of the Lucene index has a vector.

    New and changed passages take their vectors from the folders `vectors` (written by `dense encode`), or
    else from the model. Each written shard survives a crash, so repeating the call continues the work. Until
    the call ends, search uses the old state of the channel.

    :param model: folder or hub id; None is the channel's model, the model of `vectors`, or the shipped model
    :param kind: auto, flat, ivf, ivfpq or hnsw; None is the channel's kind, or auto
    :param device: device of the encoder
    :param dtype: arithmetic of the encoder
    :param overwrite: rebuild the channel, also with another model. Vectors of the same model are reused, but
        if `dtype` is not auto, only vectors of this runtime and arithmetic
    :param expect: called once with the number of missing vectors, before `advance`
    :param advance: called with the number of vectors that were added since the last call
    :param shard_sizes: how many vectors each new shard has, and so what a crash loses
    :raises IndexStateError: no finished index, another model than the channel's, another process writing.
    :raises InputError: vectors of another model, unit or index, damaged or not finite; unknown kind.
    :raises Interrupted: on Ctrl-C; the written vectors stay.
    """
    folder = IndexFolder(index)
    folder.require_live()  # fails before the lock creates a folder
    faiss_index.choose_kind(kind or "auto", 0)
    started = time.monotonic()
    with folder.lock(), storage_errors(folder.path):
        generation, building = folder.require_live(), folder.state().building
        channel_folder = ChannelFolder.for_writing(folder, generation)
        is_shared = building is not None and folder.dense_path(building) == channel_folder.path
        previous = channel_folder.read_if_finished(overwrite=overwrite)
        vector_folders = [open_finished(path) for path in paths_of(vectors, "folders of vectors")]
        identity = chosen_model(
            model, previous, vector_folders, generation.language, folder.path, overwrite=overwrite
        )
        same_model = previous is not None and previous.model.sha256 == identity.sha256
        current = previous if same_model and not overwrite else None
        requested_kind = kind or (previous.requested_kind if previous else "auto")
        lucene_path, path = folder.lucene_path(generation), channel_folder.path
        if (
            current
            and _up_to_date(current, requested_kind, commit_of(lucene_path))
            and channel_folder.is_whole(current)
        ):
            folder.check_not_replaced()
            channel_folder.sweep(current, keep="pass" if is_shared else "newer")  # left by a killed command
            if current.model != identity:
                channel_folder.write(replace(current, model=identity))
            return DenseReport(path, current.passages, current.search.kind, identity.name, unchanged=True)
        for vector_folder in vector_folders:
            _check_vectors(vector_folder, identity, generation)
        with LivePassages.open(lucene_path, generation.analysis) as passages:
            if overwrite:
                channel_folder.remove_damaged(folder.check_not_replaced)
            if previous or not channel_folder.exists():  # without its manifest, merged shards look obsolete
                channel_folder.remove_left_overs(previous)
            builder = ChannelBuilder(
                channel_folder,
                current,
                identity,
                generation.unit,
                passages,
                device,
                dtype,
                language=generation.language,
                folding=folding_language(generation),
                check=folder.check_not_replaced,
                reencodes=overwrite and dtype != "auto",
                shard_sizes=shard_sizes,
                is_shared=is_shared,
            )
            builder.fill(vector_folders, expect, advance)
            try:
                channel = builder.finish(requested_kind)
            except KeyboardInterrupt:
                raise Interrupted(len(passages), "vector") from None
        return DenseReport(
            path,
            channel.passages,
            channel.search.kind,
            identity.name,
            builder.encoded,
            builder.copied,
            builder.removed,
            *builder.truncated,
            seconds=time.monotonic() - started,
        )


def _up_to_date(channel: Channel, requested_kind: str, commit: str) -> bool:
    """Return whether a channel covers a commit, with the requested kind of index."""
    n = channel.passages
    kind = Parameters.default(faiss_index.choose_kind(requested_kind, n), n).kind
    return (
        channel.commit == commit and channel.requested_kind == requested_kind and channel.search.kind == kind
    )


def chosen_model(
    name: str | None,
    previous: Channel | None,
    vector_folders: Sequence[VectorFolder],
    language: str,
    index: Path,
    *,
    overwrite: bool,
    advice: Remedy | None = None,
) -> ModelIdentity:
    """Return the model to encode with: the named model, the channel's, the vectors', or the shipped model.

    The channel's model is not the default after a rebuild in a language for which it does not ship.

    :param name: the model that the caller named, or None
    :param advice: says how to name a model for a new channel; None means with `--model`
    :raises IndexStateError: the channel has another model, and `overwrite` is false.
    :raises ModelError: no model is named, and none ships for the language.
    """
    channel_model = previous.model if previous else None
    if overwrite and vector_folders:
        channel_model = None
    default = channel_model or (vector_folders[0].model if vector_folders else None)
    if default and previous and default == previous.model and previous.language not in ("", language):
        languages = languages_of_dense_model(default.name)
        default = None if languages and language not in languages else default
    model_name = name or (default.name if default else None)
    if previous and advice is None:
        rebuild = Command.of("dense index", overwrite=True, model="FOLDER", index=index)
        advice = remedy("name the model of the new vectors: {}", rebuild)
    try:
        if name is None and default and not overwrite:
            identity = find_dense_model(default)
        else:
            identity = identify(model_for(model_name, language, "dense", advice))
    except ModelError as error:
        if name is None and model_name is not None:
            error.remedy = find_or_replace_model(index)
        raise
    if channel_model and channel_model.sha256 != identity.sha256 and not overwrite:
        raise IndexStateError(
            f"the dense channel has vectors of the model {channel_model.name!r}, not of {identity.name!r}",
            remedy=remedy(
                "omit {}, or replace the channel with: {}",
                Option("model"),
                Command.of("dense index", overwrite=True, model=model_name, index=index),
            ),
        )
    return identity


def _check_vectors(vector_folder: VectorFolder, identity: ModelIdentity, generation: Generation) -> None:
    """Raise an InputError if a folder's vectors have another model, unit or folding than the channel."""
    where = str(vector_folder.folder)
    if vector_folder.model.sha256 != identity.sha256:
        raise InputError(
            f"the vectors are of the model {vector_folder.model.name!r}, not of {identity.name!r}",
            where=where,
            remedy=remedy(
                "encode with the same model, or name the model of these vectors with {} (and {})",
                Option("model"),
                Option("overwrite", True),
            ),
        )
    if vector_folder.manifest["unit"] != generation.unit:
        raise InputError(
            f"the vectors are of the unit {vector_folder.manifest['unit']!r}, not {generation.unit!r}",
            where=where,
            remedy=remedy("encode with {}", options_of_unit(generation.unit)),
        )
    folding = folding_language(generation)
    if not is_folded_alike(vector_folder.language, folding):
        raise InputError(
            f"the texts of the vectors were folded for the language {vector_folder.language!r},"
            f" not for {folding!r}",
            where=where,
            remedy=remedy("encode with {}", Option("language", folding)),
        )
