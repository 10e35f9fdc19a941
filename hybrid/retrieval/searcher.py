"""Searching several channels as one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hybrid.retrieval.channels import CHANNELS, DENSE, Channels, channel, channels_of, open_channel
from hybrid.retrieval.fusion import CANDIDATES, Fusion, default_weights, parse_weights
from hybrid.retrieval.hits import FusedRanking, check_page, fused
from sparta.base.records import Hit, Ranking
from sparta.index.folder import default_index, lasting_path
from sparta.index.reader import IndexReader
from sparta.lucene.bridge import Bm25
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.retriever import Page, Retriever
from sparta.search.searcher import BM25, IMPACT, ChannelSearcher

_QUERIES_AT_ONCE = 500  # whose candidates are in memory


class HybridSearcher(Retriever):
    """Searches several channels of an index side by side and fuses their rankings.

    Order: fused score descending; ties as `Fusion.fuse` breaks them. A page must lie within the `candidates`
    of the fusion; a filter applies to each channel's candidates; a hit has its place in each channel.

    :param index: an index folder, an open reader, or open channels; None is `$SPARTA_INDEX` or
        `./sparta-index`
    :param fusion: which channels, and how, or their weights alone; None for `default_weights` of the channels
        that there are
    :param bm25: k1 and b, where they are not 0.9 and 0.4
    :raises IndexStateError: there is no index, or it lacks one of the channels.
    """

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
            fusion = default_weights(_names(index))
        fusion = fusion if isinstance(fusion, Fusion) else Fusion(fusion)
        fusion = replace(fusion, weights={channel(name): weight for name, weight in fusion.weights.items()})
        channels = index if isinstance(index, Channels) else Channels(index, list(fusion.weights), bm25)
        self.fusion, self.channels = fusion, channels
        self.channel = "+".join(fusion.weights)
        self._first = channels.searchers[next(iter(fusion.weights))]

    def __reduce__(self) -> tuple[object, ...]:
        reader = self.channels.reader
        return partial(type(self), reader.folder.path, self.fusion, bm25=reader.bm25), ()

    @property
    def num_docs(self) -> int:
        """Number of passages, as the first channel has it."""
        return self._first.num_docs

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The query side of the index."""
        return self._first.tokenizer

    @property
    def language(self) -> str:
        """The code of the language that the texts are in."""
        return self._first.language

    @property
    def unit(self) -> str:
        """The unit of the index."""
        return self._first.unit

    def refresh(self) -> bool:
        """Search what was committed since, in all channels; returns whether there was anything."""
        return self.channels.reader.refresh()

    def holding(self) -> AbstractContextManager[object]:
        """Keep to one snapshot until the block ends, also if another thread refreshes."""
        return self.channels.holding()

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return a page of the fused ranking of each query; `threads` search each channel."""
        with self.holding():
            fused_rankings = self._fused(queries, page, threads)
            return [Ranking(best.passage_ids, best.docids, best.scores) for best in fused_rankings]

    def search_all(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[list[Hit]]:
        """Return a page of hits for each query, with each passage's place in each channel."""
        hits: list[list[Hit]] = []
        with self.holding():
            for some in itertools.batched(self._fused(queries, page, threads), _QUERIES_AT_ONCE):
                for ranking, found in zip(some, self.hits(some), strict=True):
                    places = ranking.places()
                    hits.append([replace(hit, channels=p) for hit, p in zip(found, places, strict=True)])
        return hits

    def _fused(self, queries: Sequence[str], page: Page, threads: int) -> Iterator[FusedRanking]:
        check_page(self.fusion, page)
        keys = partial(self._first.keys, field=page.collapse) if page.collapse else None
        names, depth = list(self.fusion.weights), self.fusion.candidates
        for some in itertools.batched(queries, _QUERIES_AT_ONCE):
            rankings = self.channels.batch_search(some, depth, threads, names, filter=page.filter)
            for by_channel in zip(*rankings.values(), strict=True):
                yield fused(self.fusion, dict(zip(rankings, by_channel, strict=True)), page, keys)

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """Return the stored records of passages."""
        return self._first.records(docids)

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits as a reader reads them: sentences with the text of their passage as `context`."""
        return self._first.in_context(hits)

    def close(self) -> None:
        """Release the index."""
        self.channels.close()


def _names(index: Path | IndexReader | Channels) -> list[str]:
    """Return the channels that there are."""
    if isinstance(index, Channels):
        return list(index.searchers)
    return channels_of(index.folder.path if isinstance(index, IndexReader) else index)


def open_retriever(
    index: str | Path | IndexReader | None = None,
    channels: str | None = None,
    *,
    bm25: Bm25 | None = None,
    candidates: int = CANDIDATES,
    every: float | None = None,
) -> HybridSearcher | ChannelSearcher:
    """Open the retriever that a person names: `impact`, `bm25`, `dense`, or several, as in `bm25=1.2,impact`.

    :param index: an index folder, or an open reader
    :param channels: None is `impact`, or `bm25` in an index for BM25 alone
    :param candidates: how many passages of each channel are fused
    :param every: look for new commits so many seconds after the last look, when a search comes
    """
    fusion = None
    if channels and ("," in channels or "=" in channels):
        fusion = Fusion(parse_weights(channels, CHANNELS, "channels"), candidates=candidates)
    elif channels:
        channel(channels)
    others = [name for name in (fusion.weights if fusion else [channels]) if name == DENSE]
    if not isinstance(index, IndexReader):
        index = IndexReader(index if index is not None else default_index(), bm25, others, every)
    with index.reading() as snapshot:
        for name in others:
            snapshot.channel(name)  # one that is not there is an error now
    if fusion:
        return HybridSearcher(index, fusion)
    if channels is None:
        with index.reading() as snapshot:
            channels = next(name for name in (IMPACT, BM25) if name in snapshot.channels)
    return open_channel(index, channel(channels))
