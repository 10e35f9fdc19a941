"""The commit of an index that requests are answered from, and the change to the next one."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hybrid.retrieval.channels import DENSE, Channels, channels_of
from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, SpartaError
from sparta.base.shared import Shared
from sparta.index.view import IndexVersion
from sparta.lucene.bridge import Bm25
from sparta.search.searcher import Searcher
from sparta.search.seen import Seen, seen

if TYPE_CHECKING:
    from dense.channel.searcher import DenseSearcher

logger = logging.getLogger("sparta.serve")
_ATTEMPTS = 20


@dataclass
class Snapshot(Closing):
    """All channels of an index as one commit has them. It never changes: a new commit is a new snapshot."""

    channels: Channels
    seen: Seen

    def close(self) -> None:
        """Close its channels."""
        self.channels.close()

    @property
    def lucene(self) -> Searcher:
        """A searcher of the Lucene index: of impacts, where it has any."""
        names = [name for name in self.channels.searchers if name != DENSE]
        return cast(Searcher, self.channels.searchers[names[-1]])

    @property
    def names(self) -> list[str]:
        """The channels that there are."""
        return list(self.channels.searchers)

    @property
    def version(self) -> IndexVersion:
        """The generation and commit of its Lucene index."""
        return self.lucene.version


def _hand_on(old: Channels, new: Channels) -> None:
    """Keep a model of questions open, which takes longer to open than an index does."""
    if DENSE in old.searchers and DENSE in new.searchers:
        cast("DenseSearcher", new.searchers[DENSE]).keep_model_of(cast("DenseSearcher", old.searchers[DENSE]))


class LiveIndex(Shared[Snapshot]):
    """An index folder that others may write to while it is searched: `reading` gives its newest snapshot.

    A snapshot is closed when its last user has let go of it, so a request ends on the commit it began with.

    :raises IndexStateError: there is no index, or it holds no passages.
    """

    def __init__(self, path: Path, bm25: Bm25 | None = None) -> None:
        self.path, self._bm25 = path, bm25
        self._opening = threading.Lock()
        super().__init__(self._open(), str(path))

    def refresh(self) -> bool:
        """Take the newest commit from now on; returns whether there is another one. Cheap if there is not."""
        with self._opening:
            with self.reading() as now:
                if seen(self.path) == now.seen:
                    return False
                new = self._open()
                _hand_on(now.channels, new.channels)
            self.replace(new)
        logger.info("index opened", extra={"generation": new.version[0], "commit": new.version[1]})
        return True

    def _open(self) -> Snapshot:
        """Open all channels at one commit, although a writer may be at work."""
        for last in range(_ATTEMPTS):
            first = seen(self.path)
            try:
                channels = Channels(self.path, channels_of(self.path), self._bm25)
            except (SpartaError, FileNotFoundError):
                if seen(self.path) == first or last == _ATTEMPTS - 1:
                    raise
                continue  # it was replaced while it was opened
            snapshot = Snapshot(channels, first)
            if seen(self.path) == first and snapshot.version == first[0].version:
                return snapshot
            channels.close()
        raise IndexStateError(
            f"expected an index that stays as it is for a moment, found it changed {_ATTEMPTS} times",
            where=str(self.path),
            remedy="write less often: commits need not be made every few milliseconds",
        )
