"""Metadata of frameworks as fields of records, and back.

A record reserves some names (`id`, `text`, …), and its `title` is a text that is not empty. Metadata with
these names has the prefix `meta_` in a record.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from sparta.base.errors import InputError

_RESERVED = frozenset(("id", "_id", "text", "contents", "context", "vector", "start", "end", "passage_id"))
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


def filter_on_fields(filter: Mapping[str, Any] | None, known: Collection[str] = ()) -> dict[str, Any] | None:
    """Return a filter on metadata keys as a filter on the fields of records.

    :param known: the fields of an index that other programs may have written. A key that names one of them
        means this field, unless the index has the key's own field too
    """
    if filter is None:
        return None
    fields: dict[str, Any] = {}
    for name, value in filter.items():
        if name in ("and", "or", "not") and isinstance(value, list):
            fields[name] = [filter_on_fields(part, known) for part in value]
        elif name == "not" and isinstance(value, Mapping):
            fields[name] = filter_on_fields(value, known)
        else:
            is_no_title = value == "" or isinstance(value, int | float)
            field = field_of(name, value) if is_no_title else field_of(name)
            fields[name if name in known and field not in known else field] = value
    return fields


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
