"""An index folder held open for reading, and opened anew when a writer has committed."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, SpartaError
from sparta.index.changes import how_to_finish, job_name
from sparta.index.folder import Generation, IndexFolder, lasting_path
from sparta.index.snapshot import (
    ATTEMPTS,
    Committed,
    IndexSnapshot,
    IndexVersion,
    changes_all_the_time,
    last_commit,
    segments_of,
)
from sparta.lucene.bridge import Bm25, ImpactSearcher

logger = logging.getLogger(__name__)


class IndexReader(Closing):
    """Lends the newest snapshot of an index folder, as of when it was opened, or refreshed last.

    Threads may share it: a search that is running ends on the snapshot that it began with, and a snapshot
    that was replaced is closed when its last user lets go of it.

    :param bm25: k1 and b, where they are not 0.9 and 0.4
    :param channels: those beside Lucene's index that every snapshot has open from its beginning; None is all
        that there are. Another one is opened when it is searched first
    :param every: look for a new commit when a search comes and so many seconds have passed since the last
        look; None looks in `refresh` only
    :raises IndexStateError: there is no index, it holds no passages, or it is of a newer format.
    """

    def __init__(
        self,
        path: str | Path,
        bm25: Bm25 | None = None,
        channels: Sequence[str] | None = (),
        every: float | None = None,
    ) -> None:
        self.folder = IndexFolder(lasting_path(path))
        self.bm25, self.every = bm25, every
        self._channels = channels
        self._kept: dict[str, Any] = {}
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._held = threading.local()
        self._users: Counter[int] = Counter()
        self._looked = time.monotonic()
        self._snapshot: IndexSnapshot | None = self._open()

    @property
    def version(self) -> IndexVersion:
        """The generation and commit that are read."""
        with self.reading() as snapshot:
            return snapshot.version

    @contextmanager
    def reading(self) -> Iterator[IndexSnapshot]:
        """Lend the present snapshot, whatever replaces it meanwhile; inside of `holding`, the one held.

        :raises IndexStateError: the reader was closed.
        """
        held: IndexSnapshot | None = getattr(self._held, "snapshot", None)
        if held is not None:
            yield held
            return
        if self.every is not None and time.monotonic() - self._looked >= self.every:
            self._look()
        with self._lock:
            snapshot = self._snapshot
            if snapshot is None:
                raise self._closed()
            self._users[id(snapshot)] += 1
        try:
            yield snapshot
        finally:
            with self._lock:
                self._users[id(snapshot)] -= 1
                unused = self._forgotten(snapshot)
            if unused:
                snapshot.close()

    @contextmanager
    def holding(self, snapshot: IndexSnapshot | None = None) -> Iterator[IndexSnapshot]:
        """Have this thread read one snapshot alone until the block ends, so that docids stay valid.

        :param snapshot: one that another thread holds; None is the present one
        :raises IndexStateError: the reader was closed.
        """
        if snapshot is None:
            with self.reading() as present, self.holding(present):
                yield present
            return
        before, self._held.snapshot = getattr(self._held, "snapshot", None), snapshot
        try:
            yield snapshot
        finally:
            self._held.snapshot = before

    def refresh(self) -> bool:
        """Read what was committed since; returns whether there was anything. Cheap if there was not."""
        with self._opening:
            self._looked = time.monotonic()
            with self._lock:
                present = self._snapshot
            if present is None:
                raise self._closed()
            if last_commit(self.folder)[1] == present.committed:
                return False
            self._replace(self._open())
            return True

    def close(self) -> None:
        """Release the index as soon as nobody uses it."""
        self._replace(None)

    def _closed(self) -> IndexStateError:
        return IndexStateError("the index is closed", where=str(self.folder.path), remedy="open it again")

    def _look(self) -> None:
        """Refresh, unless another thread does it now; a commit that cannot be opened is logged."""
        if self._opening.locked():
            return
        try:
            self.refresh()
        except (SpartaError, OSError) as error:
            logger.warning("searching the last commit, since the newest one cannot be opened: %s", error)

    def _replace(self, new: IndexSnapshot | None) -> None:
        """Lend another snapshot from now on; None closes the reader for good."""
        with self._lock:
            old = self._snapshot
            if old is None:
                unused = new
            else:
                self._snapshot = new
                unused = old if self._forgotten(old) else None
        if unused is not None:
            unused.close()

    def _forgotten(self, snapshot: IndexSnapshot) -> bool:
        """Whether a snapshot was replaced and has no users; it is then no longer counted."""
        if snapshot is self._snapshot or self._users[id(snapshot)]:
            return False
        del self._users[id(snapshot)]
        return True

    def _open(self) -> IndexSnapshot:
        """Open the newest commit, again where a writer committed meanwhile."""
        generation, committed = last_commit(self.folder)
        for _ in range(ATTEMPTS):
            try:
                snapshot = self._opened(generation, committed)
            except (SpartaError, FileNotFoundError):
                before = committed
                generation, committed = last_commit(self.folder)
                if committed == before:  # no writer removed what was chosen
                    raise
                continue
            if segments_of(snapshot.lucene.path) == (committed.version.commit, committed.segments):
                self._warn(snapshot)
                return snapshot
            snapshot.close()
            generation, committed = last_commit(self.folder)
        raise changes_all_the_time(self.folder)

    def _opened(self, generation: Generation, committed: Committed) -> IndexSnapshot:
        """Open a commit with the channels that every snapshot has open."""
        self.folder.refuse_links()
        path, language = self.folder.lucene_path(generation), generation.analysis
        side = self.folder.query_side(generation)
        tokenizer = side.query_tokenizer(language)
        lucene = ImpactSearcher(path, language=language, bm25=self.bm25)
        snapshot = IndexSnapshot(
            self.folder, generation, committed, lucene, tokenizer, side.quantizer, self._kept
        )
        try:
            for name in committed.manifests if self._channels is None else self._channels:
                snapshot.channel(name)
        except BaseException:
            snapshot.close()
            raise
        return snapshot

    def _warn(self, snapshot: IndexSnapshot) -> None:
        """Warn of a job of which only a part is committed."""
        path, generation = self.folder.path, snapshot.generation
        if snapshot.is_whole:
            return
        if self.folder.is_being_written():
            logger.warning("%s is being written: searching what is committed", path)
            return
        logger.warning(
            "%s is incomplete, the %s was interrupted: searching what is committed; %s",
            path,
            job_name(generation.job),
            how_to_finish(generation, path).for_command_line(),
        )
