"""The dense channel of an index is made, and kept to what the Lucene index holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dense import faiss_index
from dense.channel import Channel, ChannelFolder
from dense.faiss_index import Parameters
from dense.locate import ModelIdentity, identify, vector_width
from dense.passages import LivePassages, commit_of
from dense.shards import (
    SHARD_SIZE,
    Floats,
    Hashes,
    Rows,
    VectorFolder,
    VectorWriter,
    describe_vectors,
    open_finished,
)
from sparta.base.errors import IndexStateError, InputError, SpartaError
from sparta.base.files import storage_errors
from sparta.layout import Generation, IndexFolder

if TYPE_CHECKING:
    from dense.encode import PassageEncoder

PRECISION = "float16"
_MOST_GONE = 0.5  # of a store's rows, before the others are copied into a new one
_MOST_GROWTH = 2.0  # of IVF, before its lists are drawn anew

Advance = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class DenseReport:
    """What happened: of `passages`, so many vectors were `encoded` now, `taken` from folders or kept ones,
    and `forgotten` since their passages are gone; `unchanged` when there was nothing to do.
    """

    path: Path
    passages: int
    kind: str
    model: str
    encoded: int = 0
    taken: int = 0
    forgotten: int = 0
    unchanged: bool = False
    seconds: float = 0.0


def has_dense(index: Path) -> bool:
    """Whether the live generation of an index has a dense channel."""
    folder = IndexFolder(index)
    live = folder.state().live if folder.exists() else None
    return live is not None and ChannelFolder(folder.dense_path(live)).exists()


def sync(
    index: Path,
    model: str | None = None,
    *,
    kind: str | None = None,
    vectors: Sequence[Path] = (),
    device: str | None = None,
    dtype: str = "auto",
    overwrite: bool = False,
    expect: Callable[[int], object] | None = None,
    advance: Advance | None = None,
) -> DenseReport:
    """Make the dense channel hold exactly the live passages of the Lucene index.

    A first call makes the channel. A passage that is new or changed gets its vector from the folders
    `vectors` (of `dense encode`) if they have it, else from the model. Each shard of vectors lasts when it is
    written, so the same call goes on after a crash; until the end, search sees what was there before.

    :param model: folder, hub id, or None for the channel's own, that of `vectors`, or the shipped one
    :param kind: auto, flat, ivf or hnsw; None for the channel's own, or auto
    :param device: and `dtype`, of the encoder
    :param overwrite: replace a channel of another model
    :param expect: is told how many vectors are missing, before `advance` is called with how many were got
    :raises IndexStateError: no finished index, another model than the channel's, another process writing.
    :raises InputError: vectors of another model, unit or index, damaged or not finite; unknown kind.
    """
    folder = IndexFolder(index)
    _live(folder)  # before the lock makes a folder
    faiss_index.choose_kind(kind or "auto", 0)
    started = time.monotonic()
    with folder.lock(), storage_errors(folder.path):
        live = _live(folder)
        place = ChannelFolder(folder.dense_path(live))
        before = place.read() if place.exists() else None
        sources = [open_finished(path) for path in vectors]
        identity = _chosen_model(model, before, sources, overwrite=overwrite)
        own = before if before and before.model.sha256 == identity.sha256 else None
        asked = kind or (before.asked if before else "auto")
        if own and _settled(own, asked, commit_of(folder.lucene_path(live))):
            if own.model != identity:
                place.write(replace(own, model=identity), {"unit": live.unit})
            return DenseReport(place.path, own.passages, own.search.kind, identity.name, unchanged=True)
        for source in sources:
            _must_fit(source, identity, live)
        with LivePassages(folder.lucene_path(live), live.language) as passages:
            work = _Work(place, own, identity, live.unit, passages, device, dtype)
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
            seconds=time.monotonic() - started,
        )


def _live(folder: IndexFolder) -> Generation:
    live = folder.state().live
    if live is None:
        raise IndexStateError(
            "expected a finished index, found one that is still being built",
            where=str(folder.path),
            remedy="finish it with: sparta index … --resume",
        )
    return live


def _settled(own: Channel, asked: str, commit: str) -> bool:
    """Whether a channel already is what is wanted."""
    kind = faiss_index.choose_kind(asked, own.passages)
    return own.commit == commit and own.asked == asked and own.search.kind == kind


def _chosen_model(
    name: str | None, before: Channel | None, sources: Sequence[VectorFolder], *, overwrite: bool
) -> ModelIdentity:
    """The model to encode with: the one named, the channel's, that of the vectors, the shipped one."""
    own = before.model if before and not overwrite else None
    given = name or (own.name if own else sources[0].model.name if sources else None)
    try:
        identity = identify(given)
    except SpartaError as error:
        if name is None and given is not None:
            error.remedy = "name the place where this model lies now: dense index --model FOLDER"
        raise
    if own and own.sha256 != identity.sha256:
        raise IndexStateError(
            f"expected the model {own.name!r}, whose vectors the dense channel holds, found another:"
            f" {identity.name!r}",
            remedy="leave --model out, or replace the channel: dense index --overwrite",
        )
    return identity


def _must_fit(source: VectorFolder, identity: ModelIdentity, live: Generation) -> None:
    """Refuse vectors of another model or unit than the channel's."""
    where = str(source.folder)
    if source.model.sha256 != identity.sha256:
        raise InputError(
            f"expected vectors of the model {identity.name!r}, found those of {source.model.name!r}",
            where=where,
            remedy="encode with the same model, or name theirs with --model (and --overwrite)",
        )
    if source.manifest["unit"] != live.unit:
        raise InputError(
            f"expected vectors of the index's own unit {live.unit!r}, found {source.manifest['unit']!r}",
            where=where,
            remedy=f"encode with --unit {live.unit}",
        )


# ---------------------------------------------------------------- rows


def _keys(positions: Rows, hashes: Hashes) -> Hashes:
    """One number for position and hash."""
    return hashes + positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def find(keys: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Rows:
    """`(len(wanted),) int64`: where each of `wanted` stands in `keys`, −1 where it does not."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    places = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
    found = order[places]
    return np.where(keys[found] == wanted, found, -1).astype(np.int64)


def live_rows(vectors: VectorFolder, positions: Rows, hashes: Hashes) -> Rows:
    """Of each live passage, its row; −1 where it has none."""
    return find(_keys(vectors.positions, vectors.hashes), _keys(positions, hashes))


class _Work:
    """One run of `sync` behind its lock."""

    def __init__(
        self,
        place: ChannelFolder,
        own: Channel | None,
        identity: ModelIdentity,
        unit: str,
        passages: LivePassages,
        device: str | None,
        dtype: str,
    ) -> None:
        self.place, self.own, self.identity, self.unit = place, own, identity, unit
        self.passages, self.hashes = passages, passages.hashes()
        self.device, self.dtype = device, dtype
        self.encoded = self.taken = self.forgotten = 0
        self._encoder: PassageEncoder | None = None
        self.manifest = describe_vectors(identity, vector_width(identity.name), PRECISION, unit)
        mine = {n: store for n, store in place.stores() if self._is_mine(store)}
        self.kept = list(mine.values())
        self.store = self._store(mine)

    def _is_mine(self, store: VectorFolder) -> bool:
        same = (store.width, str(store.dtype), store.manifest["unit"])
        wanted = (self.manifest["width"], self.manifest["dtype"], self.unit)
        return store.model.sha256 == self.identity.sha256 and same == wanted

    def _store(self, mine: dict[int, VectorFolder]) -> Path:
        """The folder of vectors to add to: the channel's own, unless most of it is gone, or a newer one."""
        current = self.own.store if self.own else ""
        for number, store in mine.items():
            rows = live_rows(store, self.passages.positions, self.hashes)
            used = int((rows >= 0).sum())
            if store.folder.name == current and used >= len(store) * (1 - _MOST_GONE):
                return store.folder
            if store.folder.name > current and number == max(mine):
                return store.folder
        taken = [int(path.name[-6:]) for path in self.place.path.glob("vectors-??????")]
        return self.place.path / f"vectors-{max(taken, default=0) + 1:06d}"

    def fill(
        self,
        folders: Sequence[VectorFolder],
        expect: Callable[[int], object] | None,
        advance: Advance | None,
    ) -> None:
        """Write the vectors that the store lacks: what other folders hold is copied, the rest encoded."""
        writer = VectorWriter(self.store, self.manifest)
        there = live_rows(VectorFolder(self.store), self.passages.positions, self.hashes)
        missing = np.flatnonzero(there < 0)
        _must_help(folders, self.hashes)
        if expect:
            expect(len(missing))
        sources = [(source, find(source.hashes, self.hashes)) for source in (*self.kept, *folders)]
        done = 0
        try:
            for chosen in self._blocks(missing):
                vectors = self._vectors(chosen, sources)
                writer.add(self.passages.positions[chosen], self.hashes[chosen], vectors)
                done += len(chosen)
                if advance:
                    advance(len(chosen))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{len(there) - len(missing) + done:,} vectors are") from None

    @staticmethod
    def _blocks(missing: Rows) -> Iterator[Rows]:
        for start in range(0, len(missing), SHARD_SIZE):
            yield missing[start : start + SHARD_SIZE]

    def _vectors(self, chosen: Rows, sources: Sequence[tuple[VectorFolder, Rows]]) -> Floats:
        """The vectors of some live passages, from the first source that has them or from the model."""
        vectors = np.empty((len(chosen), self.manifest["width"]), np.float32)
        open_ = np.ones(len(chosen), bool)
        for source, rows in sources:
            here = open_ & (rows[chosen] >= 0)
            vectors[here] = source.take(rows[chosen[here]])
            open_ &= ~here
        self.taken += int((~open_).sum())
        self.encoded += int(open_.sum())
        if open_.any():
            vectors[open_] = self._encode(chosen[open_])
        return vectors

    def _encode(self, chosen: Rows) -> Floats:
        from dense.encode import PassageEncoder

        if self._encoder is None:
            self._encoder = PassageEncoder(self.identity.name, self.device, self.dtype)
        docids = self.passages.docids[chosen]
        return self._encoder(self.passages.passages(docids, context=self._encoder.wants_context))

    def finish(self, asked: str) -> Channel:
        """Build what searches, replace the manifest, remove what it no longer names."""
        vectors = VectorFolder(self.store)
        rows = live_rows(vectors, self.passages.positions, self.hashes)
        before = self.own.passages if self.own else 0
        self.forgotten = max(0, before + self.encoded + self.taken - len(rows))
        channel = Channel(
            serial=self.own.serial + 1 if self.own else self._next_serial(),
            model=self.identity,
            store=self.store.name,
            shards=len(vectors.shards),
            passages=len(rows),
            asked=asked,
            search=Parameters.default(faiss_index.choose_kind(asked, len(rows)), len(rows)),
            commit=self.passages.commit,
        )
        channel = self._searched(channel, vectors)
        self.place.write_rows(channel, rows)
        self.place.write(channel, {"unit": self.unit, "width": vectors.width, "dtype": str(vectors.dtype)})
        self.place.sweep(channel)
        return channel

    def _next_serial(self) -> int:
        return self.place.read().serial + 1 if self.place.exists() else 1

    def _searched(self, channel: Channel, vectors: VectorFolder) -> Channel:
        """Build or extend the FAISS file, if this kind has one; rows stay where they are in it."""
        if channel.index_name is None:
            return channel
        old, name = self.own, self.own.index_name if self.own else None
        if old and name and old.store == channel.store and old.search.kind == channel.search.kind:
            grown = len(vectors) > _MOST_GROWTH * max(1, len(self.place.vectors(old)))
            if not (grown and channel.search.kind == "ivf"):
                index = faiss_index.read(self.place.path / name)
                faiss_index.extend(index, vectors)
                faiss_index.write(index, self.place.path / channel.index_name)
                return replace(channel, search=old.search)
        index = faiss_index.build(channel.search, vectors)
        faiss_index.write(index, self.place.path / channel.index_name)
        return channel


def _must_help(folders: Sequence[VectorFolder], hashes: Hashes) -> None:
    """Refuse folders that hold no vector of the index's passages."""
    for source in folders:
        if len(hashes) and (find(source.hashes, hashes) < 0).all():
            raise InputError(
                "expected vectors of this index's passages, found none of them",
                where=str(source.folder),
                remedy="encode the corpus that was indexed, with the same --unit",
            )
