"""Parsing and checking one record of an input file."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import itertools
import json
import math
import numbers
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparta.base.checks import numpy_kind, plain_number
from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.base.remedies import Remedy

EMPTY_TEXT = "empty text"
REMOVED = "removed file"
MAX_ID_BYTES = 512
DEEPEST = 500
"""The maximum nesting depth of a record.

Python parses slightly deeper JSON than it can write inside a response.
"""
_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
}
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_NO_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[^][{}"]+', re.DOTALL)
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_IN_IDS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")


class BadRecordError(InputError):
    """A line that is not a valid record. `reason` is a short category; the message has the details."""

    def __init__(
        self, reason: str, detail: str = "", *, where: str = "", remedy: str | Remedy = "correct the record"
    ) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason, where=where, remedy=remedy)
        self.reason = reason


@contextlib.contextmanager
def placed(where: str) -> Iterator[None]:
    """Add the location `where` to any InputError that passes through without a location."""
    try:
        yield
    except InputError as error:
        error.where = error.where or where
        raise


def split_place(where: str) -> tuple[str, int]:
    """Split a place such as `path:3` or `path: row 3` before its number."""
    path = where.rstrip("0123456789")
    return path, int(where[len(path) :])


TO_UTF8 = "convert the file to UTF-8 (iconv -f ITS_ENCODING -t UTF-8)"


def decoded(line: bytes, where: str = "") -> str:
    """Decode a line, or several lines, as UTF-8, without a byte order mark.

    :param where: path and number of the first line; the error names the line of the invalid byte
    :raises BadRecordError: the line is not UTF-8.
    """
    try:
        return line.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        *lines_before, start_of_line = line[: error.start].split(b"\n")
        place = ""
        if where:
            path, number = split_place(where)
            place = f"{path}{number + len(lines_before)}"
        position = f"byte 0x{line[error.start]:02x} at byte {len(start_of_line)} of the line (counted from 0)"
        raise BadRecordError(
            "invalid UTF-8", f"expected UTF-8 text, found {position}", where=place, remedy=TO_UTF8
        ) from None


def zero_bytes() -> BadRecordError:
    """Return the error for a text or a table header with zero bytes."""
    detail = "expected UTF-8 text, found zero bytes, as in UTF-16 and in binary files"
    remedy = "convert the file to UTF-8, for example with: iconv -f UTF-16LE -t UTF-8"
    return BadRecordError("invalid UTF-8", detail, remedy=remedy)


def parse_object(line: str) -> dict[str, Any]:
    """Parse a line as a JSON object, with `parse_value`.

    :raises BadRecordError: the line is not a JSON object.
    """
    record = parse_value(line)
    if not isinstance(record, dict):
        remedy = "write each record as a JSON object (jq -c '.[]' converts an array of objects to lines)"
        raise BadRecordError("not a JSON object", f"found {_kind(record)}", remedy=remedy)
    return record


def as_object(record: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a record in memory to the object that its JSON line would give.

    :raises BadRecordError: the record is not JSON-serializable.
    """
    return parse_object(json_line(record))


def json_line(record: Mapping[str, Any]) -> str:
    """Return the JSON line of a record in memory; NaN and infinities are written, though JSON lacks them.

    Dates and times become ISO strings, decimals numbers, NumPy's arrays lists, also inside lists and objects.
    NumPy's numbers, booleans, times and arrays without dimensions become values of the same kinds.

    :raises BadRecordError: the record is not JSON-serializable.
    """
    try:
        return json.dumps(dict(record), default=_plain)
    except RecursionError:
        raise _too_deep("more") from None
    except (TypeError, ValueError) as error:
        remedy = "convert the values to strings, numbers, lists and dictionaries, as in str(date)"
        raise BadRecordError("value not JSON-serializable", str(error), remedy=remedy) from None


def _plain(value: Any) -> Any:
    """Return a value that JSON lacks as one that JSON has.

    :raises TypeError: there is no such value.
    """
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if hasattr(value, "tolist") and not isinstance(value, numbers.Number):
        is_times = numpy_kind(value) == "M"  # NumPy gives nanoseconds as bare integers
        return (value.astype("datetime64[us]") if is_times else value).tolist()
    return plain_number(value)


def parse_value(line: str) -> Any:
    """Parse a line as a JSON value. NaN, infinities and lone surrogates are refused.

    :raises BadRecordError: the line is not valid JSON, or is nested too deeply.
    """
    try:
        value = _decoded_json(line)
        refuse_half_pairs(line, value)
    except json.JSONDecodeError as error:
        detail = f"expected one JSON object, found {shortened(line)} ({error.msg}, column {error.colno})"
        raise BadRecordError("broken JSON", detail) from None
    except ValueError as error:
        raise BadRecordError("broken JSON", str(error)) from None
    except RecursionError:
        raise _too_deep(f"{_depth(line):,}") from None
    if line.count("[") + line.count("{") > DEEPEST and _is_deep(value):
        raise _too_deep(f"{_depth(line):,}")
    return value


def _decoded_json(line: str) -> Any:
    """Return what `_JSON.decode` returns; without spaces around the value, faster."""
    try:
        value, end = _JSON.raw_decode(line)
    except json.JSONDecodeError:
        end = -1
    return value if end == len(line) else _JSON.decode(line)


def _too_deep(levels: str) -> BadRecordError:
    return BadRecordError("JSON nested too deeply", f"expected at most {DEEPEST} levels, found {levels}")


def _depth(line: str) -> int:
    """Return how deeply a JSON line is nested, by counting brackets."""
    brackets = _NO_BRACKET.sub("", line)
    return max(itertools.accumulate(1 if c in "[{" else -1 for c in brackets), default=0)


def json_parts(line: bytes) -> int:
    """Return an upper bound on the number of JSON values in a line, by counting punctuation."""
    punctuation = _STRING.sub(b"", line)
    return 1 + punctuation.count(b",") + punctuation.count(b"[") + punctuation.count(b"{")


def _is_deep(value: Any) -> bool:
    """Return whether a JSON value has more than `DEEPEST` levels of lists and objects."""
    level = [value]
    for _ in range(DEEPEST):
        containers = [item for item in level if isinstance(item, dict | list)]
        level = [
            child
            for container in containers
            for child in (container.values() if isinstance(container, dict) else container)
        ]
    return any(isinstance(item, dict | list) for item in level)


def refuse_half_pairs(text: str, value: Any) -> None:
    """Check that no string of a JSON value contains a lone surrogate, which cannot be written or searched.

    :param text: the JSON text of the value
    :raises ValueError: a string contains a lone surrogate.
    """
    try:
        if _SURROGATE_ESCAPE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError(
            "a string contains half a surrogate pair (\\ud800 to \\udfff), which is not valid Unicode"
        ) from None


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, found {literal}")
    return number


_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def shortened(line: str | bytes) -> str:
    """Return the beginning of a line, quoted, for an error message."""
    text = line[:80].decode("utf-8", "replace") if isinstance(line, bytes) else line
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}…"


TEXT_FIELDS = ("text", "contents")


def read_passage(record: Mapping[str, Any], where: str) -> Passage:
    """Return the passage of a corpus record.

    :raises BadRecordError: the record is not valid.
    """
    title = "" if record.get("title") is None else string_field(record, "title", of="title")
    names = [name for name in TEXT_FIELDS if record.get(name) is not None]  # tables have nulls
    names.sort(key=lambda name: isinstance(record[name], str) and not record[name].strip())  # blanks last
    is_null = not names and not record.keys().isdisjoint(TEXT_FIELDS)
    text = "" if is_null else string_field(record, *(names or TEXT_FIELDS), of="text")
    if not text.strip():
        if not title.strip():
            raise BadRecordError(EMPTY_TEXT)
        return Passage(identifier(record), title, record=_without_nulls(record), where=where)
    context, start, end = _context(record, text)
    record = record if context else _without_nulls(record)
    return Passage(identifier(record), text, title, context, start, end, record, where)


def identifier(record: Mapping[str, Any], names: Sequence[str] = ("id", "_id")) -> str:
    """Return the id of a record, a string or an integer, from the first of the named fields that it has.

    :raises BadRecordError: the id is missing or not valid.
    """
    value = _field(record, *names, of="id")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadRecordError("id of the wrong type", f"expected a string or an integer, found {_kind(value)}")
    text = str(value)
    if not text:
        raise BadRecordError("invalid id", "the id is empty")
    if _NOT_IN_IDS.search(text):
        raise BadRecordError(
            "invalid id",
            f"expected one word without white space or control characters, found {shortened(text)}",
            remedy="replace white space in ids, for example by _ (TREC runs separate columns by spaces)",
        )
    if len(text.encode("utf-8")) > MAX_ID_BYTES:
        detail = f"expected at most {MAX_ID_BYTES} bytes, found {len(text.encode('utf-8'))}"
        raise BadRecordError("invalid id", detail)
    return text


def _field(record: Mapping[str, Any], *names: str, of: str) -> Any:
    for name in names:
        if name in record:
            return record[name]
    field_names = " or ".join(f'"{name}"' for name in names)
    record_names = ", ".join(itertools.islice(record, 8)) or "no field"
    raise BadRecordError(
        f"missing {of}", f"expected the field {field_names}, found {shortened(record_names)}"
    )


def _without_nulls(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record without null fields of a context: rows of a table have all columns."""
    nulls = {name for name in ("context", "start", "end") if name in record and record[name] is None}
    return {name: value for name, value in record.items() if name not in nulls} if nulls else record


def string_field(record: Mapping[str, Any], *names: str, of: str) -> str:
    """Return the first of the named fields that the record has; the value must be a string.

    :param of: what the field holds, for the error message
    :raises BadRecordError: no field exists, or the value is not a string.
    """
    value = _field(record, *names, of=of)
    if not isinstance(value, str):
        raise BadRecordError(f"{of} of the wrong type", f"expected a string, found {_kind(value)}")
    return value


def _context(record: Mapping[str, Any], text: str) -> tuple[str, int, int]:
    """Return the context, and the start and end of the text in it. A context needs all three fields.

    Tables have all their columns in each row, so an empty or null context counts as none.
    """
    if record.get("context") in (None, "") or not {"start", "end"} <= record.keys():
        return "", 0, 0
    context = string_field(record, "context", of="context")
    start, end = _offset(record, "start"), _offset(record, "end")
    if context[start:end] != text:
        expected = f"the text {shortened(text)} at [{start}:{end}] of the context"
        detail = f"expected {expected}, found {shortened(context[start:end])}"
        remedy = "count start and end in characters, from 0"
        raise BadRecordError("context mismatch", detail, remedy=remedy)
    return context, start, end


def _offset(record: Mapping[str, Any], name: str) -> int:
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        description = value if isinstance(value, int) else _kind(value)
        raise BadRecordError(f"{name} of the wrong type", f"expected an integer from 0, found {description}")
    return value


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "an object")
