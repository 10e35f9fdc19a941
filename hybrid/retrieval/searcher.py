"""Searching several channels as one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hybrid.retrieval.channels import CHANNELS, Channels, channel, channels_of, open_channel
from hybrid.retrieval.fusion import CANDIDATES, Fusion, default_weights, parse_weights
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.base.records import Hit, ScoredPassage
from sparta.index.folder import default_index
from sparta.lucene.bridge import Bm25
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.searcher import BM25, IMPACT, ChannelSearcher, Ranked, check_query_ids, hit_of


class ChannelPlace(NamedTuple):
    """What one channel gave a passage: its rank there, from 1, and its score there."""

    rank: int
    score: float


@dataclass(frozen=True, slots=True)
class HybridHit(Hit):
    """One passage of a fused ranking; `channels` has its place in each channel that ranks it."""

    channels: Mapping[str, ChannelPlace] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**Hit.as_dict(self), "channels": {name: p._asdict() for name, p in self.channels.items()}}


class HybridSearcher(Closing):
    """Searches several channels of an index side by side and fuses their rankings; a `Retriever`.

    Order: fused score descending; ties as `Fusion.fuse` breaks them.

    :param index: an index folder; None is `$SPARTA_INDEX` or `./sparta-index`
    :param fusion: which channels, and how; None for `default_weights` of the channels that there are
    :param bm25: k1 and b, where they are not 0.9 and 0.4
    :raises IndexStateError: there is no index, or it lacks one of the channels.
    """

    def __init__(
        self, index: str | Path | None = None, fusion: Fusion | None = None, *, bm25: Bm25 | None = None
    ) -> None:
        folder = Path(index) if index is not None else default_index()
        self.fusion = fusion or Fusion(default_weights(channels_of(folder)))
        self.channels = Channels(folder, list(self.fusion.weights), bm25)

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

    def search(self, query: str, k: int = 10) -> list[HybridHit]:
        """The `k` best passages for a query."""
        found = self.channels.search(query, self.fusion.candidates)
        return fused_hits(self.fusion, found, self.channels.searchers, k)

    def batch_search(
        self, queries: Sequence[str], query_ids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[HybridHit]]:
        """The same for many queries, by query id; `threads` for each channel."""
        check_query_ids(queries, query_ids)
        ranked = zip(query_ids, self._ranked(queries, threads), strict=True)
        return {q: fused_hits(self.fusion, own, self.channels.searchers, k) for q, own in ranked}

    def run(
        self, queries: Sequence[str], query_ids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[ScoredPassage]]:
        """The same without titles and texts."""
        check_query_ids(queries, query_ids)
        ranked = zip(query_ids, self._ranked(queries, threads), strict=True)
        return {query_id: _fused(self.fusion, own, k) for query_id, own in ranked}

    def _ranked(self, queries: Sequence[str], threads: int) -> Iterator[dict[str, Ranked]]:
        ranked = self.channels.batch_search(queries, self.fusion.candidates, threads)
        for own in zip(*ranked.values(), strict=True):
            yield dict(zip(ranked, own, strict=True))

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
    folder = Path(index) if index is not None else default_index()
    if channels and ("," in channels or "=" in channels):
        fusion = Fusion(parse_weights(channels, CHANNELS, "channels:"), candidates=candidates)
        return HybridSearcher(folder, fusion, bm25=bm25)
    name = channel(channels) if channels else next(n for n in (IMPACT, BM25) if n in channels_of(folder))
    return open_channel(folder, name, bm25)


def _fused(fusion: Fusion, ranked: Mapping[str, Ranked], k: int) -> list[ScoredPassage]:
    if k < 1:
        raise InputError(f"k must be at least 1, found {k}")
    columns = {name: (ranked[name].passage_ids, ranked[name].scores) for name in fusion.weights}
    return fusion.gather_columns(columns).ranked(list(fusion.weights.values()), k)


def fused_hits(
    fusion: Fusion, ranked: Mapping[str, Ranked], searchers: Mapping[str, ChannelSearcher], k: int
) -> list[HybridHit]:
    """Fuse the channels' rankings of one query, and read the records of the `k` best passages."""
    fused = _fused(fusion, ranked, k)
    rows = {name: dict(zip(ranked[name].passage_ids, itertools.count(), strict=False)) for name in ranked}
    own = {p.passage_id: {n: r[p.passage_id] for n, r in rows.items() if p.passage_id in r} for p in fused}
    first: dict[str, list[str]] = {}  # of each passage the first channel that ranks it, which knows its docid
    for passage_id, places in own.items():
        first.setdefault(next(iter(places)), []).append(passage_id)
    records: dict[str, dict[str, Any]] = {}
    for name, ids in first.items():
        docids = [ranked[name].docids[rows[name][passage_id]] for passage_id in ids]
        records.update(zip(ids, searchers[name].records(docids), strict=True))
    hits = []
    for passage_id, score in fused:
        hit = hit_of(passage_id, score, records[passage_id])
        ranks = {n: ChannelPlace(i + 1, ranked[n].scores[i]) for n, i in own[passage_id].items()}
        hits.append(HybridHit(passage_id, score, hit.title, hit.text, hit.metadata, ranks))
    return hits
