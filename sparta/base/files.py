"""Files: read as a stream, written so that a crash leaves the old one."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import os
import secrets
import sys
import zlib
from collections.abc import Buffer, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from sparta.base.errors import InputError, StorageError

STANDARD_INPUT = "-"

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_BUFFER_BYTES = 1 << 20
_SPARE_FILES = 256
_STORAGE_REMEDIES = {
    errno.ENOSPC: "free some space on this disk, or write to another one",
    errno.EDQUOT: "free some of your quota, or write to another disk",
    errno.EROFS: "write to a folder that is not mounted read-only",
    errno.EACCES: "change the permissions of the folder, or write to another one",
    errno.EPERM: "change the permissions of the folder, or write to another one",
}


@contextlib.contextmanager
def storage_errors(where: str | Path) -> Iterator[None]:
    """Turn what the operating system says about files into errors meant for the user.

    A full disk or quota, a read-only disk and missing permission become StorageError; a missing file or
    folder, or one in the place of the other, becomes InputError. Every other OSError passes unchanged.
    """
    try:
        yield
    except OSError as error:
        remedy = _STORAGE_REMEDIES.get(error.errno or 0)
        if remedy is not None:
            message = f"cannot be written: {error.strerror}"
            raise StorageError(message, where=str(where), remedy=remedy) from error
        if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError | FileExistsError):
            raise _wrong_place(error, where) from error
        raise


def _wrong_place(error: OSError, where: str | Path) -> InputError:
    culprit = f" ({error.filename})" if error.filename else ""
    return InputError(f"{error.strerror}{culprit}", where=str(where), remedy="check the path")


def make_folder(path: str | Path) -> None:
    """Make a folder, with those above it, where there is none yet; errors are as of `storage_errors`."""
    with storage_errors(path):
        Path(path).mkdir(parents=True, exist_ok=True)


def check_place(path: Path | None, what: str) -> None:
    """Refuse, before long work, a place where no file could be written at its end; None is no file.

    :raises InputError: the folder is not there; `what` is said of the file.
    """
    if path is not None and not path.parent.is_dir():
        raise InputError(f"expected a folder for the {what}, found none", where=str(path.parent))


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary path in the same folder, which replaces `path` when the block ends well.

    The file and its folder are synced to disk; after an error the temporary file is gone and `path` is as it
    was. A symbolic link keeps pointing where it did; a device or a pipe is written in place, since it cannot
    be replaced. Errors of the storage, also those in the block, are raised as by `storage_errors`.
    """
    target = Path(path).resolve()
    with storage_errors(path):
        given = Path(path)  # /dev/stdout resolves to a pipe that has no name in the file system
        if given.exists() and not given.is_file() and not given.is_dir():
            yield given
            return
        temporary = target.with_name(f".sparta-{secrets.token_hex(8)}.tmp")
        temporary.touch(exist_ok=False)
        try:
            yield temporary
            _sync(temporary)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    # Not every file system (nor Windows) can sync a folder, and the file is already in its place.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def atomic_write(path: str | Path, data: bytes | Callable[[BinaryIO], object]) -> None:
    """Replace the file by `data`, or by what the function `data` writes into the stream it is given."""
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        if callable(data):
            data(stream)
        else:
            stream.write(data)


def sha256_file(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with storage_errors(path), Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def allow_open_files(more: int) -> None:
    """Let this process have so many more files open at once, as far as the machine allows it.

    The usual limit, often 1,024, is low for the sake of old programs; every process may raise it itself.
    """
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = Path("/dev/fd")
    open_now = len(list(descriptors.iterdir())) if descriptors.is_dir() else 256
    wanted = open_now + more + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        highest = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, highest), hard))


class Tally:
    """The size and SHA-256 of the bytes that have passed by, over any number of files."""

    def __init__(self) -> None:
        self.size = 0
        self._digest = hashlib.sha256()

    def add(self, data: bytes) -> None:
        """Count these bytes."""
        self.size += len(data)
        self._digest.update(data)

    def sha256(self) -> str:
        """Return the SHA-256 so far, in hexadecimal."""
        return self._digest.hexdigest()


class _Tapped(io.RawIOBase):
    """A stream that shows a tally every byte read from it. Closing it leaves the stream below open."""

    def __init__(self, stream: io.BufferedIOBase, tally: Tally) -> None:
        self._stream = stream
        self._tally = tally
        self._at_start = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        data = self._stream.read1(len(view))  # read1: what a pipe holds now, without waiting for more
        if self._at_start and len(data) == 1:  # gzip shows itself in two bytes
            data += self._stream.read1(len(view) - 1)
        self._at_start = False
        view[: len(data)] = data
        self._tally.add(data)
        return len(data)


@contextlib.contextmanager
def open_maybe_gzip(path: str | Path, tally: Tally | None = None) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`, as a stream of bytes, decompressed when it is gzip.

    Gzip is recognised by its first two bytes, and expected of a name that ends in .gz. The tally sees the
    bytes as they are stored.
    """
    with contextlib.ExitStack() as stack:
        if str(path) == STANDARD_INPUT:
            below = cast(io.BufferedIOBase, sys.stdin.buffer)
        else:
            below = stack.enter_context(Path(path).open("rb"))
        plain = io.BufferedReader(_Tapped(below, tally or Tally()), _BUFFER_BYTES)
        stream: BinaryIO = plain
        if str(path).endswith(".gz") or plain.peek(2)[:2] == _GZIP_MAGIC:
            unzipped = stack.enter_context(gzip.GzipFile(fileobj=plain, mode="rb"))
            stream = io.BufferedReader(cast(io.RawIOBase, unzipped), _BUFFER_BYTES)
        yield stream


def shown_name(path: str | Path) -> str:
    """Return the name that messages use for a path."""
    return "<stdin>" if str(path) == STANDARD_INPUT else str(path)


def numbered_lines(path: str | Path, tally: Tally | None = None) -> Iterator[tuple[int, bytes]]:
    r"""Yield (line number from 1, bytes without the line end) for every line that is not blank.

    Lines end in \n or \r\n; a line of spaces only is blank, one of tabs is not. `path` is opened by
    `open_maybe_gzip`; what cannot be read is an InputError.
    """
    number = 0
    with reading(path, lambda: number + 1), open_maybe_gzip(path, tally) as stream:
        for number, line in enumerate(stream, 1):
            if _is_blank(line, number):
                continue
            yield number, line.rstrip(b"\r\n")


@contextlib.contextmanager
def reading(path: str | Path, line: Callable[[], int] | None = None) -> Iterator[None]:
    """Turn what goes wrong when an input file is read into an InputError; `line` says where that is."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"broken gzip: expected a whole gzip file, found: {error}",
            where=shown_name(path) + (f":{line()}" if line else ""),
            remedy="copy or download the file again (gzip -t tests it)",
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _is_blank(line: bytes, number: int) -> bool:
    rest = line.removeprefix(_BOM) if number == 1 else line
    return not rest.strip(b" \r\n")


def unreadable(path: str | Path, error: OSError) -> InputError:
    """Say that an input file is missing or cannot be read."""
    if isinstance(error, FileNotFoundError):
        message = "no such file: expected a file that is there"
    else:
        message = f"cannot be read: {error.strerror or error}"
    return InputError(message, where=shown_name(path), remedy="check the path and its permissions")
