"""Metadata of frameworks as fields of records, and back.

A record reserves some names (`id`, `text`, …), and its `title` is a text that is not empty. Metadata with
these names has the prefix `meta_` in a record.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from hybrid.integrations.filters import with_alternatives
from sparta.base.filters import Exists, Filter, FilterLike, Numbers, OneOf, SimpleCondition
from sparta.data.parsing import json_line
from sparta.data.units import PAGE_STARTS

_RESERVED = frozenset(
    ("id", "_id", "text", "contents", "context", "vector", "start", "end", "passage_id", PAGE_STARTS)
)
_TITLE = "title"
_PREFIX = "meta_"
_OTHER_TITLE = _PREFIX + _TITLE
"""The field of titles that are empty or no texts."""
_NO_TEXTS = ("", "true", "false")


def field_of(key: str, value: Any = "a text") -> str:
    """Return the record's field for a metadata key with this value."""
    base = _base(key)
    is_text_title = key == _TITLE and isinstance(value, str) and value != ""
    return _PREFIX + key if base in _RESERVED or (base == _TITLE and not is_text_title) else key


def key_of(field: str, value: Any) -> str:
    """Return the metadata key of a record's field; names that `field_of` never gives stay."""
    key = field.removeprefix(_PREFIX)
    return key if field_of(key, value) == field else field


def _base(name: str) -> str:
    while name.startswith(_PREFIX):
        name = name.removeprefix(_PREFIX)
    return name


def fields_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as fields of a record."""
    return {field_of(key, value): value for key, value in metadata.items()}


def keys_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record as metadata."""
    return {key_of(field, value): value for field, value in fields.items()}


def possible_fields(key: str) -> tuple[str, str]:
    """Return all names of fields that may hold the values of a metadata key, for `fields_of_key`."""
    return key, _PREFIX + key


def fields_of_key(
    key: str, known: Collection[str] = (), *, with_parts: bool = False, foreign: bool = False
) -> list[str]:
    """Return the fields of an index that hold the values of a metadata key, such as `id` or `author.name`.

    A title has two fields: `title` for texts, `meta_title` for other values. `page_starts` has two fields in
    an index that an earlier version began, because that version did not reserve the name.

    :param known: the fields of the index; if empty, they are unknown. A key that names a field means this
        field, unless the index has the key's usual fields, or the field belongs to another key
    :param with_parts: also return the fields of the parts of an object, which has no other field
    :param foreign: another program may have written the index, so any key may name a field, and an unknown
        key does
    """
    name, dot, part = key.partition(".")
    usual = [field_of(name) + dot + part]
    if name == _TITLE:
        usual.append(_PREFIX + key)
    elif name == PAGE_STARTS and known:
        usual.append(key)
    may_name_field = foreign or (name != _OTHER_TITLE and key_of(name, "a text") == name)
    for names in (usual, [key] if may_name_field else []):
        fields = [
            field
            for name in names
            for field in known
            if field == name or (with_parts and field.startswith(f"{name}."))
        ]
        if fields:
            return fields
    return [key] if foreign or (known and may_name_field) else usual


def filter_on_fields(
    filter: FilterLike | None, known: Collection[str] = (), *, foreign: bool = False
) -> Filter | None:
    """Return a filter on metadata keys as a filter on the fields of records.

    :param known: the fields of the index, and `foreign` whether another program may have written it, as in
        `fields_of_key`. In a foreign index, a text in `meta_title` is not a title
    :raises InputError: `filter` is not valid
    """
    parsed = Filter.of(filter)

    def alternatives(condition: SimpleCondition) -> list[SimpleCondition]:
        has_parts = isinstance(condition, Exists)
        fields = fields_of_key(condition.field, known, with_parts=has_parts, foreign=foreign)
        replaced: list[SimpleCondition] = []
        for field in fields:
            on_field = replace(condition, field=field)
            may_hold_texts = foreign and field == _OTHER_TITLE != condition.field
            replaced += _on_other_titles(on_field) if may_hold_texts else [on_field]
        return replaced

    return with_alternatives(parsed, alternatives) if parsed else None


def _on_other_titles(condition: SimpleCondition) -> list[SimpleCondition]:
    """Return a condition on titles that only numbers, booleans and the empty text can meet."""
    if isinstance(condition, Numbers):
        return [condition]
    if isinstance(condition, OneOf):
        values = tuple(value for value in condition.values if value in _NO_TEXTS or _is_number(value))
        return [OneOf(condition.field, values)] if values else []
    if isinstance(condition, Exists):
        return [Numbers(condition.field, -math.inf, math.inf), OneOf(condition.field, _NO_TEXTS)]
    return []


def _is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as JSON values, converted as those of the records of a corpus (`json_line`).

    :raises InputError: a value is not JSON-serializable
    """
    return dict(json.loads(json_line(metadata)))
