"""Retrievers for an index in OpenSearch, with the rankings, ties and scores of the local index."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from hybrid.opensearch.explain import explain_remote
from hybrid.opensearch.remote import RemoteIndex
from hybrid.opensearch.server import Server
from hybrid.opensearch.state import count
from hybrid.retrieval.channels import ChannelGroup
from hybrid.retrieval.fusion import CANDIDATES, Fusion, default_weights
from hybrid.retrieval.searcher import FusedRetriever
from sparta.base.filters import FilterLike
from sparta.base.records import Hit, Ranking
from sparta.data.units import SENTENCE
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.contexts import with_contexts
from sparta.search.explain import Explanation
from sparta.search.retriever import Page, Retriever
from sparta.search.searcher import IMPACT, LUCENE_CHANNELS, channel_name, is_fusion


class OpenSearchSearcher(Retriever):
    """Searches one channel of an index in OpenSearch.

    `channel` is `impact` (a `neural_sparse` query with the query's terms, or `rank_feature` without the
    plugin neural-search) or `bm25`. Order: score descending, then corpus position, like the local index.

    :param server: URLs of nodes with commas between, or a `Server`
    :param name: the alias that `sparta push` made
    :raises IndexStateError: the alias does not exist, or sparta did not push its index
    :raises ServerError: the server cannot be reached, or refuses a request
    """

    def __init__(
        self, server: Server | str, name: str, *, channel: str = IMPACT, opened: RemoteIndex | None = None
    ) -> None:
        self.channel = channel_name(channel)
        self.opened = opened or RemoteIndex(Server(server) if isinstance(server, str) else server, name)

    def refresh(self) -> bool:
        """Follow the alias now. Returns whether the alias points to another index."""
        return self.opened.refresh()

    def beside(self, channel: str) -> OpenSearchSearcher:
        """Return a searcher of another channel of the same open index; closing one of them closes both."""
        return OpenSearchSearcher(self.opened.server, self.opened.name, channel=channel, opened=self.opened)

    @property
    def num_docs(self) -> int:
        """Number of passages."""
        return count(self.opened.server, self.opened.view.index)

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The tokenizer that turns a query into weighted terms."""
        return self.opened.view.tokenizer

    @property
    def language(self) -> str:
        """The language code of the passages."""
        return str(self.opened.view.meta["language"])

    @property
    def unit(self) -> str:
        """The unit of retrieval: passages, sentences or chunks."""
        return str(self.opened.view.meta["unit"])

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return a page of each query's ranking: passage ids, document numbers and scores."""
        channel_queries = [(self.channel, query) for query in queries]
        return self.opened.newest(partial(self.opened.rank, channel_queries, page, threads))

    def search_all(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[list[Hit]]:
        """Return a page of hits for each query, from the index that has the alias."""
        return self.opened.newest(partial(super().search_all, queries, page, threads))

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """Return the stored records of passages, by document number."""
        return self.opened.records(docids)

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits for a reader: a hit that is a sentence gets its passage's text as `context`."""

        def contexts() -> list[Hit]:
            return with_contexts(hits, self.opened.texts) if self.unit == SENTENCE else list(hits)

        return self.opened.again(contexts)

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        """Return the values of a metadata field for each passage; None without a value."""
        return self.opened.keys(docids, field)

    def fields_among(self, names: Collection[str]) -> list[str]:
        """Return the metadata fields with these names."""
        return self.opened.newest(partial(self.opened.fields_among, names))

    def explain(self, query: str, passage_id: str, *, filter: FilterLike | None = None) -> Explanation:
        """Explain a passage's impact score: each query term's impact, the sum and the rank.

        The rank counts only passages that pass the filter. A split passage is explained by its best part that
        passes.
        """
        return self.opened.newest(partial(explain_remote, self.opened, query, passage_id, filter))

    def close(self) -> None:
        """Close the connections to the server."""
        self.opened.server.close()


class OpenSearchChannels(ChannelGroup):
    """Several channels of one index in OpenSearch; one request searches all of them."""

    def __init__(self, opened: RemoteIndex, names: Sequence[str]) -> None:
        self.opened = opened
        super().__init__(
            {
                name: OpenSearchSearcher(opened.server, opened.name, channel=name, opened=opened)
                for name in map(channel_name, names)
            }
        )

    @property
    def bm25(self) -> None:
        """None: an index in OpenSearch has the default k1 and b."""
        return None

    def refresh(self) -> bool:
        """Follow the alias now. Returns whether the alias points to another index."""
        return self.opened.refresh()

    def holding(self) -> AbstractContextManager[None]:
        """Do nothing for the block: a document number identifies its index."""
        return nullcontext()

    def _ranked(
        self, names: Sequence[str], queries: Sequence[str], page: Page, threads: int
    ) -> dict[str, list[Ranking]]:
        """Return one page of each query's ranking in each of the named channels, from one request."""
        channel_queries = [(name, query) for name in names for query in queries]
        rankings = iter(self.opened.rank(channel_queries, page, threads))
        return {name: list(itertools.islice(rankings, len(queries))) for name in names}


class OpenSearchHybrid(FusedRetriever):
    """Searches several channels of an index in OpenSearch and fuses their rankings locally.

    :param fusion: channels, weights and method; None means `default_weights` of impact and BM25
    """

    def __init__(self, server: Server | str, name: str, fusion: Fusion | None = None) -> None:
        fusion = fusion or Fusion(default_weights(LUCENE_CHANNELS))
        self.opened = RemoteIndex(Server(server) if isinstance(server, str) else server, name)
        super().__init__(OpenSearchChannels(self.opened, list(fusion.weights)), fusion)

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return a page of the fused ranking of each query."""
        return self.opened.newest(partial(super().rank, queries, page, threads))

    def search_all(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[list[Hit]]:
        """Return a page of fused hits for each query, with each hit's rank and score in each channel."""
        return self.opened.newest(partial(super().search_all, queries, page, threads))


def open_opensearch(
    server: Server | str, name: str, channels: str | None = None, *, candidates: int = CANDIDATES
) -> OpenSearchHybrid | OpenSearchSearcher:
    """Return a retriever for `channels`: `impact` (default), `bm25`, or a fusion like `bm25=1.2,impact`."""
    if channels and is_fusion(channels):
        return OpenSearchHybrid(server, name, Fusion.parse(channels, LUCENE_CHANNELS, candidates))
    return OpenSearchSearcher(server, name, channel=channels or IMPACT)
