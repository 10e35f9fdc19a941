"""What a dense channel lacks is written, and the manifest replaced at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dense.channel.folder import Channel, ChannelFolder
from dense.channel.merging import merge_small_shards
from dense.channel.passages import LivePassages
from dense.models.resolve import ModelIdentity, vector_width
from dense.search import faiss_index
from dense.search.faiss_index import Parameters
from dense.search.store import (
    Floats,
    Hashes,
    Rows,
    VectorFolder,
    VectorWriter,
    describe_vectors,
    find,
)
from sparta.base.errors import InputError, Interrupted
from sparta.base.records import Advance
from sparta.base.remedies import Option, remedy
from sparta.data.units import SENTENCE
from sparta.shards.folder import SHARD_SIZE, shard_files

if TYPE_CHECKING:
    from dense.channel.encode import PassageEncoder

PRECISION = "float16"
_FIRST_BLOCK, _SMALLEST_BLOCK = 256, 64  # passages that are encoded and kept at once, at first and at least
_KEEP_SECONDS = 30.0  # about what a crash may cost
_MOST_GONE = 0.5  # of a store's rows, before the others are copied into a new one
_MOST_GROWTH = 2.0  # of IVF, before its lists are drawn anew


class ChannelBuilder:
    """One run of `sync`, behind its lock: fills a vector store, then finishes the channel."""

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
        self.passages, self.hashes = passages, passages.hashes(unit)
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
        """The folder of vectors to add to: the channel's own, unless most of it is gone, or a newer one.

        Not the channel's own if it lacks a shard: rows would not be where FAISS has them. The new folder
        takes over the vectors that are there.
        """
        current = self.own.store if self.own else ""
        for number, store in mine.items():
            if store.folder.name == current and not self._counted(store):
                continue
            rows = store.rows_of(self.passages.positions, self.hashes)
            used = int((rows >= 0).sum())
            if store.folder.name == current and used >= len(store) * (1 - _MOST_GONE):
                return store.folder
            if store.folder.name > current and number == max(mine):
                return store.folder
        taken = max((number for number, _ in self.place.stores()), default=0)
        return self.place.path / f"vectors-{taken + 1:06d}"

    def _counted(self, store: VectorFolder) -> bool:
        """Whether the channel's own store has all shards that count."""
        return self.own is None or set(self.own.shards) <= set(store.numbers)

    def _writer(self) -> VectorWriter:
        return VectorWriter(self.store, self.manifest)

    def _opened(self) -> VectorFolder:
        """The folder of vectors: first the shards that count, in their order, then those added since."""
        named = self.own.shards if self.own and self.own.store == self.store.name else ()
        added = [number for number in shard_files(self.store) if number not in named]
        return VectorFolder(self.store, shards=[*named, *added])

    def fill(
        self,
        folders: Sequence[VectorFolder],
        expect: Advance | None,
        advance: Advance | None,
    ) -> None:
        """Write the vectors that the store lacks: what other folders hold is copied, the rest encoded."""
        writer = self._writer()
        there = self._opened().rows_of(self.passages.positions, self.hashes)
        missing = np.flatnonzero(there < 0)
        _check_useful(folders, self.hashes)
        if expect:
            expect(len(missing))
        sources = [(source, find(source.hashes, self.hashes)) for source in (*self.kept, *folders)]
        done = 0
        try:
            size = min(SHARD_SIZE, _FIRST_BLOCK)
            while done < len(missing):
                chosen = missing[done : done + size]
                started = time.monotonic()
                vectors = self._vectors(chosen, sources, advance)
                writer.add(self.passages.positions[chosen], self.hashes[chosen], vectors)
                done += len(chosen)
                wished = len(chosen) * _KEEP_SECONDS / max(1e-3, time.monotonic() - started)
                size = min(SHARD_SIZE, max(_SMALLEST_BLOCK, int(wished)))
        except KeyboardInterrupt:
            raise Interrupted(len(there) - len(missing) + done, "vector") from None

    def _vectors(
        self, chosen: Rows, sources: Sequence[tuple[VectorFolder, Rows]], advance: Advance | None
    ) -> Floats:
        """The vectors of some live passages, from the first source that has them or from the model."""
        vectors = np.empty((len(chosen), self.manifest["width"]), np.float32)
        open_ = np.ones(len(chosen), bool)
        for source, rows in sources:
            here = open_ & (rows[chosen] >= 0)
            vectors[here] = source.take(rows[chosen[here]])
            open_ &= ~here
            if not self.own or source.folder != self.place.path / self.own.store:  # its own are only moved
                self.taken += int(here.sum())
        self.encoded += int(open_.sum())
        if advance and not open_.all():
            advance(int((~open_).sum()))
        if open_.any():
            vectors[open_] = self._encode(chosen[open_], advance)
        return vectors

    @property
    def cut(self) -> tuple[int, float]:
        """How many passages encoded now are longer than is read at once; what share was read of all."""
        return (self._encoder.cut, self._encoder.share_read) if self._encoder else (0, 1.0)

    def _encode(self, chosen: Rows, advance: Advance | None) -> Floats:
        from dense.channel.encode import PassageEncoder

        if self._encoder is None:
            self._encoder = PassageEncoder(self.identity.name, self.device, self.dtype)
        docids = self.passages.docids[chosen]
        context = self._encoder.wants_context and self.unit == SENTENCE
        return self._encoder(self.passages.passages(docids, context=context), advance)

    def finish(self, asked: str) -> Channel:
        """Build what searches, replace the manifest, remove what it no longer names."""
        vectors = self._opened()
        rows = vectors.rows_of(self.passages.positions, self.hashes)
        kind = faiss_index.choose_kind(asked, len(rows))
        if merged := merge_small_shards(vectors, self._writer(), rows if kind == "flat" else None):
            vectors = VectorFolder(self.store, shards=merged)
            rows = vectors.rows_of(self.passages.positions, self.hashes)
        before = self.own.passages if self.own else 0
        self.forgotten = max(0, before + self.encoded + self.taken - len(rows))
        channel = Channel(
            serial=self.own.serial + 1 if self.own else self._next_serial(),
            model=self.identity,
            store=self.store.name,
            shards=vectors.numbers,
            passages=len(rows),
            asked=asked,
            search=Parameters.default(kind, len(rows)),
            commit=self.passages.commit,
        )
        channel = self._searched(channel, vectors)
        self.place.write_rows(channel.rows_name, rows)
        facts = {"unit": self.unit, "width": vectors.width, "dtype": str(vectors.dtype)}
        self.place.write(channel, {**facts, "crc32": self.place.checksums(channel)})
        self.place.sweep(channel, keep_unfinished=self.own is not None)
        return channel

    def _next_serial(self) -> int:
        return self.place.read().serial + 1 if self.place.exists() else 1

    def _searched(self, channel: Channel, vectors: VectorFolder) -> Channel:
        """Build or extend the FAISS file, if this kind has one; rows stay where they are in it."""
        if channel.index_name is None:
            return channel
        nodes = faiss_index.nodes_of(vectors) if channel.nodes_name else None
        old = self._extensible(channel, vectors)
        if old and old.index_name:
            index = faiss_index.read(self.place.path / old.index_name)
            faiss_index.extend(index, vectors, nodes)
            channel = replace(channel, search=old.search)
        else:
            index = faiss_index.build(channel.search, vectors, nodes)
        assert channel.index_name is not None
        faiss_index.write(index, self.place.path / channel.index_name)
        if channel.nodes_name and nodes is not None:
            self.place.write_rows(channel.nodes_name, nodes)
        return channel

    def _extensible(self, channel: Channel, vectors: VectorFolder) -> Channel | None:
        """The channel's own last state, if its FAISS file needs no more than what is new."""
        old = self.own
        if not old or not old.index_name or not self.place.is_as_written(old.index_name):
            return None
        if (old.store, old.search.kind) != (channel.store, channel.search.kind):
            return None
        grown = len(vectors) > _MOST_GROWTH * max(1, len(self.place.vectors(old)))
        return None if grown and channel.search.kind == "ivf" else old


def _check_useful(folders: Sequence[VectorFolder], hashes: Hashes) -> None:
    """Refuse folders that hold no vector of the index's passages."""
    for source in folders:
        if len(source) and len(hashes) and (find(source.hashes, hashes) < 0).all():
            raise InputError(
                "expected vectors of this index's passages, found none of them",
                where=str(source.folder),
                remedy=remedy("encode the corpus that was indexed, with the same {}", Option("unit")),
            )
