"""Identifies the state of an index with all its channels."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sparta.index.folder import IndexFolder
from sparta.index.view import Commit, newest_commit

type Seen = tuple[Commit, bytes | None]
"""The commit, and a hash of the vectors' manifest; vectors are written after the commit."""


def seen(path: Path) -> Seen:
    """Return the state of an index now. Reads two small files.

    :raises IndexStateError: there is no index, or it holds no passages.
    """
    commit = newest_commit(path)
    folder = IndexFolder(path)
    live = folder.state().searchable
    manifest = folder.dense_path(live) / "manifest.json" if live else path
    try:
        return commit, hashlib.blake2b(manifest.read_bytes(), digest_size=16).digest()
    except FileNotFoundError:
        return commit, None
