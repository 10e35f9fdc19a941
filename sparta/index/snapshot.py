"""Read one commit of an index folder, with all its channels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, InputError, LackingError, SpartaError
from sparta.base.files import storage_errors
from sparta.base.manifest import MANIFEST_NAME
from sparta.base.remedies import Option, remedy
from sparta.index.changes import changed_by, how_to_add_impacts, is_whole
from sparta.index.channels import OTHER_CHANNELS, OpenChannel
from sparta.index.folder import IndexFolder, lost_commit, no_passages, require_fields
from sparta.index.generation import BM25, Generation, IndexState, Progress
from sparta.lucene.bridge import ImpactSearcher
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QueryTokenizer

_ATTEMPTS = 20
"""The number of attempts to open an index that a writer keeps changing."""


class IndexVersion(NamedTuple):
    """A version of an index: the generation (each overwrite starts a new one) and Lucene's commit number."""

    generation: int
    commit: int


class Committed(NamedTuple):
    """Identifies a commit, even after the index folder is replaced.

    `segments` is the content of Lucene's file segments_N, which contains a random 16-byte id of the commit,
    so clocks and file times do not matter. `segments` is None if a writer has just removed the file.
    `manifests` holds the manifests of the other channels by name; a writer writes them after Lucene's commit.
    """

    version: IndexVersion
    segments: bytes | None
    manifests: Mapping[str, bytes]


@dataclass
class IndexSnapshot(Closing):
    """One commit of an index, which never changes; all its channels belong to this commit.

    The channels share one Lucene reader, so a docid is the same passage in every channel. `kept` holds
    objects that survive a refresh, such as the model that encodes queries.
    """

    folder: IndexFolder
    generation: Generation
    committed: Committed
    lucene: ImpactSearcher
    tokenizer: QueryTokenizer
    quantizer: Quantizer
    kept: dict[str, Any] = field(default_factory=dict)
    _open: dict[str, OpenChannel] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def version(self) -> IndexVersion:
        """The generation and the number of the commit."""
        return self.committed.version

    @property
    def channels(self) -> list[str]:
        """The searchable channels: first the channels in Lucene's index, then the others."""
        return [*self.generation.lucene_channels, *self.committed.manifests]

    @property
    def is_whole(self) -> bool:
        """Whether the commit contains a whole job."""
        return is_whole(self.generation, done=Progress.loads(self.lucene.user_data).done)

    def channel(self, name: str) -> OpenChannel:
        """Return a channel outside Lucene's index. The first call opens the channel.

        :raises IndexStateError: the index lacks the channel, or the channel is damaged.
        """
        with self._lock:
            if name not in self._open:
                manifest = self.committed.manifests.get(name)
                self._open[name] = self._open_channel(name, manifest)
            return self._open[name]

    def _open_channel(self, name: str, manifest: bytes | None) -> OpenChannel:
        if name not in OTHER_CHANNELS:
            raise InputError(f"unknown channel {name!r}; known channels: {', '.join(OTHER_CHANNELS)}")

        def read(manifest: bytes | None) -> OpenChannel:
            channel = OTHER_CHANNELS[name]().open(self.folder, self.generation, manifest, self.kept)
            channel.attach(self.lucene, self.version.commit, self.committed.segments)
            return channel

        def newest() -> bytes | None:
            return manifests_of(self.folder, self.generation).get(name)

        return retry_if_replaced(read, newest, manifest, self.folder.path)

    def close(self) -> None:
        """Close Lucene's reader."""
        self.lucene.close()

    def require_fields(self, fields: Sequence[str]) -> None:
        """Raise if the index was built before sparta indexed metadata, or nested fields."""
        require_fields(self.generation, self.folder.path, fields, self.lucene.fields)

    def require_impacts(self, *, names_channel: bool = False) -> None:
        """Raise if the index has BM25 only.

        :param names_channel: whether the caller may name another channel; the remedy then offers BM25
        """
        if self.generation.lucene_channels == (BM25,):
            path = self.folder.path
            changed = changed_by(self.generation, Progress.loads(self.lucene.user_data).deleted)
            add_impacts = how_to_add_impacts(self.generation, path, changed)
            since = f"; since then, {changed} changed it" if changed else ""
            use_bm25 = remedy("; or use {}", Option("channel", BM25)) if names_channel else ""
            raise LackingError(
                f"the index is BM25-only and has no impacts{since}",
                where=str(path),
                remedy=add_impacts + use_bm25,
            )


def retry_if_replaced[V, R](read: Callable[[V], R], newest: Callable[[], V], version: V, path: Path) -> R:
    """Read a version of an index, or the newest version if a writer replaces the version meanwhile.

    :param read: reads a version; raises `replaced`, or any error of a missing file, if the version is gone
    :param newest: returns the newest version
    :param version: the version to read first
    :raises IndexStateError: every attempt failed because a writer had replaced the version.
    """
    for _ in range(_ATTEMPTS):
        try:
            return read(version)
        except (SpartaError, FileNotFoundError):
            previous, version = version, newest()
            if version == previous:  # no writer replaced this version, so the error is real
                raise
    raise replaced(path)


def read_newest[R](folder: IndexFolder, mode: str, read: Callable[[], R]) -> R:
    """Read an index without its lock, and again if another process replaces the manifest meanwhile.

    :param mode: the mode of the job that reads the index
    """

    def newest() -> IndexState:
        return folder.state_for(mode)

    return retry_if_replaced(lambda _: read(), newest, newest(), folder.path)


def replaced(path: Path) -> IndexStateError:
    """Return the error for an index that a writer changed while it was read."""
    return IndexStateError(
        f"the index changed during each of {_ATTEMPTS} attempts to open it",
        where=str(path),
        remedy="make the writer commit less often than every few milliseconds",
    )


def manifests_of(folder: IndexFolder, generation: Generation) -> dict[str, bytes]:
    """Return the manifests of the channels outside Lucene's index, by channel name."""
    manifests = {}
    for name in OTHER_CHANNELS:
        path = folder.channel_path(name, generation) / MANIFEST_NAME
        with storage_errors(path, reading=True), suppress(FileNotFoundError, NotADirectoryError):
            manifests[name] = path.read_bytes()
    return manifests


def last_commit(folder: IndexFolder) -> tuple[Generation, Committed]:
    """Return the searchable generation and its last commit, without opening the index.

    :raises IndexStateError: there is no index, or it holds no passages.
    """
    # An overwrite may remove the generation that a manifest names.
    return retry_if_replaced(
        lambda state: _commit_of(folder, state), lambda: folder.state(), folder.state(), folder.path
    )


def newest_commit(path: str | Path) -> Committed:
    """Return the commit that a reader would open now, without opening the index.

    :raises IndexStateError: there is no index, or it holds no passages.
    """
    return last_commit(IndexFolder(path))[1]


def segments_of(lucene: Path) -> tuple[int, bytes | None] | None:
    """Return the number and content of a Lucene folder's newest segments file; None if there is no commit.

    The content is None if a writer has just removed the file.

    :raises StorageError: the folder or the file cannot be read.
    """
    with storage_errors(lucene, reading=True):
        try:
            paths = list(lucene.iterdir())  # glob takes an unreadable folder for an empty one
        except (FileNotFoundError, NotADirectoryError):
            return None
    prefix = "segments_"
    commits = {
        int(path.name.removeprefix(prefix), 36): path for path in paths if path.name.startswith(prefix)
    }
    if not commits:
        return None
    number = max(commits)
    with storage_errors(commits[number], reading=True):
        try:
            return number, commits[number].read_bytes()
        except FileNotFoundError:
            return number, None


def _commit_of(folder: IndexFolder, state: IndexState) -> tuple[Generation, Committed]:
    """Return the searchable generation of a manifest, and the generation's last commit."""
    generation = state.searchable
    if generation is None:
        raise no_passages(folder.path)
    newest = segments_of(folder.lucene_path(generation))
    if newest is None:
        if generation.complete:
            raise lost_commit(folder.lucene_path(generation))
        raise no_passages(folder.path, generation)
    version = IndexVersion(generation.number, newest[0])
    return generation, Committed(version, newest[1], manifests_of(folder, generation))
