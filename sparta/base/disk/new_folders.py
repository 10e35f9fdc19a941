"""New folders that appear only when they are complete, and temporary files that killed processes left."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparta.base.disk.locks import is_abandoned, lock
from sparta.base.errors import IndexStateError
from sparta.base.files import TEMPORARY, check_new_folder, sync_folder, temporary_name

_LOCK, _CONTENT = "lock", "content"


def remove_left_overs(folder: Path, min_seconds: float = 0) -> None:
    """Remove the temporary files in a folder that killed processes left behind.

    :param min_seconds: keep younger files, because other processes may be writing them; 0 if none can be
    """
    latest = time.time() - min_seconds
    for path in folder.glob(TEMPORARY):
        if path.is_file() and (not min_seconds or path.stat().st_mtime < latest):
            path.unlink(missing_ok=True)


def check_appearing_folder(target: Path) -> None:
    """Check, before long work, that `appearing_folder` can put a folder at a path.

    :raises IndexStateError: the folder holds files, or the path is a file, a link or a mount point.
    """
    check_new_folder(target, "name a new folder")
    if target.is_symlink() or os.path.ismount(target):
        inside = f", such as {target / 'NAME'}" if target.is_dir() else ""
        raise IndexStateError(
            f"the path is a {'link' if target.is_symlink() else 'mount point'}, which no folder can replace",
            where=str(target),
            remedy=f"name a new folder{inside}",
        )


@contextmanager
def appearing_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside the target, which takes the target's place after the block.

    After an error the temporary folder is removed.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(target.parent) as temporary:
        yield temporary
        for child in [temporary, *temporary.rglob("*")]:
            if child.is_dir():
                sync_folder(child)
        temporary.replace(target)
        sync_folder(target.parent)


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Yield a temporary folder in a hidden folder of the parent, which is removed after the block.

    First, the hidden folders of killed processes are removed: no process holds the lock of their file `lock`.
    """
    for hidden in parent.glob(TEMPORARY):
        if is_abandoned(hidden / _LOCK):
            _remove(hidden)
    hidden = parent / temporary_name()
    hidden.mkdir(mode=0o700)
    try:
        with (hidden / f"{_LOCK}.new").open("xb") as stream:
            lock(stream)
            (hidden / f"{_LOCK}.new").rename(hidden / _LOCK)  # nobody sees the file before it is locked
            (hidden / _CONTENT).mkdir()
            yield hidden / _CONTENT
    finally:
        _remove(hidden)


def _remove(hidden: Path) -> None:
    """Remove a hidden folder, the lock file last: a killed removal can then be continued."""
    for folder in (hidden / _CONTENT, hidden):
        shutil.rmtree(folder, ignore_errors=True)
