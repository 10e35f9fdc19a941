"""File locks, which the operating system releases when a process ends."""

from __future__ import annotations

import errno
import fcntl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from sparta.base.errors import IndexStateError
from sparta.base.files import storage_errors
from sparta.base.remedies import Option, remedy

LOCK = "lock"
"""The name of the file whose lock the writer of a folder holds."""
_HELD_ERRORS = (errno.EAGAIN, errno.EACCES)
_UNSUPPORTED_ERRORS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_PAUSE = 0.02


def lock(stream: BinaryIO, seconds: float = 0) -> bool:
    """Lock an open file until it is closed.

    :param seconds: how long to wait while another process holds the lock
    :return: False if another process still holds the lock. On a file system without locks the result is
        True, although the file is not locked.
    """
    deadline = time.monotonic() + seconds
    while not _try_lock(stream, fcntl.LOCK_EX):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
    return True


@contextmanager
def locked_folder(folder: Path, writer: str) -> Iterator[None]:
    """Hold the lock of an output folder, which exists. On a file system without locks, it is not locked.

    :param writer: the writer in the error, such as a process
    :raises IndexStateError: another writer holds the lock.
    """
    with ExitStack() as stack:
        with storage_errors(folder):
            is_free = lock(stack.enter_context((folder / LOCK).open("ab")))
        if not is_free:
            raise IndexStateError(
                f"another {writer} is writing to this folder",
                where=str(folder),
                remedy=remedy(f"wait for the {writer} to end, or choose another {{}}", Option("output")),
            )
        yield


def is_locked(path: Path) -> bool:
    """Return whether a process holds the file's lock now. Several processes may check at the same time."""
    try:
        with path.open("rb") as stream:
            return not _try_lock(stream, fcntl.LOCK_SH)
    except OSError:
        return False


def is_abandoned(path: Path) -> bool:
    """Return whether a file exists whose lock no process holds.

    On a file system without locks, the result is False: the file may be in use.
    """
    try:
        with path.open("r+b") as first, path.open("r+b") as second:
            return lock(first) and not lock(second)  # without locks, both would be free
    except OSError:
        return False


def _try_lock(stream: BinaryIO, kind: int) -> bool:
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _HELD_ERRORS + _UNSUPPORTED_ERRORS:
            raise
        return error.errno in _UNSUPPORTED_ERRORS
    return True
