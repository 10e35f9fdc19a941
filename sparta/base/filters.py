"""Metadata filters, which limit a search to some passages.

Values are compared by their JSON text: `1990` and `"1990"` are the same value. Strings that are decimal
numbers also match as numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparta.base.checks import is_number, plain_number
from sparta.base.errors import InputError
from sparta.base.remedies import Option, Remedy, remedy

Scalar = str | int | float | bool
LONGEST = 256
_HEAD_BYTES = 192
_FIRST_INEXACT = 2**53  # from here on, floats cannot hold every integer
_BOUNDS = ("gt", "gte", "lt", "lte")
_SIGNS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_IN = re.compile(r"([^=<>\s]+)\s+in\s+(\S.*)", re.DOTALL)
_COMPARISON = re.compile(r"([^=<>]*[^=<>\s])\s*(>=|<=|=|>|<)\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_FORMS = remedy(
    "write the filter as {}, {}, {}, or as JSON: {}",
    Option("filter", "lang=en"),
    Option("filter", "lang in en,de"),
    Option("filter", "year>=1990"),
    '{"year": {"gte": 1990}}',
)


@dataclass(frozen=True, slots=True)
class OneOf:
    """The condition that the field has one of `values`."""

    field: str
    values: tuple[str, ...]

    def packed(self) -> list[bytes]:
        """Return the condition as byte strings for Java."""
        return [b"in", str(len(self.values)).encode(), *(term(self.field, value) for value in self.values)]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The condition that the field has a number from `low` to `high`, both inclusive."""

    field: str
    low: float
    high: float

    def packed(self) -> list[bytes]:
        """Return the condition as byte strings for Java."""
        return [b"numbers", self.field.encode(), repr(self.low).encode(), repr(self.high).encode()]


@dataclass(frozen=True, slots=True)
class Texts:
    """The condition that the field has a string from `low` (inclusive) to `high` (exclusive).

    Strings are compared by their UTF-8 bytes. A bound of None is open.
    """

    field: str
    low: str | None
    high: str | None

    def packed(self) -> list[bytes]:
        """Return the condition as byte strings for Java."""
        field = self.field.encode()
        high = field + b"\1" if self.high is None else field + b"\0" + self.high.encode()
        return [b"texts", field + b"\0" + (self.low or "").encode(), high]


Condition = OneOf | Numbers | Texts


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on a passage's metadata.

    All conditions must hold; in a list field, one matching element suffices.

    >>> Filter.of({"lang": {"in": ["en", "de"]}, "year": {"gte": 1990, "lt": 2000}}) is not None
    True
    """

    conditions: tuple[Condition, ...]

    @staticmethod
    def of(value: FilterLike | None) -> Filter | None:
        """Build a filter from an object of fields and their conditions.

        A condition is a value, `{"in": […]}`, or one or two bounds: `{"year": {"gte": 1990, "lt": 2000}}`.

        Two bounds must be two numbers or two strings. None and an empty object filter nothing and give
        None.

        :raises InputError: `value` is not a valid filter; the error says what was expected.
        """
        if value is None or isinstance(value, Filter):
            return value
        if not isinstance(value, Mapping):
            raise _not_a_filter("an object of fields", value)
        return (
            Filter(tuple(_condition(name, condition) for name, condition in value.items())) if value else None
        )

    @staticmethod
    def parse(texts: Sequence[str]) -> Filter | None:
        """Build a filter from command-line conditions: `lang=en`, `lang in en,de`, `year>=1990`, or JSON.

        :raises InputError: a condition is not valid.
        """
        fields: dict[str, Any] = {}
        for text in texts:
            for name, condition in _parsed(text).items():
                fields[name] = joined(name, fields[name], condition) if name in fields else condition
        return Filter.of(fields)

    def text_bounds(self) -> list[str]:
        """Return the bounds of all string ranges in the filter."""
        ranges = [condition for condition in self.conditions if isinstance(condition, Texts)]
        return [bound.rstrip("\0") for texts in ranges for bound in (texts.low, texts.high) if bound]

    def packed(self) -> list[bytes]:
        """Return all conditions as consecutive byte strings for Java."""
        return [string for condition in self.conditions for string in condition.packed()]


FilterLike = Filter | Mapping[str, Any]
"""A filter, or its JSON object."""


def text_of(value: Scalar) -> str:
    """Return a value as the text that equality compares.

    Integers of more than 64 bits are written as floats, if a float can hold them.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < _FIRST_INEXACT:
        value = int(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**64 and abs(value) < sys.float_info.max:
        value = float(value)
    return json.dumps(value)


def joined(name: str, first: Any, second: Any) -> dict[str, Any]:
    """Merge two conditions on the field `name` into one object.

    One element of a list field must meet both conditions.

    :raises InputError: the conditions are not two different bounds.
    """
    bounds = [
        condition for condition in (first, second) if isinstance(condition, dict) and "in" not in condition
    ]
    if len(bounds) < 2 or first.keys() & second.keys():
        raise InputError(
            f"conditions on the field {name!r} cannot be combined: {first!r} and {second!r}",
            remedy=remedy(
                "write one condition, or a lower and an upper bound; for several values, use {} or {}",
                Option("filter", f"{name} in A,B"),
                '{"in": [...]}',
            ),
        )
    return {**first, **second}


def term(field: str, value: str) -> bytes:
    """Return the index term of a metadata value: field, NUL and value, in UTF-8.

    A value longer than 256 bytes is shortened to its first 192 bytes and a hash.
    """
    encoded = value.encode()
    if len(encoded) > LONGEST:
        start = encoded[:_HEAD_BYTES].decode(errors="ignore").encode()
        encoded = start + hashlib.sha256(encoded).hexdigest().encode()
    return field.encode() + b"\0" + encoded


def _parsed(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"invalid filter: {text!r} is not JSON: {error}", remedy=_FORMS) from None
        return dict(fields)
    if list_match := _IN.fullmatch(text.strip()):
        values = [value.strip() for value in list_match[2].split(",")]
        return {list_match[1]: {"in": [reading for value in values for reading in _readings(value)]}}
    comparison = _COMPARISON.fullmatch(text.strip())
    if not comparison:
        raise InputError(f"invalid filter: expected FIELD=VALUE, found {text!r}", remedy=_FORMS)
    name, sign, value = comparison.groups()
    if value.startswith(tuple("=<>")) or (sign != "=" and not value):
        raise InputError(
            f"invalid filter {text!r}: expected a value after {sign}, found {value!r}", remedy=_FORMS
        )
    if sign == "=" and name.endswith("!"):
        raise InputError(
            f"the filter {text!r} uses !=, which is not supported; use =, <, <=, >, >= or in",
            remedy=remedy(
                "list the values to keep, as in {}; for a field name that ends in !, use JSON, as in {}",
                Option("filter", f"{name[:-1].rstrip()} in A,B"),
                f"'{_as_json(name, value)}'",
            ),
        )
    if sign != "=":
        return {name: {_SIGNS[sign]: _bound(value)}}
    readings = _readings(value)
    return {name: value if readings == [value] else {"in": readings}}


def _as_json(name: str, value: str) -> str:
    return json.dumps({name: value}, ensure_ascii=False)


def _readings(value: str) -> list[str]:
    """Return the readings of a command-line value: its text, and its number as JSON writes the number."""
    if not _NUMBER.fullmatch(value):
        return [value]
    try:
        number = json.loads(value)
        return list(dict.fromkeys([value, text_of(number)])) if math.isfinite(number) else [value]
    except (ValueError, OverflowError):  # too many digits
        return [value]


def _bound(text: str) -> str | float:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _condition(name: Any, condition: Any) -> Condition:
    if not isinstance(name, str) or not name or "\0" in name:
        raise _not_a_filter("the name of a field", name)
    _encodable(name)
    if isinstance(condition, Mapping) and set(condition) == {"in"}:
        values = condition["in"]
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise _not_a_filter(f"a list of values of {name!r}", values)
        distinct_values = tuple(dict.fromkeys(_value(name, value) for value in values))
        if not distinct_values:
            raise _not_a_filter(f"at least one value of {name!r}", values)
        return OneOf(name, distinct_values)
    if isinstance(condition, Mapping):
        return _range(name, condition)
    return OneOf(name, (_value(name, condition),))


def _value(name: str, value: Any) -> str:
    value = plain_number(value) if is_number(value) else value
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return _encodable(text_of(value))
    advice = 'use {"in": [...]} for several values' if isinstance(value, list) else _FORMS
    raise _not_a_filter(f"a text, a number, true or false as the value of {name!r}", value, advice)


def _range(name: str, bounds: Mapping[str, Any]) -> Condition:
    lower_names = [bound for bound in ("gt", "gte") if bound in bounds]
    upper_names = [bound for bound in ("lt", "lte") if bound in bounds]
    if not bounds or set(bounds) - set(_BOUNDS) or len(lower_names) > 1 or len(upper_names) > 1:
        raise _not_a_filter(f'"in", or one or two of {", ".join(_BOUNDS)}, for {name!r}', dict(bounds))
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
    if len(_encodable(text).encode()) > _HEAD_BYTES:
        raise _not_a_filter(f"bounds of at most {_HEAD_BYTES} bytes", f"{len(text.encode())} bytes")
    return text + "\0" if next_text else text


def _number(name: str, value: Any) -> float:
    if is_number(value):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise _not_a_filter(f"bounds of {name!r} that are all finite numbers, or all texts", value)


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _not_a_filter("valid Unicode text", ascii(text)) from None
    return text


def _not_a_filter(expected: str, value: Any, remedy: str | Remedy = _FORMS) -> InputError:
    return InputError(f"invalid filter: expected {expected}, found {value!r}", remedy=remedy)
