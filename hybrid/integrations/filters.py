"""Filters as frameworks write them become those of `search`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparta.base.errors import InputError
from sparta.base.filters import joined

_NAMES = {"in": "in", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}


def filter_of(conditions: Iterable[tuple[str, str, Any]]) -> dict[str, Any]:
    """Return the filter in which all of these hold, each a field, an operator and a value.

    :raises InputError: another operator, or several conditions on one field that are not two bounds.
    """
    found: dict[str, Any] = {}
    for field, operator, value in conditions:
        if operator != "==" and operator not in _NAMES:
            raise unknown_filter(f"the operator {operator!r}")
        own = value if operator == "==" else {_NAMES[operator]: value}
        found[field] = joined(field, found[field], own) if field in found else own
    return found


def unknown_filter(found: str) -> InputError:
    """Return the error of a filter that no index can apply."""
    known = ", ".join(["==", *_NAMES])
    return InputError(
        f"expected conditions with {known} that must all hold, found {found}",
        remedy="ask once for each alternative, or choose among the hits",
    )
