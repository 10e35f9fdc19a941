"""Parsing and checking one record of an input file."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparta.base.checks import plain_number
from sparta.base.errors import InputError
from sparta.base.files import shown_name
from sparta.base.records import Passage
from sparta.base.remedies import Remedy

EMPTY_TEXT = "empty text"
MAX_ID_BYTES = 512
DEEPEST = 500
"""The maximum nesting depth of a record.

Python parses slightly deeper JSON than it can write inside a response.
"""
_COLUMN_NAMES = {"id", "_id", "docid", "doc_id", "pid", "text", "contents", "passage", "title"}

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
_MAX_FRONT_MATTER = 1 << 16
"""The maximum length of front matter, in characters; parsing it takes less than a second."""
_FRONT = re.compile(r"---[ \t]*\r?\n")
_FRONT_END = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
_NOT_METADATA = {"id", "_id", "title", "text", "contents", "context", "start", "end"}
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_HTML = re.compile(r" {0,3}<(!--|pre|script|style|textarea)", re.IGNORECASE)
_HEADING = re.compile(r" {0,3}#{1,6}(?![^ \t])(.*)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*")
_NO_PARAGRAPH = re.compile(r" {4}|\t| {0,3}(?:[>|<]|(?:[-*+]|\d{1,9}[.)])[ \t])")
_TSV_FIELD = re.compile(r'(?:"((?:[^"]++|"")*+)"|((?!")[^\t]*+))(?:\t|\Z)')


class BadRecordError(InputError):
    """A line that is not a valid record. `reason` is a short category; the message has the details."""

    def __init__(
        self, reason: str, detail: str = "", *, where: str = "", remedy: str | Remedy = "correct the line"
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


TO_UTF8 = "convert the file to UTF-8 (iconv -f ITS_ENCODING -t UTF-8)"


def decoded(line: bytes) -> str:
    """Decode a line as UTF-8, without a byte order mark.

    :raises BadRecordError: the line is not UTF-8.
    """
    try:
        return line.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        position = f"byte 0x{line[error.start]:02x} at byte {error.start} of the line (counted from 0)"
        raise BadRecordError(
            "invalid UTF-8", f"expected UTF-8 text, found {position}", remedy=TO_UTF8
        ) from None


def parse_object(line: str) -> dict[str, Any]:
    """Parse a line as a JSON object, with `parse_value`.

    :raises BadRecordError: the line is not a JSON object.
    """
    record = parse_value(line)
    if not isinstance(record, dict):
        remedy = "write one JSON object per line (jq -c '.[]' converts an array)"
        raise BadRecordError("not a JSON object", f"the line contains {_kind(record)}", remedy=remedy)
    return record


def as_object(record: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a record in memory to the object that its JSON line would give.

    :raises BadRecordError: the record is not JSON-serializable.
    """
    try:
        line = json.dumps(dict(record), default=plain_number)
    except RecursionError:
        raise _too_deep("more") from None
    except (TypeError, ValueError) as error:
        remedy = "convert the values to strings, numbers, lists and dictionaries, as in str(date)"
        raise BadRecordError("value not JSON-serializable", str(error), remedy=remedy) from None
    return parse_object(line)


def parse_value(line: str) -> Any:
    """Parse a line as a JSON value. NaN, infinities and lone surrogates are refused.

    :raises BadRecordError: the line is not valid JSON, or is nested too deeply.
    """
    try:
        value = _JSON.decode(line)
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


def read_header(path: str, first_line: tuple[int, bytes]) -> list[str] | None:
    """Return the column names in the first line of a TSV file.

    :param first_line: number and content of the first line
    :return: None if the line is already a record: two columns, neither with a known name
    :raises InputError: the header lacks a column for ids or texts.
    """
    where = f"{shown_name(path)}:{first_line[0]}"
    try:
        line = decoded(first_line[1])
        cells = line.split("\t")
        known_names = {name.strip('" ').lower() for name in cells} & _COLUMN_NAMES
        if len(cells) == 2 and all(map(str.strip, cells)) and not known_names:
            return None
        columns = _split_row(line)
        if len(columns) == 2 < len(cells) and not known_names:  # a quoted text contains a tab
            return None
    except (
        BadRecordError
    ) as bad:  # fatal, also when bad records are skipped: no row can be read without a header
        raise InputError(bad.message, where=where, remedy=bad.remedy) from None
    names = set(columns)
    if len(names) < len(columns) or not names & {"id", "_id"} or not names & {"text", "contents"}:
        raise InputError(
            f"wrong TSV header: expected the columns id, text, title, found {shortened(first_line[1])}",
            where=where,
            remedy="begin the file with id<TAB>text<TAB>title, or write lines id<TAB>text without a header",
        )
    return columns


def read_pair(line: str) -> dict[str, Any]:
    """Return the id and text of a line of TSV without a header.

    Quotes around the text belong to the text. Exceptions follow CSV: the id is quoted too, or the text
    contains further quotes or a tab.
    """
    fields = line.split("\t")
    if '"' in line:
        with contextlib.suppress(BadRecordError):
            unquoted = _split_row(line)
            if len(unquoted) == 2 and (line.startswith('"') or {'"', "\t"} & set(unquoted[1])):
                fields = unquoted
    return _named(("id", "text"), fields)


def read_row(columns: Sequence[str], line: str) -> dict[str, Any]:
    """Return a row of TSV by column name; quoted fields are read as in CSV."""
    return _named(columns, _split_row(line))


def _named(columns: Sequence[str], fields: Sequence[str]) -> dict[str, Any]:
    if len(fields) != len(columns):
        detail = f"expected {len(columns)} columns ({', '.join(columns)}), found {len(fields)}"
        raise BadRecordError("wrong number of columns", detail)
    return dict(zip(columns, fields, strict=True))


def _split_row(line: str) -> list[str]:
    if '"' not in line:
        return line.split("\t")
    fields: list[str] = []
    end = 0
    while True:
        match = _TSV_FIELD.match(line, end)
        if match is None:
            expected = 'a closing quote on this line and inner quotes doubled ("")'
            raise BadRecordError(
                "column with broken quotes", f"expected {expected}, found {shortened(line[end:])}"
            )
        quoted, plain = match.groups()
        fields.append(plain if quoted is None else quoted.replace('""', '"'))
        end = match.end()
        if not match.group().endswith("\t"):
            return fields


def read_markdown(text: str) -> dict[str, Any]:
    """Return the record of a Markdown text: the fields of its front matter, with `title` and `text`.

    The title comes from the front matter, else from the first heading (CommonMark); otherwise there is
    none. The text is everything after the front matter.

    :raises BadRecordError: the front matter is not valid YAML, or is not a block of names and values.
    """
    front, body = _front_matter(text)
    title = front.get("title")
    if not isinstance(title, str) or not title.strip():
        title = _first_heading(body)
    metadata = {name: value for name, value in front.items() if name not in _NOT_METADATA}
    return {**as_object(metadata), **({"title": title} if title else {}), "text": body}


def _front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the front matter (between two lines `---` at the beginning) and the text after it.

    Names map to strings as written, or to lists and objects of strings. If the lines `---` enclose anything
    but names and values, they belong to the text, and the front matter is empty.
    """
    begin, end = _FRONT.match(text), None
    if (
        begin is None
        or (end := _FRONT_END.search(text, begin.end(), begin.end() + _MAX_FRONT_MATTER)) is None
    ):
        return {}, text
    import yaml  # imported here, since few files need YAML

    class Texts(yaml.BaseLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):  # a few nested aliases can expand to terabytes
                raise yaml.YAMLError("YAML aliases (*) are not supported in front matter")
            return super().compose_node(parent, index)

    try:
        # The base loader builds only strings, lists and dictionaries.
        front = yaml.load(text[begin.end() : end.start()], Loader=Texts)
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        raise BadRecordError(
            "broken front matter",
            f"the lines between --- and --- are not valid YAML: {_yaml_problem(error)}",
            remedy="correct the YAML, or begin the file with an empty line",
        ) from None
    return (front or {}, text[end.end() :]) if front is None or isinstance(front, dict) else ({}, text)


def _yaml_problem(error: Exception) -> str:
    """Describe an error in YAML, with its line in the file."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"{problem} (line {mark.line + 2})" if mark else problem


def _without_closing_marks(heading: str) -> str:
    """Return a heading without its closing marks (`# Title ##`); `C#` keeps its mark."""
    bare = heading.rstrip("#")
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else heading


def _first_heading(text: str) -> str:
    """Return the first heading of a Markdown text; "" if there is none.

    A heading is a line `# …`, or lines above `===` or `---`. Code, comments, quotations, lists and tables
    contain no headings.
    """
    paragraph: list[str] = []
    in_block = False  # in a list or a quotation, up to a blank line
    end_pattern: re.Pattern[str] | None = None
    for line in text.splitlines():
        if end_pattern:
            end_pattern = None if end_pattern.search(line) else end_pattern
        elif (end_pattern := _end_of_block(line)) or not line.strip(" \t-*_="):
            if paragraph and _UNDERLINE.fullmatch(line):
                return " ".join(paragraph)
            paragraph, in_block = [], in_block and bool(line.strip())
        elif heading := _HEADING.match(line):
            if title := _without_closing_marks(heading[1].strip()):
                return title
            paragraph = []
        elif in_block or _NO_PARAGRAPH.match(line):
            paragraph, in_block = [], True
        else:
            paragraph.append(line.strip())
    return ""


def _end_of_block(line: str) -> re.Pattern[str] | None:
    """Return the pattern that ends the code or HTML block begun by a line; None if there is no block."""
    if fence := _FENCE.match(line):
        return re.compile(rf"^ {{0,3}}{fence[1][0]}{{{len(fence[1])},}}\s*$")
    if html := _HTML.match(line):
        end = re.compile("-->" if html[1] == "!--" else f"</{html[1]}>", re.IGNORECASE)
        return None if end.search(line, html.end()) else end
    return None


def read_passage(record: Mapping[str, Any], where: str) -> Passage:
    """Return the passage of a corpus record.

    :raises BadRecordError: the record is not valid.
    """
    text = string_field(record, "text", "contents", of="text")
    title = "" if record.get("title") is None else string_field(record, "title", of="title")
    if not text.strip():
        if not title.strip():
            raise BadRecordError(EMPTY_TEXT)
        return Passage(identifier(record), title, record=record, where=where)
    context, start, end = _context(record, text)
    return Passage(identifier(record), text, title, context, start, end, record, where)


def identifier(record: Mapping[str, Any]) -> str:
    """Return the id of a record, from the field `id` or `_id`: a string or an integer.

    :raises BadRecordError: the id is missing or not valid.
    """
    value = _field(record, "id", "_id", of="id")
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
    """Return the context, and the start and end of the text in it. A context needs all three fields."""
    if not {"context", "start", "end"} <= record.keys():
        return "", 0, 0
    context = string_field(record, "context", of="context")
    start, end = _offset(record, "start"), _offset(record, "end")
    if not context:
        return "", 0, 0
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
