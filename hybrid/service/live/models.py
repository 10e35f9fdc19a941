"""The readers of a service: each is opened at its first use, once for all indexes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sparta.base.extras import optional_packages

if TYPE_CHECKING:
    from hybrid.answering.open_readers import OpenReaders
    from sparta.reader.reader import Reader


class SharedModels:
    """Opens readers, which threads and indexes share; a reader whose folder has changed is opened again.

    The indexes of a process share encoders of questions and of written passages without this object.

    :param reader: folder or name of the reader; None is the shipped reader of an index's language
    :param device: device of the reader
    """

    def __init__(self, reader: str | None = None, device: str | None = None) -> None:
        self.reader_name, self._device = reader, device
        self._readers: OpenReaders | None = None
        self._lock = threading.Lock()

    @optional_packages()
    def reader(self, language: str) -> Reader:
        """Return the reader for an index of this language."""
        from hybrid.answering.open_readers import OpenReaders

        with self._lock:
            if self._readers is None:
                self._readers = OpenReaders(self._device)
        return self._readers.reader(self.reader_name, language)
