"""From the lines, elements and texts of a file, or from objects, to passages."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

from sparta.base.disk.streams import (
    Tally,
    input_errors,
    longest_line,
    numbered_lines,
    open_decompressed,
    too_long,
)
from sparta.base.disk.unsupported import unsupported_form
from sparta.base.errors import InputError
from sparta.base.files import plain_name, shown_name
from sparta.base.records import Passage
from sparta.data.files import (
    SourceTally,
    beginning,
    check_one_a_line,
    format_of,
    is_text_of,
    no_records,
    was_removed,
)
from sparta.data.formats.fields import USUAL_FIELDS, Fields
from sparta.data.formats.limited import Documents, open_table
from sparta.data.formats.markdown import read_markdown
from sparta.data.formats.objects import record_of
from sparta.data.formats.rows import (
    check_columns,
    delimiter_of,
    joined_rows,
    read_header,
    read_pair,
    read_row,
)
from sparta.data.jsonlist import not_utf8, placed_elements
from sparta.data.kilt import is_page, page_passages
from sparta.data.parsing import (
    DEEPEST,
    REMOVED,
    BadRecordError,
    as_object,
    decoded,
    identifier,
    parse_object,
    read_passage,
    split_place,
    zero_bytes,
)
from sparta.data.tables import is_row, row_passage

RECORDS = "records"
"""The source name of records in memory."""

type Outcome = Passage | BadRecordError
"""The result of reading a record: a passage, or the error of a bad record."""


def file_outcomes(
    path: str, tally: Tally, opened: BinaryIO | None, fields: Fields
) -> Iterator[tuple[int, Outcome]]:
    """Yield the passages and the bad records of a file, each with its length in bytes.

    :param tally: counts and hashes the stored bytes
    :param opened: the file, if it is already open
    :raises InputError: the file cannot be read, is empty, or its format is unknown.
    """
    is_file = opened is not None or Path(path).is_file()
    start = beginning(path, opened) if is_file else b""
    form = format_of(path, start) if start else None
    if form == "text":
        yield text_file(path, str(Path(path).parent), tally)
    elif form == "json":
        yield from _list_outcomes(path, tally, opened, fields)
    else:
        yield from _line_outcomes(path, tally, opened, fields)


def _line_outcomes(
    path: str, tally: Tally, opened: BinaryIO | None, fields: Fields
) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes of a file that has a record on each line, or of a table."""
    lines = numbered_lines(path, tally, opened, blank=True)
    first_line = next(((number, line) for number, line in lines if line), None)
    if first_line is None:
        raise no_records(path)
    form = format_of(path, first_line[1])
    if form in ("text", "json"):
        raise InputError(
            "a text or a JSON list cannot be read from a pipe",
            where=shown_name(path),
            remedy="name a file, or send one object per line: jq -c '.[]'",
        )
    parse: Callable[[str], Mapping[str, Any]] = parse_object
    rows: Iterator[tuple[int, bytes]] = itertools.chain([first_line], filter(itemgetter(1), lines))
    if form == "jsonl":
        check_one_a_line(path, first_line)
    else:
        delimiter = delimiter_of(plain_name(path).lower(), first_line[1])
        columns = read_header(path, first_line, delimiter, fields)
        parse = read_pair if columns is None else partial(read_row, columns, delimiter)
        if columns is not None:
            rows = joined_rows(lines, delimiter)
    line_number, name = 0, shown_name(path)
    for line_number, line in rows:
        outcomes = _parse_record(parse, line, f"{name}:{line_number}", fields)
        for outcome in outcomes:
            yield len(line) // len(outcomes), outcome
    if not line_number:
        raise no_records(path)


def table_outcomes(path: str, fields: Fields) -> Iterator[tuple[int, Outcome]]:
    """Yield the passages and the bad rows of a Parquet or Arrow file. `where` counts the rows from 1.

    :raises MissingPackageError: pyarrow is not installed.
    :raises InputError: the file is damaged or has no rows, or its columns are wrong.
    """
    if (plain := plain_name(path)) != path:
        raise InputError(
            "a compressed Parquet or Arrow file cannot be read",
            where=path,
            remedy=f"decompress the file to {plain}; Parquet compresses its columns itself",
        )
    number = 0
    with open_table(path) as (columns, rows):
        check_columns(path, columns, fields)
        for number, (stored_bytes, row) in enumerate(rows, 1):
            where = f"{path}: row {number}"
            if isinstance(row, BadRecordError):
                row.where = where
                yield stored_bytes, row
                continue
            for outcome in _parse_record(parse_object, row, where, fields):
                yield stored_bytes, outcome
    if not number:
        raise no_records(path)


def _list_outcomes(
    path: str, tally: Tally, opened: BinaryIO | None, fields: Fields
) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes of a JSON list of records. `where` counts the elements of the list from 1."""
    number = 0
    try:
        with input_errors(path), open_decompressed(path, tally, opened) as stream:
            for number, (_, element) in enumerate(placed_elements(stream, is_checked=False), 1):
                line = element.encode("utf-8", "surrogatepass")
                where = f"{shown_name(path)}: element {number}"
                for outcome in _parse_record(parse_object, line, where, fields):
                    yield len(line), outcome
    except RecursionError:
        raise InputError(
            f"JSON nested too deeply after {number:,} complete elements of the list: expected at most"
            f" {DEEPEST} levels",
            where=shown_name(path),
            remedy="flatten the nested lists and objects",
        ) from None
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    except ValueError as error:
        raise InputError(
            f"broken JSON after {number:,} complete elements of the list: {getattr(error, 'msg', error)}",
            where=shown_name(path),
            remedy="correct the JSON: python3 -m json.tool names the broken line",
        ) from None
    if not number:
        raise no_records(path)


def text_outcome(
    path: str, source: str, tally: SourceTally, documents: Documents | None
) -> tuple[int, Outcome]:
    """Read a text of the folder `source`, or `source` itself, with `text_file`.

    A text that was removed after its folder was listed is a bad record.
    """
    is_text = is_text_of(path, source)
    try:
        outcome = text_file(path, source if is_text else str(Path(path).parent), tally, documents)
    except InputError as error:
        if not was_removed(path, source, error):
            raise
        return 0, BadRecordError(REMOVED, "the file was removed after its folder was listed", where=path)
    if is_text:
        tally.end_text(path, source)
    return outcome


def text_file(
    path: str, folder: str, tally: Tally, documents: Documents | None = None
) -> tuple[int, Outcome]:
    """Read a text, Markdown, HTML or PDF file in a folder as a passage.

    The passage id is the path within the folder. The title is the file's name, unless the file's content
    gives a title.

    :param documents: reads the file, if it is HTML or PDF
    """
    max_bytes = longest_line()
    take_back = tally.mark()
    with input_errors(path), open_decompressed(path, tally) as stream:
        data = stream.read(max_bytes + 1)
    where = f"{_in_utf8(path)}:1"
    if len(data) > max_bytes:
        take_back()
        tally.add_file(path)
        error = too_long(path, "the file", max_bytes)
        advice = f"{error.remedy}; name a file of records .jsonl or .tsv"
        return len(data), BadRecordError("file too long", error.message, where=where, remedy=advice)
    stored_name = Path(plain_name(path)).relative_to(folder)
    name = Path(_in_utf8(str(stored_name)))  # names are UTF-8 in every locale
    passage_id = re.sub(r"\s+", "_", name.as_posix())

    def parse(text: str) -> dict[str, Any]:
        if os.fsencode(stored_name) != str(name).encode():
            detail = f"the file name, which is the passage id, is not UTF-8: {passage_id}"
            raise BadRecordError("invalid id", detail, remedy="rename the file (for example with convmv)")
        if documents:
            record = documents.read(path, data)
        else:
            record = {"text": text} if name.suffix.lower() == ".txt" else read_markdown(text)
        is_blank = not (text or record["text"]).strip()
        if not is_blank:
            _check_file_name(passage_id)
        title = record.get("title") or ("" if is_blank else name.stem)
        return {**record, "id": passage_id, "title": title, "text": record["text"].strip()}

    if documents:
        return len(data), _parse_record(parse, b"", where)[0]
    if unsupported := unsupported_form(data, path):
        description, conversion = unsupported
        detail = f"expected UTF-8 text, found {description}"
        return len(data), BadRecordError("invalid UTF-8", detail, where=where, remedy=conversion)
    if b"\0" in data:
        bad = zero_bytes()
        bad.where = where
        return len(data), bad
    return len(data), _parse_record(parse, data, where)[0]


def _check_file_name(passage_id: str) -> None:
    """Check that the path of a text can be its passage id.

    :raises BadRecordError: the path is too long, or has control characters.
    """
    try:
        identifier({"id": passage_id})
    except BadRecordError as bad:
        bad.remedy = "rename the file, or a folder of its path"
        raise


def _in_utf8(path: str) -> str:
    r"""Return a path as valid Unicode, with bytes that are not UTF-8 as \xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _parse_record(
    parse: Callable[[str], Mapping[str, Any]], line: bytes, where: str, fields: Fields = USUAL_FIELDS
) -> list[Outcome]:
    """Return the passages of a record as a list; a bad record gives its error as the only element.

    A KILT page may have several passages, any other record has one.
    """
    try:
        record = parse(decoded(line, where))
        is_table_row, is_kilt = is_row(record), is_page(record)
        if (is_table_row or is_kilt) and fields.user_names:
            kind = "a table row" if is_table_row else "a page of KILT"
            message = f"the fields of {kind} cannot be chosen"
            raise BadRecordError("fixed fields", message, remedy=fields.omit())
        if is_table_row:
            return [read_passage(row_passage(record, str(split_place(where)[1])), where)]
        passages = page_passages(record) if is_kilt else [fields.of_record(record)]
        return [read_passage(passage, where) for passage in passages]
    except BadRecordError as bad:
        bad.where = bad.where or where
        if bad.reason == "missing text":
            bad.remedy = fields.remedy("give every record a text")
        return [bad]


def record_outcomes(record: object, number: int, fields: Fields) -> list[Outcome]:
    """Return the passages of an element of a list in memory, or its error.

    :param number: the element's number, from 0; it is the id of a plain text
    """
    where = f"{RECORDS}:{number}"
    record = record_of(record)
    if isinstance(record, str):
        record = {"id": str(number), "text": record}
    if isinstance(record, Passage):
        return [_checked(record, where)]
    if not isinstance(record, Mapping):
        detail = f"expected a dictionary, a Passage or a string, found {type(record).__name__}"
        remedy = 'pass records as {"id": …, "text": …, "title": …}'
        return [BadRecordError("record of the wrong type", detail, where=where, remedy=remedy)]
    return object_outcomes(record, where, fields)


def object_outcomes(record: Mapping[str, Any], where: str, fields: Fields) -> list[Outcome]:
    """Return the passages of a record in memory, or its error."""
    return _parse_record(lambda _: as_object(record), b"", where, fields)


def _checked(passage: Passage, where: str) -> Outcome:
    """Check a Passage made by a program by the rules for a record of a file."""
    record: dict[str, Any] = {"id": passage.passage_id, "text": passage.text, "title": passage.title}
    context: dict[str, Any] = {}
    if passage.context:
        context = {"context": passage.context, "start": passage.start, "end": passage.end}
    try:
        stored = as_object({**passage.record, **context})
        return replace(read_passage(as_object(record | context), where), record=stored)
    except BadRecordError as bad:
        bad.where = where
        return bad
