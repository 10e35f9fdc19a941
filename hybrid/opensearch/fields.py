"""Metadata in OpenSearch: two fields hold the values of all metadata names; filters become queries on them.

`fields` holds each value as the index folder does: name, zero byte, text. `numbers` holds decimal numbers:
name and sixteen hexadecimal digits in numeric order. Both fields are keywords, which OpenSearch compares by
bytes, like Lucene.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from typing import Any

from sparta.base.filters import AllOf, AnyOf, Condition, Exists, Filter, Not, Numbers, OneOf, term
from sparta.index.inputs.impact_batches import field_terms

FIELDS, NUMBERS = "fields", "numbers"
_NUMBER = re.compile(rb"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 256
_SIGN = 1 << 63


def field_values(raw: str) -> dict[str, list[str]]:
    """Return the metadata of a stored record as the document's two fields `fields` and `numbers`."""
    terms = field_terms([json.loads(raw)])[0]
    return {FIELDS: [field_term.decode() for field_term in terms], NUMBERS: list(_numbers(terms))}


def _numbers(terms: list[bytes]) -> Iterator[str]:
    for field_term in terms:
        name, _, text = field_term.partition(b"\0")
        if len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text) and math.isfinite(float(text)):
            yield number_key(name.decode(), float(text))


def number_key(name: str, number: float) -> str:
    """Return a field's number as text, such that texts sort like the numbers."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", number + 0.0))  # -0.0 becomes 0.0
    return f"{name}\0{(~bits if bits & _SIGN else bits | _SIGN) & (2 * _SIGN - 1):016x}"


def field_range(name: str) -> dict[str, Any]:
    """Return the query that matches all documents with a field."""
    return {"range": {FIELDS: {"gte": f"{name}\0", "lt": f"{name}\1"}}}


def filter_queries(filter: Filter | None) -> list[dict[str, Any]]:
    """Return the OpenSearch queries that together express a filter; all must match."""
    return [_condition(condition) for condition in filter.conditions] if filter else []


def _conditions(condition: AnyOf | AllOf) -> list[dict[str, Any]]:
    return [_condition(part) for part in condition.conditions]


def _condition(condition: Condition) -> dict[str, Any]:
    if isinstance(condition, Not):
        return {"bool": {"must_not": [_condition(condition.condition)]}}
    if isinstance(condition, AnyOf):
        return {"bool": {"should": _conditions(condition), "minimum_should_match": 1}}
    if isinstance(condition, AllOf):
        return {"bool": {"filter": _conditions(condition)}}
    if isinstance(condition, Exists):
        return field_range(condition.field)
    if isinstance(condition, OneOf):
        return {"terms": {FIELDS: [term(condition.field, value).decode() for value in condition.values]}}
    if isinstance(condition, Numbers):
        low, high = (number_key(condition.field, bound) for bound in (condition.low, condition.high))
        return {"range": {NUMBERS: {"gte": low, "lte": high}}}
    high = f"{condition.field}\1" if condition.high is None else f"{condition.field}\0{condition.high}"
    return {"range": {FIELDS: {"gte": f"{condition.field}\0{condition.low or ''}", "lt": high}}}
