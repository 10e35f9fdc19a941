"""The dense channel as `sparta.index.channels` knows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dense.channel.folder import ChannelFolder
from dense.channel.sync import DenseReport, build_dense, has_dense
from sparta.index.folder import IndexFolder

if TYPE_CHECKING:
    from dense.channel.following import FollowingSearcher

exists = has_dense


def sync(index: Path, *, device: str | None = None, dtype: str = "auto") -> DenseReport:
    """Bring the dense channel to what the Lucene index holds."""
    return build_dense(index, device=device, dtype=dtype)


def check(index: Path) -> None:
    """Read every file of the channel; a damaged one is an error that says what to do."""
    folder = IndexFolder(index)
    place = ChannelFolder(folder.dense_path(folder.require_live()))
    place.check(place.read())
    open(index).close()


def open(index: Path) -> FollowingSearcher:
    """A searcher of the dense channel, which follows the index when it is told to."""
    from dense.channel.following import FollowingSearcher

    return FollowingSearcher(index)
