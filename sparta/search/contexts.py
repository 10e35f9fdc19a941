"""Join sentences and chunks back to whole passages, and give sentences their passage as context."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sparta.base.records import Hit
from sparta.data.units import SPACE_AFTER, UNIT_ID, is_sentence_of_passage, joined, joined_pages, place_fields
from sparta.lucene.bridge import ImpactSearcher


def in_context(lucene: ImpactSearcher, hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits; sentences get their passage's text as `context` in their metadata."""
    return with_contexts(hits, partial(whole_texts, lucene))


def with_contexts(hits: Sequence[Hit], texts_of: Callable[[Iterable[str]], Mapping[str, str]]) -> list[Hit]:
    """Return the hits; sentences get their passage's text, from `texts_of`, as `context` in their metadata.

    Sentences also get their passage's id as `document_id`, and their `start` and `end` in the context.

    :param texts_of: returns the texts of passages by passage id
    """
    texts = texts_of(hit.metadata["passage_id"] for hit in hits if _is_sentence(hit))
    return [_with_context(hit, texts) if _is_sentence(hit) else hit for hit in hits]


def _with_context(hit: Hit, texts: Mapping[str, str]) -> Hit:
    passage_id, start, end = (hit.metadata[name] for name in ("passage_id", "start", "end"))
    metadata = {**hit.metadata, "context": texts[passage_id]}
    return replace(hit, metadata=metadata, document_id=passage_id, start=start, end=end)


def _is_sentence(hit: Hit) -> bool:
    return is_sentence_of_passage({**hit.metadata, "id": hit.passage_id})


def whole_texts(lucene: ImpactSearcher, passage_ids: Iterable[str]) -> dict[str, str]:
    """Return the texts of split passages by passage id. White space replaces a deleted sentence.

    A passage's text joins all its live sentences p#0, p#1, …, each at its offset.
    """
    sentences_by_passage: dict[str, list[dict[str, Any]]] = {passage_id: [] for passage_id in passage_ids}
    docids = lucene.docids(lucene.sentences(list(sentences_by_passage)))
    for raw in lucene.raws(docids[docids >= 0]):
        sentence = json.loads(raw)
        sentences_by_passage[sentence["passage_id"]].append(sentence)
    return {passage_id: joined(sentences) for passage_id, sentences in sentences_by_passage.items()}


def whole_record(passage_id: str, parts: Sequence[Mapping[str, Any]], unit: str) -> dict[str, Any]:
    """Return the record of a passage, joined from the records of its sentences or chunks.

    :param unit: the unit of the index, whose parts have fields that the passage lacks
    """
    of_parts = place_fields(unit)
    shared_fields = {name: value for name, value in parts[0].items() if name not in of_parts}
    return {**shared_fields, **joined_pages(parts), "id": passage_id, "contents": joined(parts)}


def place_of_chunk(record: Mapping[str, Any], unit_id: object) -> dict[str, Any]:
    """Return the `document_id`, `start` and `end` of a chunk's record; nothing for another record."""
    place = {name: record.get(name) for name in ("document_id", "start", "end")}
    document_id = place["document_id"]
    if not isinstance(document_id, str) or type(place["start"]) is not int or type(place["end"]) is not int:
        return {}
    return place if isinstance(unit_id, str) and UNIT_ID.sub("", unit_id) == document_id != unit_id else {}


def joined_hits(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits; hits of neighboring chunks of a document become one hit.

    Chunks are neighbors if they overlap or one follows the other. The joined hit has the id, the score and
    the rank of its best chunk, and the text from the first chunk's `start` to the last chunk's `end`.
    """
    places_by_document: dict[str, list[int]] = {}
    for place, hit in enumerate(hits):
        places_by_document.setdefault(hit.document_id or hit.passage_id, []).append(place)
    joined_by_place: dict[int, Hit] = {}
    for places in places_by_document.values():
        run: list[int] = []
        for place in sorted(places, key=lambda place: hits[place].start):
            if run and not _are_neighbors(hits[run[-1]], hits[place]):
                joined_by_place[min(run)] = _joined_hit([hits[p] for p in run], hits[min(run)])
                run = []
            run.append(place)
        joined_by_place[min(run)] = _joined_hit([hits[p] for p in run], hits[min(run)])
    return [joined_by_place[place] for place in sorted(joined_by_place)]


def _are_neighbors(first: Hit, second: Hit) -> bool:
    """Return whether a chunk overlaps the next one, or the next one follows it."""
    if second.start <= first.end:
        return True
    numbers = [int(hit.passage_id.rpartition("#")[2]) for hit in (first, second)]
    return numbers[1] == numbers[0] + 1


def _joined_hit(chunks: Sequence[Hit], best: Hit) -> Hit:
    """Return the best hit with the text and the offsets of all these chunks, which are in text order."""
    if len(chunks) == 1:
        return best
    start, end = chunks[0].start, max(chunk.end for chunk in chunks)
    text = joined(
        {"start": c.start - start, "contents": c.text, SPACE_AFTER: c.metadata.get(SPACE_AFTER, "")}
        for c in chunks
    )
    pages = joined_pages(chunk.metadata for chunk in chunks)
    metadata = {**best.metadata, "start": start, "end": end, **pages}
    metadata.pop(SPACE_AFTER, None)
    return replace(best, text=text, start=start, end=end, metadata=metadata)
