"""Names of the units of retrieval: passages, sentences of passages, or chunks of long texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError
from sparta.base.remedies import Option, Remedy, remedy

SENTENCE = "sentence"
UNITS = ("passage", SENTENCE)
UNIT_ID = re.compile(r"#\d+$")
CHUNK = re.compile(r"chunk:(\d+):(\d+)(:sentence)?")
SPACE_AFTER = "space_after"
"""The field of a chunk with the white space between this chunk and the next, if it is not only spaces."""
CHUNK_EXAMPLE = remedy(  # in Python, both options are one argument
    "for example {} {}",
    Option("chunk", 200, python="unit=sparta.chunk_unit(200,"),
    Option("overlap", 50, python="50)"),
)
PAGE_STARTS = "page_starts"
"""The field with the starts of the pages of a PDF, in characters of the PDF's text."""
FIRST_PAGE = "first_page"
"""The field with the number of the first page in `PAGE_STARTS`, in records of sentences and chunks."""
UNIT = re.compile(r"passage|sentence|chunk:\d{1,9}:\d{1,9}(?::sentence)?")
MOST_WORDS = 10**9 - 1
"""The largest number of words of a chunk."""


def passage_of(unit_id: str) -> str:
    """Return the passage id of a sentence or chunk; the id of a whole passage is returned unchanged."""
    return UNIT_ID.sub("", unit_id)


def place_fields(unit: str) -> tuple[str, ...]:
    """Return the fields with the place of a sentence or chunk in its passage."""
    return ("document_id", "start", "end", SPACE_AFTER) if is_chunk(unit) else ("passage_id", "start", "end")


def is_sentence_of_passage(record: Mapping[str, Any]) -> bool:
    """Return whether a stored record is a sentence of the passage that its `passage_id` names.

    In an index of whole passages or chunks, `passage_id`, `start` and `end` may be metadata.
    """
    unit_id = str(record.get("id"))
    has_place = type(record.get("start")) is int and type(record.get("end")) is int
    return has_place and bool(UNIT_ID.search(unit_id)) and passage_of(unit_id) == record.get("passage_id")


def context_of(record: Mapping[str, Any]) -> str:
    """Return the context that a stored record holds; empty if there is none.

    A metadata field `context` that does not hold the text from `start` to `end` is not a context.
    """
    context, start, end = (record.get(name) for name in ("context", "start", "end"))
    if not isinstance(context, str) or type(start) is not int or type(end) is not int:
        return ""
    return context if context[start:end] == record.get("contents") else ""


def joined(parts: Iterable[Mapping[str, Any]]) -> str:
    """Return a passage's text from its parts, each at its offset.

    Parts may overlap. Where a part is missing, spaces take its place.
    """
    text, space = "", ""
    for record in sorted(parts, key=lambda r: int(r["start"])):
        start = int(record["start"])
        text = (text + space)[:start].ljust(start) + str(record["contents"])
        space = str(record.get(SPACE_AFTER, ""))
        space = space if space.isspace() else ""  # the records of sentences may have a field of this name
    return text


def joined_pages(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the `first_page` and `page_starts` of parts of a PDF together; nothing for other parts.

    A page without a part, such as a blank page, starts where the next page does.
    """
    first_page, starts = 0, list[int]()
    for part in sorted(parts, key=lambda r: int(r["start"])):
        page, part_starts = part.get(FIRST_PAGE), part.get(PAGE_STARTS)
        if type(page) is not int or not isinstance(part_starts, list):
            return {}
        first_page = first_page or page
        starts += part_starts[:1] * (page - first_page - len(starts))
        starts[page - first_page :] = part_starts
    return {FIRST_PAGE: first_page, PAGE_STARTS: starts}


def is_cut(unit: str) -> bool:
    """Return whether a unit is a piece of a passage, with an id of the form p#n."""
    return unit != "passage"


def chunk_unit(words: int, overlap: int = 0) -> str:
    """Return the unit name for chunks of at most `words` words; neighboring chunks share `overlap` words.

    The chunks end at the ends of sentences where possible. A name without `:sentence`, as older indexes have
    it, means chunks of exactly `words` words.

    :raises InputError: `words` is 0 or above `MOST_WORDS`, or `overlap` is not smaller than `words`.
    """
    if not 0 <= overlap < words <= MOST_WORDS:
        raise InputError(
            f"a chunk needs 1 to {MOST_WORDS:,} words and a smaller overlap,"
            f" found {words:,} words, overlap {overlap:,}",
            remedy=CHUNK_EXAMPLE,
        )
    return f"chunk:{words}:{overlap}:{SENTENCE}"


def check_unit(unit: str) -> None:
    """Raise InputError if there is no unit of this name."""
    if not isinstance(unit, str) or not UNIT.fullmatch(unit):
        raise InputError(
            f"unknown unit of retrieval {unit!r}; known units: {', '.join(UNITS)}, and chunks such as"
            " chunk:200:50:sentence",
            remedy=CHUNK_EXAMPLE,
        )


def check_whole(unit: str, index: Path) -> None:
    """Raise InputError if the units of an index are pieces of passages."""
    if is_cut(unit):
        raise InputError(
            f"expected an index of whole passages, found an index of {unit_noun(unit)}s",
            where=str(index),
            remedy=remedy("build an index without {}", options_of_unit(unit)),
        )


def same_chunks(unit: str | None, other: str) -> bool:
    """Return whether two units are chunks of the same length and overlap, wherever the chunks end."""
    first, second = CHUNK.fullmatch(unit or ""), CHUNK.fullmatch(other)
    return first is not None and second is not None and first.group(1, 2) == second.group(1, 2)


def is_chunk(unit: str) -> bool:
    """Return whether a unit is a chunk. The hits of chunks are grouped by document."""
    return unit.startswith("chunk:")


def unit_noun(unit: str) -> str:
    """Return the noun for a unit in messages."""
    return unit.partition(":")[0]


def options_of_unit(unit: str) -> Remedy:
    """Return the options that choose a unit, for a remedy."""
    if is_chunk(unit):
        _, words, overlap, *_ = unit.split(":")
        return remedy(
            "{} {}",
            Option("chunk", words, python=f"unit=sparta.chunk_unit({words},"),
            Option("overlap", overlap, python=f"{overlap})"),
        )
    return remedy("{}", Option("unit", unit))
