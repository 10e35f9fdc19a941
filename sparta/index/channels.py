"""The channels that lie beside Lucene's index in an index folder, in one table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sparta.base.errors import SpartaError
from sparta.base.remedies import Command, Remedy, remedy

if TYPE_CHECKING:
    from sparta.index.folder import Generation, IndexFolder
    from sparta.lucene.bridge import ImpactSearcher

logger = logging.getLogger(__name__)


class OpenChannel(Protocol):
    """A channel of one commit, open for reading."""

    def attach(self, lucene: ImpactSearcher, number: int, segments: bytes | None) -> None:
        """Find the passages of the channel among those of Lucene's reader, and search with it from now on.

        :param number: that of the commit, the N of its file segments_N; `segments` is this file's content
        """


class IndexChannel(Protocol):
    """What a package offers for its channel."""

    def exists(self, index: Path) -> bool:
        """Whether the index has this channel; loads nothing heavy."""

    def sync(self, index: Path, *, device: str | None = None, dtype: str = "auto") -> Any:
        """Bring the channel to what the Lucene index holds; returns a report."""

    def check(self, index: Path) -> None:
        """Read every file of the channel; a damaged one is a SpartaError."""

    def open(
        self, folder: IndexFolder, generation: Generation, manifest: bytes | None, kept: dict[str, Any]
    ) -> OpenChannel:
        """Open the files of the channel; needs no Java.

        :param manifest: the content of its manifest; None where it has none
        :param kept: what survives a refresh, such as the model that encodes queries
        """


def _dense() -> IndexChannel:
    from dense.channel import table

    return table


CHANNELS: Mapping[str, Callable[[], IndexChannel]] = {"dense": _dense}
"""What each channel is read and written by, imported when it is used."""


def other_channels(index: Path) -> list[str]:
    """Return the names of the channels that an index has beside impacts and BM25."""
    return [name for name in CHANNELS if any(index.glob(f"{name}-*")) and CHANNELS[name]().exists(index)]


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
            reports.append(CHANNELS[name]().sync(index, device=device, dtype=dtype))
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
