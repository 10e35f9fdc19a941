"""Parse the JSON form of filters: objects of fields and their conditions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sparta.base.checks import is_number, numpy_kind, plain_number
from sparta.base.errors import InputError
from sparta.base.filters.conditions import (
    HEAD_BYTES,
    AllOf,
    AnyOf,
    Condition,
    Exists,
    Not,
    Numbers,
    OneOf,
    Texts,
    text_of,
)
from sparta.base.remedies import Option, Remedy, remedy

COMPARISONS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
"""The name in the JSON form of each sign of a comparison."""
BOUNDS = tuple(COMPARISONS.values())
_MOST_LEVELS = 20  # of filters inside filters
FORMS = remedy(
    "write the filter as {}, {}, {}, {}, or {}",
    Option("filter", "lang=en", python='filter={"lang": "en"}'),
    Option("filter", "lang!=en", python='filter={"lang": {"not": "en"}}'),
    Option("filter", "lang in en,de", python='filter={"lang": {"in": ["en", "de"]}}'),
    Option("filter", "year>=1990", python='filter={"year": {"gte": 1990}}'),
    Option("filter", '{"author": {"exists": true}}', python='filter={"author": {"exists": True}}'),
)


def conditions_of(filter: Any, level: int = 1) -> tuple[Condition, ...]:
    """Return the conditions of a filter's JSON object; all must hold.

    :raises InputError: the object is not a valid filter.
    """
    if not isinstance(filter, Mapping) or not filter:
        raise not_a_filter("an object with at least one field", filter)
    if level > _MOST_LEVELS:
        raise not_a_filter(f"at most {_MOST_LEVELS} levels of filters inside filters", "more")
    return tuple(_entry(name, value, level) for name, value in filter.items())


def _entry(name: Any, value: Any, level: int) -> Condition:
    """Return the condition of one key of a filter: of a field, or of `and`, `or` and `not` with filters."""
    if name in ("and", "or") and isinstance(value, list | tuple):
        filters = _filters(name, value, level)
        return AllOf(filters) if name == "and" else AnyOf(filters)
    if name == "not" and isinstance(value, Mapping):
        return Not(_all_of(conditions_of(value, level + 1)))
    if name == "not" and isinstance(value, list | tuple):
        return Not(AnyOf(_filters(name, value, level)))
    if not isinstance(name, str) or not name or "\0" in name:
        raise not_a_filter("the name of a field", name)
    _encodable(name)
    return _condition(name, value, level)


def _filters(name: str, filters: Iterable[Any], level: int) -> tuple[Condition, ...]:
    parsed = tuple(_all_of(conditions_of(filter, level + 1)) for filter in filters)
    if not parsed:
        raise not_a_filter(f"at least one filter in the list of {name!r}", [])
    return parsed


def _all_of(conditions: tuple[Condition, ...]) -> Condition:
    return conditions[0] if len(conditions) == 1 else AllOf(conditions)


def _condition(name: str, condition: Any, level: int) -> Condition:
    """Return a condition on the field `name`."""
    if isinstance(condition, Mapping) and set(condition) == {"not"}:
        if level >= _MOST_LEVELS:
            raise not_a_filter(f"at most {_MOST_LEVELS} levels of filters inside filters", "more")
        return Not(_condition(name, condition["not"], level + 1))
    if isinstance(condition, Mapping) and set(condition) == {"exists"}:
        if not isinstance(condition["exists"], bool):
            raise not_a_filter(f'true or false for "exists" of {name!r}', condition["exists"])
        return Exists(name) if condition["exists"] else Not(Exists(name))
    if isinstance(condition, Mapping) and set(condition) == {"in"}:
        values = condition["in"]
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise not_a_filter(f"a list of values of {name!r}", values)
        distinct_values = tuple(dict.fromkeys(_value(name, value) for value in values))
        if not distinct_values:
            raise not_a_filter(f"at least one value of {name!r}", values)
        return OneOf(name, distinct_values)
    if isinstance(condition, Mapping):
        return _range(name, condition)
    return OneOf(name, (_value(name, condition),))


def _value(name: str, value: Any) -> str:
    if is_number(value):
        value = plain_number(value)
    elif numpy_kind(value) == "b" and not value.ndim:
        value = bool(value)
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return _encodable(text_of(value))
    advice = 'use {"in": [...]} for several values' if isinstance(value, list) else FORMS
    raise not_a_filter(f"a text, a number, true or false as the value of {name!r}", value, advice)


def _range(name: str, bounds: Mapping[str, Any]) -> Condition:
    lower_names = [bound for bound in ("gt", "gte") if bound in bounds]
    upper_names = [bound for bound in ("lt", "lte") if bound in bounds]
    if not bounds or set(bounds) - set(BOUNDS) or len(lower_names) > 1 or len(upper_names) > 1:
        expected = f'"in", "not", "exists", or one or two of {", ".join(BOUNDS)}, for {name!r}'
        raise not_a_filter(expected, dict(bounds))
    values = list(bounds.values())
    if all(isinstance(value, str) for value in values):
        low = high = None
        if lower_names:
            low = _text_bound(bounds[lower_names[0]], next_text=lower_names[0] == "gt")
        if upper_names:
            high = _text_bound(bounds[upper_names[0]], next_text=upper_names[0] == "lte")
        return Texts(name, low, high)
    numbers = {bound: _number(name, value) for bound, value in bounds.items()}
    low_number = numbers[lower_names[0]] if lower_names else -math.inf
    high_number = numbers[upper_names[0]] if upper_names else math.inf
    low_number = math.nextafter(low_number, math.inf) if "gt" in bounds else low_number
    high_number = math.nextafter(high_number, -math.inf) if "lt" in bounds else high_number
    return Numbers(name, low_number + 0.0, high_number + 0.0)  # -0.0 becomes 0.0


def _text_bound(text: str, *, next_text: bool) -> str:
    """Return `text`; with `next_text`, the text right after it in byte order (NUL appended)."""
    if len(_encodable(text).encode()) > HEAD_BYTES:
        raise not_a_filter(f"bounds of at most {HEAD_BYTES} bytes", f"{len(text.encode())} bytes")
    return text + "\0" if next_text else text


def _number(name: str, value: Any) -> float:
    if is_number(value):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise not_a_filter(f"bounds of {name!r} that are all finite numbers, or all texts", value)


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise not_a_filter("valid Unicode text", ascii(text)) from None
    return text


def not_a_filter(expected: str, value: Any, remedy: str | Remedy = FORMS) -> InputError:
    """Return the error for a value that is not a filter, with what was expected."""
    return InputError(f"invalid filter: expected {expected}, found {value!r}", remedy=remedy)
