"""What tells that an index was written, in any of its channels."""

from __future__ import annotations

from pathlib import Path

from sparta.index.folder import IndexFolder
from sparta.index.view import Commit, newest_commit

type Seen = tuple[Commit, tuple[int, int] | None]
"""The commit, and of the vectors' manifest its inode and time; vectors are written after the commit."""


def seen(path: Path) -> Seen:
    """What an index is now; opens nothing.

    :raises IndexStateError: there is no index, or it holds no passages.
    """
    commit = newest_commit(path)
    folder = IndexFolder(path)
    live = folder.state().searchable
    manifest = folder.dense_path(live) / "manifest.json" if live else path
    try:
        facts = manifest.stat()
    except FileNotFoundError:
        return commit, None
    return commit, (facts.st_ino, facts.st_mtime_ns)
