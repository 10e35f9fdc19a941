"""The metadata of a record as the index holds it, to filter and to collapse by."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparta.base.filters import LONGEST, term, text_of
from sparta.data.units import UNIT_ID, passage_of

MOST_VALUES = 256
_TEXTS = {"id", "contents", "context"}
_OFFSETS = {"start", "end"}
_WANTED = f"where it is no text, number, true or false, nor a list of up to {MOST_VALUES} of them"
logger = logging.getLogger(__name__)


def field_terms(records: Sequence[Mapping[str, Any]], told: set[str] | None = None) -> list[list[bytes]]:
    """The metadata of stored records: of each the terms of all its values.

    :param told: fields with values that are not indexed, of which a warning was given; grows. None: none is
    """
    left_out = set[str]()
    terms = [list(_terms(record, left_out)) for record in records]
    if told is not None:
        for name in sorted(left_out - told):
            logger.warning("%s: kept with the passages, but nothing to filter by, %s", name, _WANTED)
        told |= left_out
    return terms


def _terms(record: Mapping[str, Any], left_out: set[str]) -> Iterator[bytes]:
    """One term for each value of each field.

    Texts, numbers, true and false count, and lists of up to 256 of them; null, objects and other lists do
    not. No title is the same as an empty one. Where a passage stands in its context is not indexed.
    """
    cut = "context" in record or _is_sentence(record)
    for name, value in record.items():
        if name in _TEXTS or (cut and name in _OFFSETS) or (name == "title" and not value):
            continue
        if not name or "\0" in name or len(name.encode()) > LONGEST:
            continue
        values = value if isinstance(value, list) else [value]
        if len(values) <= MOST_VALUES and all(isinstance(one, str | int | float) for one in values):
            yield from (term(name, text_of(one)) for one in values)
        elif value is not None and value != {}:
            left_out.add(name)


def _is_sentence(record: Mapping[str, Any]) -> bool:
    """Whether a record was cut from the passage that it names."""
    unit_id = str(record.get("id"))
    placed = all(type(record.get(name)) is int for name in _OFFSETS)
    return placed and bool(UNIT_ID.search(unit_id)) and passage_of(unit_id) == record.get("passage_id")
