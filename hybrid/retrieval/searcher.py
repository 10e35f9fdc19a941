"""Searching several channels as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hybrid.retrieval.channels import CHANNELS, Channels, channel, channels_of, open_channel
from hybrid.retrieval.fusion import CANDIDATES, Fusion, default_weights, parse_weights
from hybrid.retrieval.hits import HybridHit, check_page, fused_hits, fused_rankings
from sparta.base.checks import queries_of, query_of
from sparta.base.closing import Closing
from sparta.base.filters import FilterLike
from sparta.base.records import Hit, ScoredPassage
from sparta.index.folder import default_index, lasting_path
from sparta.lucene.bridge import Bm25
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.channel_searcher import ChannelSearcher
from sparta.search.searcher import BM25, IMPACT


class HybridSearcher(Closing):
    """Searches several channels of an index side by side and fuses their rankings; a `Retriever`.

    Order: fused score descending; ties as `Fusion.fuse` breaks them.

    :param index: an index folder; None is `$SPARTA_INDEX` or `./sparta-index`
    :param fusion: which channels, and how, or their weights alone; None for `default_weights` of the channels
        that there are
    :param bm25: k1 and b, where they are not 0.9 and 0.4
    :raises IndexStateError: there is no index, or it lacks one of the channels.
    """

    def __init__(
        self,
        index: str | Path | None = None,
        fusion: Fusion | Mapping[str, float] | None = None,
        *,
        bm25: Bm25 | None = None,
    ) -> None:
        folder = lasting_path(index if index is not None else default_index())
        fusion = default_weights(channels_of(folder)) if fusion is None else fusion
        fusion = fusion if isinstance(fusion, Fusion) else Fusion(fusion)
        self.fusion = replace(fusion, weights={channel(n): w for n, w in fusion.weights.items()})
        self.channels = Channels(folder, list(self.fusion.weights), bm25)
        self._folder, self._bm25 = folder, bm25

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), self._folder, self.fusion, bm25=self._bm25), ()

    @property
    def num_docs(self) -> int:
        """Number of passages, as the first channel has it."""
        return self._first.num_docs

    @property
    def channel(self) -> str:
        """The channels, joined by +, as in the tag of a run."""
        return "+".join(self.fusion.weights)

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The query side of the index."""
        return self._first.tokenizer

    @property
    def language(self) -> str:
        """The code of the language that the texts are in."""
        return self._first.language

    @property
    def _first(self) -> ChannelSearcher:
        return self.channels.searchers[next(iter(self.fusion.weights))]

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> list[HybridHit]:
        """The `k` best passages for a query.

        :param offset: leave out so many of the best; a page must lie within the `candidates` of the fusion
        :param filter: only passages whose metadata is so; each channel finds its candidates among them
        :param collapse: a metadata field; of the fused ranking only the best passage of each of its values
        """
        options: dict[str, Any] = {"offset": offset, "filter": filter, "collapse": collapse}
        return fused_hits(self.fusion, self.channels, [query_of(query)], k, **options)[0]

    def batch_search(
        self,
        queries: Iterable[str],
        query_ids: Iterable[str],
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> dict[str, list[HybridHit]]:
        """The same for many queries, by query id; `threads` for each channel."""
        texts, ids = queries_of(queries, query_ids)
        options: dict[str, Any] = {"offset": offset, "filter": filter, "collapse": collapse}
        hits = fused_hits(self.fusion, self.channels, texts, k, threads, **options)
        return dict(zip(ids, hits, strict=True))

    def run(
        self,
        queries: Iterable[str],
        query_ids: Iterable[str],
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> dict[str, list[ScoredPassage]]:
        """The same without titles and texts."""
        texts, ids = queries_of(queries, query_ids)
        check_page(self.fusion, k, offset, collapse)
        ranked = fused_rankings(self.fusion, self.channels, texts, threads, filter)
        return {q: own.page(k, offset, collapse) for q, own in zip(ids, ranked, strict=True)}

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits as a reader reads them: sentences with the text of their passage as `context`."""
        return self._first.in_context(hits)

    def close(self) -> None:
        """Release the index."""
        self.channels.close()


def open_retriever(
    index: str | Path | None = None,
    channels: str | None = None,
    *,
    bm25: Bm25 | None = None,
    candidates: int = CANDIDATES,
) -> HybridSearcher | ChannelSearcher:
    """Open the retriever that a person names: `impact`, `bm25`, `dense`, or several, as in `bm25=1.2,impact`.

    :param channels: None is `impact`, or `bm25` in an index for BM25 alone
    :param candidates: how many passages of each channel are fused
    """
    folder = lasting_path(index if index is not None else default_index())
    if channels and ("," in channels or "=" in channels):
        fusion = Fusion(parse_weights(channels, CHANNELS, "channels:"), candidates=candidates)
        return HybridSearcher(folder, fusion, bm25=bm25)
    name = channel(channels) if channels else next(n for n in (IMPACT, BM25) if n in channels_of(folder))
    return open_channel(folder, name, bm25)
