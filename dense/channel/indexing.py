"""Encodes the vectors of an index while `sparta index` reads its corpus, so that one pass suffices."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dense.channel.builder import PRECISION, SHARD_SIZES, stores_like, unnamed_hashes, warn_of_unnamed
from dense.channel.encode import PassageEncoder, VectorOptions, hashes_of
from dense.channel.folder import ChannelFolder
from dense.channel.passages import folding_language
from dense.channel.sync import DenseReport, build_dense, chosen_model
from dense.search.store import Floats, Hashes, Rows, VectorWriter, describe_vectors
from sparta.base.closing import Closing
from sparta.base.files import storage_errors
from sparta.base.records import Passage
from sparta.base.remedies import Command, Option, remedy
from sparta.data.languages import folded, language_of
from sparta.index.channels import DENSE
from sparta.index.folder import IndexFolder
from sparta.index.generation import Generation

logger = logging.getLogger(__name__)


class VectorPass(Closing):
    """Encodes the blocks of a corpus into a store of the dense channel, beside the generation being built.

    No manifest of a channel names the store until `finish`, so a search never sees it. Every vector is found
    by the hash of its passage's record. So after a kill, the resumed pass encodes only passages without a
    vector, and `finish` encodes what is still missing.

    :param index: the index; its writer lock belongs to the caller
    :raises ModelError: there is no dense model for the language.
    """

    def __init__(self, index: Path, *, unit: str, language: str, device: str | None, dtype: str) -> None:
        self.folder = IndexFolder(index)
        self._options = VectorOptions(unit=unit, language=language, dtype=dtype, precision=PRECISION)
        previous, self._is_damaged = None, False
        live = self.folder.state_for("overwrite").live
        finished = sorted(path.parent for path in index.glob("dense-*/manifest.json"))
        if live or finished:  # without a manifest of the index, the newest channel is the previous one
            channel_folder = ChannelFolder(self.folder.dense_path(live) if live else finished[-1])
            previous = channel_folder.read_if_finished(overwrite=True)
            self._is_damaged = channel_folder.exists() and previous is None
        advice = remedy(
            "leave dense out of {}, then run: {}",
            Option("channels"),
            Command.of("dense index", overwrite=previous is not None, model="FOLDER", index=index),
        )
        self._identity = chosen_model(None, previous, (), language, index, overwrite=False, advice=advice)
        if self._is_damaged:
            logger.warning(
                "the manifest of the dense channel is damaged; the new vectors are of the model %s",
                self._identity.name,
            )
        self._previous = previous
        self._encoder = PassageEncoder(self._identity, device, dtype)
        self._device, self._dtype = device, dtype
        self._reencodes = dtype != "auto"
        self._writer: VectorWriter | None = None
        self._folding = language
        self._stored_hashes = np.empty(0, np.uint64)
        self._waiting: list[tuple[Rows, Hashes, Floats]] = []
        self._last_write = time.monotonic()
        self.encoded = 0

    def encode(self, first: int, passages: Sequence[Passage]) -> None:
        """Encode the passages of a block that have no vector yet, and write a shard about every 30 seconds.

        :param first: position of the block's first passage in the corpus
        """
        writer = self._opened_writer()
        hashes = hashes_of(passages, self._options)
        is_stored = self._is_stored(hashes)
        if is_stored.all():
            return
        missing = np.flatnonzero(~is_stored).tolist()
        language = language_of(self._folding)
        vectors = self._encoder([folded(passages[i], language) for i in missing])
        self._waiting.append((first + np.array(missing, np.int64), hashes[missing], vectors))
        self.encoded += len(missing)
        n_waiting = sum(len(positions) for positions, _, _ in self._waiting)
        if n_waiting >= SHARD_SIZES.largest or time.monotonic() - self._last_write >= SHARD_SIZES.seconds:
            self._write(writer)

    def _is_stored(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return which passages had a vector when the pass began."""
        if not len(self._stored_hashes):
            return np.zeros(len(hashes), bool)
        places = np.searchsorted(self._stored_hashes, hashes)
        return self._stored_hashes[np.minimum(places, len(self._stored_hashes) - 1)] == hashes

    def _write(self, writer: VectorWriter) -> None:
        """Write all waiting vectors as a shard."""
        self.folder.check_not_replaced()
        positions, hashes, vectors = (np.concatenate(column) for column in zip(*self._waiting, strict=True))
        writer.add(positions, hashes, vectors, arithmetics=[self._encoder.runtime_name()])
        self._waiting.clear()
        self._last_write = time.monotonic()

    def _opened_writer(self) -> VectorWriter:
        """Return the writer of the store, which is opened at the first block: then the generation exists."""
        if self._writer is None:
            self.folder.watch()
            generation = self.folder.state().building
            assert generation is not None  # only jobs that build a generation encode in the same pass
            self._folding = folding_language(generation)
            channel_folder = ChannelFolder.for_writing(self.folder, generation)
            manifest = describe_vectors(
                self._identity,
                self._encoder.width,
                PRECISION,
                self._options.unit,
                arithmetic=self._encoder.runtime_name(),
                language=self._folding,
            )
            stores = list(channel_folder.stores())
            arithmetic = manifest["arithmetic"] if self._reencodes else None
            alike = stores_like(stores, self._previous, manifest)
            if self._reencodes:
                n_unnamed = len(unnamed_hashes(alike.values(), manifest["arithmetic"]))
                warn_of_unnamed(channel_folder, n_unnamed)
            reusable = {number: store.reusable(arithmetic) for number, store in alike.items()}
            stored_hashes = [store.hashes[reusable[number]] for number, store in alike.items()]
            self._stored_hashes = np.unique(np.concatenate([self._stored_hashes, *stored_hashes]))
            number = max((number for number, _ in stores), default=0)
            newest = alike.get(number)
            is_unfinished = (
                newest is not None
                and number > (self._previous.store_number if self._previous else 0)
                and len(reusable[number]) == len(newest)
            )
            store = newest.folder if newest is not None and is_unfinished else channel_folder.new_store()
            self._mark(generation)
            self._writer = VectorWriter(store, manifest)
        return self._writer

    def _mark(self, generation: Generation) -> None:
        """Mark that an indexing pass has begun a new channel, so that a resumed command goes on with it."""
        mark = ChannelFolder(self.folder.begun_path(DENSE, generation)).mark
        if not ChannelFolder(self.folder.dense_path(generation)).exists():
            self.folder.check_not_replaced()
            with storage_errors(mark):
                mark.parent.mkdir(exist_ok=True)
                mark.touch()

    def close(self) -> None:
        """Write the waiting vectors."""
        if self._waiting and self._writer:
            self._write(self._writer)

    def finish(self, *, reencodes: bool = False) -> DenseReport:
        """Build the channel from the vectors; encode passages that still lack one.

        :param reencodes: keep no vectors of another arithmetic
        """
        self._mark(self.folder.require_live())
        report = build_dense(
            self.folder.path,
            device=self._device,
            dtype=self._dtype,
            overwrite=reencodes or self._is_damaged,
        )
        truncated, share_read = self._encoder.truncated, self._encoder.share_read
        if report.encoded or not truncated:
            truncated, share_read = report.truncated_passages, report.share_read
        return replace(
            report,
            encoded=report.encoded + self.encoded,
            truncated_passages=truncated,
            share_read=share_read,
            unchanged=report.unchanged and not self.encoded,
        )
