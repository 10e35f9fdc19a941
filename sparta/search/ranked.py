"""The best passage of each group of a ranking: of a document, of a value of a field."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from sparta.base.records import Ranking
from sparta.data.units import is_chunk, passage_of

_PASSAGES_A_GROUP = 4  # that are searched for at first


Keys = Callable[[Sequence[int]], Sequence[str | None]]
"""The group of each of some docids."""
Reduce = Callable[[list[Ranking]], list[Ranking]]
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


def _documents(ranked: list[Ranking]) -> list[Ranking]:
    """Rankings of chunks as rankings of their documents, each by its best chunk, under its own id."""
    names = [[passage_of(passage_id) for passage_id in ranking.passage_ids] for ranking in ranked]
    return [
        replace(ranking, passage_ids=documents).at(first_places(documents))
        for ranking, documents in zip(ranked, names, strict=True)
    ]


def _by_key(keys: Keys) -> Reduce:
    def reduced(ranked: list[Ranking]) -> list[Ranking]:
        values = iter(keys([docid for ranking in ranked for docid in ranking.docids]))
        return [ranking.at(first_places([next(values) for _ in ranking.docids])) for ranking in ranked]

    return reduced


def deepened(
    search: Callable[[int, list[int]], list[Ranking]],
    n: int,
    k: int,
    reduced: Reduce,
    deepest: int | None = None,
) -> list[Ranking]:
    """Rankings of which groups are left, `k` of each query: searched ever deeper until they are there.

    :param search: the rankings of some of the n queries, named by their numbers, to a depth
    :param deepest: the groups are those of so many passages at most, fewer than `k` where these have fewer
    """
    best: list[Ranking] = [Ranking()] * n
    going, depth = list(range(n)), _PASSAGES_A_GROUP * k
    while going:
        depth = min(depth, deepest or depth)
        rankings = search(depth, going)
        for number, ranking in zip(going, reduced(rankings), strict=True):
            best[number] = ranking[:k]
        going = [
            number
            for number, ranking in zip(going, rankings, strict=True)
            if len(best[number]) < k and len(ranking) >= depth != deepest
        ]
        depth *= _PASSAGES_A_GROUP
    return best
