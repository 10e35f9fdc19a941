"""Moments in the work of this process: Python reports each file that it opens, renames or removes (PEP 578).

A test can count them, or break off the work at one of them, as Ctrl-C, a kill or another process would.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

See = Callable[[str, Path], object]
_watchers: list[See] = []
_inside = threading.local()
_ACTIONS = {"open": "read", "os.rename": "rename", "os.remove": "remove"}
_WRITING = os.O_WRONLY | os.O_RDWR


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watchers or event not in _ACTIONS or getattr(_inside, "watcher", False):
        return
    path = arguments[1] if event == "os.rename" else arguments[0]
    if not isinstance(path, str | os.PathLike):
        return
    writes = event == "open" and arguments[2] & _WRITING
    _inside.watcher = True
    try:
        for see in tuple(_watchers):
            see("write" if writes else _ACTIONS[event], Path(path))
    finally:
        _inside.watcher = False


_is_installed: list[bool] = []


@contextmanager
def watched(see: See) -> Iterator[None]:
    """Call `see(action, path)` before every `read`, `write`, `rename` (to the path) and `remove` of a file.

    What `see` raises comes out of that action, which then does not happen. What it does to files is not seen.
    """
    if not _is_installed:
        sys.addaudithook(_audit)  # it cannot be taken away again
        _is_installed.append(True)
    _watchers.append(see)
    try:
        yield
    finally:
        _watchers.remove(see)


@contextmanager
def counted(action: str, pattern: str) -> Iterator[list[Path]]:
    """Yield the files of a name like `pattern` that were read, written, renamed or removed in the block."""
    files: list[Path] = []

    def see(done: str, path: Path) -> None:
        if done == action and path.match(pattern):
            files.append(path)

    with watched(see):
        yield files


@contextmanager
def at(action: str, pattern: str, do: Callable[[], object], *, nth: int = 1) -> Iterator[None]:
    """Call `do` before the nth such action in the block, once; the block must come to it."""
    left = [nth]

    def see(done: str, path: Path) -> None:
        if done == action and path.match(pattern):
            left[0] -= 1
            if not left[0]:
                do()

    with watched(see):
        yield
    assert left[0] <= 0, f"{nth - left[0]} times {action} {pattern}"


def ctrl_c() -> NoReturn:
    """Break off the work."""
    raise KeyboardInterrupt


def no_temporary_files() -> str:
    """Fail as `tempfile.gettempdir` does if no folder for temporary files can be written."""
    raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")
