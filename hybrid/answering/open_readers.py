"""Readers that stay open, for an index or a service."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sparta.base.errors import SpartaError
from sparta.base.extras import optional_packages
from sparta.models.resolve import hash_folder
from sparta.reader.config import reader_folder

if TYPE_CHECKING:
    from sparta.reader.reader import Reader

logger = logging.getLogger(__name__)


class _Opened(NamedTuple):
    """A reader, with its folder and the hash of its files."""

    folder: Path
    sha256: str
    reader: Reader


class OpenReaders:
    """Opens each reader once, and again when its files have changed. Threads and indexes may share it.

    :param device: the torch device of the readers; None is this machine's best
    :param name: the folder or name of the reader that is opened if none is named; None is the shipped reader
        of the language
    """

    def __init__(self, device: str | None = None, name: str | None = None) -> None:
        self.name, self._device = name, device
        self._opened: dict[tuple[str, str], _Opened] = {}
        self._lock = threading.Lock()

    @optional_packages()
    def reader(self, language: str, name: str | Path | None = None) -> Reader:
        """Return the reader for a language, or the reader with this folder or name.

        If changed files cannot be opened, the reader stays as it was opened, with a warning.

        :raises ModelError: there is no such reader, or none for the language.
        """
        from sparta.reader.reader import Reader

        name = self.name if name is None else name
        key = ("", language) if name is None else (str(name), "")
        with self._lock:
            opened = self._opened.get(key)
            folder = opened.folder if opened else reader_folder(name, language)
            try:
                sha256 = hash_folder(folder)
                if opened is None or opened.sha256 != sha256:
                    opened = _Opened(folder, sha256, Reader.open(folder, device=self._device))
            except (SpartaError, OSError) as error:
                if opened is None:
                    raise
                logger.warning("%s: the reader stays as it was opened: %s", folder, error)
            self._opened[key] = opened
            return opened.reader
