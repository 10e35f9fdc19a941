"""Reading queries from the file formats of test collections."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sparta.base.disk.streams import numbered_lines
from sparta.base.errors import InputError
from sparta.base.files import shown_name
from sparta.base.records import Query
from sparta.data.files import known_format, no_records
from sparta.data.parsing import BadRecordError, decoded, identifier, parse_object, placed, string_field

_IDS = ("id", "_id", "qid", "query_id", "query-id")
_TEXTS = ("text", "question", "query")
_FORMATS = 'write each line as ID<TAB>QUERY, or as JSON: {"_id": "q1", "text": "who founded google"}'


def read_queries(path: str | Path) -> Iterator[Query]:
    r"""Yield the queries of a file, or of standard input for `-`; both may be compressed.

    JSONL as in BEIR: the id is in `id`, `_id`, `qid`, `query_id` or `query-id`, the query in `text`,
    `question` or `query`. Known answers are a list of strings in `answers`; blank answers are ignored.
    TSV: `qid\ttext`, without quoting; a header line with these names is skipped. A query may be empty; it
    has no hits. Blank lines are ignored.

    :raises InputError: the format is wrong, an id is repeated, or the file has no queries.
    """
    lines = numbered_lines(path)
    first_line = next(lines, None)
    if first_line is None:
        raise no_records(path)
    form = known_format(path, first_line[1])
    if form is None and b"\0" in first_line[1]:
        message = "unknown format: the file of queries is binary, not text"
        raise InputError(message, where=shown_name(path), remedy=_FORMATS)
    parse = _from_json if form in ("jsonl", "json") else _from_row
    seen: dict[str, str] = {}
    for line_number, line in itertools.chain([first_line], lines):
        where = f"{shown_name(path)}:{line_number}"
        with placed(where):
            text = decoded(line)
            if line_number == first_line[0] and _is_header(text):
                continue
            query = parse(text)
            remember_id(query.query_id, where, seen)
        yield query
    if not seen:
        raise no_records(path)


def _is_header(line: str) -> bool:
    columns = line.lower().split("\t")
    return len(columns) == 2 and columns[0] in _IDS and columns[1] in _TEXTS


def remember_id(query_id: str, where: str, seen: dict[str, str]) -> None:
    """Check that an id is new, and remember the location where it stands.

    :param seen: the location of each known id
    :raises BadRecordError: the id is known from another location.
    """
    first_place = seen.setdefault(query_id, where)
    if first_place != where:
        detail = f"{query_id!r} was already the id of {first_place}"
        raise BadRecordError("duplicate query id", detail, remedy="give every query a different id")


def _from_json(line: str) -> Query:
    record = parse_object(line)
    return Query(identifier(record, _IDS), string_field(record, *_TEXTS, of="text"), _answers(record))


def _answers(record: Mapping[str, Any]) -> tuple[str, ...]:
    answers = record.get("answers")
    if answers is None:
        return ()
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise BadRecordError("answers of the wrong type", "expected a list of strings")
    return tuple(filter(str.strip, answers))


def _from_row(line: str) -> Query:
    columns = line.split("\t")
    if len(columns) != 2:
        raise BadRecordError(
            "wrong number of columns",
            f"expected 2 columns (qid, text), found {len(columns)}",
            remedy=_FORMATS,
        )
    return Query(identifier({"id": columns[0]}), columns[1])
