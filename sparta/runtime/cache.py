"""Files in the user's cache folder: measured ranges and exported graphs, by the key of their weights."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from sparta.base.disk.new_folders import remove_left_overs
from sparta.base.errors import SpartaError
from sparta.base.files import atomic_write

logger = logging.getLogger(__name__)
_VERSION = 1
_LONGEST_WRITE = 86_400
"""An older temporary file, by seconds, belongs to no running process."""


def digest(key: str) -> str:
    """Return the digest of a key, which also names the version of the cached files."""
    return hashlib.sha256(f"{_VERSION} {key}".encode()).hexdigest()


def cache_path(kind: str, key: str) -> Path | None:
    """Return the file for a key, in the user's cache folder; None for a user without a home folder.

    :param kind: the folder within sparta's cache
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 (fails without home)
    return None if home.startswith("~") else Path(home) / "sparta" / kind / f"{digest(key)}.npz"


def cached[T](path: Path | None, read: Callable[[bytes], T | None], make: Callable[[], bytes]) -> T:
    """Return the content of a cache file. A missing or damaged file is made anew.

    If the file cannot be written, the next process makes it again.

    :param path: the file; None keeps nothing
    :param read: returns the content of the bytes; None if they are damaged or of another key
    :param make: returns the bytes
    """
    try:
        content = read(path.read_bytes()) if path else None
    except OSError:
        content = None
    if content is not None:
        return content
    made = make()
    try:
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_left_overs(path.parent, _LONGEST_WRITE)
            atomic_write(path, made)
    except (OSError, SpartaError) as error:
        logger.debug("%s is not cached: %s", path, error)
    content = read(made)
    if content is None:
        raise ValueError("expected content that can be read back")
    return content
