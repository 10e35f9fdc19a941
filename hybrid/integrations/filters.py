"""Converts the filters of other frameworks to the argument `filter` of `search`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from sparta.base.errors import InputError
from sparta.base.filters import COMPARISONS, AllOf, AnyOf, Condition, Filter, Not, SimpleCondition

_KNOWN = ("==", "!=", *COMPARISONS, "in", "not in", "any", "all", "contains", "is_empty")


def condition_of(field: str, operator: str, value: Any) -> dict[str, Any]:
    """Return the filter for one condition of a framework: a field, an operator and a value.

    `==` and `!=` with None test whether the field has no value. An empty list has none of the values:
    nothing is `in` the list, and everything is `not in` it and has `all` of it.

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
        return {field: {"in": value}} if value != [] else _nothing(field)
    if operator in ("not in", "nin"):
        return {field: {"not": {"in": value}}} if value != [] else {"not": _nothing(field)}
    if operator == "all":
        return {"and": [{field: item} for item in value]} if value != [] else {"not": _nothing(field)}
    raise unknown_filter(f"the operator {operator!r}")


def _nothing(field: str) -> dict[str, Any]:
    """Return a filter on a field that no passage meets."""
    return {"and": [{field: {"exists": True}}, {field: {"exists": False}}]}


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


def with_alternatives(
    filter: Filter, alternatives_of: Callable[[SimpleCondition], Sequence[SimpleCondition]]
) -> Filter:
    """Return a filter in which a condition holds if one of the conditions that replace it holds.

    Without an alternative, the condition does not hold. A negation applies to all alternatives together.
    """
    return Filter(tuple(_replaced(condition, alternatives_of) for condition in filter.conditions))


def _replaced(
    condition: Condition, alternatives_of: Callable[[SimpleCondition], Sequence[SimpleCondition]]
) -> Condition:
    if isinstance(condition, Not):
        return Not(_replaced(condition.condition, alternatives_of))
    if isinstance(condition, AnyOf | AllOf):
        return type(condition)(tuple(_replaced(part, alternatives_of) for part in condition.conditions))
    alternatives = tuple(alternatives_of(condition))
    return alternatives[0] if len(alternatives) == 1 else AnyOf(alternatives)


def known_fields_only(filter: Filter, fields: Collection[str]) -> Filter:
    """Return a filter in which conditions on other fields than these do not hold, instead of an error."""
    return with_alternatives(filter, lambda condition: [condition] if condition.field in fields else [])
