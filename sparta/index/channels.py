"""Channels that other packages keep beside the impacts in an index folder."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from sparta.base.records import Retriever

_MODULES = {"dense": "dense.channel.plugin"}


class FollowingRetriever(Retriever, Protocol):
    """A retriever that is told when its index was written; a search that is running ends as it began."""

    def refresh(self) -> None:
        """Search what is there now, from the next search on."""


class IndexChannel(Protocol):
    """What a package offers for its channel: the module named in `_MODULES`."""

    def exists(self, index: Path) -> bool:
        """Whether the index has this channel; loads nothing heavy."""

    def sync(self, index: Path, *, device: str | None = None, dtype: str = "auto") -> Any:
        """Bring the channel to what the Lucene index holds; returns a report."""

    def check(self, index: Path) -> None:
        """Read every file of the channel; a damaged one is a SpartaError."""

    def open(self, index: Path) -> FollowingRetriever:
        """A retriever of the channel, which threads may share."""


def channel_plugin(name: str) -> IndexChannel:
    """The package behind a channel's name."""
    return cast(IndexChannel, import_module(_MODULES[name]))


def other_channels(index: Path) -> list[str]:
    """The names of the channels that an index has beside impacts and BM25."""
    return [name for name in _MODULES if any(index.glob(f"{name}-*")) and channel_plugin(name).exists(index)]


def sync_channels(index: Path, *, device: str | None = None, dtype: str = "auto") -> tuple[Any, ...]:
    """Bring every other channel to what the Lucene index holds now; the reports of those that there are."""
    return tuple(
        channel_plugin(name).sync(index, device=device, dtype=dtype) for name in other_channels(index)
    )
