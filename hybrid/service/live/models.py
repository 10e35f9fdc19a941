"""The models of a service: each is opened at its first use, once for all indexes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sparta.base.extras import optional_packages
from sparta.index.inputs.open_encoders import OpenEncoders

if TYPE_CHECKING:
    from hybrid.answering.open_readers import OpenReaders
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
        self.encoders = OpenEncoders()
        self._lock = threading.Lock()

    @optional_packages()
    def reader(self, language: str) -> Reader:
        """Return the reader for an index of this language."""
        from hybrid.answering.open_readers import OpenReaders

        with self._lock:
            if self._readers is None:
                self._readers = OpenReaders(self._device)
        return self._readers.reader(self.reader_name, language)
