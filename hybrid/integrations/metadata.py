"""Metadata of frameworks as fields of records, and back.

A record reserves some names (`id`, `text`, …), and its `title` is a text that is not empty. Metadata with
these names has the prefix `meta_` in a record.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from hybrid.integrations.filters import on_fields
from sparta.base.errors import InputError
from sparta.base.filters import Exists, Filter, FilterLike, SimpleCondition
from sparta.data.units import PAGE_STARTS

_RESERVED = frozenset(
    ("id", "_id", "text", "contents", "context", "vector", "start", "end", "passage_id", PAGE_STARTS)
)
_TITLE = "title"
_PREFIX = "meta_"


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


def fields_of_key(key: str, known: Collection[str] = (), *, with_parts: bool = False) -> list[str]:
    """Return the fields of an index that hold the values of a metadata key, such as `id` or `author.name`.

    A title has two fields: `title` for texts, `meta_title` for other values.

    :param known: the fields of the index, which other programs may have written; if empty, they are unknown.
        A key that names a field means this field, unless the index has the key's usual fields
    :param with_parts: also return the fields of the parts of an object, which has no other field
    """
    name, dot, part = key.partition(".")
    usual = [field_of(name) + dot + part, *([_PREFIX + key] if name == _TITLE else [])]
    for names in (usual, [key]):
        fields = [
            field
            for name in names
            for field in known
            if field == name or (with_parts and field.startswith(f"{name}."))
        ]
        if fields:
            return fields
    return [key] if known else usual[:1]


def filter_on_fields(filter: FilterLike | None, known: Collection[str] = ()) -> Filter | None:
    """Return a filter on metadata keys as a filter on the fields of records; `known` as in `fields_of_key`.

    :raises InputError: `filter` is not valid
    """
    parsed = Filter.of(filter)

    def fields(condition: SimpleCondition) -> list[str]:
        return fields_of_key(condition.field, known, with_parts=isinstance(condition, Exists))

    return on_fields(parsed, fields) if parsed else None


def plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as JSON values.

    :raises InputError: a value is not JSON-serializable
    """
    try:
        return dict(json.loads(json.dumps(dict(metadata))))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"metadata must be JSON values: {error}", remedy="convert dates and other objects to texts"
        ) from None
