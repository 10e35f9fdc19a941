"""Channels that other packages keep beside the impacts in an index folder."""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from sparta.base.errors import SpartaError
from sparta.base.records import Retriever
from sparta.base.remedies import Command, Remedy, remedy

logger = logging.getLogger(__name__)
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


class Synced(NamedTuple):
    """The reports of channels that were brought up to date, and the names of those that could not follow."""

    reports: tuple[Any, ...] = ()
    behind: tuple[str, ...] = ()


def sync_channels(index: Path, *, device: str | None = None, dtype: str = "auto") -> Synced:
    """Bring every other channel to what the Lucene index holds now.

    What is in the Lucene index is committed: a channel that cannot follow is a warning, not an error.
    """
    reports, behind = [], []
    for name in other_channels(index):
        try:
            reports.append(channel_plugin(name).sync(index, device=device, dtype=dtype))
        except SpartaError as error:
            behind.append(name)
            logger.warning("%s", _cannot_follow(index, name, error))
    return Synced(tuple(reports), tuple(behind))


def _cannot_follow(index: Path, name: str, error: SpartaError) -> SpartaError:
    """What is said of a channel that could not follow, with the command that has it do so."""
    command = Command.of(f"{name} index", index=index)
    first = error.remedy + "; then run: " if error.remedy else Remedy("run: ")
    named = any(step.name == command.name for step in error.remedy.commands)
    return SpartaError(
        f"the Lucene index is committed, but the {name} channel could not follow it: {error.message}",
        where=str(index),
        remedy=error.remedy if named else first + remedy("{}", command),
    )
