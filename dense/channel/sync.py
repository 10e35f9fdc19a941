"""The dense channel of an index is made, and kept to what the Lucene index holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dense.channel.builder import ChannelBuilder
from dense.channel.folder import Channel, ChannelFolder
from dense.channel.passages import LivePassages, commit_of
from dense.models.resolve import ModelIdentity, find_dense_model, identify
from dense.search import faiss_index
from dense.search.faiss_index import Parameters
from dense.search.store import VectorFolder, open_finished
from sparta.base.checks import paths_of
from sparta.base.errors import IndexStateError, InputError, SpartaError
from sparta.base.extras import optional_packages
from sparta.base.files import storage_errors
from sparta.base.records import Advance
from sparta.base.remedies import Command, Option, remedy
from sparta.data.units import options_of_unit
from sparta.index.folder import Generation, IndexFolder
from sparta.models.resolve import model_for


@dataclass(frozen=True, slots=True)
class DenseReport:
    """What happened: of `passages`, so many vectors were `encoded` now, `taken` from folders, `kept`, and
    `forgotten` since their passages are gone; of `cut` of the encoded ones only the beginning was read, so
    `share_read` of all their wordpieces; `unchanged` when there was nothing to do.
    """

    path: Path
    passages: int
    kind: str
    model: str
    encoded: int = 0
    taken: int = 0
    forgotten: int = 0
    cut: int = 0
    share_read: float = 1.0
    unchanged: bool = False
    seconds: float = 0.0

    @property
    def kept(self) -> int:
        """How many vectors the channel had."""
        return max(0, self.passages - self.encoded - self.taken)


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
) -> DenseReport:
    """Make the dense channel hold exactly the live passages of the Lucene index.

    A first call makes the channel. A passage that is new or changed gets its vector from the folders
    `vectors` (of `dense encode`) if they have it, else from the model. Each shard of vectors lasts when it is
    written, so the same call goes on after a crash; until the end, search sees what was there before.

    :param model: folder, hub id, or None for the channel's own, that of `vectors`, or the shipped one
    :param kind: auto, flat, ivf or hnsw; None for the channel's own, or auto
    :param device: and `dtype`, of the encoder
    :param overwrite: make the channel anew, also of another model; vectors of the same model are kept
    :param expect: is told how many vectors are missing, before `advance` is called with how many were got
    :raises IndexStateError: no finished index, another model than the channel's, another process writing.
    :raises InputError: vectors of another model, unit or index, damaged or not finite; unknown kind.
    """
    folder = IndexFolder(index)
    folder.require_live()  # before the lock makes a folder
    faiss_index.choose_kind(kind or "auto", 0)
    started = time.monotonic()
    with folder.lock(), storage_errors(folder.path):
        live = folder.require_live()
        place = ChannelFolder(folder.dense_path(live))
        if overwrite:
            place.remove_if_damaged()
        before = place.read() if place.exists() else None
        place.remove_left_overs(before)
        sources = [open_finished(path) for path in paths_of(vectors, "folders of vectors")]
        identity = _chosen_model(model, before, sources, live.language, folder.path, overwrite=overwrite)
        own = before if before and before.model.sha256 == identity.sha256 and not overwrite else None
        asked = kind or (before.asked if before else "auto")
        if own and _up_to_date(own, asked, commit_of(folder.lucene_path(live))) and place.is_whole(own):
            if own.model != identity:
                place.write(replace(own, model=identity))
            return DenseReport(place.path, own.passages, own.search.kind, identity.name, unchanged=True)
        for source in sources:
            _check_vectors(source, identity, live)
        with LivePassages.open(folder.lucene_path(live), live.analysis) as passages:
            work = ChannelBuilder(place, own, identity, live.unit, passages, device, dtype)
            work.fill(sources, expect, advance)
            channel = work.finish(asked)
        return DenseReport(
            place.path,
            channel.passages,
            channel.search.kind,
            identity.name,
            work.encoded,
            work.taken,
            work.forgotten,
            *work.cut,
            seconds=time.monotonic() - started,
        )


def _up_to_date(own: Channel, asked: str, commit: str) -> bool:
    """Whether a channel already is what is wanted."""
    wanted = Parameters.default(faiss_index.choose_kind(asked, own.passages), own.passages)
    alike = own.search.kind == wanted.kind
    return own.commit == commit and own.asked == asked and alike


def _chosen_model(
    name: str | None,
    before: Channel | None,
    sources: Sequence[VectorFolder],
    language: str,
    index: Path,
    *,
    overwrite: bool,
) -> ModelIdentity:
    """The model to encode with: the one named, the channel's, that of the vectors, the one that ships."""
    own = before.model if before else None
    if overwrite and sources:
        own = None
    known = own or (sources[0].model if sources else None)
    given = name or (known.name if known else None)
    try:
        if name is None and known and not overwrite:
            identity = find_dense_model(known)
        else:
            identity = identify(model_for(given, language, "dense"))
    except SpartaError as error:
        if name is None and given is not None:
            command = Command.of("dense index", model="FOLDER", index=index)
            error.remedy = remedy("name the place where this model lies now: {}", command)
        raise
    if own and own.sha256 != identity.sha256 and not overwrite:
        raise IndexStateError(
            f"expected the model {own.name!r}, whose vectors the dense channel holds, found another:"
            f" {identity.name!r}",
            remedy=remedy(
                "leave {} out, or replace the channel: {}",
                Option("model"),
                Command.of("dense index", overwrite=True, model=given, index=index),
            ),
        )
    return identity


def _check_vectors(source: VectorFolder, identity: ModelIdentity, live: Generation) -> None:
    """Refuse vectors of another model or unit than the channel's."""
    where = str(source.folder)
    if source.model.sha256 != identity.sha256:
        raise InputError(
            f"expected vectors of the model {identity.name!r}, found those of {source.model.name!r}",
            where=where,
            remedy=remedy(
                "encode with the same model, or name theirs with {} (and {})",
                Option("model"),
                Option("overwrite", True),
            ),
        )
    if source.manifest["unit"] != live.unit:
        raise InputError(
            f"expected vectors of the index's own unit {live.unit!r}, found {source.manifest['unit']!r}",
            where=where,
            remedy=remedy("encode with {}", options_of_unit(live.unit)),
        )
