"""Updates a dense channel: adds missing vectors, then replaces the manifest."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dense.channel.folder import Channel, ChannelFolder, Kept
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

logger = logging.getLogger("sparta.dense")
PRECISION = "float16"
_LARGEST_DEAD_SHARE = 0.5
"""If more than this share of a store's rows has no live passage, live rows move to a new store."""
_LARGEST_GROWTH = 2.0
"""If an IVF index has grown by more than this factor since its training, its lists are trained again."""


@dataclass(frozen=True, slots=True)
class ShardSizes:
    """The sizes of a channel's shards: filling a shard takes about `seconds`, which a crash may lose.

    The first shard has `first` vectors. Later shards have `smallest` to `largest`, the last one has the rest.
    """

    largest: int = SHARD_SIZE
    first: int = 256
    smallest: int = 64
    seconds: float = 30.0

    def after(self, n: int, seconds: float) -> int:
        """Return the size of the shard that follows a shard of n vectors, filled in some seconds."""
        return min(self.largest, max(self.smallest, int(n * self.seconds / max(1e-3, seconds))))


SHARD_SIZES = ShardSizes()


def stores_like(
    stores: Iterable[tuple[int, VectorFolder]], current: Channel | None, manifest: dict[str, Any]
) -> dict[int, VectorFolder]:
    """Return the stores whose vectors fit a manifest (`VectorFolder.is_like`), by number.

    :param current: the channel on disk; its language is that of its store, if the store names none
    """
    matching_stores = {}
    for number, store in stores:
        language = current.language if current and store.folder.name == current.store else ""
        if store.is_like(manifest, language):
            matching_stores[number] = store
    return matching_stores


def unnamed_hashes(stores: Collection[VectorFolder], arithmetic: str) -> Hashes:
    """Return the distinct hashes of vectors that name no arithmetic and that no store has in `arithmetic`."""
    nameless, reusable = (
        np.concatenate([np.empty(0, np.uint64), *(store.hashes[store.reusable(name)] for store in stores)])
        for name in ("", arithmetic)
    )
    return np.setdiff1d(nameless, reusable)


def warn_of_unnamed(channel_folder: ChannelFolder, n: int) -> None:
    """Log a warning if `n` vectors name no arithmetic, so that a named arithmetic cannot reuse them."""
    if n:
        logger.warning(
            "%s: %d vectors do not name their arithmetic and are encoded again", channel_folder.path, n
        )


class ChannelBuilder:
    """Updates the files of one dense channel. The caller holds the index's write lock.

    `fill` adds the missing vectors to a store (a folder of vectors), `finish` builds the search files and
    replaces the manifest. `encoded` counts the vectors that the model computed, `copied` the vectors copied
    from folders outside the channel, `removed` the vectors removed because their passages are gone.

    :param previous: the channel to update; None builds a new channel
    :param unit: the unit of the index, such as `passage` or `sentence`
    :param language: the language of the passages
    :param folding: a language that folds texts as the index does
    :param check: called before files are written; raises if the index was replaced
    :param reencodes: reuse no vectors of another runtime or arithmetic
    :param shard_sizes: how many vectors a new shard has
    :param is_shared: whether an unfinished generation of the index has vectors in the folder; they stay
    """

    def __init__(
        self,
        channel_folder: ChannelFolder,
        previous: Channel | None,
        identity: ModelIdentity,
        unit: str,
        passages: LivePassages,
        device: str | None,
        dtype: str,
        *,
        language: str = "",
        folding: str = "",
        check: Callable[[], None] = lambda: None,
        reencodes: bool = False,
        shard_sizes: ShardSizes = SHARD_SIZES,
        is_shared: bool = False,
    ) -> None:
        self.channel_folder, self.previous = channel_folder, previous
        self.identity, self.unit = identity, unit
        self.passages, self.hashes = passages, passages.hashes(unit)
        self.device, self.dtype = device, dtype
        self.encoded = self.copied = self.removed = self._moved = 0
        self._encoder: PassageEncoder | None = None
        self._reencodes, self._shard_sizes, self._is_shared = reencodes, shard_sizes, is_shared
        self._language, self._check = language, check
        self._warned: set[str] = set()
        facts = {"language": folding} if folding else {}
        self.manifest = describe_vectors(identity, vector_width(identity.name), PRECISION, unit, **facts)
        current = channel_folder.read_if_finished(overwrite=previous is None)
        self._serial = current.serial + 1 if current else 1
        matching_stores = stores_like(channel_folder.stores(), current, self.manifest)
        self.matching_stores = list(matching_stores.values())
        self.store = self._choose_store(
            {n: store for n, store in matching_stores.items() if len(self._reusable(store)) == len(store)},
            current,
        )
        self._arithmetic = self._stored_arithmetic()
        if self._arithmetic:
            self.manifest["arithmetic"] = self._arithmetic

    def _reusable(self, vectors: VectorFolder) -> Rows:
        """Return the rows of a folder that need not be encoded again."""
        return vectors.reusable(self.encoder.runtime_name() if self._reencodes else None)

    def _rows_in(self, vectors: VectorFolder) -> Rows:
        """Return the reusable row of each live passage in a folder, or −1."""
        reusable = self._reusable(vectors)
        return np.append(reusable, -1)[find(vectors.hashes[reusable], self.hashes)]

    def _stored_arithmetic(self) -> str | None:
        """Return the arithmetic of the vectors to extend: empty if unknown, None if there are none yet."""
        current_name = self.previous.store if self.previous else self.store.name
        stores = [store for store in self.matching_stores if store.folder.name == current_name]
        return stores[0].arithmetic if stores and len(stores[0]) else None

    def _choose_store(self, matching_stores: dict[int, VectorFolder], current: Channel | None) -> Path:
        """Return the folder that receives new vectors.

        The folder is the channel's current store, the newest unfinished store, or a new folder. The current
        store is not reused if most of its rows are dead, or if a shard is missing: FAISS's row numbers would
        be wrong. An unfinished store of another generation is not reused: a merge would drop its rows.
        """
        current_number = current.store_number if current else 0
        for number, store in matching_stores.items():
            if number == current_number and current and not set(current.shards) <= set(store.numbers):
                continue
            rows = store.rows_of(self.passages.positions, self.hashes)
            n_live = int((rows >= 0).sum())
            if number == current_number and n_live >= len(store) * (1 - _LARGEST_DEAD_SHARE):
                return store.folder
            if number > current_number and number == max(matching_stores) and not self._is_shared:
                return store.folder
        return self.channel_folder.new_store()

    def _writer(self) -> VectorWriter:
        self._check()
        return VectorWriter(self.store, self.manifest)

    def _open_vectors(self) -> VectorFolder:
        """Open the store: first the shards that the manifest names, in its order, then newer shards."""
        continues = self.previous and self.previous.store == self.store.name
        named_shards = self.previous.shards if self.previous and continues else ()
        new_shards = [number for number in shard_files(self.store) if number not in named_shards]
        return VectorFolder(self.store, shards=[*named_shards, *new_shards])

    def fill(
        self,
        folders: Sequence[VectorFolder],
        expect: Advance | None,
        advance: Advance | None,
    ) -> None:
        """Add a vector to the store for each live passage without one: copied from a folder, or encoded.

        Writes a shard about every 30 seconds, so that a crash loses little work.

        :param folders: folders of vectors that `dense encode` wrote
        :param expect: called once with the number of missing vectors
        :param advance: called with the number of vectors that were added since the last call
        :raises Interrupted: on Ctrl-C; the written shards stay.
        """
        rows = np.full(len(self.passages), -1)
        if (self.store / "manifest.json").is_file():
            rows = self._open_vectors().rows_of(self.passages.positions, self.hashes)
        missing = np.flatnonzero(rows < 0)
        _check_shared_passages(folders, self.hashes)
        if expect:
            expect(len(missing))
        sources = [(source, self._rows_in(source)) for source in (*self.matching_stores, *folders)]
        if self._reencodes:
            unnamed = unnamed_hashes([source for source, _ in sources], self.encoder.runtime_name())
            warn_of_unnamed(self.channel_folder, int((find(unnamed, self.hashes[missing]) >= 0).sum()))
        n_done = 0
        try:
            size = min(self._shard_sizes.largest, self._shard_sizes.first)
            while n_done < len(missing):
                block = missing[n_done : n_done + size]
                started = time.monotonic()
                vectors, arithmetics = self._vectors(block, sources, advance)
                self._writer().add(
                    self.passages.positions[block], self.hashes[block], vectors, arithmetics=arithmetics
                )
                n_done += len(block)
                size = self._shard_sizes.after(len(block), time.monotonic() - started)
        except KeyboardInterrupt:
            raise Interrupted(len(rows) - len(missing) + n_done, "vector") from None
        self._writer()  # creates the store of an index without passages

    def _vectors(
        self, block: Rows, sources: Sequence[tuple[VectorFolder, Rows]], advance: Advance | None
    ) -> tuple[Floats, set[str]]:
        """Return the vectors `(len(block), width) float32` of some live passages, and their arithmetics.

        Each vector comes from the first source that has it, or from the model.

        :param block: places in `self.passages`
        :param sources: folders of vectors, each with the row of every live passage (-1: no vector)
        """
        vectors = np.empty((len(block), self.manifest["width"]), np.float32)
        missing = np.ones(len(block), bool)
        arithmetics: set[str] = set()
        for source, rows in sources:
            available = missing & (rows[block] >= 0)
            copied_rows = rows[block[available]]
            source.check_rows(copied_rows)
            vectors[available] = source.take(copied_rows)
            missing &= ~available
            if source not in self.matching_stores:
                self.copied += int(available.sum())
            elif not self.previous or source.folder.name != self.previous.store:
                self._moved += int(available.sum())
            copied_arithmetics = source.arithmetics_of(copied_rows)
            for name in sorted(copied_arithmetics):
                self._use_arithmetic(name or source.arithmetic)
            arithmetics |= copied_arithmetics
        self.encoded += int(missing.sum())
        if advance and not missing.all():
            advance(int((~missing).sum()))
        if missing.any():
            vectors[missing] = self._encode(block[missing], advance)
            arithmetics.add(self.encoder.runtime_name())
        return vectors, arithmetics

    @property
    def truncated(self) -> tuple[int, float]:
        """The number of encoded passages longer than one window, and the share of wordpieces read."""
        return (self._encoder.truncated, self._encoder.share_read) if self._encoder else (0, 1.0)

    def _encode(self, block: Rows, advance: Advance | None) -> Floats:
        self._use_arithmetic(self.encoder.runtime_name())
        docids = self.passages.docids[block]
        context = self.encoder.wants_context and self.unit == SENTENCE
        parts = [self.encoder(part, advance) for part in self.passages.blocks(docids, context=context)]
        return np.concatenate(parts)

    @property
    def encoder(self) -> PassageEncoder:
        """The encoder of the channel's model, made at the first use."""
        from dense.channel.encode import PassageEncoder

        if self._encoder is None:
            self._encoder = PassageEncoder(self.identity, self.device, self.dtype)
        return self._encoder

    def _use_arithmetic(self, name: str) -> None:
        """Keep the arithmetic of the channel's first vectors; warn if new vectors have another one.

        The first shard brings the manifest of the vectors, so the manifest can name the arithmetic.
        """
        if self._arithmetic is None:
            self._arithmetic = name
            if name:
                self.manifest["arithmetic"] = name
        elif self._arithmetic and name and name != self._arithmetic:
            if name not in self._warned:
                logger.warning(
                    "%s: the vectors were encoded with %s, new vectors with %s. Vectors of equal passages may"
                    " differ slightly (docs/formats.md)",
                    self.channel_folder.path,
                    self._arithmetic,
                    name,
                )
            self._warned.add(name)

    def finish(self, requested_kind: str) -> Channel:
        """Build the files that search needs, replace the manifest and delete files that it no longer names.

        :param requested_kind: auto, flat, ivf, ivfpq or hnsw
        """
        vectors = self._open_vectors()
        rows = vectors.rows_of(self.passages.positions, self.hashes)
        kind = faiss_index.choose_kind(requested_kind, len(rows))
        is_new_kind = not self.previous or self.previous.requested_kind != requested_kind
        if is_new_kind and (requested_kind, kind) == ("ivfpq", "flat"):
            logger.warning(
                "%s: IVF-PQ needs %d vectors, found %d: the index is flat",
                self.channel_folder.path,
                faiss_index.SMALLEST_PQ,
                len(rows),
            )
        live, largest = rows if kind == "flat" else None, self._shard_sizes.largest
        if merged_shards := merge_small_shards(vectors, self._writer(), live, largest):
            vectors = VectorFolder(self.store, shards=merged_shards)
            rows = vectors.rows_of(self.passages.positions, self.hashes)
        n_before = self.previous.passages if self.previous else 0
        self.removed = max(0, n_before + self.encoded + self.copied + self._moved - len(rows))
        channel = Channel(
            serial=self._serial,
            model=self.identity,
            store=self.store.name,
            shards=vectors.numbers,
            passages=len(rows),
            requested_kind=requested_kind,
            search=Parameters.default(kind, len(rows)),
            commit=self.passages.commit,
            language=self._language,
        )
        channel = self._with_search_files(channel, vectors)
        self._check()
        self.channel_folder.write_rows(channel.rows_name, rows)
        facts: dict[str, Any] = {"unit": self.unit, "width": vectors.width, "dtype": str(vectors.dtype)}
        if self._arithmetic:
            facts["arithmetic"] = self._arithmetic
        self.channel_folder.write(channel, {**facts, "crc32": self.channel_folder.checksums(channel)})
        others: Kept = "other models" if self.previous else "channel"
        self.channel_folder.sweep(channel, keep="pass" if self._is_shared else others)
        return channel

    def _with_search_files(self, channel: Channel, vectors: VectorFolder) -> Channel:
        """Build or extend the channel's FAISS file, and return the channel with its search parameters.

        Vectors that are already in the file keep their numbers. A flat channel has no FAISS file.
        """
        if channel.index_name is None:
            return channel
        nodes = faiss_index.nodes_of(vectors) if channel.nodes_name else None
        extendable = self._extendable_channel(channel)
        if extendable and extendable.index_name:
            index = faiss_index.read(self.channel_folder.path / extendable.index_name)
            faiss_index.extend(index, vectors, nodes)
            channel = replace(channel, search=extendable.search)
        else:
            index = faiss_index.build(channel.search, vectors, nodes)
        assert channel.index_name is not None
        self._check()
        faiss_index.write(index, self.channel_folder.path / channel.index_name)
        if channel.nodes_name and nodes is not None:
            self.channel_folder.write_rows(channel.nodes_name, nodes)
        return channel

    def _extendable_channel(self, channel: Channel) -> Channel | None:
        """Return the previous channel if its FAISS file only needs the new vectors, else None."""
        previous = self.previous
        if not previous or not previous.index_name:
            return None
        if not self.channel_folder.is_as_written(previous.index_name):
            return None
        if (previous.store, previous.search.kind) != (channel.store, channel.search.kind):
            return None
        # The number of lists grows with the root of the number of vectors that an index was trained on.
        outgrown = channel.search.lists > _LARGEST_GROWTH**0.5 * previous.search.lists
        return None if outgrown else previous


def _check_shared_passages(folders: Sequence[VectorFolder], hashes: Hashes) -> None:
    """Raise an InputError if a folder of vectors has no vector of this index's passages."""
    for folder in folders:
        if len(folder) and len(hashes) and (find(folder.hashes, hashes) < 0).all():
            raise InputError(
                "the folder of vectors has no vector of a passage of this index",
                where=str(folder.folder),
                remedy=remedy("encode the corpus that was indexed, with the same {}", Option("unit")),
            )
