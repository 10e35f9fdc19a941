"""Reading files with native libraries in a child process, within limits of time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from sparta.base.closing import Closing
from sparta.base.disk.streams import longest_line
from sparta.base.errors import InputError, MissingPackageError
from sparta.base.extras import require_module
from sparta.base.files import plain_name
from sparta.data.formats.child import BAD, BATCH, END, FATAL, HEADER, OTHER_FORM
from sparta.data.parsing import BadRecordError

CPU_SECONDS = 20
"""The processor time for one document, or for one batch of a table."""
WALL_SECONDS = 300
"""The time to wait for one answer, on a busy machine."""
MEMORY_BYTES = 2 << 30
"""The memory of the child process. Linux enforces this limit; macOS does not."""
_READERS = {".html": (b"H", "resiliparse"), ".htm": (b"H", "resiliparse"), ".pdf": (b"P", "pypdfium2")}
"""By suffix: the kind of the request, and the package that reads the document."""
DOCUMENT_SUFFIXES = tuple(_READERS)
_ENDLESS = "endless file"
_BUFFER_BYTES = 1 << 20
_PACKAGES = str(Path(__file__).parents[3])
"""The folder of the package sparta, which the child process imports from the same place."""


class _EndedError(Exception):
    """The child process ended, or sends nothing."""


class _Child(Closing):
    """A running child process that sends messages.

    :param arguments: the arguments after the limits
    """

    def __init__(self, *arguments: str) -> None:
        limits = (CPU_SECONDS, MEMORY_BYTES, longest_line())
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sparta.data.formats.child", *map(str, limits), *arguments],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "ARROW_DEFAULT_MEMORY_POOL": "system",  # other pools reserve much more than they use
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(filter(None, [_PACKAGES, os.environ.get("PYTHONPATH")])),
            },
            start_new_session=True,  # Ctrl-C reaches only this process, which decides when to stop reading
        )
        self._requests = cast(BinaryIO, self._process.stdin)
        self._messages = cast(BinaryIO, self._process.stdout)
        self._poll = select.poll()
        self._poll.register(self._messages, select.POLLIN)
        self._buffer, self._position = b"", 0

    def ask(self, kind: bytes, data: bytes) -> None:
        """Send a request. If the child has ended, the next `message` raises."""
        with contextlib.suppress(BrokenPipeError):
            for part in (HEADER.pack(kind, len(data)), data):
                unsent = memoryview(part)
                while unsent:
                    unsent = unsent[self._requests.write(unsent) :]

    def message(self) -> tuple[bytes, bytes]:
        """Return the kind and the content of the next message.

        :raises _EndedError: the child ended, or sends nothing.
        """
        kind, size = HEADER.unpack(self._read(HEADER.size))
        return kind, self._read(size)

    def _read(self, size: int) -> bytes:
        missing = size - (len(self._buffer) - self._position)
        if missing > 0:
            parts = [self._buffer[self._position :]]
            while missing > 0:
                is_ready = self._poll.poll(WALL_SECONDS * 1000)
                data = self._messages.read(_BUFFER_BYTES) if is_ready else b""
                if not data:
                    raise _EndedError
                parts.append(data)
                missing -= len(data)
            self._buffer, self._position = b"".join(parts), 0
        start, self._position = self._position, self._position + size
        return self._buffer[start : self._position]

    def fault(self) -> BadRecordError:
        """Return the error that says how the child ended. A child that hangs is killed."""
        try:
            status = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return BadRecordError(_ENDLESS, f"reading it takes more than {WALL_SECONDS} s", remedy=OTHER_FORM)
        if -status in (signal.SIGXCPU, signal.SIGKILL):
            detail = f"reading it takes more than {CPU_SECONDS} s of processor time"
            return BadRecordError(_ENDLESS, detail, remedy=OTHER_FORM)
        name = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        detail = (
            f"its reader crashed ({name}); the file is damaged, or needs more than {MEMORY_BYTES >> 30} GB"
        )
        return BadRecordError("unreadable file", detail, remedy=OTHER_FORM)

    def close(self) -> None:
        """End the child."""
        for stream in (self._requests, self._messages):
            stream.close()
        self._process.kill()
        self._process.wait()


def _error(content: bytes) -> BadRecordError:
    """Return the error of a message."""
    reason, detail, advice = json.loads(content)
    return BadRecordError(reason, detail, remedy=advice)


def is_document(path: str | Path) -> bool:
    """Return whether a file is HTML or PDF, by its name."""
    return plain_name(path).lower().endswith(DOCUMENT_SUFFIXES)


def check_packages(paths: Sequence[str], *, columnar: bool, skip_invalid: bool) -> None:
    """Check, before long work, that the packages that read the files of a corpus are installed.

    :param columnar: whether the corpus is a Parquet or Arrow file
    :param skip_invalid: whether documents without a reader are skipped
    :raises MissingPackageError: a package is missing.
    """
    if columnar:
        require_module("pyarrow")
    if not skip_invalid:
        for module in {_reader(path)[1] for path in paths if is_document(path)}:
            require_module(module)


def _reader(path: str) -> tuple[bytes, str]:
    return _READERS[Path(plain_name(path)).suffix.lower()]


class Documents(Closing):
    """Reads HTML and PDF, each document in the same child process, until the process ends."""

    def __init__(self) -> None:
        self._child: _Child | None = None

    def read(self, path: str, data: bytes) -> dict[str, Any]:
        """Return the title and the text of a document, and of a PDF the start of each page in the text.

        If a child process crashes that read other documents before, a new child reads the document again.

        :param path: the file; its suffix decides the format
        :raises BadRecordError: the document is damaged or encrypted, has no text, or reading it exceeds a
            limit.
        """
        kind, module = _reader(path)
        try:
            require_module(module)
        except MissingPackageError as missing:
            raise BadRecordError("missing package", missing.message, remedy=missing.remedy) from None
        is_new = self._child is None
        child = self._child = self._child or _Child()
        try:
            child.ask(kind, data)
            answer, content = child.message()
        except _EndedError:
            fault = child.fault()
            self.close()
            if is_new or fault.reason == _ENDLESS:
                raise fault from None
            return self.read(path, data)
        if answer == BAD:
            raise _error(content)
        record: dict[str, Any] = json.loads(content)
        return record

    def close(self) -> None:
        """End the child process."""
        if self._child is not None:
            self._child.close()
            self._child = None


type Row = tuple[int, bytes | BadRecordError]
"""A row of a table: the bytes of the file that it stands for, and its JSON object or its error."""


@contextlib.contextmanager
def open_table(path: str) -> Iterator[tuple[list[str], Iterator[Row]]]:
    """Open a Parquet or Arrow file; return the names of its columns, and its rows.

    A child process reads the file, batch by batch.

    :raises MissingPackageError: pyarrow is not installed.
    :raises InputError: the file is damaged, or reading it exceeds a limit. The rows before that are yielded.
    """
    require_module("pyarrow")
    with _Child(path) as child:
        columns = json.loads(_table_message(child, path)[1])
        yield columns, _rows(child, path)


def _rows(child: _Child, path: str) -> Iterator[Row]:
    per_row = 0
    while (message := _table_message(child, path))[0] != END:
        kind, content = message
        if kind == BATCH:
            stored_bytes, count = json.loads(content)
            per_row = stored_bytes // max(count, 1)
        else:
            yield per_row, (_error(content) if kind == BAD else content)


def _table_message(child: _Child, path: str) -> tuple[bytes, bytes]:
    try:
        kind, content = child.message()
    except _EndedError:
        fault = child.fault()
    else:
        if kind != FATAL:
            return kind, content
        fault = _error(content)
    raise InputError(
        f"the table cannot be read: {fault.message}",
        where=path,
        remedy="write the table again, in Parquet with smaller row groups or as JSONL",
    )
