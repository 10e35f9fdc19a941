"""Searching an index in OpenSearch: the rankings, ties and scores of one machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from hybrid.opensearch.explain import explain_remote
from hybrid.opensearch.remote import RemoteIndex
from hybrid.opensearch.server import Server
from hybrid.opensearch.state import count
from hybrid.retrieval.channels import Channels
from hybrid.retrieval.fusion import CANDIDATES, Fusion, default_weights, parse_weights
from hybrid.retrieval.searcher import HybridSearcher
from sparta.base.closing import Closing
from sparta.base.filters import Filter, FilterLike
from sparta.base.records import Hit, Ranking
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.contexts import with_contexts
from sparta.search.explain import Explanation
from sparta.search.retriever import Page, Retriever
from sparta.search.searcher import CHANNELS, IMPACT, channel_name


class OpenSearchSearcher(Retriever):
    """Searches one channel of an index in OpenSearch.

    `channel` is `impact` (`neural_sparse` with the terms of the question, `rank_feature` where the plugin
    neural-search is not there) or `bm25`. Order: score descending, then corpus position, as on one machine.

    :param server: URLs of nodes with commas between, or a `Server`
    :param name: the alias that `sparta push` gave
    :raises IndexStateError: there is no such alias, or sparta did not push what is behind it.
    :raises ServerError: the server cannot be reached, or refuses.
    """

    def __init__(
        self, server: Server | str, name: str, *, channel: str = IMPACT, opened: RemoteIndex | None = None
    ) -> None:
        self.channel = channel_name(channel)
        self.opened = opened or RemoteIndex(Server(server) if isinstance(server, str) else server, name)

    def beside(self, channel: str) -> OpenSearchSearcher:
        """Return a searcher of another channel of the same open index; closing one of them closes both."""
        return OpenSearchSearcher(self.opened.server, self.opened.name, channel=channel, opened=self.opened)

    @property
    def num_docs(self) -> int:
        """Number of passages."""
        return count(self.opened.server, self.opened.now.index)

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The query side of the index."""
        return self.opened.now.tokenizer

    @property
    def language(self) -> str:
        """The language code of the passages."""
        return str(self.opened.now.meta["language"])

    @property
    def unit(self) -> str:
        """The unit of the index."""
        return str(self.opened.now.meta["unit"])

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return a page of the ranking of each query: ids, docids and scores."""
        texts = [(self.channel, query) for query in queries]
        return self.opened.again(partial(self.opened.rank, texts, page, threads))

    def search_all(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[list[Hit]]:
        """Return a page of hits for each query; again on the present index where this one was replaced."""
        return self.opened.again(partial(super().search_all, queries, page, threads))

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """The stored records of passages."""
        return self.opened.records(docids)

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits as a reader reads them: sentences with the text of their passage as `context`."""
        return self.opened.again(partial(with_contexts, hits, self.opened.texts))

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        """Return the values of a metadata field for each passage; None without a value."""
        return self.opened.keys(docids, field)

    def explain(self, query: str, passage_id: str, *, filter: FilterLike | None = None) -> Explanation:
        """Why a passage has its score by impacts: each query term's impact, the sum, the rank.

        The rank is that among the passages that the filter keeps.
        """
        return self.opened.again(partial(explain_remote, self.opened, query, passage_id, filter))

    def close(self) -> None:
        """Let go of the connections."""
        self.opened.server.close()


class OpenSearchChannels(Channels):
    """Channels of one index in OpenSearch, searched in one request."""

    def __init__(self, opened: RemoteIndex, names: Sequence[str]) -> None:
        self._thread, self._closed, self.opened = None, False, opened
        self.searchers = {
            channel_name(name): OpenSearchSearcher(opened.server, opened.name, channel=name, opened=opened)
            for name in names
        }

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
        chosen, n = list(self.searchers if names is None else names), len(queries)
        texts = [(name, query) for name in chosen for query in queries]
        rankings = self.opened.rank(texts, Page(k, filter=Filter.of(filter)), threads)
        return {name: rankings[n * i : n * (i + 1)] for i, name in enumerate(chosen)}

    def holding(self) -> AbstractContextManager[object]:
        """Do nothing: docids say themselves which index they are of."""
        return nullcontext()


class OpenSearchHybrid(HybridSearcher):
    """Searches several channels of an index in OpenSearch and fuses them here, as on one machine.

    :param fusion: which channels, and how; None for `default_weights` of the channels that there are
    """

    def __init__(self, server: Server | str, name: str, fusion: Fusion | None = None) -> None:
        fusion = fusion or Fusion(default_weights(CHANNELS))
        self.opened = RemoteIndex(Server(server) if isinstance(server, str) else server, name)
        super().__init__(OpenSearchChannels(self.opened, list(fusion.weights)), fusion)

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return a page of the fused ranking of each query."""
        return self.opened.again(partial(super().rank, queries, page, threads))

    def search_all(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[list[Hit]]:
        """Return a page of hits for each query, with each passage's place in each channel."""
        return self.opened.again(partial(super().search_all, queries, page, threads))

    __reduce__ = Closing.__reduce__  # there is no folder to open again


def open_opensearch(
    server: Server | str, name: str, channels: str | None = None, *, candidates: int = CANDIDATES
) -> OpenSearchHybrid | OpenSearchSearcher:
    """Open the retriever that a person names: `impact`, `bm25`, or both, as in `bm25=1.2,impact`."""
    if channels and ("," in channels or "=" in channels):
        return OpenSearchHybrid(
            server, name, Fusion(parse_weights(channels, CHANNELS, "channels"), candidates=candidates)
        )
    return OpenSearchSearcher(server, name, channel=channels or IMPACT)
