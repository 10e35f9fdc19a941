"""Locks of files, which the operating system releases when a process ends."""

from __future__ import annotations

import errno
import fcntl
import time
from pathlib import Path
from typing import BinaryIO

_HELD = (errno.EAGAIN, errno.EACCES)
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_PAUSE = 0.02


def lock(stream: BinaryIO, seconds: float = 0) -> bool:
    """Lock an open file until it is closed; return False if another process holds it for so many seconds.

    On a file system without locks, nothing is held and the result is True.
    """
    deadline = time.monotonic() + seconds
    while not _try(stream, fcntl.LOCK_EX):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
    return True


def is_locked(path: Path) -> bool:
    """Return whether a process holds the file now. Any number of readers may look at once."""
    try:
        with path.open("rb") as stream:
            return not _try(stream, fcntl.LOCK_SH)
    except OSError:
        return False


def _try(stream: BinaryIO, kind: int) -> bool:
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _HELD + _NO_LOCKS:
            raise
        return error.errno in _NO_LOCKS
    return True
