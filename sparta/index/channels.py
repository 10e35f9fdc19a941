"""List the channels that an index folder stores outside Lucene's index, and keep the channels up to date."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sparta.base.checks import list_of
from sparta.base.errors import SpartaError
from sparta.base.remedies import Command, Remedy, remedy

if TYPE_CHECKING:
    from sparta.base.records import Passage
    from sparta.index.folder import IndexFolder
    from sparta.index.generation import Generation
    from sparta.lucene.bridge import ImpactSearcher

DENSE = "dense"

logger = logging.getLogger(__name__)


class OpenChannel(Protocol):
    """A channel of one commit, open for reading.

    `missing` is the number of the commit's passages that the channel lacks, since `attach`.
    """

    missing: int

    def attach(self, lucene: ImpactSearcher, number: int, segments: bytes | None) -> None:
        """Map the channel's passages to docids of Lucene's reader, and search with this reader from now on.

        :param number: the commit's number, the N of its file segments_N
        :param segments: the content of the file segments_N
        """


class ChannelPass(Protocol):
    """Encodes the passages of a channel in the same pass over the corpus as the impacts."""

    def encode(self, first: int, passages: Sequence[Passage]) -> None:
        """Encode the passages of a block.

        :param first: position of the block's first passage in the corpus
        """

    def close(self) -> None:
        """Write what is encoded."""

    def finish(self, *, reencodes: bool = False) -> Any:
        """Build the channel of the finished index. Returns a report.

        :param reencodes: keep no vectors of another arithmetic
        """


class IndexChannel(Protocol):
    """The functions that a package provides for its channel."""

    def is_begun(self, index: Path, generation: Generation) -> bool:
        """Return whether an interrupted indexing pass has begun a new channel of a generation."""

    def begin(self, index: Path, *, unit: str, language: str, device: str | None, dtype: str) -> ChannelPass:
        """Return the object that encodes the channel while the corpus is indexed, and then builds it."""

    def exists(self, index: Path) -> bool:
        """Return whether the index has this channel. The check imports no heavy package."""

    def sync(
        self, index: Path, *, device: str | None = None, dtype: str = "auto", reencodes: bool = False
    ) -> Any:
        """Update the channel to the content of the Lucene index. Returns a report.

        :param reencodes: keep no vectors of another arithmetic
        """

    def recommit(self, index: Path, number: int, segments: bytes | None) -> None:
        """Let the channel cover the newest commit if it covers the previous commit of the same passages.

        :param number: the number of the previous commit
        :param segments: the content of its file segments_N
        """

    def check(self, index: Path) -> None:
        """Read every file of the channel; raise a SpartaError if the channel is damaged."""

    def files(self, channel: Path, manifest: bytes) -> list[str]:
        """Return the files that a manifest names, relative to the channel's folder, without the manifest."""

    def open(
        self, folder: IndexFolder, generation: Generation, manifest: bytes | None, kept: dict[str, Any]
    ) -> OpenChannel:
        """Open the channel's files, without Java.

        :param manifest: the content of the channel's manifest; None if the channel has no manifest
        :param kept: objects that survive a refresh, such as the model that encodes queries
        """


def _dense() -> IndexChannel:
    from dense.channel import table

    return table


OTHER_CHANNELS: Mapping[str, Callable[[], IndexChannel]] = {DENSE: _dense}
"""The functions that read and write each channel outside Lucene's index, imported at first use."""


def other_channels(index: Path) -> list[str]:
    """Return the names of an index's channels other than impacts and BM25."""
    return [
        name
        for name in OTHER_CHANNELS
        if any(index.glob(f"{name}-*")) and OTHER_CHANNELS[name]().exists(index)
    ]


def split_channels(channels: str | Sequence[str] | None) -> tuple[str | None, list[str]]:
    """Return the channels of the Lucene index, as in `impact,bm25`, and the names of the other channels.

    :param channels: the names, separated by commas or as a list; None means the defaults
    """
    if channels is not None and not isinstance(channels, str):
        channels = ",".join(map(str, list_of(channels, "channels")))
    names = channels.split(",") if channels else []
    in_lucene = ",".join(name for name in names if name not in OTHER_CHANNELS)
    return in_lucene or channels, [name for name in OTHER_CHANNELS if name in names]


def begun_channels(index: Path, generation: Generation | None) -> list[str]:
    """Return the names of the new channels of a generation that an interrupted indexing pass has begun."""
    if generation is None:
        return []
    return [name for name in OTHER_CHANNELS if OTHER_CHANNELS[name]().is_begun(index, generation)]


def begin_passes(
    index: Path, names: Sequence[str], *, unit: str, language: str, device: str | None, dtype: str
) -> dict[str, ChannelPass]:
    """Return the objects that encode these channels while a corpus is indexed, by name.

    :raises ModelError: a channel has no model for the language.
    """
    return {
        name: OTHER_CHANNELS[name]().begin(index, unit=unit, language=language, device=device, dtype=dtype)
        for name in dict.fromkeys(names)
    }


class Synced(NamedTuple):
    """The reports of the updated channels, and the names of the channels that failed to update."""

    reports: tuple[Any, ...] = ()
    behind: tuple[str, ...] = ()


def sync_channels(
    index: Path,
    *,
    device: str | None = None,
    dtype: str = "auto",
    passes: Mapping[str, ChannelPass] = MappingProxyType({}),
    reencodes: bool = False,
) -> Synced:
    """Update every other channel to the content of the Lucene index.

    A channel that fails to update causes a logged warning, not an error: the Lucene index is already
    committed.

    :param passes: the channels that an indexing pass encoded, by name; they may be new
    :param reencodes: keep no vectors of another arithmetic than `dtype`
    """
    reports, behind = [], []
    for name in dict.fromkeys([*other_channels(index), *passes]):
        try:
            if name in passes:
                reports.append(passes[name].finish(reencodes=reencodes))
            else:
                channel = OTHER_CHANNELS[name]()
                reports.append(channel.sync(index, device=device, dtype=dtype, reencodes=reencodes))
        except SpartaError as error:
            behind.append(name)
            logger.warning("%s", _sync_error(index, name, error))
    return Synced(tuple(reports), tuple(behind))


def _sync_error(index: Path, name: str, error: SpartaError) -> SpartaError:
    """Return the error for a channel that failed to update, with the command that updates the channel."""
    command = Command.of(f"{name} index", index=index)
    introduction = error.remedy + "; then run: " if error.remedy else Remedy("run: ")
    names_command = any(step.name == command.name for step in error.remedy.commands)
    return SpartaError(
        f"the Lucene index is committed, but the {name} channel failed to update: {error.message}",
        where=str(index),
        remedy=error.remedy if names_command else introduction + remedy("{}", command),
    )
