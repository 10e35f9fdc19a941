"""Reads uploads as a stream, one JSON value per line, and reports every invalid line."""

from __future__ import annotations

import asyncio
import json
import tempfile
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import IO, Any, BinaryIO, NamedTuple

from hybrid.retrieval.limits import Limits
from hybrid.service.errors import HttpError
from sparta.base.errors import InputError
from sparta.base.files import storage_errors, temporary_files_folder
from sparta.base.records import Passage
from sparta.data.formats.fields import USUAL_FIELDS, Fields
from sparta.data.jsonlist import LargeElementError, placed_elements
from sparta.data.parsing import decoded, identifier, json_parts, parse_object, parse_value, read_passage

CONTENT_TYPES = ("application/x-ndjson", "application/jsonl", "application/ndjson")
_IN_MEMORY = 1 << 20
MOST_TOLD = 1000
_SPLIT = "send several smaller uploads"
_LONGEST_ESCAPE = 6
"""Characters of a \\u escape: an element of a list may be this many times as long as its line."""


class LineErrors(list[dict[str, Any]]):
    """Errors of invalid lines, numbered from 1; all are counted, the first 1000 added are kept."""

    total = 0

    def add(self, line: int, message: str) -> None:
        """Count an invalid line, and keep its message unless 1000 are kept."""
        self.total += 1
        if len(self) < MOST_TOLD:
            self.append({"line": line, "message": message})

    def report(self) -> dict[str, Any]:
        """Return the number of invalid lines, and the kept errors by line number."""
        return {"failed": self.total, "errors": sorted(self, key=lambda error: error["line"])}


class Line(NamedTuple):
    """A valid line of an upload: its number, the passage's id, and the passage unless it holds only an id."""

    number: int
    passage_id: str
    passage: Passage | None = None


@asynccontextmanager
async def spooled(parts: AsyncIterator[bytes], seconds: float) -> AsyncIterator[BinaryIO]:
    """Yield the whole body of a request as a file, in memory up to 1 MiB, else on disk.

    The body is received first: a slow sender blocks no other request.

    :raises HttpError: 408, the body did not arrive within `seconds`
    :raises StorageError: the folder of temporary files is full
    """
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as stream:
        with _filled(stream):
            await _write(stream, parts, seconds)
        yield stream  # type: ignore[misc]  # a spooled file has all methods of BinaryIO


async def _write(stream: IO[bytes], parts: AsyncIterator[bytes], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            async for chunk in parts:
                stream.write(chunk)
    except TimeoutError:
        raise HttpError(408, f"the request body did not arrive within {seconds:g} s") from None


@contextmanager
def _filled(stream: IO[bytes]) -> Iterator[None]:
    """Rewind a temporary file after the block has filled it; close the file if the block fails.

    :raises StorageError: the folder of temporary files is full, or there is none
    """
    try:
        yield
        stream.seek(0)
    except BaseException as error:
        with suppress(OSError):  # closing tries to write the rest again, and fails again
            stream.close()
        if isinstance(error, OSError):
            with storage_errors(temporary_files_folder()):  # a body in memory needs no folder
                raise
        raise


def is_json(content_type: str) -> bool:
    """Return whether a content type is JSON: `application/json`, or a type that ends in `+json`."""
    name = content_type.partition(";")[0].strip().lower()
    return name == "application/json" or (name.startswith("application/") and name.endswith("+json"))


def check_content_type(content_type: str) -> None:
    """Raise a 415 error unless the body is JSON or JSON lines: foreign web pages cannot send these types."""
    if content_type.partition(";")[0].strip().lower() not in CONTENT_TYPES and not is_json(content_type):
        raise HttpError(
            415,
            f"the Content-Type must be {CONTENT_TYPES[0]} or application/json,"
            f" found {content_type or 'none'}",
            remedy=f"send the header Content-Type: {CONTENT_TYPES[0]}, and one JSON value per line",
        )


def as_lines(stream: BinaryIO, limits: Limits) -> BinaryIO:
    """Return a JSON body as a file with one JSON value per line: the elements of its list, or its one value.

    `read_lines` reports an element that no line may hold, such as one with half a surrogate pair.

    :raises HttpError: 400, the body is not JSON; 413, the body has too many or too large elements
    :raises StorageError: the folder of temporary files is full
    """
    lines = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (the caller closes the file)
    if stream.read(len(BOM_UTF8)) != BOM_UTF8:
        stream.seek(0)
    is_list = _begins_list(stream)
    stream.seek(0)
    if is_list:
        longest = _LONGEST_ESCAPE * limits.line
        elements = placed_elements(stream, is_checked=False, longest=longest, most_values=limits.parts)
    else:
        elements = iter([_placed_value(stream, limits)])
    number = 0
    with _filled(lines):
        try:
            for number, (value, text) in enumerate(elements, 1):
                if number > limits.lines:
                    raise HttpError(413, f"the upload has more than {limits.lines:,} values", remedy=_SPLIT)
                lines.write(_line(value, text, limits) + b"\n")
        except LargeElementError as error:
            message = f"element {number + 1:,} of the JSON list is too large: {error}"
            raise HttpError(413, message, remedy="split the element's text into several passages") from None
        except (ValueError, RecursionError) as error:
            raise HttpError(400, f"the body is not JSON: {error}") from None
    return lines  # type: ignore[return-value]  # a spooled file has all methods of BinaryIO


def _begins_list(stream: BinaryIO) -> bool:
    """Return whether the next byte that is not blank opens a JSON list."""
    while block := stream.read(_IN_MEMORY):
        if text := block.lstrip():
            return text.startswith(b"[")
    return False


def _line(value: Any, text: str, limits: Limits) -> bytes:
    r"""Return the text of a JSON value in one line; a text that is too long is written without \u escapes.

    In JSON, line breaks are only between the parts of a value.
    """
    line = text.replace("\n", " ").encode()
    if len(line) > limits.line:
        line = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    return line


def _placed_value(stream: BinaryIO, limits: Limits) -> tuple[Any, str]:
    """Return the one JSON value of a body, and its text, as `placed_elements` does for a list.

    :raises HttpError: 413, the value is longer than a line may be
    :raises BadRecordError: the body is not JSON
    """
    text = decoded(value_bytes(stream, limits)).strip()
    return parse_value(text), text


def value_bytes(stream: BinaryIO, limits: Limits) -> bytes:
    """Return the body of one JSON value.

    :raises HttpError: 413, the value is longer than a line may be
    """
    text = stream.read(limits.line + 1)
    if len(text) > limits.line:
        raise HttpError(413, f"the JSON value exceeds {limits.line:,} bytes", remedy=_SPLIT)
    return text


def read_lines(
    stream: BinaryIO, limits: Limits, errors: LineErrors, fields: Fields = USUAL_FIELDS, *, ids: bool
) -> Iterator[Line]:
    """Yield the valid lines, each id once; add the errors of other lines to `errors`.

    :param fields: the fields of the records that hold id, text and title
    :param ids: whether a line is a passage id or an object with an id; else each line is a passage
    :raises HttpError: 400 for too many invalid lines; 413 for too many lines or JSON values
    """
    first_lines: dict[str, int] = {}
    longest, json_values = limits.line, 0
    for number, line in enumerate(iter(lambda: stream.readline(longest + 1), b""), 1):
        if number > limits.lines:
            raise HttpError(413, f"the upload has more than {limits.lines:,} lines", remedy=_SPLIT)
        _check_bad(errors, limits)
        if len(line) > longest:
            errors.add(number, f"the line exceeds {longest:,} bytes")
            _skip_line(stream, line)
            continue
        if not line.strip():
            continue
        try:
            parsed = _passage_id(line, number, fields) if ids else _passage(line, number, fields)
        except InputError as error:
            errors.add(number, error.message)
            continue
        json_values += json_parts(line)
        if json_values > limits.parts:
            raise HttpError(413, f"the upload has more than {limits.parts:,} JSON values", remedy=_SPLIT)
        first = first_lines.setdefault(parsed.passage_id, number)
        if first != number:
            errors.add(number, f"duplicate id: {parsed.passage_id!r} was already the id of line {first}")
            continue
        yield parsed
    _check_bad(errors, limits)


def _check_bad(errors: LineErrors, limits: Limits) -> None:
    """Raise HttpError 400 if too many lines are invalid."""
    if errors.total > limits.bad_lines:
        message = f"the upload has more than {limits.bad_lines:,} bad lines; nothing is written"
        raise HttpError(400, message, lines=errors.report())


def is_filter(line: bytes) -> bool:
    """Return whether a line of a DELETE request is a filter, not an id; the line may be cut."""
    if line.lstrip().startswith(b'{"filter"'):
        return True
    try:
        value = parse_value(decoded(line.strip()))
    except InputError:
        return False
    return isinstance(value, dict) and "filter" in value and "id" not in value


def _skip_line(stream: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = stream.readline(_IN_MEMORY)


def _passage(line: bytes, number: int, fields: Fields) -> Line:
    record = parse_object(decoded(line.rstrip(b"\r\n")))
    if fields.id is None:
        identifier(record)  # no hash is the id here, because the response would not name the hash
    passage = read_passage(fields.of_record(record), f"line:{number}")
    return Line(number, passage.passage_id, passage)


def _passage_id(line: bytes, number: int, fields: Fields) -> Line:
    value = parse_value(decoded(line.strip()))
    record = value if isinstance(value, dict) else {"id": value}
    return Line(number, identifier({"id": record[fields.id]} if fields.id in record else record))
