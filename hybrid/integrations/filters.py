"""Converts the filters of other frameworks to the argument `filter` of `search`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparta.base.errors import InputError
from sparta.base.filters import joined

_NAMES = {"in": "in", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}


def filter_of(conditions: Iterable[tuple[str, str, Any]]) -> dict[str, Any]:
    """Return the filter that requires all conditions, each a field, an operator and a value.

    :raises InputError: an unsupported operator, or several conditions on one field that are not two bounds
    """
    filter: dict[str, Any] = {}
    for field, operator, value in conditions:
        if operator != "==" and operator not in _NAMES:
            raise unknown_filter(f"the operator {operator!r}")
        condition = value if operator == "==" else {_NAMES[operator]: value}
        filter[field] = joined(field, filter[field], condition) if field in filter else condition
    return filter


def unknown_filter(unsupported: str) -> InputError:
    """Return the error for a filter that no index can apply."""
    known = ", ".join(["==", *_NAMES])
    return InputError(
        f"the filter contains {unsupported}, but only {known}, joined by AND, are supported",
        remedy="search once for each alternative, or filter the hits afterwards",
    )
