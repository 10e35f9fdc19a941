"""Parse the conditions of the command line into the JSON form of filters."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from sparta.base.errors import InputError
from sparta.base.filters.conditions import text_of
from sparta.base.filters.json_form import BOUNDS, COMPARISONS, FORMS

_IN = re.compile(r"([^=<>\s]+)\s+(not\s+)?in\s+(\S.*)", re.DOTALL)
_EXISTS = re.compile(r"([^=<>\s]+)\s+exists")
_COMPARISON = re.compile(r"([^=<>]*?[^=<>\s])\s*(>=|<=|!=|=|>|<)\s*(.*)", re.DOTALL)
_NEGATED = re.compile(r"not\s+(\S.*)", re.DOTALL)
_OR = re.compile(r"(?<!\s)(\s++or\s++)")  # begins at the first blank, so long blanks take linear time
_AND = re.compile(r"(?<!\s)(\s++and\s++)")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


def fields_of(text: str) -> dict[str, Any]:
    """Return the JSON form of command-line conditions, joined by `or` and, more closely, by `and`.

    Both words join conditions only if a condition follows: `title=Dead or Alive` is one condition.

    :raises InputError: the text is not a condition.
    """
    if text.lstrip().startswith("{"):
        try:
            return dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise InputError(f"invalid filter: {text!r} is not JSON: {error}", remedy=FORMS) from None
    parsed = [_all_of(alternative) for alternative in _joined_by(_OR, text.strip())]
    return parsed[0] if len(parsed) == 1 else {"or": parsed}


def _all_of(text: str) -> dict[str, Any]:
    """Return the JSON form of conditions that `and` joins."""
    parts = merged([_condition(part) for part in _joined_by(_AND, text)])
    return parts[0] if len(parts) == 1 else {"and": parts}


def _joined_by(word: re.Pattern[str], text: str) -> list[str]:
    """Return the conditions that a word joins; a piece that is no condition belongs to the one before."""
    pieces = word.split(text)
    conditions = pieces[:1]
    for separator, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        if _is_condition(piece):
            conditions.append(piece)
        else:
            conditions[-1] += separator + piece
    return conditions


def filter_object(texts: Sequence[str]) -> dict[str, Any] | None:
    """Return the JSON form of a filter whose conditions are texts of the command line; None without any.

    :raises InputError: a text is not a condition.
    """
    parts = merged([fields_of(text) for text in texts])
    return {"and": parts} if len(parts) > 1 else next(iter(parts), None)


def merged(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the objects of several conditions, with the two bounds of a field in one object.

    One element of a list field must meet both bounds.
    """
    first: dict[str, Any] = {}
    others: list[dict[str, Any]] = []
    for name, condition in (item for part in parts for item in part.items()):
        if name not in first:
            first[name] = condition
        elif _sides(first[name]) | _sides(condition) == set("gl") and len(first[name]) == len(condition) == 1:
            first[name] = {**first[name], **condition}
        else:
            others.append({name: condition})
    return [part for part in (first, *others) if part]


def _sides(condition: Any) -> set[str]:
    """Return `g` for a lower bound and `l` for an upper bound among the conditions of a field."""
    return {bound[0] for bound in condition if bound in BOUNDS} if isinstance(condition, dict) else set()


def _is_condition(text: str) -> bool:
    return any(form.fullmatch(text) for form in (_IN, _EXISTS, _COMPARISON))


def _condition(text: str) -> dict[str, Any]:
    """Return the JSON form of one condition."""
    if (negated := _NEGATED.fullmatch(text)) and _is_condition(negated[1]):
        return {"not": _condition(negated[1])}
    if listed := _IN.fullmatch(text):
        values = [value.strip() for value in listed[3].split(",")]
        condition = {"in": [reading for value in values for reading in _readings(value)]}
        return {listed[1]: {"not": condition} if listed[2] else condition}
    if existing := _EXISTS.fullmatch(text):
        return {existing[1]: {"exists": True}}
    comparison = _COMPARISON.fullmatch(text)
    if not comparison:
        raise InputError(f"invalid filter: expected FIELD=VALUE, found {text!r}", remedy=FORMS)
    name, sign, value = comparison.groups()
    if value.startswith(tuple("=<>")) or (sign in COMPARISONS and not value):
        raise InputError(
            f"invalid filter {text!r}: expected a value after {sign}, found {value!r}", remedy=FORMS
        )
    if sign in COMPARISONS:
        return {name: {COMPARISONS[sign]: _bound(value)}}
    readings = _readings(value)
    equal = value if readings == [value] else {"in": readings}
    return {name: {"not": equal} if sign == "!=" else equal}


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
