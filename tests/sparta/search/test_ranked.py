"""Ever deeper rankings, until there are enough groups."""

from __future__ import annotations

import pytest

from sparta.base.records import Ranking
from sparta.search.ranked import deepened, first_places

GROUPS = ["a"] * 50 + ["b"] * 49 + ["c"]


@pytest.mark.parametrize(("deepest", "left"), [(None, "abc"), (100, "abc"), (99, "ab"), (50, "a"), (3, "a")])
def test_groups_are_those_of_the_best_passages_alone(deepest: int | None, left: str) -> None:
    depths: list[int] = []

    def search(depth: int, which: list[int]) -> list[Ranking]:
        depths.append(depth)
        docids = list(range(min(depth, len(GROUPS))))
        return [Ranking([GROUPS[i] for i in docids], docids, [float(-i) for i in docids]) for _ in which]

    def reduced(ranked: list[Ranking]) -> list[Ranking]:
        return [own.at(first_places(own.passage_ids)) for own in ranked]

    found = deepened(search, 2, 5, reduced, deepest)
    assert ["".join(own.passage_ids) for own in found] == [left, left]
    assert max(depths) <= (deepest or 1280)
