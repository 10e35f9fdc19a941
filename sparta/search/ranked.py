"""Rankings in columns, and the best passage of each group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from sparta.base.checks import whole
from sparta.base.records import ScoredPassage
from sparta.data.units import is_chunk, passage_of

_PASSAGES_A_GROUP = 4  # that are searched for at first


class Ranked(NamedTuple):
    """The passages of one query, best first, in columns: passage ids, Lucene's docids, scores."""

    passage_ids: list[str]
    docids: list[int]
    scores: list[float]

    def scored(self) -> list[ScoredPassage]:
        """The same as the lines of a run."""
        return [ScoredPassage(*one) for one in zip(self.passage_ids, self.scores, strict=True)]

    def part(self, start: int, end: int) -> Ranked:
        """The ranks from `start`, counted from 0, to before `end`."""
        return Ranked(self.passage_ids[start:end], self.docids[start:end], self.scores[start:end])

    def first_of_each(self, groups: Sequence[Hashable | None]) -> Ranked:
        """The best passage of each group; one whose group is None stands for itself."""
        places, (ids, docids, scores) = first_places(groups), self
        return Ranked([ids[i] for i in places], [docids[i] for i in places], [scores[i] for i in places])


Keys = Callable[[Sequence[int]], Sequence[str | None]]
"""The group of each of some docids."""
Reduce = Callable[[list[Ranked]], list[Ranked]]
"""Leaves of rankings the best passage of each group."""


def first_places(groups: Sequence[Hashable | None]) -> list[int]:
    """Where each group comes first, and where None stands."""
    seen: set[Hashable] = set()
    places = []
    for place, group in enumerate(groups):
        if group is None or group not in seen:
            seen.add(group)
            places.append(place)
    return places


def reduction(unit: str, keys: Keys | None) -> Reduce | None:
    """What is left of a ranking of units: of chunks the documents, then the best passage of each key."""
    steps = [step for step in (_documents if is_chunk(unit) else None, keys and _by_key(keys)) if step]
    if len(steps) < 2:
        return steps[0] if steps else None
    return lambda ranked: steps[1](steps[0](ranked))


def _documents(ranked: list[Ranked]) -> list[Ranked]:
    """Rankings of chunks as rankings of their documents, each by its best chunk, under its own id."""
    names = [[passage_of(passage_id) for passage_id in own.passage_ids] for own in ranked]
    return [
        own._replace(passage_ids=named).first_of_each(named) for own, named in zip(ranked, names, strict=True)
    ]


def _by_key(keys: Keys) -> Reduce:
    def reduced(ranked: list[Ranked]) -> list[Ranked]:
        found = iter(keys([docid for own in ranked for docid in own.docids]))
        return [own.first_of_each([next(found) for _ in own.docids]) for own in ranked]

    return reduced


def deepened(
    search: Callable[[int, list[int]], list[Ranked]],
    n: int,
    k: int,
    reduced: Reduce,
    deepest: int | None = None,
) -> list[Ranked]:
    """Rankings of which groups are left, `k` of each query: searched ever deeper until they are there.

    :param search: the rankings of some of the n queries, named by their numbers, to a depth
    :param deepest: the groups are those of so many passages at most, fewer than `k` where these have fewer
    """
    best: list[Ranked] = [Ranked([], [], [])] * n
    going, depth = list(range(n)), _PASSAGES_A_GROUP * k
    while going:
        depth = min(depth, deepest or depth)
        found = search(depth, going)
        for number, own in zip(going, reduced(found), strict=True):
            best[number] = own.part(0, k)
        going = [
            number
            for number, own in zip(going, found, strict=True)
            if len(best[number].docids) < k and len(own.docids) >= depth != deepest
        ]
        depth *= _PASSAGES_A_GROUP
    return best


def depth_of(k: int, offset: int = 0) -> int:
    """How many passages must be ranked to return the `k` after the first `offset`."""
    return whole("k", k) + whole("offset", offset, 0)
