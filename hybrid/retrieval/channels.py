"""The channels of an index, opened and searched side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import cast

from sparta.base.checks import path_of, queries_of, several, whole
from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, InputError
from sparta.base.filters import FilterLike
from sparta.index.folder import IndexFolder
from sparta.lucene.bridge import Bm25
from sparta.lucene.jvm import leave_thread
from sparta.search.channel_searcher import ChannelSearcher
from sparta.search.ranked import Ranked
from sparta.search.searcher import BM25, IMPACT, Searcher, channel_name

DENSE = "dense"
CHANNELS = (BM25, IMPACT, DENSE)


def channel(name: str) -> str:
    """Return the name of a channel; the former name of `impact` is understood."""
    return channel_name(name, CHANNELS)


def _open_dense(index: Path) -> ChannelSearcher:
    from dense.channel.searcher import DenseSearcher

    return DenseSearcher(index)


def _open_lucene(index: Path, names: Sequence[str], bm25: Bm25 | None = None) -> dict[str, Searcher]:
    """Open the channels that lie in Lucene's index, once for both."""
    first = Searcher(index, channel=names[0], bm25=bm25)
    return {name: first.beside(name) for name in names}


def open_channel(index: Path, name: str, bm25: Bm25 | None = None) -> ChannelSearcher:
    """Open one channel of an index, by itself."""
    return _open_dense(index) if name == DENSE else Searcher(index, channel=name, bm25=bm25)


def channels_of(index: Path) -> list[str]:
    """Return the channels that an index has."""
    from dense.channel.sync import has_dense

    generation = IndexFolder(index).state().searchable
    lucene = [BM25] if generation and generation.channels == BM25 else [BM25, IMPACT]
    return [*lucene, DENSE] if has_dense(index) else lucene


class Channels(Closing):
    """Some channels of an index, opened side by side, and searched so: a wait is that for the slowest.

    sparta and bm25 lie in one Lucene index and are searched in one call, side by side in Java. The dense
    channel is searched in the caller's thread meanwhile: Java and torch let go of Python's lock while they
    compute.

    :raises InputError: an unknown channel.
    :raises IndexStateError: there is no index, or it lacks one of the channels.
    """

    def __init__(self, index: str | Path, names: Sequence[str], bm25: Bm25 | None = None) -> None:
        index = path_of(index, "an index folder")
        names = [channel(name) for name in several(names, "channels")]
        if not names:
            raise InputError(f"expected channels of {', '.join(CHANNELS)}, found none")
        both = DENSE in names and len(names) > 1
        self._thread = ThreadPoolExecutor(1, "lucene") if both else None
        self._closed = False
        self.searchers: dict[str, ChannelSearcher] = {}

        if DENSE in names:
            import dense.channel.searcher  # noqa: F401 (before there are two threads: importing torch takes long)

        def open_dense() -> None:
            self.searchers[DENSE] = _open_dense(index)

        def open_lucene(lucene: Sequence[str]) -> None:
            self.searchers.update(_open_lucene(index, lucene, bm25))

        try:
            self._side_by_side(names, open_dense, open_lucene)
        except BaseException:
            self.close()
            raise
        self.searchers = {name: self.searchers[name] for name in names}  # not by who was first

    def search(
        self, q: str, k: int, names: Iterable[str] | None = None, *, filter: FilterLike | None = None
    ) -> dict[str, Ranked]:
        """The k best passages of each channel, or of some of them, for a question."""
        return {name: own[0] for name, own in self.batch_search([q], k, 1, names, filter=filter).items()}

    def batch_search(
        self,
        queries: Sequence[str],
        k: int,
        threads: int = 1,
        names: Iterable[str] | None = None,
        *,
        filter: FilterLike | None = None,
    ) -> dict[str, list[Ranked]]:
        """The k best passages of each channel, or of some of them, for each question."""
        if self._closed:
            raise IndexStateError("the channels are closed", remedy="open the index again")
        queries, threads = queries_of(queries)[0], whole("threads", threads)
        chosen = list(self.searchers if names is None else names)
        found: dict[str, list[Ranked]] = {}

        def ask_dense() -> None:
            found[DENSE] = list(self.searchers[DENSE].rank(queries, k, threads, filter=filter))

        def ask_lucene(lucene: Sequence[str]) -> None:
            if len(lucene) == 2:
                both = cast(Searcher, self.searchers[IMPACT]).rank_both(queries, k, threads, filter=filter)
                found[IMPACT], found[BM25] = both
            else:
                one = self.searchers[lucene[0]]
                found[lucene[0]] = list(one.rank(queries, k, threads, filter=filter))

        self._side_by_side(chosen, ask_dense, ask_lucene)
        return {name: found[name] for name in chosen}

    def _side_by_side(
        self, names: Sequence[str], dense: Callable[[], None], lucene: Callable[[Sequence[str]], None]
    ) -> None:
        """Do both where both are wanted; an error of the dense side is raised when the other is done."""
        others = [name for name in names if name != DENSE]
        if DENSE not in names:
            lucene(others)
            return
        waiting = [self._thread.submit(lucene, others)] if others and self._thread else []
        try:
            dense()
        finally:
            wait(waiting)
        for done in waiting:
            done.result()

    def close(self) -> None:
        """Let go of the index and of the thread. Closing again does nothing."""
        self._closed = True
        try:
            for searcher in self.searchers.values():
                searcher.close()
        finally:
            if self._thread:
                self._thread.submit(leave_thread)
                self._thread.shutdown()
                self._thread = None
