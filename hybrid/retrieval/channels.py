"""The channels of an index, over one reader, and searched side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

from sparta.base.checks import path_of, queries_of, several, whole
from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, InputError
from sparta.base.filters import Filter, FilterLike
from sparta.base.records import Ranking
from sparta.index.channels import other_channels
from sparta.index.folder import IndexFolder
from sparta.index.reader import IndexReader
from sparta.lucene.bridge import Bm25
from sparta.lucene.jvm import leave_thread
from sparta.search.retriever import Page, Retriever
from sparta.search.searcher import BM25, IMPACT, ChannelSearcher, Searcher, channel_name

DENSE = "dense"
CHANNELS = (BM25, IMPACT, DENSE)


def channel(name: str) -> str:
    """Return the name of a channel; the former name of `impact` is understood."""
    return channel_name(name, CHANNELS)


def open_channel(
    index: str | Path | IndexReader | None, name: str, bm25: Bm25 | None = None
) -> ChannelSearcher:
    """Open one channel of an index, or of a reader that is open."""
    if name != DENSE:
        return Searcher(index, channel=name, bm25=bm25)
    from dense.channel.searcher import DenseSearcher

    return DenseSearcher(index, bm25=bm25)


def channels_of(index: Path) -> list[str]:
    """Return the channels that an index has."""
    generation = IndexFolder(index).state().searchable
    lucene = generation.lucene_channels if generation else (IMPACT, BM25)
    return [*reversed(lucene), *other_channels(index)]


class Channels(Closing):
    """Some channels of an index over one reader, searched side by side: a wait is that for the slowest.

    impact and bm25 lie in one Lucene index and are searched in one call, side by side in Java. The dense
    channel is searched in the caller's thread meanwhile: Java and torch let go of Python's lock while they
    compute.

    :param index: an index folder, or an open reader; closing the channels closes it
    :raises InputError: an unknown channel.
    :raises IndexStateError: there is no index, or it lacks one of the channels.
    """

    def __init__(
        self, index: str | Path | IndexReader, names: Sequence[str], bm25: Bm25 | None = None
    ) -> None:
        names = [channel(name) for name in several(names, "channels")]
        if not names:
            raise InputError(f"expected channels of {', '.join(CHANNELS)}, found none")
        if not isinstance(index, IndexReader):
            others = [name for name in names if name == DENSE]
            index = IndexReader(path_of(index, "an index folder"), bm25, others)
        self.reader = index
        both = DENSE in names and len(names) > 1
        self._thread = ThreadPoolExecutor(1, "lucene") if both else None
        self._closed = False
        self.searchers: dict[str, Retriever] = {name: open_channel(index, name) for name in names}

    def holding(self) -> AbstractContextManager[object]:
        """Keep to one snapshot until the block ends: docids are the same passages in all channels."""
        return self.reader.holding()

    def search(
        self, q: str, k: int, names: Iterable[str] | None = None, *, filter: FilterLike | None = None
    ) -> dict[str, Ranking]:
        """Return the k best passages of each channel, or of some of them, for a question."""
        rankings = self.batch_search([q], k, 1, names, filter=filter)
        return {name: ranked[0] for name, ranked in rankings.items()}

    def batch_search(
        self,
        queries: Sequence[str],
        k: int,
        threads: int = 1,
        names: Iterable[str] | None = None,
        *,
        filter: FilterLike | None = None,
    ) -> dict[str, list[Ranking]]:
        """Return the k best passages of each channel, or of some of them, for each question."""
        if self._closed:
            raise IndexStateError("the channels are closed", remedy="open the index again")
        queries, page = queries_of(queries)[0], Page(k, filter=Filter.of(filter))
        chosen = list(self.searchers if names is None else names)
        rankings = self._ranked(chosen, queries, page, whole("threads", threads))
        return {name: rankings[name] for name in chosen}

    def _ranked(
        self, names: Sequence[str], queries: Sequence[str], page: Page, threads: int
    ) -> dict[str, list[Ranking]]:
        """Rank in all channels; an error of the dense side is raised when the other is done."""
        lucene = [name for name in names if name != DENSE]
        with self.reader.holding() as snapshot:

            def ask_lucene() -> dict[str, list[Ranking]]:
                with self.reader.holding(snapshot):
                    if len(lucene) < 2:
                        return {name: self.searchers[name].rank(queries, page, threads) for name in lucene}
                    impacts = cast(Searcher, self.searchers[IMPACT])
                    return dict(zip((IMPACT, BM25), impacts.rank_both(queries, page, threads), strict=True))

            if DENSE not in names:
                return ask_lucene()
            waiting = self._beside(ask_lucene) if lucene else dict
            try:
                dense = self.searchers[DENSE].rank(queries, page, threads)
            finally:
                rankings = waiting()
            return {**rankings, DENSE: dense}

    def _beside[T](self, work: Callable[[], T]) -> Callable[[], T]:
        """Begin work in the other thread, if there is one; returns what waits for it."""
        return self._thread.submit(work).result if self._thread else work

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
