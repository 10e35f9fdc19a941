"""Hits of the service as JSON objects: equal to those of the retriever, whatever the records hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hybrid.service.live.hits import hit_objects
from sparta.base.records import ChannelPlace, PassageRecord, Ranking
from sparta.search.retriever import hit_of

RECORDS: list[dict[str, Any]] = [
    {"id": "a", "title": "Moon", "contents": "The moon"},
    {"id": "b", "title": "", "contents": "", "year": 1969, "open": True, "none": None, "lang": "en"},
    {"id": "c", "title": "big", "contents": "t", "n": 2**64 + 1, "m": -(2**70)},
    {"id": "d", "title": "deep", "contents": "t", "a": {"b": [1.5, 2**80, {"c": "\ud800"}]}},
    {"id": "e", "title": "half \udc00", "contents": "a \ud83d half"},
    {"id": "f", "title": "not a number", "contents": "t", "x": float("nan"), "y": float("-inf")},
    {"id": "g", "title": 7, "contents": "t"},
    {"id": "h", "contents": "no title"},
    {"id": "i", "title": "no text"},
    {"id": "j", "title": "both", "contents": "old", "text": "new"},
    {"id": "k", "title": "null", "contents": None},
    {"title": "no id", "contents": "t", "score": 0.1},
]


@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_hits_equal_those_of_the_retriever(ensure_ascii: bool) -> None:
    raws = [json.dumps(record, ensure_ascii=ensure_ascii) for record in RECORDS]
    ids, scores = [f"p{i}" for i in range(len(raws))], [9.5 - i for i in range(len(raws))]
    ranking = Ranking(ids, range(len(raws)), scores)
    places = [{"impact": ChannelPlace(i, float(i), 0.5)} for i in range(len(raws))]
    records = iter([*raws, "next page"])
    hits = hit_objects(ranking, records, 20, places)
    assert next(records) == "next page"
    for i, (hit, record) in enumerate(zip(hits, RECORDS, strict=True)):
        expected = hit_of(ids[i], scores[i], PassageRecord.of(record)).as_dict()
        expected |= {"rank": 21 + i, "channels": {"impact": places[i]["impact"]._asdict()}}
        assert json.dumps(hit, sort_keys=True) == json.dumps(expected, sort_keys=True)
