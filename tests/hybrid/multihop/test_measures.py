"""Passage EM and recall on paths, worked by hand."""

from __future__ import annotations

from hybrid.multihop.measures import page_recall, passage_em, path_recall
from hybrid.multihop.paths import Evidence, EvidencePath
from sparta.base.records import Hit


def path(*ids: str) -> EvidencePath:
    return EvidencePath(tuple(Evidence(Hit(i, 1.0), {}, 1.0) for i in ids), float(len(ids)))


PATHS = [path("a", "x"), path("b", "a"), path("c", "d")]


def test_by_hand() -> None:
    pages = [{"a", "a2"}, {"b"}]
    assert not passage_em(PATHS, pages)
    assert passage_em(PATHS[1:], pages), "in any order"
    assert passage_em([path("a2", "b")], pages), "another passage of the page will do"
    assert not passage_em([path("a")], [{"a"}, {"b"}])
    assert not passage_em([path("a", "b")], [{"a"}]), "and no others"
    assert not passage_em([], pages)
    assert [path_recall(PATHS, pages, k) for k in (1, 2, 3)] == [False, True, True]
    # the passages in their order are a, x, b, c, d
    assert [page_recall(PATHS, pages, k) for k in (0, 1, 2, 3)] == [0, 0.5, 0.5, 1]
    assert page_recall(PATHS, [{"a"}, {"d"}, {"z"}], 9) == 2 / 3
