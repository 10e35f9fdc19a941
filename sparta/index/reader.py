"""Read an index folder, and reopen the folder after a writer commits."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparta.base.checks import seconds
from sparta.base.closing import Closing, Unopened, open_again
from sparta.base.errors import IndexStateError, InputError, SpartaError
from sparta.base.renames import renamed_arguments, renamed_attributes
from sparta.index.changes import how_to_finish, job_name
from sparta.index.folder import IndexFolder, lasting_path, progress_of
from sparta.index.generation import Generation
from sparta.index.snapshot import (
    Committed,
    IndexSnapshot,
    IndexVersion,
    last_commit,
    replaced,
    retry_if_replaced,
    segments_of,
)
from sparta.lucene.bridge import Bm25

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Pin:
    """A snapshot that a `holding` block pins, and its reader; both None after the block."""

    reader: IndexReader | None
    snapshot: IndexSnapshot | None


# A variable for each reader would never be freed.
_pins: ContextVar[tuple[_Pin, ...]] = ContextVar("pins", default=())


@renamed_attributes(every="refresh_seconds", reading="snapshot")
class IndexReader(Closing):
    """Lends snapshots of an index folder: the newest commit at the time of opening or of the last refresh.

    Threads may share a reader. A running search ends on the snapshot that it began with. The reader closes a
    replaced snapshot after the last search on the snapshot ends.

    :param bm25: k1 and b of BM25; the defaults are 0.9 and 0.4
    :param channels: the channels outside Lucene's index that every new snapshot opens at once. None means all
        channels that open: a damaged channel is logged, and its searches fail. A snapshot opens any other
        channel at the first search of the channel
    :param required: the channels outside Lucene's index that must open although `channels` is None. A commit
        without them, or with a damaged one, is not opened
    :param refresh_seconds: seconds between two checks for a new commit, made at the start of a search; None
        means that only `refresh` checks
    :raises IndexStateError: there is no index, it holds no passages, or its format is newer than this sparta.
    """

    @renamed_arguments(every="refresh_seconds")
    def __init__(
        self,
        path: str | Path,
        bm25: Bm25 | None = None,
        channels: Sequence[str] | None = (),
        refresh_seconds: float | None = None,
        required: Sequence[str] = (),
    ) -> None:
        self.folder = IndexFolder(lasting_path(path))
        self.bm25, self.refresh_seconds = bm25, refresh_seconds
        if refresh_seconds is not None:
            seconds("refresh_seconds", refresh_seconds)
        self._channels, self._required = channels, required
        self._kept: dict[str, Any] = {}
        self._closed_channels: set[str] = set()
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._users: Counter[int] = Counter()
        self._last_look = time.monotonic()
        self._snapshot: IndexSnapshot | None = self._open()

    @property
    def settings(self) -> tuple[Path, Bm25 | None, Sequence[str] | None, float | None, Sequence[str]]:
        """The arguments of this reader, with which another process opens the index again."""
        return self.folder.path, self.bm25, self._channels, self.refresh_seconds, self._required

    @property
    def version(self) -> IndexVersion:
        """The generation and commit of the current snapshot."""
        with self.snapshot() as snapshot:
            return snapshot.version

    def check_bm25(self, bm25: Bm25 | None) -> None:
        """Raise InputError if this open reader has other parameters of BM25; None means any parameters."""
        if bm25 is not None and bm25 != (self.bm25 or Bm25()):
            raise InputError(
                "the open index has other parameters of BM25",
                where=str(self.folder.path),
                remedy=f"open the index with {bm25}, or omit the parameters here",
            )

    @contextmanager
    def snapshot(self) -> Iterator[IndexSnapshot]:
        """Lend the current snapshot until the block ends, or the pinned snapshot inside a `holding` block.

        :raises IndexStateError: the reader is closed.
        """
        interval = self.refresh_seconds
        is_due = interval is not None and time.monotonic() - self._last_look >= interval
        if is_due and self._pinned() is None:
            self._refresh_if_free()
        with self._lock:
            # A pinned snapshot is counted, too: a task that inherits the pin may outlive the block.
            snapshot = self._pinned() or self._snapshot
            if snapshot is None:
                raise self._closed()
            self._users[id(snapshot)] += 1
        try:
            yield snapshot
        finally:
            with self._lock:
                self._users[id(snapshot)] -= 1
                unused = self._retire(snapshot)
            if unused:
                snapshot.close()

    @contextmanager
    def holding(self, snapshot: IndexSnapshot | None = None) -> Iterator[IndexSnapshot]:
        """Pin one snapshot for all reads of this thread or task until the block ends, so docids stay valid.

        Tasks of asyncio that start in the block inherit the snapshot; new threads do not.

        :param snapshot: a snapshot that another thread has pinned; None means the current snapshot
        :raises IndexStateError: the reader is closed.
        """
        if snapshot is None:
            with self.snapshot() as current, self.holding(current):
                yield current
            return
        pin = _Pin(self, snapshot)
        _pins.set((*_pins.get(), pin))
        try:
            yield snapshot
        finally:
            # A block in a generator may end after a later block, or in another context, which keeps the pin.
            pin.reader = pin.snapshot = None
            _pins.set(tuple(other for other in _pins.get() if other.snapshot is not None))

    def refresh(self) -> bool:
        """Switch to the newest commit. Returns whether there was a new commit.

        The call is cheap if there was none.
        """
        with self._opening:
            self._last_look = time.monotonic()
            with self._lock:
                current = self._snapshot
            if current is None:
                raise self._closed()
            if last_commit(self.folder)[1] == current.committed:
                return False
            self._replace(self._open())
            return True

    def close(self) -> None:
        """Close the index as soon as no search uses it."""
        self._replace(None)

    def _pinned(self) -> IndexSnapshot | None:
        """Return the snapshot of the innermost `holding` block of this thread or task; None outside."""
        for pin in reversed(_pins.get()):
            if pin.reader is self and pin.snapshot is not None:
                return pin.snapshot
        return None

    def _closed(self) -> IndexStateError:
        return IndexStateError(
            "the index is closed", where=str(self.folder.path), remedy="open the index again"
        )

    def _refresh_if_free(self) -> None:
        """Refresh, unless another thread is refreshing. A commit that fails to open is logged."""
        if self._opening.locked() or self._snapshot is None:
            return
        try:
            self.refresh()
        except (SpartaError, OSError) as error:
            logger.warning("cannot open the newest commit, so searches use the previous commit: %s", error)

    def _replace(self, new: IndexSnapshot | None) -> None:
        """Make this the current snapshot; None closes the reader for good."""
        with self._lock:
            old = self._snapshot
            if old is None:
                unused = new
            else:
                self._snapshot = new
                unused = old if self._retire(old) else None
        if unused is not None:
            unused.close()

    def _retire(self, snapshot: IndexSnapshot) -> bool:
        """Return whether a snapshot is replaced and unused, and if so stop counting its users."""
        if snapshot is self._snapshot or self._users[id(snapshot)]:
            return False
        del self._users[id(snapshot)]
        return True

    def _open(self) -> IndexSnapshot:
        """Open the newest commit; retry if a writer commits meanwhile."""

        def newest() -> tuple[Generation, Committed]:
            return last_commit(self.folder)

        snapshot = retry_if_replaced(self._open_commit, newest, newest(), self.folder.path)
        self._warn(snapshot)
        return snapshot

    def _open_commit(self, commit: tuple[Generation, Committed]) -> IndexSnapshot:
        """Open a commit, with the channels that every snapshot opens at once.

        :raises IndexStateError: a writer has replaced the commit.
        """
        generation, committed = commit
        self.folder.refuse_links()
        side = self.folder.query_side(generation)
        tokenizer = side.query_tokenizer(generation.analysis)
        lucene = self.folder.searcher(generation, self.bm25)
        snapshot = IndexSnapshot(
            self.folder, generation, committed, lucene, tokenizer, side.quantizer, self._kept
        )
        try:
            progress_of(generation, lucene)  # raises if the commit belongs to another manifest
            self._open_channels(snapshot)
            if segments_of(lucene.path) != (committed.version.commit, committed.segments):
                raise replaced(self.folder.path)  # the reader may have opened a later commit
        except BaseException:
            snapshot.close()
            raise
        return snapshot

    def _open_channels(self, snapshot: IndexSnapshot) -> None:
        """Open the channels that every snapshot opens at once.

        :raises SpartaError: the commit lacks a channel that the caller named, the channel is damaged, or a
            writer has replaced the commit.
        """
        required = (*self._required, *(self._channels or ()))
        optional = snapshot.committed.manifests if self._channels is None else ()
        for name in dict.fromkeys((*required, *optional)):
            try:
                snapshot.channel(name)
                self._closed_channels.discard(name)
            except (SpartaError, OSError) as error:
                is_replaced = last_commit(self.folder) != (snapshot.generation, snapshot.committed)
                if name in required or is_replaced:
                    raise
                if name not in self._closed_channels:  # the next commits need no further warning
                    self._closed_channels.add(name)
                    logger.warning(
                        "the %s channel cannot be opened, so searches of this channel fail: %s", name, error
                    )

    def _warn(self, snapshot: IndexSnapshot) -> None:
        """Log a warning if the snapshot's last job is only partly committed."""
        path, generation = self.folder.path, snapshot.generation
        if snapshot.is_whole:
            return
        if self.folder.is_being_written():
            logger.warning("a writer is changing %s: searches cover the last commit", path)
            return
        logger.warning(
            "%s is incomplete because the %s was interrupted. Searches cover the last commit; %s",
            path,
            job_name(generation.job),
            how_to_finish(generation, path).for_command_line(),
        )


def reopened[T](create: Callable[..., T], settings: tuple[Any, ...], *arguments: Any) -> T | Unopened:
    """Create a copy of a searcher on a new reader, with the `settings` of the searcher's reader."""
    return open_again(lambda: create(IndexReader(*settings), *arguments))
