"""Searching an index in OpenSearch: the rankings, ties and scores of one machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hybrid.opensearch.check import query_kind
from hybrid.opensearch.queries import Json, impacts_query, search_body, text_query
from hybrid.opensearch.server import BUSY, Server, reason_of
from hybrid.opensearch.state import count, live_index, load_side
from hybrid.retrieval.channels import Channels
from hybrid.retrieval.fusion import CANDIDATES, Fusion, parse_weights
from hybrid.retrieval.searcher import HybridHit, HybridSearcher
from sparta.base.errors import IndexStateError, ServerError
from sparta.base.records import Hit, ScoredPassage
from sparta.data.units import is_chunk
from sparta.export.opensearch import POSITION, RECORD
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.searcher import (
    BM25,
    CHANNELS,
    IMPACT,
    ChannelSearcher,
    Ranked,
    by_document,
    channel_name,
)

_AT_ONCE = 100  # queries in a request
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
Asked = tuple[str, str]
"""A channel, and a query to it."""


class RemoteIndex:
    """The index that an alias stands for now: its query side, and searches in it.

    The index itself is searched, not the alias: rankings and records are of one content, also when the alias
    is swapped between them.

    :raises IndexStateError: there is no such alias, or sparta did not push what is behind it.
    """

    def __init__(self, server: Server, name: str, kind: str | None = None) -> None:
        self.server, self.name, self._kind = server, name, kind
        self.open()

    def open(self) -> None:
        """Take the index that has the alias now."""
        self.index, self.meta = live_index(self.server, self.name)
        self.side = load_side(self.server, self.meta)
        self.tokenizer = self.side.query_tokenizer()
        self.kind = self._kind or query_kind(self.server, self.index)

    def rank(self, asked: Sequence[Asked], k: int, threads: int = 1) -> list[Ranked]:
        """The `k` best passages for each query in its channel; of an index of chunks, their documents."""
        if is_chunk(self.meta["unit"]):
            return by_document(lambda depth: self._ranked(asked, depth, threads), k)
        return self._ranked(asked, k, threads)

    def _ranked(self, asked: Sequence[Asked], k: int, threads: int) -> list[Ranked]:
        queries = [self.query(channel, text) for channel, text in asked]
        answers = self.search([search_body(query, k) for query, _ in queries], threads)
        rows = zip(asked, queries, answers, strict=True)
        return [_columns(own["hits"]["hits"], channel, scale) for (channel, _), (_, scale), own in rows]

    def query(self, channel: str, text: str) -> tuple[Json, int]:
        """Return the query of a text in a channel, and by what its scores are to be multiplied."""
        if channel == BM25:
            return text_query(text), 1
        return impacts_query(self.tokenizer.terms(text), self.kind)

    def records(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """The records of passages, by corpus position."""
        if not positions:
            return []
        body = search_body({"terms": {POSITION: list(positions)}}, len(set(positions)), source=[RECORD])
        hits = self.search([body])[0]["hits"]["hits"]
        found = {int(hit["sort"][1]): hit["_source"][RECORD] for hit in hits}
        gone = [position for position in positions if position not in found]
        if gone:
            raise IndexStateError(
                f"passage {gone[0]} was deleted since it was ranked", where=self._where, remedy="search again"
            )
        return [found[position] for position in positions]

    def search(self, bodies: Sequence[Json], threads: int = 1) -> list[Json]:
        """Send searches, again where a shard has no copy now: all shards answer, or it is an error."""
        answers: list[Json] = []
        for begin in range(0, len(bodies), _AT_ONCE):
            answers += self._patiently(bodies[begin : begin + _AT_ONCE], threads)
        return answers

    def _patiently(self, bodies: Sequence[Json], threads: int) -> list[Json]:
        answers: dict[int, Json] = {}
        ends, pause = time.monotonic() + self.server.access.patience, _FIRST_WAIT
        while True:
            left = [i for i in range(len(bodies)) if i not in answers]
            found = self._msearch([bodies[i] for i in left], threads)
            busy: list[Json] = []
            for i, own in zip(left, found, strict=True):
                if "error" not in own and not own["timed_out"] and not own["_shards"]["failed"]:
                    answers[i] = own
                elif own.get("status") in (*BUSY, 500, 200):
                    busy.append(own)
                else:
                    raise self._refused(own)
            if not busy:
                return [answers[i] for i in range(len(bodies))]
            if time.monotonic() + pause > ends:
                raise self._refused(busy[0])
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_WAIT)

    def _msearch(self, bodies: Sequence[Json], threads: int) -> list[Json]:
        """Send them once. BM25 counts words over all shards (dfs); impacts need no counts."""
        lines: list[Json] = []
        for body in bodies:
            counted = {"search_type": "dfs_query_then_fetch"} if "match" in body["query"] else {}
            lines += [{"allow_partial_search_results": False, **counted}, body]
        sent = b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)
        path = f"/{self.index}/_msearch"
        answer = self.server.request("POST", path, sent, lines=True, max_concurrent_searches=max(1, threads))
        return list(answer["responses"])

    def _refused(self, answer: Json) -> ServerError | IndexStateError:
        if answer.get("status") == 404:
            return IndexStateError(
                "the index was replaced since it was opened", where=self._where, remedy="open it again"
            )
        return ServerError(f"the search failed: {reason_of(answer)}", where=self._where)

    @property
    def _where(self) -> str:
        return f"{self.server.where}/{self.index}"

    def again[T](self, work: Callable[[], T]) -> T:
        """Do work; once more on the present index, where the one that was open is gone."""
        try:
            return work()
        except IndexStateError:
            self.open()
            return work()


class OpenSearchSearcher(ChannelSearcher):
    """Searches one channel of an index in OpenSearch; a `Retriever`.

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
        return count(self.opened.server, self.opened.index)

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The query side of the index."""
        return self.opened.tokenizer

    def rank(self, queries: Sequence[str], k: int, threads: int = 1) -> Iterator[Ranked]:
        """The `k` best passages for each query, ids and scores alone."""
        return iter(self.opened.rank([(self.channel, query) for query in queries], k, threads))

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """The stored records of passages, by corpus position."""
        return self.opened.records(docids)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The `k` best passages for a query, best first."""
        return self.opened.again(lambda: super(OpenSearchSearcher, self).search(query, k))

    def batch_search(
        self, queries: Sequence[str], query_ids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[Hit]]:
        """The same for many queries, by query id."""
        usual = super().batch_search
        return self.opened.again(lambda: usual(queries, query_ids, k, threads))

    def run(
        self, queries: Sequence[str], query_ids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[ScoredPassage]]:
        """The same without titles and texts."""
        usual = super().run
        return self.opened.again(lambda: usual(queries, query_ids, k, threads))

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
        self, queries: Sequence[str], k: int, threads: int = 1, names: Iterable[str] | None = None
    ) -> dict[str, list[Ranked]]:
        """The k best passages of each channel, or of some of them, for each question."""
        chosen = list(self.searchers if names is None else names)
        asked = [(name, query) for name in chosen for query in queries]
        found = self.opened.rank(asked, k, threads)
        n = len(queries)
        return {name: found[n * i : n * (i + 1)] for i, name in enumerate(chosen)}


class OpenSearchHybrid(HybridSearcher):
    """Searches several channels of an index in OpenSearch and fuses them here, as on one machine."""

    def __init__(self, server: Server | str, name: str, fusion: Fusion | None = None) -> None:
        self.fusion = fusion or Fusion()
        opened = RemoteIndex(Server(server) if isinstance(server, str) else server, name)
        self.channels = OpenSearchChannels(opened, list(self.fusion.weights))
        self._again = opened.again

    def search(self, query: str, k: int = 10) -> list[HybridHit]:
        """The `k` best passages for a query."""
        usual = super().search
        return self._again(lambda: usual(query, k))

    def batch_search(
        self, queries: Sequence[str], query_ids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[HybridHit]]:
        """The same for many queries, by query id."""
        usual = super().batch_search
        return self._again(lambda: usual(queries, query_ids, k, threads))

    def run(
        self, queries: Sequence[str], query_ids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[ScoredPassage]]:
        """The same without titles and texts."""
        usual = super().run
        return self._again(lambda: usual(queries, query_ids, k, threads))


def open_opensearch(
    server: Server | str, name: str, channels: str | None = None, *, candidates: int = CANDIDATES
) -> OpenSearchHybrid | OpenSearchSearcher:
    """Open the retriever that a person names: `impact`, `bm25`, or both, as in `bm25=1.2,impact`."""
    if channels and ("," in channels or "=" in channels):
        return OpenSearchHybrid(
            server, name, Fusion(parse_weights(channels, CHANNELS, "channels:"), candidates=candidates)
        )
    return OpenSearchSearcher(server, name, channel=channels or IMPACT)


def _columns(hits: Sequence[Mapping[str, Any]], channel: str, scale: int) -> Ranked:
    """A query's hits in columns: scores by impacts are integers, those of BM25 the server's float32."""
    if channel == BM25:
        scores: list[Any] = np.array([hit["_score"] for hit in hits], np.float32).tolist()
    else:
        scores = [round(hit["_score"] * scale) for hit in hits]
    return Ranked([hit["_id"] for hit in hits], [int(hit["sort"][1]) for hit in hits], scores)
