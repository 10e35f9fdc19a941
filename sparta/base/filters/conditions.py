"""The conditions of a filter, and the index terms of metadata values.

Values are compared by their JSON text: `1990` and `"1990"` are the same value. Strings that are decimal
numbers also match as numbers.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

Scalar = str | int | float | bool
LONGEST = 256
HEAD_BYTES = 192
_FIRST_INEXACT = 2**53  # from here on, floats cannot hold every integer


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


@dataclass(frozen=True, slots=True)
class Exists:
    """The condition that the field has a value."""

    field: str

    def packed(self) -> list[bytes]:
        """Return the condition as byte strings for Java."""
        return [b"exists", self.field.encode()]


@dataclass(frozen=True, slots=True)
class Not:
    """The condition that another condition does not hold; a passage without the field meets it."""

    condition: Condition

    def packed(self) -> list[bytes]:
        """Return the condition as byte strings for Java."""
        return [b"not", *self.condition.packed()]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The condition that at least one of `conditions` holds."""

    conditions: tuple[Condition, ...]

    def packed(self) -> list[bytes]:
        """Return the condition as byte strings for Java."""
        return _packed(b"any", self.conditions)


@dataclass(frozen=True, slots=True)
class AllOf:
    """The condition that all of `conditions` hold."""

    conditions: tuple[Condition, ...]

    def packed(self) -> list[bytes]:
        """Return the condition as byte strings for Java."""
        return _packed(b"all", self.conditions)


SimpleCondition = OneOf | Numbers | Texts | Exists
Condition = SimpleCondition | Not | AnyOf | AllOf


def _packed(name: bytes, conditions: tuple[Condition, ...]) -> list[bytes]:
    strings = [string for condition in conditions for string in condition.packed()]
    return [name, str(len(conditions)).encode(), *strings]


def simple_conditions(conditions: tuple[Condition, ...]) -> Iterator[SimpleCondition]:
    """Yield the conditions on fields, also those inside `Not`, `AnyOf` and `AllOf`."""
    for condition in conditions:
        if isinstance(condition, Not):
            yield from simple_conditions((condition.condition,))
        elif isinstance(condition, AnyOf | AllOf):
            yield from simple_conditions(condition.conditions)
        else:
            yield condition


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


def term(field: str, value: str) -> bytes:
    """Return the index term of a metadata value: field, NUL and value, in UTF-8.

    A value longer than 256 bytes is shortened to its first 192 bytes and a hash.
    """
    encoded = value.encode()
    if len(encoded) > LONGEST:
        start = encoded[:HEAD_BYTES].decode(errors="ignore").encode()
        encoded = start + hashlib.sha256(encoded).hexdigest().encode()
    return field.encode() + b"\0" + encoded
