"""The hits of a fused ranking: pages of it, the best of each group, what each channel gave."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hybrid.retrieval.channels import Channels
from hybrid.retrieval.fusion import Fusion
from sparta.base.errors import InputError
from sparta.base.filters import FilterLike
from sparta.base.records import Hit, ScoredPassage
from sparta.search.channel_searcher import ChannelSearcher, check_field, hit_of
from sparta.search.ranked import Ranked, depth_of, first_places

_QUERIES_AT_ONCE = 500  # whose candidates are in memory


class ChannelPlace(NamedTuple):
    """What one channel gave a passage: its rank there, from 1, its score there, and what that added.

    Rank and score are None where the passage is not among the channel's candidates. The contributions of all
    channels, normalized and weighted as the fusion does it, sum to the fused score.
    """

    rank: int | None
    score: float | None
    contribution: float


@dataclass(frozen=True, slots=True)
class HybridHit(Hit):
    """One passage of a fused ranking; `channels` has its place in each channel of the fusion."""

    channels: Mapping[str, ChannelPlace] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**Hit.as_dict(self), "channels": {name: p._asdict() for name, p in self.channels.items()}}


def check_page(fusion: Fusion, k: int, offset: int, collapse: str | None = None) -> None:
    """Refuse ranks beyond the candidates, on the first page as on others.

    Scores are normalized over the candidates, so fusing more of them gives another ranking: how many there
    are is chosen with the fusion and no search changes it, or pages would not be of one ranking.

    :raises InputError: `offset + k` is more than the candidates; k or offset is too small; `collapse` is no
        field.
    """
    depth = depth_of(k, offset)
    check_field(collapse)
    if depth > fusion.candidates:
        raise InputError(
            f"expected a page within the {fusion.candidates} candidates of each channel, found ranks"
            f" {offset + 1} to {depth}",
            remedy=f"ask for fewer, or fuse more for all pages alike: --candidates {depth},"
            f" Fusion(…, candidates={depth}), or an adapter opened with k={depth}",
        )


class FusedRanking:
    """What some channels found for one query, fused."""

    def __init__(
        self, fusion: Fusion, ranked: Mapping[str, Ranked], searchers: Mapping[str, ChannelSearcher]
    ) -> None:
        self._fusion, self._ranked, self._searchers = fusion, ranked, searchers
        columns = {name: (ranked[name].passage_ids, ranked[name].scores) for name in fusion.weights}
        self._candidates = fusion.gather_columns(columns)
        self._rows = {
            name: dict(zip(own.passage_ids, itertools.count(), strict=False)) for name, own in ranked.items()
        }

    def page(self, k: int, offset: int = 0, collapse: str | None = None) -> list[ScoredPassage]:
        """The ranks `offset` + 1 to `offset` + k; with `collapse`, of the best passages of its values."""
        depth = depth_of(k, offset)
        weights = list(self._fusion.weights.values())
        best = self._candidates.ranked(weights, None if collapse else depth)
        if collapse:
            keys = _read(self.homes(best), self._searchers, lambda own, docids: own.keys(docids, collapse))
            best = [best[i] for i in first_places(keys)]
        return best[offset:depth]

    def hits(self, page: Sequence[ScoredPassage], records: Sequence[Mapping[str, Any]]) -> list[HybridHit]:
        """Some of its passages with their records and places."""
        numbers = dict(zip(self._candidates.ids, itertools.count(), strict=False))
        hits = []
        for (passage_id, score), record in zip(page, records, strict=True):
            hit = hit_of(passage_id, score, record)
            places = self._places(passage_id, numbers[passage_id])
            hits.append(HybridHit(passage_id, score, hit.title, hit.text, hit.metadata, places))
        return hits

    def _places(self, passage_id: str, number: int) -> dict[str, ChannelPlace]:
        places = {}
        for (name, weight), added in zip(self._fusion.weights.items(), self._candidates.added, strict=True):
            row = self._rows[name].get(passage_id)
            rank, score = (None, None) if row is None else (row + 1, self._ranked[name].scores[row])
            places[name] = ChannelPlace(rank, score, float(weight * added[number]))
        return places

    def homes(self, page: Sequence[ScoredPassage]) -> list[tuple[str, int]]:
        """Of some of its passages the first channel that ranks each, and the docid it has there."""
        homes = []
        for passage_id, _ in page:
            name, row = next((name, own[passage_id]) for name, own in self._rows.items() if passage_id in own)
            homes.append((name, self._ranked[name].docids[row]))
        return homes


def _read[T](
    homes: Sequence[tuple[str, int]],
    searchers: Mapping[str, ChannelSearcher],
    read: Callable[[ChannelSearcher, list[int]], Sequence[T]],
) -> list[T]:
    """What each channel says of passages that it knows by their docids, in one call of each."""
    docids: dict[str, list[int]] = {}
    for name, docid in homes:
        docids.setdefault(name, []).append(docid)
    found = {name: iter(read(searchers[name], own)) for name, own in docids.items()}
    return [next(found[name]) for name, _ in homes]


def fused_rankings(
    fusion: Fusion,
    channels: Channels,
    queries: Sequence[str],
    threads: int = 1,
    filter: FilterLike | None = None,
) -> Iterator[FusedRanking]:
    """For each query the rankings of the channels, fused; `threads` search each channel."""
    found = channels.batch_search(queries, fusion.candidates, threads, fusion.weights, filter=filter)
    for own in zip(*found.values(), strict=True):
        yield FusedRanking(fusion, dict(zip(found, own, strict=True)), channels.searchers)


def fused_hits(
    fusion: Fusion,
    channels: Channels,
    queries: Sequence[str],
    k: int,
    threads: int = 1,
    *,
    offset: int = 0,
    filter: FilterLike | None = None,
    collapse: str | None = None,
) -> list[list[HybridHit]]:
    """A page of the fused ranking of each query; the records of many of them are read together."""
    check_page(fusion, k, offset, collapse)
    hits: list[list[HybridHit]] = []
    for fused in itertools.batched(
        fused_rankings(fusion, channels, queries, threads, filter), _QUERIES_AT_ONCE
    ):
        pages = [own.page(k, offset, collapse) for own in fused]
        homes = [home for own, page in zip(fused, pages, strict=True) for home in own.homes(page)]
        records = iter(_read(homes, channels.searchers, lambda own, docids: own.records(docids)))
        hits += [
            own.hits(page, list(itertools.islice(records, len(page))))
            for own, page in zip(fused, pages, strict=True)
        ]
    return hits
