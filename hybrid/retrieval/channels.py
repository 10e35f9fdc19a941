"""Searches several channels of an index with the same queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

from sparta.base.checks import list_of, path_of, queries_of, whole
from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, InputError
from sparta.base.filters import Filter, FilterLike
from sparta.base.records import Ranking
from sparta.index.channels import DENSE, other_channels
from sparta.index.folder import IndexFolder
from sparta.index.reader import IndexReader
from sparta.lucene.bridge import Bm25
from sparta.lucene.jvm import check_process
from sparta.search.ranked import DOCUMENTS
from sparta.search.retriever import Page, Retriever
from sparta.search.searcher import BM25, IMPACT, ChannelSearcher, Searcher, channel_name

CHANNELS = (BM25, IMPACT, DENSE)


def channel(name: str) -> str:
    """Return the current name of a channel; accepts the former name of `impact`."""
    return channel_name(name, CHANNELS)


def open_channel(index: str | Path | IndexReader | None, name: str) -> ChannelSearcher:
    """Open a retriever for one channel of an index folder or of an open reader."""
    if name != DENSE:
        return Searcher(index, channel=name)
    from dense.channel.searcher import DenseSearcher

    return DenseSearcher(index)


def channels_of(index: Path) -> list[str]:
    """Return the names of an index's channels."""
    generation = IndexFolder(index).state().searchable
    lucene = generation.lucene_channels if generation else (IMPACT, BM25)
    return [*reversed(lucene), *other_channels(index)]


class ChannelGroup(Closing, ABC):
    """Several channels of one index, searched together with the same queries.

    :param searchers: the retriever of each channel, by name
    """

    def __init__(self, searchers: Mapping[str, Retriever]) -> None:
        self.searchers, self._closed = dict(searchers), False

    @property
    @abstractmethod
    def bm25(self) -> Bm25 | None:
        """BM25's k1 and b; None means the defaults."""

    @abstractmethod
    def refresh(self) -> bool:
        """Open the newest snapshot in all channels. Returns whether the snapshot changed."""

    @abstractmethod
    def holding(self) -> AbstractContextManager[object]:
        """Pin one snapshot for the block, so that a docid names the same passage in all channels."""

    def search(
        self, q: str, k: int, names: Iterable[str] | None = None, *, filter: FilterLike | None = None
    ) -> dict[str, Ranking]:
        """Return each channel's k best passages for one query; `names` selects channels (default: all)."""
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
        deepest: int | None = None,
        hits: str = DOCUMENTS,
    ) -> dict[str, list[Ranking]]:
        """Return each channel's k best passages for each query; `names` selects channels (default: all).

        :param deepest: group at most this many chunks by document, in each channel
        :param hits: `documents` or `chunks`, in an index of chunks
        """
        if self._closed:
            raise IndexStateError("the channels are closed", remedy="open the index again")
        page = Page(k, filter=Filter.of(filter), deepest=deepest, hits=hits)
        channel_names = list(self.searchers if names is None else names)
        rankings = self._ranked(channel_names, queries_of(queries)[0], page, whole("threads", threads))
        return {name: rankings[name] for name in channel_names}

    @abstractmethod
    def _ranked(
        self, names: Sequence[str], queries: Sequence[str], page: Page, threads: int
    ) -> dict[str, list[Ranking]]:
        """Return one page of each query's ranking in each of the named channels."""

    def close(self) -> None:
        """Release the index. A second call does nothing."""
        self._closed = True
        for searcher in self.searchers.values():
            searcher.close()


class Channels(ChannelGroup):
    """Searches several channels of an index in parallel; a search takes as long as its slowest channel.

    The impact and bm25 channels share a Lucene index. Java searches both in one call, in parallel. The
    caller's thread searches the dense channel at the same time: Java and NumPy release Python's global lock
    while they compute.

    :param index: an index folder, or an open reader; closing the channels closes the reader
    :raises InputError: a channel name is unknown.
    :raises IndexStateError: the index does not exist, or lacks one of the channels.
    """

    def __init__(
        self, index: str | Path | IndexReader, names: Sequence[str], bm25: Bm25 | None = None
    ) -> None:
        names = [channel(name) for name in list_of(names, "channels")]
        if not names:
            raise InputError(f"no channel is named; available channels: {', '.join(CHANNELS)}")
        if isinstance(index, IndexReader):
            index.check_bm25(bm25)
        else:
            dense_names = [name for name in names if name == DENSE]
            index = IndexReader(path_of(index, "an index folder"), bm25, dense_names)
        self.reader = index
        is_parallel = DENSE in names and len(names) > 1
        self._thread = ThreadPoolExecutor(1, "lucene") if is_parallel else None
        super().__init__({name: open_channel(index, name) for name in names})

    @property
    def bm25(self) -> Bm25 | None:
        """BM25's k1 and b; None means the defaults."""
        return self.reader.bm25

    def refresh(self) -> bool:
        """Open the newest commit in all channels. Returns whether the snapshot changed."""
        return self.reader.refresh()

    def holding(self) -> AbstractContextManager[object]:
        """Pin one snapshot for the block, so that a docid names the same passage in all channels."""
        return self.reader.holding()

    def _ranked(
        self, names: Sequence[str], queries: Sequence[str], page: Page, threads: int
    ) -> dict[str, list[Ranking]]:
        """Rank passages in all named channels; raise an error of the dense channel after Lucene finishes."""
        lucene_names = [name for name in names if name != DENSE]
        with self.reader.holding() as snapshot:

            def rank_lucene() -> dict[str, list[Ranking]]:
                with self.reader.holding(snapshot):
                    if len(lucene_names) < 2:
                        return {
                            name: self.searchers[name].rank(queries, page, threads) for name in lucene_names
                        }
                    impacts = cast(Searcher, self.searchers[IMPACT])
                    return dict(zip((IMPACT, BM25), impacts.rank_both(queries, page, threads), strict=True))

            if DENSE not in names:
                return rank_lucene()
            lucene_result = self._submit(rank_lucene) if lucene_names else dict
            try:
                dense_rankings = self.searchers[DENSE].rank(queries, page, threads)
            finally:
                rankings = lucene_result()
            return {**rankings, DENSE: dense_rankings}

    def _submit[T](self, work: Callable[[], T]) -> Callable[[], T]:
        """Start `work` in the second thread, if any; return a function that waits for the result.

        :raises JavaError: this process is a fork, in which the thread does not exist and would never answer.
        """
        thread = self._thread
        if thread is None:
            return work
        check_process()
        waiting = [work]
        try:
            return thread.submit(lambda: waiting[0]()).result
        except RuntimeError:  # Python ends, or there are too many threads; the queue keeps what was submitted
            waiting.clear()
            return work

    def close(self) -> None:
        """Release the index and stop the thread. A second call does nothing."""
        try:
            super().close()
        finally:
            if self._thread:
                self._thread.shutdown()
                self._thread = None
