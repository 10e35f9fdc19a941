"""The process that reads files with native libraries, started by `sparta.data.formats.limited`.

It reads tables (pyarrow), HTML (resiliparse) and PDF (pypdfium2), and writes records as JSON to standard
output. A damaged file can crash a native library, or make it run without end. Then only this process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from sparta.data.parsing import BadRecordError, json_line
from sparta.data.units import PAGE_STARTS

HEADER = struct.Struct("<cQ")
"""Each message has a kind, of one byte, and the length of its content in bytes."""
RECORD, BAD, FATAL, COLUMNS, BATCH, END = b"R", b"B", b"F", b"C", b"S", b"E"
"""The kinds of messages: a record, a bad record, an error of the whole file, the names of the columns, the
number of the file's bytes and rows that the next batch stands for, and the end of a table."""
ROWS_PER_BATCH = 1000
OTHER_FORM = "convert the file to JSONL, or split it"
_BATCH_BYTES = 16 << 20
_HYPHEN_AT_LINE_END = re.compile("[\x02\ufffe]\\s*")
_FORM_PAGES = 100
"""The maximum length of a PDF form whose entries are read: pypdfium2 takes quadratic time to read entries."""
_BLOCKS = "<div>" * 4
"""resiliparse takes a list close to the root of the page for navigation, so the content gets deeper."""
_SURROUNDINGS = "nav, aside, header:not(main header, article header), footer:not(main footer, article footer)"
"""The CSS selector of the elements around the content of a page."""
_HIDDEN = (
    '[hidden]:not([hidden="until-found"]), [aria-hidden="true"], dialog, [role="dialog"],'
    ' [style*="display:none" i], [style*="display: none" i]'
)
"""The CSS selector of elements that a browser does not show at first, such as consent dialogs."""
_CONTENT = ":is(main, article, [role=main])"
"""The CSS selector of the elements that hold the content of a page."""


class _Child:
    """The process's limits and its output.

    :param seconds: the processor time for one document or one batch of a table
    :param memory: the limit on memory in bytes
    :param longest: the maximum length of a record in bytes
    """

    def __init__(self, output: BinaryIO, seconds: int, memory: int, longest: int) -> None:
        self._output, self._seconds, self._memory, self.longest = output, seconds, memory, longest

    def send(self, kind: bytes, content: Any) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self._output.write(HEADER.pack(kind, len(data)))
        self._output.write(data)

    def flush(self) -> None:
        self._output.flush()

    def send_record(self, record: dict[str, Any]) -> None:
        try:
            line = json_line(record).encode()
        except BadRecordError as bad:
            self.send_error(BAD, bad)
            return
        if len(line) > self.longest:
            self.send_error(BAD, too_long_record(self.longest))
            return
        self.send(RECORD, line)

    def send_error(self, kind: bytes, bad: BadRecordError) -> None:
        detail = bad.message.removeprefix(bad.reason).removeprefix(": ")
        self.send(kind, [bad.reason, detail, str(bad.remedy)])

    def out_of_memory(self) -> BadRecordError:
        """Return the error for a file that needs too much memory."""
        detail = f"reading it needs more than {self._memory >> 30} GB of memory"
        return BadRecordError("too large a file", detail, remedy=OTHER_FORM)

    def allow_time(self) -> None:
        """Set the limit on processor time anew, for the next document or batch."""
        _limit(resource.RLIMIT_CPU, int(time.process_time()) + 1 + self._seconds)


def too_long_record(longest: int) -> BadRecordError:
    """Return the error for a record that is too long."""
    return BadRecordError("record too long", f"expected at most {longest / 1e6:,.0f} MB of text")


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def read_html(data: bytes, _longest: int) -> dict[str, Any]:
    """Return the title and the main text of an HTML page.

    :raises BadRecordError: the encoding is unknown or wrong.
    """
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(_decoded_html(data))
    if tree.body is None:
        return {"title": "", "text": ""}
    heading = tree.body.query_selector("h1")
    title = tree.title or (heading.text if heading else "") or ""
    page = HTMLTree.parse(f"<html><body>{_BLOCKS}{tree.body.html}")
    return {"title": " ".join(title.split()), "text": _main_text(page)}


def _main_text(page: Any) -> str:
    """Return the main text of a page, or all text of its content if the main text misses most of it.

    resiliparse drops elements by their class names, such as `legal` or `hidden-xs`. Text of links does not
    count, because dropped menus consist of links. Hidden text never counts. If the page has elements for its
    content, only the text in these elements counts.
    """
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    main = extract_plain_text(page, main_content=True)
    elements = page.body.query_selector_all(f"{_CONTENT}:not(:is({_CONTENT}, {_SURROUNDINGS}, {_HIDDEN}) *)")
    content = HTMLTree.parse("".join(element.html for element in elements)) if elements else page
    skipped = [_SURROUNDINGS, _HIDDEN]
    unlinked = extract_plain_text(content, skip_elements=[*skipped, "a[href]"], list_bullets=False)
    if 2 * _letters(main) < _letters(unlinked):
        return extract_plain_text(content, skip_elements=skipped)
    return main or extract_plain_text(page)


def _letters(text: str) -> int:
    """Return the number of characters that are not white space."""
    return sum(map(len, text.split()))


def _decoded_html(data: bytes) -> str:
    """Decode a page as UTF-8 if it is valid UTF-8; otherwise as the page declares, or as it looks."""
    from resiliparse.parse.encoding import detect_encoding

    declared = detect_encoding(data, from_html_meta=True) or "utf-8"
    names = ("utf-8", declared)
    for name in names[::-1] if {0x1B, 0} & {*data[:4096]} else names:  # ISO-2022-JP is also valid ASCII
        try:
            return data.decode(name).removeprefix("\ufeff")
        except (UnicodeDecodeError, LookupError):
            continue
    expected = " or ".join(dict.fromkeys(name.upper() for name in names))
    raise BadRecordError(
        "wrong encoding",
        f"expected a page in {expected}, found other bytes",
        remedy="correct the charset that the page declares, or convert the page to UTF-8",
    )


def read_pdf(data: bytes, longest: int) -> dict[str, Any]:
    """Return the title, the text, and the start of each page in the text of a PDF, in characters.

    :raises BadRecordError: the file is damaged or encrypted, or has no text.
    """
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == pypdfium2.raw.FPDF_ERR_PASSWORD:
            remedy = "remove the password, for example with qpdf"
            raise BadRecordError("encrypted PDF", "it needs a password", remedy=remedy) from None
        raise BadRecordError("broken PDF", str(error), remedy="replace the file by an intact copy") from None
    if len(document) <= _FORM_PAGES:
        with contextlib.suppress(pypdfium2.PdfiumError):
            document.init_forms()
    parts: list[str] = []
    starts: list[int] = []
    size = 0
    for number in range(len(document)):
        text = _page_text(document, number)
        if text and size:
            parts.append("\n\n")
            size += 2
        starts.append(size)
        parts.append(text)
        size += len(text)
        if size > longest:
            raise too_long_record(longest)
    if not size:
        raise BadRecordError(
            "PDF without text",
            f"none of its {len(starts):,} pages has text, as in a scan",
            remedy="recognize the text first: ocrmypdf IN.pdf OUT.pdf",
        )
    title = document.get_metadata_dict().get("Title", "")
    return {"title": _clean(title), "text": "".join(parts), PAGE_STARTS: starts}


def _page_text(document: Any, number: int) -> str:
    import pypdfium2

    try:
        page = document[number]
        if document.formenv is not None:  # the entries of a form become part of the page's text
            with contextlib.suppress(pypdfium2.PdfiumError):
                page.flatten()
            page.close()
            page = document[number]
        text_page = page.get_textpage()
        text = text_page.get_text_range()
        text_page.close()
        page.close()
    except pypdfium2.PdfiumError as error:
        detail = f"page {number + 1:,} cannot be read: {error}"
        raise BadRecordError("broken PDF", detail, remedy="replace the file by an intact copy") from None
    return _clean(text)


def _clean(text: str) -> str:
    """Return a text with usual line ends and joined words, without half surrogate pairs."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _HYPHEN_AT_LINE_END.sub("", whole.replace("\r\n", "\n")).strip()


DOCUMENTS: dict[bytes, Callable[[bytes, int], dict[str, Any]]] = {b"H": read_html, b"P": read_pdf}
"""The function that reads a document, by the kind of the request."""


def _serve_documents(child: _Child, requests: BinaryIO) -> None:
    """Answer each request, which holds a document, by its record or its error."""
    while header := requests.read(HEADER.size):
        kind, size = HEADER.unpack(header)
        data = requests.read(size)
        child.allow_time()
        try:
            child.send_record(DOCUMENTS[kind](data, child.longest))
        except BadRecordError as bad:
            child.send_error(BAD, bad)
        except MemoryError:
            child.send_error(BAD, child.out_of_memory())
        child.flush()


def _send_table(child: _Child, path: str) -> None:
    """Send the columns of a table, then its rows."""
    import pyarrow

    child.allow_time()
    try:
        names, batches = _open_table(path)
        child.send(COLUMNS, names)
        child.flush()
        for stored_bytes, batch in batches:
            child.allow_time()
            child.send(BATCH, [stored_bytes, batch.num_rows])
            for row in _rows(batch):
                if isinstance(row, BadRecordError):
                    child.send_error(BAD, row)
                else:
                    child.send_record(row)
            child.flush()
        child.send(END, b"")
    except MemoryError:
        child.send_error(FATAL, child.out_of_memory())
    except (pyarrow.ArrowException, OSError, EOFError, ValueError) as error:
        problem = " ".join(str(error).split())
        child.send_error(FATAL, BadRecordError("the file cannot be read", problem))
    child.flush()


def _rows(batch: Any) -> list[dict[str, Any] | BadRecordError]:
    """Return the rows of a batch; for a row with a value that Python cannot read, its error."""
    try:
        rows: list[dict[str, Any] | BadRecordError] = batch.to_pylist()
    except (OverflowError, ValueError):
        names = batch.schema.names
        columns = [[_value(name, scalar) for scalar in batch.column(name)] for name in names]
        rows = [
            next((value for value in values if isinstance(value, BadRecordError)), None)
            or dict(zip(names, values, strict=True))
            for values in zip(*columns, strict=True)
        ]
    return rows


def _value(name: str, scalar: Any) -> Any:
    """Return a value of a column; a date or time that Python cannot hold becomes an ISO text."""
    import pyarrow
    from pyarrow.types import is_duration, is_temporal, is_timestamp

    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        kind = scalar.type
        if is_timestamp(kind) and kind.tz:  # the time zone may be unknown, or lead beyond the year 9999
            scalar = scalar.cast(pyarrow.timestamp(kind.unit, "UTC"))
        if is_temporal(kind) and not is_duration(kind):
            text: str = scalar.cast(pyarrow.string()).as_py()
            if not text.startswith("<"):  # pyarrow writes <value out of range: N> for a far date
                return text.replace(" ", "T")
        return BadRecordError(
            "value not JSON-serializable",
            f"Python cannot read the {kind} in column {name!r}",
            remedy="convert the values of this column to strings or numbers",
        )


def _open_table(path: str) -> tuple[list[str], Iterator[tuple[int, Any]]]:
    """Return the column names of a table, and its batches, each with its share of the file in bytes."""
    import pyarrow

    size = Path(path).stat().st_size
    with Path(path).open("rb") as stream:
        start = stream.read(8)
    if start.startswith(b"FEA1"):
        raise ValueError("version 1 of Feather is not supported")
    if start.startswith(b"ARROW1"):
        reader = pyarrow.ipc.open_file(pyarrow.memory_map(path))
        count = reader.num_record_batches
        batches = ((size // max(count, 1), reader.get_batch(number)) for number in range(count))
        return reader.schema.names, _small_batches(batches)
    if not start.startswith(b"PAR1") and not path.lower().endswith(".parquet"):
        source = pyarrow.memory_map(path)
        stream_reader = pyarrow.ipc.open_stream(source)
        return stream_reader.schema.names, _small_batches(_placed(source, stream_reader))
    from pyarrow.parquet import ParquetFile

    table = ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
    metadata = table.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    widest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=1)
    rows = max(1, min(ROWS_PER_BATCH, _BATCH_BYTES // max(widest, 1)))
    per_row = size / max(metadata.num_rows, 1)
    read = table.iter_batches(batch_size=rows, use_threads=False)
    return table.schema_arrow.names, ((int(per_row * batch.num_rows), batch) for batch in read)


def _placed(source: Any, batches: Any) -> Iterator[tuple[int, Any]]:
    """Yield the batches of a stream, each with the bytes that it takes in the file."""
    before = 0
    for batch in batches:
        yield source.tell() - before, batch
        before = source.tell()


def _small_batches(batches: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Cut batches into parts of at most `ROWS_PER_BATCH` rows."""
    for stored_bytes, batch in batches:
        parts = range(0, batch.num_rows, ROWS_PER_BATCH)
        for start in parts:
            yield stored_bytes // len(parts), batch.slice(start, ROWS_PER_BATCH)


def main(arguments: list[str]) -> None:
    """Read the table of a path, or documents from standard input.

    :param arguments: processor seconds, memory in bytes, the longest record in bytes; for a table, its path
    """
    seconds, memory, longest = map(int, arguments[:3])
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not disturb the messages
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_DATA, memory)
    child = _Child(output, seconds, memory, longest)
    if arguments[3:]:
        _send_table(child, arguments[3])
    else:
        _serve_documents(child, sys.stdin.buffer)


if __name__ == "__main__":
    main(sys.argv[1:])
