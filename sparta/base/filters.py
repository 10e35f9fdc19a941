"""Filters on metadata: which passages a search may find.

A value counts by its text, as JSON writes it (`1990` and `"1990"` are one value), and texts that are decimal
numbers also as numbers.
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
_KEPT = 192
_WHOLE = 2**53  # from here on, not every integer is a float
_BOUNDS = ("gt", "gte", "lt", "lte")
_SIGNS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_IN = re.compile(r"([^=<>\s]+)\s+in\s+(\S.*)", re.DOTALL)
_COMPARED = re.compile(r"([^=<>]*[^=<>\s])\s*(>=|<=|=|>|<)\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_FORMS = remedy(
    "{}, {}, {}, or JSON: {}",
    Option("filter", "lang=en"),
    Option("filter", "lang in en,de"),
    Option("filter", "year>=1990"),
    '{"year": {"gte": 1990}}',
)


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field has one of these values."""

    field: str
    values: tuple[str, ...]

    def packed(self) -> list[bytes]:
        """For the Java border."""
        return [b"in", str(len(self.values)).encode(), *(term(self.field, value) for value in self.values)]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The field has a number from `low` to `high`, both included."""

    field: str
    low: float
    high: float

    def packed(self) -> list[bytes]:
        """For the Java border."""
        return [b"numbers", self.field.encode(), repr(self.low).encode(), repr(self.high).encode()]


@dataclass(frozen=True, slots=True)
class Texts:
    """The field has a text from `low` on and before `high`, by their UTF-8 bytes; None is open."""

    field: str
    low: str | None
    high: str | None

    def packed(self) -> list[bytes]:
        """For the Java border."""
        name = self.field.encode()
        high = name + b"\1" if self.high is None else name + b"\0" + self.high.encode()
        return [b"texts", name + b"\0" + (self.low or "").encode(), high]


Condition = OneOf | Numbers | Texts


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on the metadata of passages, which all must hold; of a list, one element suffices.

    >>> Filter.of({"lang": {"in": ["en", "de"]}, "year": {"gte": 1990, "lt": 2000}}) is not None
    True
    """

    conditions: tuple[Condition, ...]

    @staticmethod
    def of(value: FilterLike | None) -> Filter | None:
        """Read `{"lang": "en"}`, `{"lang": {"in": […]}}`, `{"year": {"gte": 1990, "lt": 2000}}`.

        Bounds are two numbers or two texts. None and an empty object keep everything.

        :raises InputError: what is no filter; says what was expected.
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
        """Read the conditions of a command line: `lang=en`, `lang in en,de`, `year>=1990`, or JSON.

        :raises InputError: what is no filter.
        """
        fields: dict[str, Any] = {}
        for text in texts:
            for name, wanted in _parsed(text).items():
                fields[name] = joined(name, fields[name], wanted) if name in fields else wanted
        return Filter.of(fields)

    def text_bounds(self) -> list[str]:
        """The bounds that texts are compared with."""
        texts = [one for one in self.conditions if isinstance(one, Texts)]
        return [bound.rstrip("\0") for one in texts for bound in (one.low, one.high) if bound]

    def packed(self) -> list[bytes]:
        """For the Java border: strings one after the other."""
        return [part for condition in self.conditions for part in condition.packed()]


FilterLike = Filter | Mapping[str, Any]
"""A filter, or the JSON of one."""


def text_of(value: Scalar) -> str:
    """A value as text: what equality compares; integers of more than 64 bits as floats, where one is."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE:
        value = int(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**64 and abs(value) < sys.float_info.max:
        value = float(value)
    return json.dumps(value)


def joined(name: str, first: Any, second: Any) -> dict[str, Any]:
    """Two conditions on one field as one, which an element of a list must hold together.

    :raises InputError: they are not two different bounds.
    """
    bounds = [one for one in (first, second) if isinstance(one, dict) and "in" not in one]
    if len(bounds) < 2 or first.keys() & second.keys():
        raise InputError(
            f"expected one condition on {name!r}, or two bounds, found {first!r} and {second!r}",
            remedy=remedy(
                "name several values as in {} or {}", Option("filter", f"{name} in A,B"), '{"in": [...]}'
            ),
        )
    return {**first, **second}


def term(field: str, value: str) -> bytes:
    """A value as the index holds it: of one longer than 256 bytes its first 192 bytes and a hash."""
    encoded = value.encode()
    if len(encoded) > LONGEST:
        start = encoded[:_KEPT].decode(errors="ignore").encode()
        encoded = start + hashlib.sha256(encoded).hexdigest().encode()
    return field.encode() + b"\0" + encoded


def _parsed(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"expected a filter as JSON, found {text!r}: {error}", remedy=_FORMS) from None
        return dict(found)
    if several := _IN.fullmatch(text.strip()):
        values = [value.strip() for value in several[2].split(",")]
        return {several[1]: {"in": [one for value in values for one in _meant(value)]}}
    compared = _COMPARED.fullmatch(text.strip())
    if not compared:
        raise InputError(f"expected a filter as FIELD=VALUE, found {text!r}", remedy=_FORMS)
    name, sign, value = compared.groups()
    if value.startswith(tuple("=<>")) or (sign != "=" and not value):
        raise InputError(f"expected a value after {sign}, found {value!r} in {text!r}", remedy=_FORMS)
    if sign == "=" and name.endswith("!"):
        raise InputError(
            f"expected one of =, <, <=, >, >=, in, found != in {text!r}",
            remedy=remedy(
                "name the values to keep, as in {}; a field whose name ends in ! needs JSON, as in {}",
                Option("filter", f"{name[:-1].rstrip()} in A,B"),
                f"'{_as_json(name, value)}'",
            ),
        )
    if sign != "=":
        return {name: {_SIGNS[sign]: _bound(value)}}
    meant = _meant(value)
    return {name: value if meant == [value] else {"in": meant}}


def _as_json(name: str, value: str) -> str:
    return json.dumps({name: value}, ensure_ascii=False)


def _meant(value: str) -> list[str]:
    """What a value of the command line may be: the text, and the number that JSON writes otherwise."""
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


def _condition(name: Any, wanted: Any) -> Condition:
    if not isinstance(name, str) or not name or "\0" in name:
        raise _not_a_filter("the name of a field", name)
    _encodable(name)
    if isinstance(wanted, Mapping) and set(wanted) == {"in"}:
        values = wanted["in"]
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise _not_a_filter(f"a list of values of {name!r}", values)
        listed = tuple(dict.fromkeys(_value(name, value) for value in values))
        if not listed:
            raise _not_a_filter(f"at least one value of {name!r}", values)
        return OneOf(name, listed)
    if isinstance(wanted, Mapping):
        return _range(name, wanted)
    return OneOf(name, (_value(name, wanted),))


def _value(name: str, value: Any) -> str:
    value = plain_number(value) if is_number(value) else value
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return _encodable(text_of(value))
    remedy = '{"in": [...]} names several' if isinstance(value, list) else _FORMS
    raise _not_a_filter(f"a text, a number, true or false as the value of {name!r}", value, remedy)


def _range(name: str, bounds: Mapping[str, Any]) -> Condition:
    lows = [bound for bound in ("gt", "gte") if bound in bounds]
    highs = [bound for bound in ("lt", "lte") if bound in bounds]
    if not bounds or set(bounds) - set(_BOUNDS) or len(lows) > 1 or len(highs) > 1:
        raise _not_a_filter(f'"in", or one or two of {", ".join(_BOUNDS)}, for {name!r}', dict(bounds))
    values = list(bounds.values())
    if all(isinstance(value, str) for value in values):
        low = _text_bound(bounds[lows[0]], after=lows[0] == "gt") if lows else None
        return Texts(name, low, _text_bound(bounds[highs[0]], after=highs[0] == "lte") if highs else None)
    numbers = {bound: _number(name, value) for bound, value in bounds.items()}
    low_number = numbers[lows[0]] if lows else -math.inf
    high_number = numbers[highs[0]] if highs else math.inf
    low_number = math.nextafter(low_number, math.inf) if "gt" in bounds else low_number
    high_number = math.nextafter(high_number, -math.inf) if "lt" in bounds else high_number
    return Numbers(name, low_number + 0.0, high_number + 0.0)  # -0.0 becomes 0.0


def _text_bound(text: str, *, after: bool) -> str:
    """A text, or the next one after it."""
    if len(_encodable(text).encode()) > _KEPT:
        raise _not_a_filter(f"bounds of at most {_KEPT} bytes", f"one of {len(text.encode())}")
    return text + "\0" if after else text


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
        raise _not_a_filter("Unicode text", ascii(text)) from None
    return text


def _not_a_filter(expected: str, found: Any, remedy: str | Remedy = _FORMS) -> InputError:
    return InputError(f"filter: expected {expected}, found {found!r}", remedy=remedy)
