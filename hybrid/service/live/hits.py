"""Hits as JSON objects, made from stored records without an object per hit in between."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from sparta.base.records import ChannelPlace, PassageRecord, Ranking
from sparta.search.contexts import place_of_chunk
from sparta.search.retriever import hit_of

_EXACT = str, int, bool, type(None)
"""Types of metadata that orjson reads exactly; it rounds integers above 64 bits to floats."""


def hit_objects(
    ranking: Ranking,
    records: Iterator[str],
    offset: int = 0,
    places: Sequence[Mapping[str, ChannelPlace]] | None = None,
) -> list[dict[str, Any]]:
    """Return the hits of a page with their ranks, equal to `Hit.as_dict`.

    :param records: the stored records of the hits
    :param offset: number of hits before the page
    :param places: each hit's rank, score and contribution by channel, if the ranking is fused
    """
    columns = zip(ranking.passage_ids, ranking.scores, records, strict=False)  # `records` goes on
    hits = [_hit_object(rank, *column) for rank, column in enumerate(columns, offset + 1)]
    if places is not None:
        for hit, hit_places in zip(hits, places, strict=True):
            hit["channels"] = {name: place._asdict() for name, place in hit_places.items()}
    return hits


def _hit_object(rank: int, passage_id: str, score: float, record: str) -> dict[str, Any]:
    try:
        metadata: dict[str, Any] = orjson.loads(record)
        text, title = metadata.pop("contents"), metadata.pop("title")
        unit_id = metadata.pop("id")
        is_exact = type(text) is type(title) is str and "text" not in metadata
        is_exact = is_exact and all(type(value) in _EXACT for value in metadata.values())
    except (ValueError, LookupError):  # lone surrogates, NaN, records of other programs
        is_exact = False
    if not is_exact:
        hit = hit_of(passage_id, score, PassageRecord.of(json.loads(record)))
        return {"rank": rank, **hit.as_dict()}
    fields = {
        "rank": rank,
        "id": passage_id,
        "score": score,
        "title": title,
        "text": text,
        "metadata": metadata,
    }
    return {**fields, **place_of_chunk(metadata, unit_id)} if "document_id" in metadata else fields
