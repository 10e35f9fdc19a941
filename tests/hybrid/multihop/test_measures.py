"""Passage EM and recall on paths, worked by hand."""

from __future__ import annotations

from dataclasses import replace

from hybrid.multihop.measures import passage_em, path_recall
from hybrid.multihop.paths import Evidence, EvidencePath
from sparta.base.records import Hit

PATHS = [("a", "x"), ("b", "a"), ("c", "d")]


def test_by_hand() -> None:
    pages = [{"a", "a2"}, {"b"}]
    assert not passage_em(PATHS, pages)
    assert passage_em(PATHS[1:], pages), "in any order"
    assert passage_em([("a2", "b")], pages), "another passage of the page will do"
    assert not passage_em([("a",)], [{"a"}, {"b"}])
    assert not passage_em([("a", "b")], [{"a"}]), "and no others"
    assert not passage_em([], pages)
    assert passage_em([("b",)], [{"a", "b"}, {"b", "c"}]), "of both pages"
    assert not passage_em([("b", "x")], [{"a", "b"}, {"b", "c"}]), "one passage of both, and one of none"
    assert [path_recall(PATHS, pages, k) for k in (1, 2, 3)] == [False, True, True]


def test_what_only_leads_to_evidence_does_not_count() -> None:
    row, page = (Evidence(Hit(i, 1.0), {}, 1.0) for i in ("row", "page"))
    led = EvidencePath((replace(row, counts=False), page)).evidence_ids
    assert passage_em([led], [{"page"}])
    assert not passage_em([led], [{"row"}, {"page"}])
    assert not path_recall([led], [{"row"}], 1)
