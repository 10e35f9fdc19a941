"""One commit of an index folder, with all its channels open for reading."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, LackingError, SpartaError
from sparta.base.manifest import MANIFEST_NAME
from sparta.base.remedies import Command, remedy
from sparta.index.changes import carried, changed_by, how_to_add_impacts, is_whole
from sparta.index.channels import CHANNELS, OpenChannel
from sparta.index.folder import (
    BM25,
    Generation,
    IndexFolder,
    IndexState,
    lost_commit,
    no_passages,
    require_fields,
)
from sparta.lucene.bridge import ImpactSearcher
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QueryTokenizer

ATTEMPTS = 20
"""How often an index that changes while it is opened is opened again."""


class IndexVersion(NamedTuple):
    """What a reader sees: the generation (a new one with each `--overwrite`) and Lucene's commit in it."""

    generation: int
    commit: int


class Committed(NamedTuple):
    """Identifies what is committed to an index folder, even after the folder is replaced by another.

    `segments` is the content of Lucene's file segments_N, with the 16 random bytes by which Lucene names each
    commit: neither clocks nor file times matter. It is None where a writer removed the file just now.
    `manifests` holds, by name, the manifests of the other channels, which are written after Lucene's commit.
    """

    version: IndexVersion
    segments: bytes | None
    manifests: Mapping[str, bytes]


@dataclass
class IndexSnapshot(Closing):
    """One commit of an index: it never changes, and all its channels are of this commit.

    They share one Lucene reader, so a docid is the same passage in each. `kept` is what survives a refresh,
    such as the model that encodes queries.
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
        """The generation and the commit in it."""
        return self.committed.version

    @property
    def channels(self) -> list[str]:
        """The channels that can be searched: those in Lucene's index, then the others."""
        return [*self.generation.lucene_channels, *self.committed.manifests]

    @property
    def is_whole(self) -> bool:
        """Whether the commit is that of a finished job."""
        return is_whole(self.generation, done=carried(self.lucene.user_data).get("done", False))

    def channel(self, name: str) -> OpenChannel:
        """Return a channel that lies beside Lucene's index; the first call opens it.

        :raises IndexStateError: the index has none, or a damaged one.
        """
        with self._lock:
            if name not in self._open:
                manifest = self.committed.manifests.get(name)
                self._open[name] = self._opened(name, manifest)
            return self._open[name]

    def _opened(self, name: str, manifest: bytes | None) -> OpenChannel:
        """Open a channel; again where a writer replaced its files just now."""
        for _ in range(ATTEMPTS):
            try:
                channel = CHANNELS[name]().open(self.folder, self.generation, manifest, self.kept)
                channel.attach(self.lucene, self.version.commit, self.committed.segments)
                return channel
            except (SpartaError, FileNotFoundError):
                before, manifest = manifest, manifests_of(self.folder, self.generation).get(name)
                if manifest == before:
                    raise
        raise changes_all_the_time(self.folder)

    def close(self) -> None:
        """Close Lucene's reader."""
        self.lucene.close()

    def require_fields(self) -> None:
        """Refuse an index that was made before metadata was indexed."""
        require_fields(self.generation, self.folder.path)

    def require_impacts(self) -> None:
        """Refuse an index for BM25 alone."""
        if self.generation.lucene_channels == (BM25,):
            path = self.folder.path
            changed = changed_by(self.generation, carried(self.lucene.user_data).get("deleted", 0))
            add = how_to_add_impacts(self.generation, path, changed)
            since = f", which was changed since by {changed}" if changed else ""
            without = Command.of("sparta search", channel="bm25")
            raise LackingError(
                f"expected an index with impacts, found one for BM25 alone{since}",
                where=str(path),
                remedy=remedy("{}; {} does without", add, without),
            )


def changes_all_the_time(folder: IndexFolder) -> IndexStateError:
    """Say that an index was written each time that it was to be opened."""
    return IndexStateError(
        f"expected an index that stays as it is for a moment, found it changed {ATTEMPTS} times",
        where=str(folder.path),
        remedy="write less often: commits need not be made every few milliseconds",
    )


def manifests_of(folder: IndexFolder, generation: Generation) -> dict[str, bytes]:
    """Return the manifests of the channels beside Lucene's index, by name."""
    manifests = {}
    for name in CHANNELS:
        try:
            manifests[name] = (folder.channel_path(name, generation) / MANIFEST_NAME).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
    return manifests


def last_commit(folder: IndexFolder) -> tuple[Generation, Committed]:
    """Return the generation that is searched, and what is committed to it; opens nothing.

    :raises IndexStateError: there is no index, or it holds no passages.
    """
    state = folder.state()
    while True:
        try:
            return _commit_of(folder, state)
        except IndexStateError:
            before, state = state, folder.state()
            if state == before:  # else an overwrite ended just now and removed what was chosen
                raise


def newest_commit(path: str | Path) -> Committed:
    """Return what a reader that is opened now would see; opens nothing.

    :raises IndexStateError: there is no index, or it holds no passages.
    """
    return last_commit(IndexFolder(path))[1]


def segments_of(lucene: Path) -> tuple[int, bytes | None] | None:
    """Return the number and content of the newest commit of a Lucene folder; None where there is none."""
    commits = {int(path.name.removeprefix("segments_"), 36): path for path in lucene.glob("segments_*")}
    if not commits:
        return None
    number = max(commits)
    try:
        return number, commits[number].read_bytes()
    except FileNotFoundError:
        return number, None


def _commit_of(folder: IndexFolder, state: IndexState) -> tuple[Generation, Committed]:
    """Return the generation that a manifest has searched, and its last commit."""
    generation = state.searchable
    if generation is None:
        raise no_passages(folder.path)
    newest = segments_of(folder.lucene_path(generation))
    if newest is None:
        raise lost_commit(folder.lucene_path(generation)) if generation.complete else no_passages(folder.path)
    version = IndexVersion(generation.number, newest[0])
    return generation, Committed(version, newest[1], manifests_of(folder, generation))
