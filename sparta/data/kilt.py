"""Reading KILT's tasks, and splitting its knowledge source into passages (Petroni et al., 2021)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparta.data.parsing import BadRecordError, string_field

PASSAGE_WORDS = 100
"""The words per passage.

Maillard et al. (2021), §4.1: articles are split into disjoint passages of 100 tokens.
"""
LEAST_BLEU = 0.5
"""The minimum BLEU of training evidence.

Maillard et al. (2021): evidence mapped with a lower BLEU is likely noise.
"""
ABSTRACT = "Section::::Abstract"
_HEADING, _BULLET = "Section::::", "BULLET::::"
_WORD = re.compile(r"\S+")
_PROVENANCE = 'write "provenance": [{"wikipedia_id": "…", "start_paragraph_id": 1, "end_paragraph_id": 1, …}]'


class PagePosition(NamedTuple):
    """A position in a page: a paragraph number (0 is the title) and a character in the paragraph."""

    paragraph: int
    character: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """The location of a piece of evidence: a page, with either a span of its paragraphs or passage ids.

    Any of the passages in `passage_ids` is evidence on its own: they are copies or neighbors of each other.
    If there are no passage ids and `start` is None, only the page is known, as in entity linking. `bleu`
    measures how well the span matches the original evidence (1 if the data has no score).
    """

    wikipedia_id: str = ""
    title: str = ""
    passage_ids: tuple[str, ...] = ()
    start: PagePosition | None = None
    end: PagePosition | None = None
    section: str = ""
    bleu: float = 1.0


type Evidence = tuple[tuple[Provenance, ...], ...]
"""A question's evidence sets: alternatives, one per output.

All provenance within a set is needed together.
"""


def evidence_of(outputs: Any) -> Evidence:
    """Return the provenance of each output of a KILT record.

    Outputs without provenance or with an empty list are omitted. KILT's evaluation counts an empty list as
    an evidence set that no retriever finds.

    :raises BadRecordError: the provenance has a wrong format.
    """
    output_list = outputs if isinstance(outputs, list) else [outputs]
    objects = (_objects(output.get("provenance")) for output in output_list if isinstance(output, dict))
    return tuple(tuple(map(_provenance, entries)) for entries in objects if entries)


def well_mapped(evidence: Evidence, least_bleu: float = LEAST_BLEU) -> Evidence:
    """Remove provenance with a BLEU score below `least_bleu`. Provenance without a score stays."""
    sets = (tuple(entry for entry in entries if entry.bleu >= least_bleu) for entries in evidence)
    return tuple(filter(None, sets))


def _objects(provenance: Any) -> list[dict[str, Any]]:
    if provenance is None:
        return []
    if not isinstance(provenance, list) or not all(isinstance(entry, dict) for entry in provenance):
        raise BadRecordError("provenance of the wrong type", "expected a list of objects", remedy=_PROVENANCE)
    return provenance


def _provenance(entry: Mapping[str, Any]) -> Provenance:
    title = entry.get("wikipedia_title") or entry.get("title") or ""
    passage_ids = entry.get("passage_ids") or []
    bleu = 1.0 if entry.get("bleu_score") is None else entry["bleu_score"]
    valid_types = isinstance(title, str) and isinstance(bleu, int | float) and isinstance(passage_ids, list)
    if not valid_types or not all(isinstance(passage_id, str) for passage_id in passage_ids):
        detail = "title must be a string, bleu_score a number, passage_ids a list of strings"
        raise BadRecordError("provenance of the wrong type", detail, remedy=_PROVENANCE)
    first_paragraph = _number(entry, "start_paragraph_id")
    last_paragraph = first_paragraph if (end := _number(entry, "end_paragraph_id")) is None else end
    start = end_place = None
    if first_paragraph is not None and last_paragraph is not None:
        start = PagePosition(first_paragraph, _number(entry, "start_character") or 0)
        end_character = _number(entry, "end_character")
        end_place = PagePosition(last_paragraph, math.inf if end_character is None else end_character)
        if last_paragraph < first_paragraph:
            detail = f"paragraph {last_paragraph}, its end, is before paragraph {first_paragraph}, its start"
            raise BadRecordError("provenance with an invalid span", detail, remedy=_PROVENANCE)
    page = "" if entry.get("wikipedia_id") is None else str(entry["wikipedia_id"]).strip()
    if not (page or title.strip() or passage_ids):
        detail = "expected wikipedia_id, wikipedia_title or passage_ids"
        raise BadRecordError("provenance without a page", detail, remedy=_PROVENANCE)
    return Provenance(
        page,
        title.strip(),
        tuple(passage_ids),
        start,
        end_place,
        str(entry.get("section") or ""),
        float(bleu),
    )


def _number(entry: Mapping[str, Any], name: str) -> int | None:
    """Return the number of a paragraph or a character; None if there is none (KILT also writes −1)."""
    value = entry.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRecordError(
            "provenance of the wrong type", f"{name} must be a whole number", remedy=_PROVENANCE
        )
    return value if value >= 0 else None


def is_page(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a page of KILT's knowledge source: its `text` is a list of paragraphs."""
    return "wikipedia_id" in record and isinstance(record.get("text"), list)


class _Word(NamedTuple):
    paragraph: int
    start: int
    end: int
    section: str


def page_passages(page: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the passages of a KILT page as corpus records.

    Each passage has 100 words; the last may have fewer. Passage n has the id `WIKIPEDIA_ID-n`. Its fields
    give the first and last paragraph and character, named as in KILT's provenance. Headings and the title
    paragraph are left out of the text, but they keep their paragraph numbers. A page without text gives one
    passage with the title as text.

    :raises BadRecordError: the page has a wrong format.
    """
    title = string_field(page, "wikipedia_title", of="title")
    paragraphs = page["text"]
    if not all(isinstance(paragraph, str) for paragraph in paragraphs):
        raise BadRecordError("text of the wrong type", "every paragraph in the list text must be a string")
    words = list(_words(title, paragraphs))
    for number, passage_words in enumerate(itertools.batched(words, PASSAGE_WORDS) if words else [()]):
        yield {
            "id": f"{page['wikipedia_id']}-{number}",
            "title": title,
            "text": " ".join(_pieces(paragraphs, passage_words)),
            "wikipedia_id": str(page["wikipedia_id"]),
            "section": passage_words[0].section if passage_words else ABSTRACT,
            "start_paragraph_id": passage_words[0].paragraph if passage_words else 0,
            "start_character": passage_words[0].start if passage_words else 0,
            "end_paragraph_id": passage_words[-1].paragraph if passage_words else 0,
            "end_character": passage_words[-1].end if passage_words else len(title),
        }


def _words(title: str, paragraphs: list[str]) -> Iterator[_Word]:
    section = ABSTRACT
    for number, paragraph in enumerate(paragraphs):
        if paragraph.startswith(_HEADING):
            section = paragraph.strip()
        elif number or paragraph.strip() != title.strip():
            for word in _WORD.finditer(paragraph):
                if not word[0].startswith(_BULLET):
                    yield _Word(number, word.start(), word.end(), section)


def _pieces(paragraphs: list[str], passage_words: tuple[_Word, ...]) -> Iterator[str]:
    for number, word_group in itertools.groupby(passage_words, key=lambda word: word.paragraph):
        first, *others = word_group
        yield paragraphs[number][first.start : (others or [first])[-1].end]
