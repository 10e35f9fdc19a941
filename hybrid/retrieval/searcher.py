"""`FusedRetriever` and `HybridSearcher`: one retriever over several channels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from hybrid.retrieval.channels import (
    CHANNELS,
    ChannelGroup,
    Channels,
    channel,
    channels_of,
    open_channel,
)
from hybrid.retrieval.fusion import CANDIDATES, Fusion, default_weights, weights_name
from hybrid.retrieval.hits import FusedRanking, check_page, fused
from sparta.base.errors import IndexStateError
from sparta.base.records import Hit, Ranking
from sparta.index.channels import DENSE
from sparta.index.folder import default_index, lasting_path
from sparta.index.reader import IndexReader, reopened
from sparta.lucene.bridge import Bm25
from sparta.search.contexts import joined_hits
from sparta.search.retriever import DelegatingRetriever, Page
from sparta.search.searcher import BM25, IMPACT, ChannelSearcher, is_fusion, unusual_bm25

_QUERY_BLOCK = 500
"""The number of queries that are searched together, with all their candidates in memory."""


class FusedRetriever(DelegatingRetriever):
    """Searches a group of channels and fuses their rankings.

    Hits are ordered by fused score, descending; `Fusion.fuse` defines the order of equal scores. A page must
    lie within the fusion's `candidates`. A filter applies to each channel's candidates. A hit's `channels`
    hold its rank, score and contribution in each channel.

    :param channels: the open channels
    :param fusion: the weight of each channel, and how their scores are fused
    :raises IndexStateError: a channel of the fusion is not open.
    """

    channels: ChannelGroup

    def __init__(self, channels: ChannelGroup, fusion: Fusion) -> None:
        fusion = replace(fusion, weights={channel(name): weight for name, weight in fusion.weights.items()})
        if missing := [name for name in fusion.weights if name not in channels.searchers]:
            raise IndexStateError(
                f"the open channels lack {missing[0]}; they are {', '.join(channels.searchers)}",
                remedy=f"open the channels {', '.join(fusion.weights)}, or fuse other channels",
            )
        self.fusion, self.channels = fusion, channels
        self.channel = "+".join(fusion.weights)
        self.retriever = channels.searchers[next(iter(fusion.weights))]

    @property
    def ranking_name(self) -> str:
        """The channels with their weights, in alphabetical order, such as `bm25=0.5,impact`.

        Unusual settings follow: `bm25,impact(method=rrf)`.
        """
        usual = Fusion(self.fusion.weights)
        settings = [
            f"{name}={getattr(self.fusion, name)}"
            for name in ("method", "normalization", "candidates", "rrf_k")
            if getattr(self.fusion, name) != getattr(usual, name)
        ]
        if BM25 in self.fusion.weights:
            settings += unusual_bm25(self.channels.bm25)
        name = weights_name(self.fusion.weights)
        return f"{name}({','.join(settings)})" if settings else name

    @property
    def most_hits(self) -> int:
        """The highest number of hits of a query: the candidates of all channels."""
        return self.fusion.candidates

    def refresh(self) -> bool:
        """Open the newest snapshot in all channels. Returns whether the snapshot changed."""
        return self.channels.refresh()

    def holding(self) -> AbstractContextManager[object]:
        """Pin the current snapshot for the block, even if another thread refreshes."""
        return self.channels.holding()

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return one page of the fused ranking of each query; each channel uses `threads` threads."""
        with self.holding():
            rankings = self.fused_rankings(queries, page, threads)
            return [Ranking(fused.passage_ids, fused.docids, fused.scores) for fused in rankings]

    def search_all(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[list[Hit]]:
        """Return one page of hits for each query; each hit has its rank and score in each channel."""
        hits: list[list[Hit]] = []
        with self.holding():
            for rankings in itertools.batched(self.fused_rankings(queries, page, threads), _QUERY_BLOCK):
                for ranking, ranking_hits in zip(rankings, self.hits(rankings), strict=True):
                    places = ranking.places()
                    placed_hits = zip(ranking_hits, places, strict=True)
                    hits.append([replace(hit, channels=place) for hit, place in placed_hits])
        return [joined_hits(query_hits) for query_hits in hits] if page.join else hits

    def fused_rankings(self, queries: Sequence[str], page: Page, threads: int) -> Iterator[FusedRanking]:
        """Yield one page of the fused ranking of each query."""
        check_page(self.fusion, page)
        keys = partial(self.keys, field=page.collapse) if page.collapse else None
        names, depth = list(self.fusion.weights), self.fusion.candidates
        for block in itertools.batched(queries, _QUERY_BLOCK):
            rankings_by_channel = self.channels.batch_search(
                block, depth, threads, names, filter=page.filter, deepest=page.deepest, hits=page.hits
            )
            for query_rankings in zip(*rankings_by_channel.values(), strict=True):
                yield fused(
                    self.fusion, dict(zip(rankings_by_channel, query_rankings, strict=True)), page, keys
                )

    def close(self) -> None:
        """Release the index."""
        self.channels.close()


class HybridSearcher(FusedRetriever):
    """Searches several channels of an index folder in parallel and fuses their rankings.

    `FusedRetriever` describes the order of hits, pages and filters.

    :param index: an index folder, an open reader, or open channels; None is `$SPARTA_INDEX` or
        `./sparta-index`
    :param fusion: a fusion, or the weights of a fusion by channel; None uses `default_weights` of the index's
        channels
    :param bm25: BM25's k1 and b, for an open index those of the index; None is k1 = 0.9, b = 0.4
    :raises IndexStateError: the index does not exist, or lacks one of the channels.
    :raises InputError: `index` is open with other parameters of BM25.
    """

    channels: Channels

    def __init__(
        self,
        index: str | Path | IndexReader | Channels | None = None,
        fusion: Fusion | Mapping[str, float] | None = None,
        *,
        bm25: Bm25 | None = None,
    ) -> None:
        if index is None or isinstance(index, str | Path):
            index = lasting_path(index if index is not None else default_index())
        if fusion is None:
            fusion = default_weights(_channel_names(index))
        fusion = fusion if isinstance(fusion, Fusion) else Fusion(fusion)
        if isinstance(index, Channels):
            channels = index
            channels.reader.check_bm25(bm25)
        else:
            channels = Channels(index, list(fusion.weights), bm25)
        super().__init__(channels, fusion)

    def __reduce__(self) -> tuple[object, ...]:
        return reopened, (type(self), self.channels.reader.settings, self.fusion)

    @property
    def reader(self) -> IndexReader:
        """The reader of the index, which all channels share."""
        return self.channels.reader


def _channel_names(index: Path | IndexReader | Channels) -> list[str]:
    """Return the channels of an index folder or an open reader, or the names of open channels."""
    if isinstance(index, Channels):
        return list(index.searchers)
    return channels_of(index.folder.path if isinstance(index, IndexReader) else index)


def open_retriever(
    index: str | Path | IndexReader | None = None,
    channels: str | None = None,
    *,
    bm25: Bm25 | None = None,
    candidates: int | None = None,
    n_hits: int = 0,
    refresh_seconds: float | None = None,
) -> HybridSearcher | ChannelSearcher:
    """Open a retriever for one channel (`impact`, `bm25`, `dense`) or a fusion (`bm25=1.2,impact`).

    :param index: an index folder, or an open reader
    :param channels: None is `impact`, or `bm25` if the index has only BM25
    :param bm25: BM25's k1 and b, for an open index those of the index; None is k1 = 0.9, b = 0.4
    :param candidates: the number of passages that each channel contributes to a fusion. None is `n_hits`, but
        at least 100
    :param n_hits: the number of hits that searches will return
    :param refresh_seconds: seconds between checks for new commits; a search triggers the check. None never
        checks
    """
    fusion = None
    if channels and is_fusion(channels):
        candidates = max(CANDIDATES, n_hits) if candidates is None else candidates
        fusion = Fusion.parse(channels, CHANNELS, candidates)
    elif channels:
        channel(channels)
    dense_names = [name for name in (fusion.weights if fusion else [channels]) if name == DENSE]
    if isinstance(index, IndexReader):
        index.check_bm25(bm25)
    else:
        path = index if index is not None else default_index()
        index = IndexReader(path, bm25, dense_names, refresh_seconds)
    with index.snapshot() as snapshot:
        for name in dense_names:
            snapshot.channel(name)  # a missing channel raises here, before the first search
    if fusion:
        return HybridSearcher(index, fusion)
    if channels is None:
        with index.snapshot() as snapshot:
            channels = next(name for name in (IMPACT, BM25) if name in snapshot.channels)
    return open_channel(index, channel(channels))
