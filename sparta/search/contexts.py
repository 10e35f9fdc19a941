"""Join sentences and chunks back to whole passages, and give sentences their passage as context."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sparta.base.records import Hit
from sparta.lucene.bridge import ImpactSearcher

_SENTENCES_PER_CALL = 32
_OF_PARTS = ("passage_id", "document_id", "start", "end")
"""Fields of a part's record that its passage's record lacks."""


def is_sentence(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a sentence of a split passage and has no context yet."""
    return {"passage_id", "start", "end"} <= record.keys() and not record.get("context")


def in_context(lucene: ImpactSearcher, hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits; sentences get their passage's text as `context` in their metadata."""
    return with_contexts(hits, partial(passages_of, lucene))


def with_contexts(hits: Sequence[Hit], texts_of: Callable[[Iterable[str]], Mapping[str, str]]) -> list[Hit]:
    """Return the hits; sentences get their passage's text, from `texts_of`, as `context` in their metadata.

    :param texts_of: returns the texts of passages by passage id
    """
    texts = texts_of(hit.metadata["passage_id"] for hit in hits if is_sentence(hit.metadata))
    return [
        replace(hit, metadata={**hit.metadata, "context": texts[hit.metadata["passage_id"]]})
        if is_sentence(hit.metadata)
        else hit
        for hit in hits
    ]


def passages_of(lucene: ImpactSearcher, passage_ids: Iterable[str]) -> dict[str, str]:
    """Return the texts of split passages by passage id. White space replaces a deleted sentence.

    A passage's text joins all its live sentences p#0, p#1, …, each at its offset.
    """
    sentences_by_passage: dict[str, list[dict[str, Any]]] = {passage_id: [] for passage_id in passage_ids}
    open_passages, start = list(sentences_by_passage), 0
    while open_passages:
        numbers = range(start, start + _SENTENCES_PER_CALL)
        docids = lucene.docids([f"{passage_id}#{n}" for passage_id in open_passages for n in numbers])
        raws = iter(lucene.raws(docids[docids >= 0]))
        counts = (docids >= 0).reshape(len(open_passages), len(numbers)).sum(1)
        for passage_id, count in zip(open_passages, counts, strict=True):
            sentences_by_passage[passage_id] += [json.loads(next(raws)) for _ in range(count)]
        open_passages = [passage_id for passage_id, count in zip(open_passages, counts, strict=True) if count]
        start += _SENTENCES_PER_CALL
    return {passage_id: joined(sentences) for passage_id, sentences in sentences_by_passage.items()}


def whole_record(passage_id: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the record of a passage, joined from the records of its sentences or chunks."""
    shared_fields = {name: value for name, value in parts[0].items() if name not in _OF_PARTS}
    return {**shared_fields, "id": passage_id, "contents": joined(parts)}


def joined(parts: Iterable[Mapping[str, Any]]) -> str:
    """Return a passage's text from its parts, each at its offset.

    Parts may overlap; gaps become white space.
    """
    text = ""
    for record in sorted(parts, key=lambda r: int(r["start"])):
        start = int(record["start"])
        text = text[:start].ljust(start) + str(record["contents"])
    return text
