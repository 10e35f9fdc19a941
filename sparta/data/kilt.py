"""KILT's tasks, and its knowledge source as passages (Petroni et al., 2021)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparta.data.parsing import BadRecordError, string_field

PASSAGE_WORDS = 100
"""Maillard et al. (2021), §4.1: an article is split into disjoint passages of 100 tokens."""
LEAST_BLEU = 0.5
"""The same: what was mapped to the knowledge source with a lower BLEU is likely noise, and not trained on."""
ABSTRACT = "Section::::Abstract"
_HEADING, _BULLET = "Section::::", "BULLET::::"
_WORD = re.compile(r"\S+")
_PROVENANCE = 'write "provenance": [{"wikipedia_id": "…", "start_paragraph_id": 1, "end_paragraph_id": 1, …}]'


class Place(NamedTuple):
    """A place in a page: the number of a paragraph (0 is the title), and of a character in it."""

    paragraph: int
    character: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where evidence stands: a page, and a span of its paragraphs or the ids of passages.

    Any one of `passage_ids` is the evidence: they are copies or neighbours of each other. Without them and
    without a span (`start` is None), the page is all that is known, as in entity linking. `bleu` is how well
    the original evidence agrees with the span; 1 where nothing is said.
    """

    wikipedia_id: str = ""
    title: str = ""
    passage_ids: tuple[str, ...] = ()
    start: Place | None = None
    end: Place | None = None
    section: str = ""
    bleu: float = 1.0


type Evidence = tuple[tuple[Provenance, ...], ...]
"""The evidence sets of a question: those of one output are needed together, the outputs are alternatives."""


def evidence_of(outputs: Any) -> Evidence:
    """Return the provenance of each output of a KILT record; an output without any is left out.

    So is one with an empty list, which the published evaluation counts as a set that nothing finds.

    :raises BadRecordError: provenance of another form.
    """
    given = outputs if isinstance(outputs, list) else [outputs]
    objects = (_objects(output.get("provenance")) for output in given if isinstance(output, dict))
    return tuple(tuple(map(_provenance, own)) for own in objects if own)


def well_mapped(evidence: Evidence, least_bleu: float = LEAST_BLEU) -> Evidence:
    """Leave out provenance with a lower BLEU score; what has no score stays."""
    sets = (tuple(one for one in own if one.bleu >= least_bleu) for own in evidence)
    return tuple(filter(None, sets))


def _objects(provenance: Any) -> list[dict[str, Any]]:
    if provenance is None:
        return []
    if not isinstance(provenance, list) or not all(isinstance(one, dict) for one in provenance):
        raise BadRecordError("wrong type", "expected provenance as a list of objects", remedy=_PROVENANCE)
    return provenance


def _provenance(one: Mapping[str, Any]) -> Provenance:
    title = one.get("wikipedia_title") or one.get("title") or ""
    passage_ids = one.get("passage_ids") or []
    bleu = 1.0 if one.get("bleu_score") is None else one["bleu_score"]
    known = isinstance(title, str) and isinstance(bleu, int | float) and isinstance(passage_ids, list)
    if not known or not all(isinstance(passage_id, str) for passage_id in passage_ids):
        detail = "expected a title, a BLEU score and passage_ids as text, number and list of texts"
        raise BadRecordError("wrong type", detail, remedy=_PROVENANCE)
    first = _number(one, "start_paragraph_id")
    last = first if (end := _number(one, "end_paragraph_id")) is None else end
    start = end_place = None
    if first is not None and last is not None:
        start = Place(first, _number(one, "start_character") or 0)
        end_character = _number(one, "end_character")
        end_place = Place(last, math.inf if end_character is None else end_character)
        if last < first:
            detail = f"expected provenance that ends after its start, found paragraphs {first} to {last}"
            raise BadRecordError("invalid span", detail, remedy=_PROVENANCE)
    page = "" if one.get("wikipedia_id") is None else str(one["wikipedia_id"]).strip()
    if not (page or title.strip() or passage_ids):
        detail = "expected provenance that names a page or passages, found neither"
        raise BadRecordError("missing page", detail, remedy=_PROVENANCE)
    return Provenance(
        page,
        title.strip(),
        tuple(passage_ids),
        start,
        end_place,
        str(one.get("section") or ""),
        float(bleu),
    )


def _number(one: Mapping[str, Any], name: str) -> int | None:
    """A number of a paragraph or character; None where there is none (KILT also writes −1)."""
    value = one.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRecordError("wrong type", f"expected a whole number as {name}", remedy=_PROVENANCE)
    return value if value >= 0 else None


def is_page(record: Mapping[str, Any]) -> bool:
    """Whether a record is a page of the knowledge source: `text` is a list of paragraphs."""
    return "wikipedia_id" in record and isinstance(record.get("text"), list)


class _Word(NamedTuple):
    paragraph: int
    start: int
    end: int
    section: str


def page_passages(page: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the passages of a page as records of a corpus: 100 words each, the last one fewer.

    Passage n has the id `WIKIPEDIA_ID-n` and says, in the names that provenance has, from which paragraph and
    character to which it goes. Headings and the title's own paragraph are no text; they have numbers all the
    same. A page without text is one passage, its title.

    :raises BadRecordError: a page of another form.
    """
    title = string_field(page, "wikipedia_title", of="title")
    paragraphs = page["text"]
    if not all(isinstance(paragraph, str) for paragraph in paragraphs):
        raise BadRecordError(
            "wrong type", "expected text as a list of paragraphs, found something else in it"
        )
    words = list(_words(title, paragraphs))
    for number, some in enumerate(itertools.batched(words, PASSAGE_WORDS) if words else [()]):
        yield {
            "id": f"{page['wikipedia_id']}-{number}",
            "title": title,
            "text": " ".join(_pieces(paragraphs, some)),
            "wikipedia_id": str(page["wikipedia_id"]),
            "section": some[0].section if some else ABSTRACT,
            "start_paragraph_id": some[0].paragraph if some else 0,
            "start_character": some[0].start if some else 0,
            "end_paragraph_id": some[-1].paragraph if some else 0,
            "end_character": some[-1].end if some else len(title),
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


def _pieces(paragraphs: list[str], words: tuple[_Word, ...]) -> Iterator[str]:
    for number, own in itertools.groupby(words, key=lambda word: word.paragraph):
        first, *others = own
        yield paragraphs[number][first.start : (others or [first])[-1].end]
