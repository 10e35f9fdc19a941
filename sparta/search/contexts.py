"""Passages that were cut, and sentences in them, joined from what the index holds of their parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sparta.base.records import Hit
from sparta.lucene.bridge import ImpactSearcher

_SENTENCES_AT_ONCE = 32
_OF_PARTS = ("passage_id", "document_id", "start", "end")
"""Fields that the record of a part has, and that of its passage has not."""


def is_sentence(record: Mapping[str, Any]) -> bool:
    """Whether a record is a sentence that was cut from a passage, whose other sentences are its context."""
    return {"passage_id", "start", "end"} <= record.keys() and not record.get("context")


def in_context(lucene: ImpactSearcher, hits: Sequence[Hit]) -> list[Hit]:
    """Return hits as they are, but sentences with `context` in their metadata: their passage's text."""
    return with_contexts(hits, partial(passages_of, lucene))


def with_contexts(hits: Sequence[Hit], texts_of: Callable[[Iterable[str]], Mapping[str, str]]) -> list[Hit]:
    """The same, where the texts of passages by their ids lie somewhere else."""
    texts = texts_of(hit.metadata["passage_id"] for hit in hits if is_sentence(hit.metadata))
    return [
        replace(hit, metadata={**hit.metadata, "context": texts[hit.metadata["passage_id"]]})
        if is_sentence(hit.metadata)
        else hit
        for hit in hits
    ]


def passages_of(lucene: ImpactSearcher, passage_ids: Iterable[str]) -> dict[str, str]:
    """Return the texts of passages that were cut, by id; of a sentence that was deleted, white space.

    A passage's text is that of all its live sentences p#0, p#1, …, each at its place.
    """
    found: dict[str, list[dict[str, Any]]] = {passage_id: [] for passage_id in passage_ids}
    going, start = list(found), 0
    while going:
        numbers = range(start, start + _SENTENCES_AT_ONCE)
        docids = lucene.docids([f"{one}#{n}" for one in going for n in numbers])
        raws = iter(lucene.raws(docids[docids >= 0]))
        there = (docids >= 0).reshape(len(going), len(numbers)).sum(1)
        for passage_id, count in zip(going, there, strict=True):
            found[passage_id] += [json.loads(next(raws)) for _ in range(count)]
        going = [passage_id for passage_id, count in zip(going, there, strict=True) if count]
        start += _SENTENCES_AT_ONCE
    return {passage_id: joined(sentences) for passage_id, sentences in found.items()}


def whole_record(passage_id: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The record of a passage from those of the sentences or chunks that it was cut into."""
    own = {name: value for name, value in parts[0].items() if name not in _OF_PARTS}
    return {**own, "id": passage_id, "contents": joined(parts)}


def joined(parts: Iterable[Mapping[str, Any]]) -> str:
    """A passage's text from its parts, each at its place: they may overlap; between them is white space."""
    text = ""
    for record in sorted(parts, key=lambda r: int(r["start"])):
        start = int(record["start"])
        text = text[:start].ljust(start) + str(record["contents"])
    return text
