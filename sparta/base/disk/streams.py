"""Input files as streams of lines, decompressed, counted and hashed."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Buffer, Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from sparta.base.disk.unsupported import refuse_unsupported
from sparta.base.errors import InputError
from sparta.base.files import COMPRESSED, STANDARD_INPUT, shell_path, shown_name, unreadable

_LONGEST_MAGIC = 10
MAX_LINE_VARIABLE = "SPARTA_MAX_LINE_MB"
_MAX_LINE_MB = 64
BOM = b"\xef\xbb\xbf"
_BUFFER_BYTES = 1 << 20
_ZSTD_BYTES = 512  # decompress to at most 16 MB, since 4 bytes of zstd may stand for 128 kB
_LONGEST_ZSTD_HEADER = 18
_LONGEST_ZSTD_WINDOW = 128 << 20  # zstd itself reads no longer window without -M


class Tally:
    """The total size and SHA-256 of bytes that are added in pieces, over any number of files."""

    def __init__(self) -> None:
        self.size = 0
        self._digest = hashlib.sha256()

    def add(self, data: bytes) -> None:
        """Add bytes to the size and the hash."""
        self.size += len(data)
        self._digest.update(data)

    def add_file(self, path: str | Path, opened: BinaryIO | None = None) -> None:
        """Add the bytes of a file, as stored on disk.

        :param opened: the file, if it is already open
        :raises InputError: the file cannot be read.
        """
        try:
            with contextlib.nullcontext(opened) if opened else Path(path).open("rb") as stream:
                stream.seek(0)
                while data := stream.read(_BUFFER_BYTES):
                    self.add(data)
        except OSError as error:
            raise unreadable(path, error) from error

    def copy(self) -> Self:
        """Return a tally of the same bytes."""
        copied = type(self)()
        copied.size, copied._digest = self.size, self._digest.copy()
        return copied

    def mark(self) -> Callable[[], None]:
        """Return a function that takes back all bytes that are added after this call."""
        size, digest = self.size, self._digest.copy()

        def take_back() -> None:
            self.size, self._digest = size, digest

        return take_back

    def sha256(self) -> str:
        """Return the SHA-256 of all bytes added so far, in hexadecimal."""
        return self._digest.hexdigest()


class _Stream(io.RawIOBase):
    """A readable stream over byte chunks from an iterator."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._data = chunks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        while not self._data and (chunk := next(self._chunks, None)) is not None:
            self._data = chunk
        size = min(len(view), len(self._data))
        view[:size], self._data = self._data[:size], self._data[size:]
        return size


def _stored(stream: io.BufferedIOBase, tally: Tally) -> Iterator[bytes]:
    """Yield a stream's bytes as they arrive, before decompression, and add them to the tally.

    The first chunk has enough bytes to recognize the compression. Later chunks hold the bytes that a pipe
    has ready, without waiting for more.
    """
    data = stream.read1(_BUFFER_BYTES)
    while len(data) < _LONGEST_MAGIC and (more := stream.read1(_LONGEST_MAGIC)):
        data += more
    while data:
        tally.add(data)
        yield data
        data = stream.read1(_BUFFER_BYTES)


def _zstd(stream: BinaryIO, new_frame: Callable[[], Any]) -> Iterator[bytes]:
    """Yield the decompressed bytes of a zstd stream, frame after frame.

    :param new_frame: creates the decompressor of one frame
    :raises EOFError: the stream ends within a frame.
    """
    frame, undecoded = None, b""
    while packed := undecoded or stream.read(_ZSTD_BYTES):
        frame = frame or new_frame()
        yield frame.decompress(packed)
        undecoded = frame.unused_data
        frame = None if frame.eof else frame
    if frame:
        raise EOFError("the zstd file ends within a frame")


def _bz2(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the decompressed bytes of a bzip2 file, stream after stream.

    Python's own reader takes a damaged beginning of a later stream for the end of the file.

    :raises OSError: the data is damaged.
    :raises EOFError: the file ends within a stream.
    """
    part, undecoded, n_streams = None, b"", 0
    while packed := undecoded or stream.read(_BUFFER_BYTES):
        if part is None and n_streams:
            packed = packed.lstrip(b"\0")  # padding after a stream
            if not packed:
                undecoded = b""
                continue
        part = part or bz2.BZ2Decompressor()
        yield part.decompress(packed, _BUFFER_BYTES)
        while not part.eof and not part.needs_input:  # a small stream may hold gigabytes
            yield part.decompress(b"", _BUFFER_BYTES)
        undecoded = part.unused_data
        n_streams += part.eof
        part = None if part.eof else part
    if part or not n_streams:
        raise EOFError("the bzip2 file ends within a stream, or is empty")


@contextlib.contextmanager
def open_decompressed(
    path: str | Path, tally: Tally | None = None, opened: BinaryIO | None = None
) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`, as decompressed bytes.

    Files may be plain, gzip, bzip2 or zstd. The first bytes of a file show its compression. A file named
    .gz, .bz2 or .zst must be compressed.

    :param tally: counts and hashes the stored bytes, before decompression
    :param opened: the file, if already open; the function reads it from the beginning and leaves it open
    :raises InputError: the zstd file needs the package zstandard, or standard input is closed.
    """
    with contextlib.ExitStack() as stack:
        if str(path) == STANDARD_INPUT:
            if sys.stdin is None:
                raise InputError(
                    "standard input is closed, so no data can be read",
                    remedy="name an input file instead of -",
                )
            stored_stream = cast(io.BufferedIOBase, sys.stdin.buffer)
        elif opened is not None:
            opened.seek(0)
            stored_stream = cast(io.BufferedIOBase, opened)
        else:
            stored_stream = stack.enter_context(Path(path).open("rb"))
        plain: BinaryIO = io.BufferedReader(_Stream(_stored(stored_stream, tally or Tally())), _BUFFER_BYTES)
        first_bytes = plain.peek(_LONGEST_MAGIC)  # type: ignore[attr-defined]
        compressions = COMPRESSED.items()
        suffix = next(
            (end for end, magic in compressions if str(path).endswith(end) or magic.match(first_bytes)), ""
        )
        stream = plain
        if suffix:
            decompressed = stack.enter_context(_decompressed(plain, suffix, path))
            stream = io.BufferedReader(decompressed, _BUFFER_BYTES)
        yield stream


def _decompressed(stream: BinaryIO, suffix: str, path: str | Path) -> Any:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=stream, mode="rb")
    if suffix == ".bz2":
        return _Stream(_bz2(stream))
    try:
        import zstandard
    except ImportError:
        raise InputError(
            "reading zstd files needs the Python package zstandard, which is not installed",
            where=shown_name(path),
            remedy="pip install zstandard",
        ) from None
    with contextlib.suppress(zstandard.ZstdError):  # no frame begins here; reading names the damage
        first_bytes = stream.peek(_LONGEST_ZSTD_HEADER)  # type: ignore[attr-defined]
        if zstandard.get_frame_parameters(first_bytes).window_size > _LONGEST_ZSTD_WINDOW:
            raise InputError(
                "the zstd file has a window of more than 128 MB, which takes too much memory",
                where=shown_name(path),
                remedy="decompress it, and name the new file:"
                f" zstd -dc -M2048MB {shell_path(path)} > NEW_FILE",
            )
    return _Stream(_zstd(stream, zstandard.ZstdDecompressor().decompressobj))


def longest_line() -> int:
    """Return the maximum length of a line in bytes: 64 MB, or the value of `SPARTA_MAX_LINE_MB`.

    The maximum protects memory: a few megabytes of gzip may hold a line of many gigabytes.

    :raises InputError: the variable is not a number above 0.
    """
    megabytes = os.environ.get(MAX_LINE_VARIABLE) or str(_MAX_LINE_MB)
    try:
        size = int(float(megabytes) * 1e6)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise InputError(
            f"{MAX_LINE_VARIABLE} must be a number of megabytes above 0, found {megabytes!r}",
            remedy=f"unset {MAX_LINE_VARIABLE} to use the default, {_MAX_LINE_MB}",
        )
    return size


def numbered_lines(
    path: str | Path, tally: Tally | None = None, opened: BinaryIO | None = None, *, blank: bool = False
) -> Iterator[tuple[int, bytes]]:
    r"""Yield (line number from 1, bytes without the line end) for every line that is not blank.

    Lines end in \n or \r\n. A line with only spaces is blank; a line with tabs is not. `open_decompressed`
    opens the file.

    :param blank: yield blank lines, too, as empty bytes
    :raises InputError: the file cannot be read, has an unsupported encoding or compression, or has a line
        longer than `longest_line`.
    """
    number, max_bytes = 0, longest_line()
    with input_errors(path, lambda: number + 1), open_decompressed(path, tally, opened) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(max_bytes + 1), b""), 1):
            if number == 1:
                refuse_unsupported(line, path)
            if len(line) > max_bytes:
                raise too_long(f"{shown_name(path)}:{number}", "a line", max_bytes)
            content = line.removeprefix(BOM) if number == 1 else line
            if content.strip(b" \r\n"):
                yield number, line.rstrip(b"\r\n")
            elif blank:
                yield number, b""


def too_long(where: str, description: str, max_bytes: int) -> InputError:
    """Return the error for a line, field or record of more than `max_bytes` bytes.

    :param description: a description of the line, field or record, for the error message
    """
    return InputError(
        f"{description} is longer than the limit of {max_bytes / 1e6:,g} MB",
        where=where,
        remedy=f"check that the file is not damaged, or raise the limit with {MAX_LINE_VARIABLE} (in MB)",
    )


@contextlib.contextmanager
def input_errors(path: str | Path, line: Callable[[], int] | None = None) -> Iterator[None]:
    """Convert errors while reading an input file into InputError.

    :param line: returns the current line number, for the error message
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, gzip.BadGzipFile):
            raise unreadable(path, error) from error
        if not isinstance(error, OSError | EOFError | zlib.error) and type(error).__name__ != "ZstdError":
            raise
        raise InputError(  # for a damaged file, bz2 raises an OSError without an error number
            f"the compressed file is damaged or incomplete: {error}",
            where=shown_name(path) + (f":{line()}" if line else ""),
            remedy="copy or download the file again (gzip -t, bzip2 -t or zstd -t tests it)",
        ) from error
