"""The metadata of a record as the index holds it, to filter and to collapse by."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from sparta.base.filters import LONGEST, term, text_of

MOST_VALUES = 256
_TEXTS = {"id", "contents", "context"}
_OFFSETS = {"start", "end"}


def field_terms(records: Sequence[str]) -> list[list[bytes]]:
    """The metadata of stored records: of each the terms of all its values."""
    return [list(_terms(_parsed(record))) for record in records]


def _parsed(record: str) -> dict[str, Any]:
    try:
        return orjson.loads(record)
    except orjson.JSONDecodeError:  # an integer that no float can hold
        return json.loads(record)


def _terms(record: Mapping[str, Any]) -> Iterator[bytes]:
    """One term for each value of each field.

    Texts, numbers, true and false count, and lists of up to 256 of them; null, objects and other lists do
    not. No title is the same as an empty one. Where a passage stands in its context is not indexed.
    """
    cut = "context" in record or "passage_id" in record
    for name, value in record.items():
        if name in _TEXTS or (cut and name in _OFFSETS) or (name == "title" and not value):
            continue
        if not name or "\0" in name or len(name.encode()) > LONGEST:
            continue
        values = value if isinstance(value, list) else [value]
        if len(values) <= MOST_VALUES and all(isinstance(one, str | int | float) for one in values):
            yield from (term(name, text_of(one)) for one in values)
