"""Readers that stay open, for an index or a service."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import NamedTuple

from sparta.base.errors import SpartaError
from sparta.models.resolve import hash_folder
from sparta.reader.config import reader_folder
from sparta.reader.reader import Reader

logger = logging.getLogger(__name__)


class _Opened(NamedTuple):
    """A reader, with its folder and the hash of its files."""

    folder: Path
    sha256: str
    reader: Reader


class OpenReaders:
    """Opens each reader once, and again when its files have changed. Threads may share this object.

    :param device: the torch device of the readers; None is this machine's best
    """

    def __init__(self, device: str | None = None) -> None:
        self._device = device
        self._opened: dict[tuple[str, str], _Opened] = {}
        self._lock = threading.Lock()

    def reader(self, name: str | Path | None, language: str) -> Reader:
        """Return a reader by its folder or name; None is the shipped reader of the language.

        If changed files cannot be opened, the reader stays as it was opened, with a warning.

        :raises ModelError: there is no such reader, or none for the language.
        """
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
