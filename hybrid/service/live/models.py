"""The models of a service: each is opened at its first use, once for all indexes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from sparta.base.extras import optional_packages
from sparta.models.resolve import hash_folder

if TYPE_CHECKING:
    from hybrid.answering.open_readers import OpenReaders
    from sparta.index.pipeline import IndexOptions
    from sparta.models.model import SparseModel
    from sparta.reader.reader import Reader


class SharedModels:
    """Opens readers and the models that encode written passages; threads and indexes share them.

    The dense channels of a process share their question encoders without this object. A model whose folder
    has other files than before is opened again.

    :param reader: folder or name of the reader; None is the shipped reader of an index's language
    :param device: device of the reader
    """

    def __init__(self, reader: str | None = None, device: str | None = None) -> None:
        self.reader_name, self._device = reader, device
        self._readers: OpenReaders | None = None
        self._encoders: WeakValueDictionary[tuple[str | int | None, ...], SparseModel] = WeakValueDictionary()
        self._lock = threading.Lock()

    @optional_packages()
    def reader(self, language: str) -> Reader:
        """Return the reader for an index of this language."""
        from hybrid.answering.open_readers import OpenReaders

        with self._lock:
            if self._readers is None:
                self._readers = OpenReaders(self._device)
        return self._readers.reader(self.reader_name, language)

    @optional_packages()
    def encoder(self, options: IndexOptions) -> SparseModel:
        """Return the model of these options. A model stays open while a caller holds the model."""
        from sparta.models.load import open_encoder

        folder = Path(options.model or "")
        sha256 = hash_folder(folder) if options.model and folder.is_dir() else ""
        key = options.model, sha256, options.bits, options.query_encoder
        with self._lock:
            encoder = self._encoders.get(key)
            if encoder is None:
                devices = options.for_encoding().devices
                encoder = open_encoder(options.model, options.bits, devices, options.query_encoder)
                self._encoders[key] = encoder
            return encoder
