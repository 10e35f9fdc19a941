"""New folders that appear only when they are complete."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparta.base.errors import IndexStateError
from sparta.base.files import is_unused, sync_folder


def check_new(folder: Path) -> None:
    """Check that a folder does not exist yet or is empty.

    :raises IndexStateError: the folder holds files, or the path is a file.
    """
    if not is_unused(folder):
        raise IndexStateError(
            "the new folder already contains files", where=str(folder), remedy="name a new folder"
        )


@contextmanager
def appearing_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside the target, which takes the target's place after the block.

    After an error the temporary folder is removed.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".sparta-{secrets.token_hex(8)}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        for child in [temporary, *temporary.rglob("*")]:
            if child.is_dir():
                sync_folder(child)
        temporary.replace(target)
        sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
