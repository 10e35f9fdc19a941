"""Keep the best passage of each group of a ranking; a group is a document or a value of a field."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from sparta.base.errors import InputError
from sparta.base.records import Ranking
from sparta.base.remedies import Command, Option, remedy
from sparta.data.units import is_chunk, passage_of

DOCUMENTS, CHUNKS = "documents", "chunks"
"""The two kinds of hits in an index of chunks: a document, with its best chunk, or a chunk."""
_PASSAGES_PER_GROUP = 4  # the first guess of how many passages a group has


Keys = Callable[[Sequence[int]], Sequence[str | None]]
"""A function that returns the group of each docid."""
Reduce = Callable[[list[Ranking]], list[Ranking]]
"""A function that keeps the best passage of each group of each ranking."""


def first_places(groups: Sequence[Hashable | None]) -> list[int]:
    """Return the index of each group's first entry, and of every None."""
    seen_groups: set[Hashable] = set()
    places = []
    for place, group in enumerate(groups):
        if group is None or group not in seen_groups:
            seen_groups.add(group)
            places.append(place)
    return places


def reduction(unit: str, keys: Keys | None, hits: str = DOCUMENTS) -> Reduce | None:
    """Return the function that groups rankings, chunks by document, then by key; None for no grouping.

    :param hits: `documents` groups chunks by document, `chunks` does not
    :raises InputError: `hits` is `chunks`, and the unit is no chunk
    """
    if hits == CHUNKS and not is_chunk(unit):
        raise InputError(
            f"the index holds no chunks: its unit is the {unit}",
            remedy=remedy(
                "omit {}, or build an index of chunks: {}",
                Option("hits", CHUNKS),
                Command.of("sparta index", corpus="FILE", chunk=200, overlap=50),
            ),
        )
    by_document = _by_document if is_chunk(unit) and hits == DOCUMENTS else None
    steps = [step for step in (by_document, keys and _by_key(keys)) if step]
    if len(steps) < 2:
        return steps[0] if steps else None
    return lambda ranked: steps[1](steps[0](ranked))


def _by_document(ranked: list[Ranking]) -> list[Ranking]:
    """Turn rankings of chunks into rankings of documents.

    Each document takes its best chunk's score and docid.
    """
    document_ids = [[passage_of(passage_id) for passage_id in ranking.passage_ids] for ranking in ranked]
    return [
        replace(ranking, passage_ids=documents).at(first_places(documents))
        for ranking, documents in zip(ranked, document_ids, strict=True)
    ]


def _by_key(keys: Keys) -> Reduce:
    def reduced(ranked: list[Ranking]) -> list[Ranking]:
        next_keys = iter(keys([docid for ranking in ranked for docid in ranking.docids]))
        return [ranking.at(first_places([next(next_keys) for _ in ranking.docids])) for ranking in ranked]

    return reduced


def deepened(
    search: Callable[[int, list[int]], list[Ranking]],
    n: int,
    k: int,
    reduced: Reduce,
    deepest: int | None = None,
) -> list[Ranking]:
    """Return each query's `k` best groups, by searching deeper until every query has `k` groups.

    :param search: returns the rankings of the queries with these numbers, to a depth
    :param n: the number of queries
    :param reduced: keeps the best passage of each group of a ranking
    :param deepest: group at most this many passages per query, even if a query then has fewer than `k` groups
    """
    best: list[Ranking] = [Ranking()] * n
    open_queries, depth = list(range(n)), _PASSAGES_PER_GROUP * k
    while open_queries:
        depth = min(depth, deepest or depth)
        rankings = search(depth, open_queries)
        for number, ranking in zip(open_queries, reduced(rankings), strict=True):
            best[number] = ranking[:k]
        open_queries = [
            number
            for number, ranking in zip(open_queries, rankings, strict=True)
            if len(best[number]) < k and len(ranking) >= depth != deepest
        ]
        depth *= _PASSAGES_PER_GROUP
    return best
