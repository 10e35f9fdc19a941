"""Searching several channels as one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hybrid.retrieval.channels import CHANNELS, Channels, channel, channels_of, open_channel
from hybrid.retrieval.fusion import CANDIDATES, Candidates, Fusion, default_weights, parse_weights
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
    """One passage of a fused ranking; `channels` has its place in each channel that ranks it.

    `contributions` is what each channel added to the score, its weight included: they sum to the score. A
    channel that does not rank the passage may take something from it (`Fusion`).
    """

    channels: Mapping[str, ChannelPlace] = field(default_factory=dict)
    contributions: Mapping[str, float] = field(default_factory=dict)

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
    return _candidates(fusion, ranked, k).ranked(list(fusion.weights.values()), k)


def _candidates(fusion: Fusion, ranked: Mapping[str, Ranked], k: int) -> Candidates:
    if k < 1:
        raise InputError(f"k must be at least 1, found {k}")
    columns = {name: (ranked[name].passage_ids, ranked[name].scores) for name in fusion.weights}
    return fusion.gather_columns(columns)


def fused_hits(
    fusion: Fusion, ranked: Mapping[str, Ranked], searchers: Mapping[str, ChannelSearcher], k: int
) -> list[HybridHit]:
    """Fuse the channels' rankings of one query, and read the records of the `k` best passages."""
    return batch_fused_hits(fusion, [ranked], searchers, k)[0]


def batch_fused_hits(
    fusion: Fusion,
    ranked: Sequence[Mapping[str, Ranked]],
    searchers: Mapping[str, ChannelSearcher],
    k: int,
) -> list[list[HybridHit]]:
    """The same for several queries; the records of all of them are read together."""
    fused = [_places(fusion, own, k) for own in ranked]
    docids: dict[str, list[int]] = {}
    for place in itertools.chain.from_iterable(fused):
        docids.setdefault(place.home, []).append(place.docid)
    records = {name: iter(searchers[name].records(own)) for name, own in docids.items()}
    return [[place.hit(next(records[place.home])) for place in own] for own in fused]


class _Place(NamedTuple):
    """A passage of a fused ranking; `home` is the first channel that ranks it, which knows its `docid`."""

    passage_id: str
    score: float
    home: str
    docid: int
    channels: dict[str, ChannelPlace]
    contributions: dict[str, float]

    def hit(self, record: Mapping[str, Any]) -> HybridHit:
        """The hit, of the passage's record."""
        hit = hit_of(self.passage_id, self.score, record)
        more = self.channels, self.contributions
        return HybridHit(self.passage_id, self.score, hit.title, hit.text, hit.metadata, *more)


def _places(fusion: Fusion, ranked: Mapping[str, Ranked], k: int) -> list[_Place]:
    candidates, weights = _candidates(fusion, ranked, k), list(fusion.weights.values())
    rows = {name: dict(zip(own.passage_ids, itertools.count(), strict=False)) for name, own in ranked.items()}
    columns = dict(zip(candidates.ids, itertools.count(), strict=False))
    places = []
    for passage_id, score in candidates.ranked(weights, k):
        at = {name: own[passage_id] for name, own in rows.items() if passage_id in own}
        channels = {name: ChannelPlace(row + 1, ranked[name].scores[row]) for name, row in at.items()}
        added = candidates.added[:, columns[passage_id]].tolist()
        parts = (weight * one for weight, one in zip(weights, added, strict=True))
        home, row = next(iter(at.items()))
        docid = ranked[home].docids[row]
        contributions = dict(zip(fusion.weights, parts, strict=True))
        places.append(_Place(passage_id, score, home, docid, channels, contributions))
    return places
