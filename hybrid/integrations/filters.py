"""Converts the filters of other frameworks to the argument `filter` of `search`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sparta.base.errors import InputError
from sparta.base.filters import COMPARISONS, AllOf, AnyOf, Condition, Exists, Filter, Not

_KNOWN = ("==", "!=", *COMPARISONS, "in", "not in", "any", "all", "contains", "is_empty")


def condition_of(field: str, operator: str, value: Any) -> dict[str, Any]:
    """Return the filter for one condition of a framework: a field, an operator and a value.

    `==` and `!=` with None test whether the field has no value.

    :raises InputError: the operator is not supported
    """
    if operator in COMPARISONS:
        return {field: {COMPARISONS[operator]: value}}
    if operator == "is_empty" or (operator == "==" and value is None):
        return {field: {"exists": False}}
    if operator == "!=":
        return {field: {"exists": True} if value is None else {"not": value}}
    if operator in ("==", "contains"):
        return {field: value}
    if operator in ("in", "any"):
        return {field: {"in": value}}
    if operator in ("not in", "nin"):
        return {field: {"not": {"in": value}}}
    if operator == "all":
        return {"and": [{field: item} for item in value]}
    raise unknown_filter(f"the operator {operator!r}")


def combined(operator: str, filters: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the filter that joins filters by `and`, `or` or `not` (not all of them); without any, `{}`."""
    if not filters:
        if operator == "or":
            raise unknown_filter("OR without conditions")
        return {}
    return {"not": {"and": filters}} if operator == "not" else {operator: filters}


def unknown_filter(unsupported: str) -> InputError:
    """Return the error for a filter that no index can apply."""
    return InputError(
        f"the filter contains {unsupported}, but only {', '.join(_KNOWN)}, joined by AND, OR and NOT,"
        " are supported",
        remedy="write the condition with these operators, or filter the hits afterwards",
    )


def known_fields_only(filter: Filter, fields: Collection[str]) -> Filter:
    """Return a filter in which conditions on other fields than these do not hold, instead of an error."""
    return Filter(tuple(_known(condition, fields) for condition in filter.conditions))


def _known(condition: Condition, fields: Collection[str]) -> Condition:
    if isinstance(condition, Not):
        return Not(_known(condition.condition, fields))
    if isinstance(condition, AnyOf | AllOf):
        return type(condition)(tuple(_known(part, fields) for part in condition.conditions))
    if isinstance(condition, Exists):  # an object has the fields of its parts only
        parts = [name for name in fields if name.startswith(f"{condition.field}.")]
        known = [name for name in (condition.field, *parts) if name in fields]
        return AnyOf(tuple(map(Exists, known)))
    return condition if condition.field in fields else AnyOf(())
