"""Reading TSV and CSV: rows with quoted fields, which may contain line ends, and headers."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from sparta.base.disk.streams import longest_line
from sparta.base.errors import InputError
from sparta.base.files import shown_name
from sparta.data.formats.fields import ID_NAMES, Fields
from sparta.data.parsing import BadRecordError, decoded, shortened, zero_bytes

_COLUMN_NAMES = ID_NAMES | {"text", "contents", "passage", "title"}
_MOST_LINES = 10_000  # of one row
_FIELD = r'(?:"(?:[^"]++|"")*+"|(?!")[^{0}]*+)'
_FIELDS = {
    delimiter: re.compile(rf'(?:"((?:[^"]++|"")*+)"|((?!")[^{delimiter}]*+))(?:{delimiter}|\Z)')
    for delimiter in "\t,;"
}
_WHOLE = {
    delimiter: re.compile(rf"(?:{_FIELD}{{0}})*+{_FIELD}".format(delimiter).encode()) for delimiter in "\t,;"
}
_OPEN = {
    delimiter: re.compile(rf'(?:{_FIELD}{{0}})*+"(?:[^"]++|"")*+'.format(delimiter).encode())
    for delimiter in "\t,;"
}
_QUOTED = re.compile(rb'"(?:[^"]++|"")*+"?')
_NAMES = {"\t": "TSV", ",": "CSV", ";": "CSV"}


def joined_rows(lines: Iterator[tuple[int, bytes]], delimiter: str) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of a table, each with the number of its first line.

    A quoted field continues on the next lines until its closing quote. If there is no closing quote within
    10,000 lines, or other text follows it, the first line is a row by itself, and its quotes are broken. So a
    missing quote makes one row bad, not all following rows. Blank lines between rows are left out.

    :param lines: all lines, also blank lines, each with its number
    """
    ahead: deque[tuple[int, bytes]] = deque()
    whole, is_open = _WHOLE[delimiter].fullmatch, _OPEN[delimiter].fullmatch
    unclosed_before = 0  # a field that begins before this line is known to have no closing quote
    while (row := ahead.popleft() if ahead else next(lines, None)) is not None:
        number, line = row
        if not line:
            continue
        if b'"' in line and number >= unclosed_before and is_open(line):
            parts, size = [line], len(line)
            while len(parts) <= _MOST_LINES and size <= longest_line():
                if len(parts) > len(ahead):
                    following = next(lines, None)
                    if following is None:
                        unclosed_before = number + len(parts)
                        break
                    ahead.append(following)
                part = ahead[len(parts) - 1][1]
                parts.append(part)
                size += len(part) + 1
                if b'"' in part and not is_open(joined := b"\n".join(parts)):
                    if whole(joined):
                        line = joined
                        for _ in parts[1:]:
                            ahead.popleft()
                    break
            else:
                unclosed_before = number + len(parts)
        yield number, line


def delimiter_of(name: str, first_line: bytes) -> str:
    """Return the delimiter of a table: a tab in TSV; in CSV a comma, or a semicolon as Excel writes it."""
    if not name.endswith(".csv"):
        return "\t"
    unquoted = _QUOTED.sub(b"", first_line)
    return ";" if b";" in unquoted and b"," not in unquoted else ","


def read_header(path: str, first_line: tuple[int, bytes], delimiter: str, fields: Fields) -> list[str] | None:
    """Return the column names in the first line of a table.

    :param first_line: number and content of the first line
    :return: None if the line of a TSV file is already a record: two columns, neither with a known name
    :raises InputError: the header lacks a column for texts.
    """
    where = f"{shown_name(path)}:{first_line[0]}"
    known_names = _COLUMN_NAMES | {name.lower() for name in fields.names}
    try:
        line = decoded(first_line[1])
        if "\0" in line:
            raise zero_bytes()
        cells = line.split(delimiter)
        names = {name.strip('" ').lower() for name in cells} & known_names
        may_lack_header = delimiter == "\t" and not names and not fields.user_names
        if may_lack_header and len(cells) == 2 and all(map(str.strip, cells)):
            return None
        columns = [name.strip() for name in split_row(line, delimiter)]
        if may_lack_header and len(columns) == 2 < len(cells):  # a quoted text contains a tab
            return None
    except BadRecordError as bad:
        # Fatal, also when bad records are skipped: no row can be read without a header.
        raise InputError(bad.message, where=where, remedy=bad.remedy) from None
    if not _has_texts(columns, fields):
        kind, separator = _NAMES[delimiter], {"\t": "<TAB>"}.get(delimiter, delimiter)
        without_header = "" if delimiter != "\t" else ", or write lines id<TAB>text without a header"
        raise InputError(
            f"wrong {kind} header: expected the columns id, text, title, found {shortened(first_line[1])}",
            where=where,
            remedy=fields.remedy(f"begin the file with id{separator}text{separator}title{without_header}"),
        )
    fields.check_columns(columns, where)
    return columns


def _has_texts(columns: Sequence[str], fields: Fields) -> bool:
    """Return whether one of the columns holds texts. The user's own names are checked one by one later."""
    return bool(fields.user_names & {*fields.text} or {*(fields.text or ("text", "contents"))} & {*columns})


def check_columns(path: str, columns: Sequence[str], fields: Fields) -> None:
    """Check the columns of a Parquet or Arrow file.

    :raises InputError: two columns have the same name, no column holds texts, or a named column is missing.
    """
    if not _has_texts(columns, fields):
        raise InputError(
            f"wrong columns: expected id, text, title, found {shortened(', '.join(columns))}",
            where=path,
            remedy=fields.remedy("rename a column to text"),
        )
    fields.check_columns(columns, path)


def read_pair(line: str) -> dict[str, Any]:
    """Return the id and text of a line of TSV without a header.

    Quotes around the text belong to the text. Exceptions follow CSV: the id is quoted too, or the text
    contains further quotes or a tab.
    """
    columns = line.split("\t")
    if '"' in line:
        with contextlib.suppress(BadRecordError):
            unquoted = split_row(line, "\t")
            if len(unquoted) == 2 and (line.startswith('"') or {'"', "\t"} & set(unquoted[1])):
                columns = unquoted
    return _named(("id", "text"), columns)


_OFFSETS = ("start", "end")
_NUMBER = re.compile(r"[0-9]{1,12}")


def read_row(columns: Sequence[str], delimiter: str, line: str) -> dict[str, Any]:
    """Return a row by column name; quoted fields are read as in CSV.

    The offsets of a context become numbers. A row without a context has no offsets.
    """
    row = _named(columns, split_row(line, delimiter))
    if not {"context", *_OFFSETS} <= row.keys():
        return row
    if not row["context"]:
        return {name: value for name, value in row.items() if name not in {"context", *_OFFSETS}}
    return {**row, **{name: int(row[name]) for name in _OFFSETS if _NUMBER.fullmatch(row[name])}}


def _named(columns: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    if len(cells) != len(columns):
        detail = f"expected {len(columns)} columns ({', '.join(columns)}), found {len(cells)}"
        raise BadRecordError("wrong number of columns", detail)
    return dict(zip(columns, cells, strict=True))


def split_row(line: str, delimiter: str) -> list[str]:
    """Return the fields of a row, without their quotes.

    :raises BadRecordError: a quoted field has no closing quote, or text follows the closing quote.
    """
    if '"' not in line:
        return line.split(delimiter)
    cells: list[str] = []
    end = 0
    while True:
        match = _FIELDS[delimiter].match(line, end)
        if match is None:
            expected = 'a closing quote at the end of the field and inner quotes doubled ("")'
            raise BadRecordError(
                "column with broken quotes", f"expected {expected}, found {shortened(line[end:])}"
            )
        quoted, plain = match.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        end = match.end()
        if not match.group().endswith(delimiter):
            return cells
