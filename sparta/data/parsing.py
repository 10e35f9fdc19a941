"""One record of a file: what a line must hold, and what is wrong with one that does not."""

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
"""How deeply a record may be nested: Python reads a little more than it can write again inside an answer."""
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
_LONGEST_FRONT = 1 << 16
"""In characters, which YAML reads in less than a second."""
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
    """A line that is not a record. `reason` is its kind, one of a few; the message says the rest."""

    def __init__(
        self, reason: str, detail: str = "", *, where: str = "", remedy: str | Remedy = "mend the line"
    ) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason, where=where, remedy=remedy)
        self.reason = reason


@contextlib.contextmanager
def placed(where: str) -> Iterator[None]:
    """Tell an InputError that passes through where it happened, unless it knows."""
    try:
        yield
    except InputError as error:
        error.where = error.where or where
        raise


TO_UTF8 = "convert the file to UTF-8 (iconv -f ITS_ENCODING -t UTF-8)"


def decoded(line: bytes) -> str:
    """Return the line as text, without a byte order mark."""
    try:
        return line.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        found = f"byte 0x{line[error.start]:02x} at byte {error.start} of the line (counted from 0)"
        raise BadRecordError("invalid UTF-8", f"expected UTF-8 text, found {found}", remedy=TO_UTF8) from None


def parse_object(line: str) -> dict[str, Any]:
    """Return the JSON object that a line holds, as `parse_value` reads it."""
    record = parse_value(line)
    if not isinstance(record, dict):
        remedy = "write one JSON object a line (jq -c '.[]' makes them of an array)"
        raise BadRecordError("not an object", f"expected a JSON object, found {_kind(record)}", remedy=remedy)
    return record


def as_object(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record in memory as a file would hold it; it must be JSON."""
    try:
        line = json.dumps(dict(record), default=plain_number)
    except RecursionError:
        raise _too_deep("more") from None
    except (TypeError, ValueError) as error:
        remedy = "give texts, numbers, lists and dictionaries, as in str(date) or float(number)"
        raise BadRecordError(
            "not JSON", f"expected what JSON can hold, found: {error}", remedy=remedy
        ) from None
    return parse_object(line)


def parse_value(line: str) -> Any:
    """Return the JSON value that a line holds. NaN, infinities and lone surrogates are not JSON text."""
    try:
        record = _JSON.decode(line)
        refuse_half_pairs(line, record)
    except json.JSONDecodeError as error:
        detail = f"expected one JSON object, found {shortened(line)} ({error.msg}, column {error.colno})"
        raise BadRecordError("broken JSON", detail) from None
    except ValueError as error:
        raise BadRecordError("broken JSON", str(error)) from None
    except RecursionError:
        raise _too_deep(f"{_depth(line):,}") from None
    if line.count("[") + line.count("{") > DEEPEST and _is_deep(record):
        raise _too_deep(f"{_depth(line):,}")
    return record


def _too_deep(found: str) -> BadRecordError:
    return BadRecordError("nested too deeply", f"expected at most {DEEPEST} levels, found {found}")


def _depth(line: str) -> int:
    """How deeply JSON is nested, told by its brackets."""
    brackets = _NO_BRACKET.sub("", line)
    return max(itertools.accumulate(1 if c in "[{" else -1 for c in brackets), default=0)


def json_parts(line: bytes) -> int:
    """Return an upper bound of how many values and containers a line of JSON holds, from its punctuation."""
    bare = _STRING.sub(b"", line)
    return 1 + bare.count(b",") + bare.count(b"[") + bare.count(b"{")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        inner = [one for one in level if isinstance(one, dict | list)]
        level = [part for one in inner for part in (one.values() if isinstance(one, dict) else one)]
    return any(isinstance(one, dict | list) for one in level)


def refuse_half_pairs(text: str, value: Any) -> None:
    """Refuse JSON whose text escapes half a character, which nothing can write or search.

    :raises ValueError: it does.
    """
    try:
        if _SURROGATE_ESCAPE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        found = "half a surrogate pair (\\ud800 to \\udfff)"
        raise ValueError(f"expected Unicode text, found {found}") from None


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, found {literal}")
    return number


_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def shortened(line: str | bytes) -> str:
    """Return the beginning of a line, quoted, for a message."""
    text = line[:80].decode("utf-8", "replace") if isinstance(line, bytes) else line
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}…"


def read_header(path: str, first: tuple[int, bytes]) -> list[str] | None:
    """Return the columns that the first line of a TSV file names; `first` is its number and itself.

    None if it is a record already: of two columns, neither of which has a known name.
    """
    where = f"{shown_name(path)}:{first[0]}"
    try:
        line = decoded(first[1])
        plain = line.split("\t")
        known = {name.strip('" ').lower() for name in plain} & _COLUMN_NAMES
        if len(plain) == 2 and all(map(str.strip, plain)) and not known:
            return None
        columns = _split_row(line)
        if len(columns) == 2 < len(plain) and not known:  # a text quoted around a tab
            return None
    except BadRecordError as bad:  # not one record among others: nothing can be read without a header
        raise InputError(bad.message, where=where, remedy=bad.remedy) from None
    names = set(columns)
    if len(names) < len(columns) or not names & {"id", "_id"} or not names & {"text", "contents"}:
        raise InputError(
            f"wrong header: expected the columns id, text, title, found {shortened(first[1])}",
            where=where,
            remedy="begin the file with the line id<TAB>text<TAB>title, or give id<TAB>text without a header",
        )
    return columns


def read_pair(line: str) -> dict[str, Any]:
    """Return a line of TSV without a header: an id and a text.

    Quotes around the text are its own, but where CSV needs them (for others inside, or a tab) or has them
    around the id too.
    """
    fields = line.split("\t")
    if '"' in line:
        with contextlib.suppress(BadRecordError):
            read = _split_row(line)
            if len(read) == 2 and (line.startswith('"') or {'"', "\t"} & set(read[1])):
                fields = read
    return _named(("id", "text"), fields)


def read_row(columns: Sequence[str], line: str) -> dict[str, Any]:
    """Return a row of TSV by the names of its columns; what is quoted is read as in CSV."""
    return _named(columns, _split_row(line))


def _named(columns: Sequence[str], fields: Sequence[str]) -> dict[str, Any]:
    if len(fields) != len(columns):
        detail = f"expected {len(columns)} ({', '.join(columns)}), found {len(fields)}"
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
            expected = "a column quoted to its end, on this line, with inner quotes doubled"
            raise BadRecordError("broken quotes", f"expected {expected}, found {shortened(line[end:])}")
        quoted, plain = match.groups()
        fields.append(plain if quoted is None else quoted.replace('""', '"'))
        end = match.end()
        if not match.group().endswith("\t"):
            return fields


def read_markdown(text: str) -> dict[str, Any]:
    """Return the record of a Markdown text: its front matter, with `title` and `text`.

    The title is the front matter's, else the first heading (CommonMark), else absent. The text is what
    follows the front matter.

    :raises BadRecordError: YAML between lines `---` that cannot be read, or is no block of names and values.
    """
    front, body = _front_matter(text)
    title = front.get("title")
    if not isinstance(title, str) or not title.strip():
        title = _first_heading(body)
    kept = {name: value for name, value in front.items() if name not in _NOT_METADATA}
    return {**as_object(kept), **({"title": title} if title else {}), "text": body}


def _front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the names and values between two lines `---` at the beginning, and the text behind them.

    Values stay texts, as they are written, or lists and objects of texts. Two lines with another text than
    names and values between them are only lines.
    """
    begin, end = _FRONT.match(text), None
    if begin is None or (end := _FRONT_END.search(text, begin.end(), begin.end() + _LONGEST_FRONT)) is None:
        return {}, text
    import yaml  # here, since few files need it

    class Texts(yaml.BaseLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):  # some of them stand for terabytes
                raise yaml.YAMLError("an alias (*), which front matter cannot have")
            return super().compose_node(parent, index)

    try:
        front = yaml.load(text[begin.end() : end.start()], Loader=Texts)  # texts, lists, dicts only
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        raise BadRecordError(
            "broken front matter",
            f"expected YAML between the lines ---, found: {_yaml_problem(error)}",
            remedy="mend it, or begin the file with an empty line",
        ) from None
    return (front or {}, text[end.end() :]) if front is None or isinstance(front, dict) else ({}, text)


def _yaml_problem(error: Exception) -> str:
    """Return what is wrong with YAML, and in which line of the file."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"{problem} (line {mark.line + 2})" if mark else problem


def _without_closing_marks(heading: str) -> str:
    """Return a heading without the marks that may close it (`# Title ##`); `C#` keeps its mark."""
    bare = heading.rstrip("#")
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else heading


def _first_heading(text: str) -> str:
    """Return the first heading of a Markdown text: `# …`, or lines above `===` or `---`; "" without one.

    Code, comments, quotations, lists and tables hold no heading.
    """
    paragraph: list[str] = []
    goes_on = False  # a list or a quotation, up to a blank line
    closing: re.Pattern[str] | None = None
    for line in text.splitlines():
        if closing:
            closing = None if closing.search(line) else closing
        elif (closing := _closing(line)) or not line.strip(" \t-*_="):
            if paragraph and _UNDERLINE.fullmatch(line):
                return " ".join(paragraph)
            paragraph, goes_on = [], goes_on and bool(line.strip())
        elif heading := _HEADING.match(line):
            if title := _without_closing_marks(heading[1].strip()):
                return title
            paragraph = []
        elif goes_on or _NO_PARAGRAPH.match(line):
            paragraph, goes_on = [], True
        else:
            paragraph.append(line.strip())
    return ""


def _closing(line: str) -> re.Pattern[str] | None:
    """Return what ends the code or the HTML that a line begins; None where it begins none."""
    if fence := _FENCE.match(line):
        return re.compile(rf"^ {{0,3}}{fence[1][0]}{{{len(fence[1])},}}\s*$")
    if html := _HTML.match(line):
        end = re.compile("-->" if html[1] == "!--" else f"</{html[1]}>", re.IGNORECASE)
        return None if end.search(line, html.end()) else end
    return None


def read_passage(record: Mapping[str, Any], where: str) -> Passage:
    """Return the passage that a record of a corpus is."""
    text = string_field(record, "text", "contents", of="text")
    title = "" if record.get("title") is None else string_field(record, "title", of="title")
    if not text.strip():
        if not title.strip():
            raise BadRecordError(EMPTY_TEXT)
        return Passage(identifier(record), title, record=record, where=where)
    context, start, end = _context(record, text)
    return Passage(identifier(record), text, title, context, start, end, record, where)


def identifier(record: Mapping[str, Any]) -> str:
    """Return the id of a record: `id` or `_id`, a string or an integer."""
    value = _field(record, "id", "_id", of="id")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadRecordError("wrong type", f"expected a string or an integer as id, found {_kind(value)}")
    text = str(value)
    if not text:
        raise BadRecordError("invalid id", "expected at least one character, found none")
    if _NOT_IN_IDS.search(text):
        raise BadRecordError(
            "invalid id",
            f"expected one word without white space or control characters, found {shortened(text)}",
            remedy="replace them, for example by _ (TREC runs separate their columns by spaces)",
        )
    if len(text.encode("utf-8")) > MAX_ID_BYTES:
        detail = f"expected at most {MAX_ID_BYTES} bytes, found {len(text.encode('utf-8'))}"
        raise BadRecordError("invalid id", detail)
    return text


def _field(record: Mapping[str, Any], *names: str, of: str) -> Any:
    for name in names:
        if name in record:
            return record[name]
    wanted = " or ".join(f'"{name}"' for name in names)
    found = ", ".join(itertools.islice(record, 8)) or "no field"
    raise BadRecordError(f"missing {of}", f"expected the field {wanted}, found {shortened(found)}")


def string_field(record: Mapping[str, Any], *names: str, of: str) -> str:
    """Return the first of these fields that is there, which must be a string."""
    value = _field(record, *names, of=of)
    if not isinstance(value, str):
        raise BadRecordError("wrong type", f"expected a string as {of}, found {_kind(value)}")
    return value


def _context(record: Mapping[str, Any], text: str) -> tuple[str, int, int]:
    """Return the context and where in it the text lies. Only all three fields together make a context."""
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
        found = value if isinstance(value, int) else _kind(value)
        raise BadRecordError("wrong type", f"expected an integer from 0 as {name}, found {found}")
    return value


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "an object")
