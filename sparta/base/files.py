"""Files: read as a stream, written so that a crash leaves the old one."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import hashlib
import io
import os
import re
import resource
import secrets
import shlex
import shutil
import sys
import tempfile
import zlib
from collections.abc import Buffer, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from sparta.base.errors import IndexStateError, InputError, StorageError, folder_in_use

STANDARD_INPUT = STANDARD_OUTPUT = "-"
_ALSO_STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")

COMPRESSED = {
    ".gz": re.compile(rb"\x1f\x8b"),
    ".bz2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),  # a block follows, or the end of an empty file
    ".zst": re.compile(rb"\x28\xb5\x2f\xfd"),
}
"""The suffixes of compressed files, and the bytes that such files begin with."""
_LONGEST_MAGIC = 10
_UNREAD = {  # in this order: UTF-32 begins as UTF-16 does
    b"\xfd7zXZ\0": ("a file compressed with xz", "decompress it: xz -dk {path}"),
    b"PAR1": (
        "a Parquet file",
        'make JSONL of it: python3 -c "import pandas, sys; pandas.read_parquet(sys.argv[1])'
        ".to_json(sys.argv[1] + '.jsonl', orient='records', lines=True, force_ascii=False)\" {path}",
    ),
    b"PK\3\4": ("a zip archive", "unpack it: unzip {path}"),
    b"\xff\xfe\0\0": ("text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 {path} > NEW_FILE"),
    b"\0\0\xfe\xff": ("text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 {path} > NEW_FILE"),
    b"\xff\xfe": ("text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 {path} > NEW_FILE"),
    b"\xfe\xff": ("text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 {path} > NEW_FILE"),
}
"""What begins a file that is not read: what it is, and what makes one of it that is."""
MAX_LINE_VARIABLE = "SPARTA_MAX_LINE_MB"
_MAX_LINE_MB = 64
_BOM = b"\xef\xbb\xbf"
_BUFFER_BYTES = 1 << 20
_ZSTD_BYTES = 512  # 4 bytes of zstd may stand for 128 kB, so these for 16 MB
_SPARE_FILES = 256
_FAILED_DISK = "the disk or the network it is mounted over fails: look into the system log (dmesg)"
_FAILURES = ("EIO", "ESTALE", "ENODEV", "ENXIO", "EREMOTEIO", "EBADMSG", "EUCLEAN", "ETIMEDOUT", "ENOTCONN")
_STORAGE_REMEDIES = {
    errno.ENOSPC: "free some space on this disk, or write to another one",
    errno.EDQUOT: "free some of your quota, or write to another disk",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or write to another disk",
    errno.EROFS: "write to a folder that is not mounted read-only",
    errno.EACCES: "change the permissions of the folder, or write to another one",
    errno.EPERM: "change the permissions of the folder, or write to another one",
    **{getattr(errno, name): _FAILED_DISK for name in _FAILURES if hasattr(errno, name)},
    errno.EMFILE: "raise the limit on open files (ulimit -n 65536)",
    errno.ENFILE: "close other programs: the machine has no more open files to give",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "remove the symbolic links that point to each other",
}
_OTHER = "look for the reason in the system log (dmesg), then repeat the command"


@contextlib.contextmanager
def storage_errors(where: str | Path) -> Iterator[None]:
    """Turn what the operating system says about files into errors meant for the user.

    A missing file or folder, or one in the place of the other, becomes InputError. Everything else that goes
    wrong with files (a full disk or quota, missing permission, a failing disk) becomes StorageError. What
    pipes and sockets raise, and errors without a number, pass unchanged.
    """
    try:
        yield
    except OSError as error:
        passes = BrokenPipeError | ConnectionError | BlockingIOError | InterruptedError | ChildProcessError
        if error.errno is None or isinstance(error, passes):
            raise
        if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError | FileExistsError):
            culprit = f" ({error.filename})" if error.filename else ""
            message = f"{error.strerror}{culprit}"
            raise InputError(message, where=str(where), remedy="check the path") from error
        raise storage_error(where, error) from error


def storage_error(where: str | Path, error: OSError) -> StorageError:
    """Return the error for a file that cannot be written or, where the disk fails, not be read either."""
    verb = "read or written" if disk_fails(error) or error.errno not in _STORAGE_REMEDIES else "written"
    remedy = _STORAGE_REMEDIES.get(error.errno or 0, _OTHER)
    return StorageError(f"cannot be {verb}: {error.strerror}", where=str(where), remedy=remedy)


def disk_fails(error: BaseException) -> bool:
    """Whether an error is one of the disk itself, so that nothing is known of the file."""
    return isinstance(error, OSError) and _STORAGE_REMEDIES.get(error.errno or 0) == _FAILED_DISK


def make_folder(path: str | Path) -> None:
    """Make a folder, with those above it, where there is none yet; errors are as of `storage_errors`."""
    with storage_errors(path):
        Path(path).mkdir(parents=True, exist_ok=True)


def check_new_folder(path: Path) -> None:
    """Refuse a folder that holds files, which something of its own would be written among.

    :raises IndexStateError: it does.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise folder_in_use(path, resumable=False)


def check_place(path: Path | None, what: str) -> None:
    """Refuse, before long work, a place where no plain file could be written at its end; None is no file.

    :raises InputError: the folder is not there, or the name is that of a compressed file; `what` is said of
        it.
    """
    if path is None:
        return
    if not path.parent.is_dir():
        raise InputError(f"expected a folder for the {what}, found none", where=str(path.parent))
    if path.suffix in COMPRESSED:
        raise InputError(
            f"expected the name of a plain {what}, found that of a compressed one",
            where=str(path),
            remedy=f"write {plain_name(path.name)}, and compress it afterwards",
        )


def refuse_links(*paths: Path) -> None:
    """Refuse symbolic links among files that sparta itself names: to write through them changes other files.

    :raises IndexStateError: it names the first link.
    """
    for path in paths:
        if path.is_symlink():
            raise IndexStateError(
                "expected a file or folder, found a symbolic link",
                where=str(path),
                remedy="replace the link by a copy of what it points to, or remove it (rm)",
            )


def refuse_links_below(folder: Path) -> None:
    """Refuse symbolic links anywhere below a folder, which may itself be one.

    :raises IndexStateError: there is a link.
    """
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    refuse_links(Path(entry.path))
                if entry.is_dir(follow_symlinks=False):
                    refuse_links_below(Path(entry.path))
    except (FileNotFoundError, NotADirectoryError):  # a writer removes what is left over
        return


def is_standard_output(path: str | Path) -> bool:
    """Whether this is `-` or a name of standard output, which may be a file that others write to as well."""
    return str(path) in (STANDARD_OUTPUT, *_ALSO_STANDARD_OUTPUT)


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary path in the same folder, which replaces `path` when the block ends well.

    The file and its folder are synced to disk; after an error the temporary file is gone and `path` is as it
    was. Standard output, by any name, is written at the end. A symbolic link keeps pointing where it did; a
    device or a pipe is written in place, since it cannot be replaced. Errors of the storage, also those in
    the block, are raised as by `storage_errors`.
    """
    if is_standard_output(path):
        with _to_standard_output() as temporary:
            yield temporary
        return
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
        # Not every file system can sync a folder, and the file is already in its place.
        with contextlib.suppress(OSError):
            _sync(target.parent, os.O_RDONLY)


@contextlib.contextmanager
def _to_standard_output() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder, "output")
        temporary.touch()
        yield temporary
        with temporary.open("rb") as stream:
            shutil.copyfileobj(stream, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _sync(path: Path, flags: int = os.O_RDWR) -> None:
    descriptor = os.open(path, flags)
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


def short_hash(values: Iterable[object]) -> str:
    """A hash of what values look like (`repr`), in order: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(repr(value).encode())
    return digest.hexdigest()[:16]


def allow_open_files(more: int) -> None:
    """Let this process have so many more files open at once, as far as the machine allows it.

    The usual limit, often 1,024, is low for the sake of old programs; every process may raise it itself.
    """
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


class _Stream(io.RawIOBase):
    """The bytes that an iterator yields, as a stream."""

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
    """Yield what a pipe holds now, without waiting for more, but at first enough to show its compression."""
    data = stream.read1(_BUFFER_BYTES)
    while len(data) < _LONGEST_MAGIC and (more := stream.read1(_LONGEST_MAGIC)):
        data += more
    while data:
        tally.add(data)
        yield data
        data = stream.read1(_BUFFER_BYTES)


def _zstd(stream: BinaryIO, new_frame: Callable[[], Any]) -> Iterator[bytes]:
    """Yield the bytes of a zstd file, frame after frame.

    :raises EOFError: the file ends within a frame.
    """
    frame, rest = None, b""
    while packed := rest or stream.read(_ZSTD_BYTES):
        frame = frame or new_frame()
        yield frame.decompress(packed)
        rest = frame.unused_data
        frame = None if frame.eof else frame
    if frame:
        raise EOFError("the file ends within a frame")


@contextlib.contextmanager
def open_decompressed(
    path: str | Path, tally: Tally | None = None, opened: BinaryIO | None = None
) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`, as decompressed bytes: plain, gzip, bzip2 or zstd.

    Compression is recognised by the first bytes, and expected of a name that ends in .gz, .bz2 or .zst. The
    tally sees the bytes as they are stored.

    :param opened: the file where it is open already; it is read from its beginning, and stays open
    :raises InputError: zstd, where the package zstandard is not installed; standard input that is closed.
    """
    with contextlib.ExitStack() as stack:
        if str(path) == STANDARD_INPUT:
            if sys.stdin is None:
                raise InputError("expected data on standard input, found it closed", remedy="name a file")
            below = cast(io.BufferedIOBase, sys.stdin.buffer)
        elif opened is not None:
            opened.seek(0)
            below = cast(io.BufferedIOBase, opened)
        else:
            below = stack.enter_context(Path(path).open("rb"))
        plain: BinaryIO = io.BufferedReader(_Stream(_stored(below, tally or Tally())), _BUFFER_BYTES)
        start = plain.peek(_LONGEST_MAGIC)  # type: ignore[attr-defined]
        known = COMPRESSED.items()
        suffix = next((s for s, magic in known if str(path).endswith(s) or magic.match(start)), "")
        stream = plain
        if suffix:
            decompressed = stack.enter_context(_decompressed(plain, suffix, path))
            stream = io.BufferedReader(decompressed, _BUFFER_BYTES)
        yield stream


def _decompressed(stream: BinaryIO, suffix: str, path: str | Path) -> Any:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=stream, mode="rb")
    if suffix == ".bz2":
        return bz2.BZ2File(stream)
    try:
        import zstandard
    except ImportError:
        raise InputError(
            "expected a file that can be read here, found one compressed with zstd",
            where=shown_name(path),
            remedy="pip install zstandard",
        ) from None
    return _Stream(_zstd(stream, zstandard.ZstdDecompressor().decompressobj))


def plain_name(path: str | Path) -> str:
    """Return a path without the suffix of its compression."""
    name = str(path)
    return next((name[: -len(suffix)] for suffix in COMPRESSED if name.lower().endswith(suffix)), name)


def shown_name(path: str | Path) -> str:
    """Return the name that messages use for a path."""
    return "<stdin>" if str(path) == STANDARD_INPUT else str(path)


def longest_line() -> int:
    """Return how many bytes a line may have: 64 MB, or what `SPARTA_MAX_LINE_MB` says.

    A few megabytes of gzip may hold one line of many gigabytes; it must not fill the memory.

    :raises InputError: the variable is not a number above 0.
    """
    given = os.environ.get(MAX_LINE_VARIABLE) or str(_MAX_LINE_MB)
    try:
        size = int(float(given) * 1e6)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise InputError(
            f"expected {MAX_LINE_VARIABLE} as a number of megabytes above 0, found {given!r}",
            remedy=f"unset {MAX_LINE_VARIABLE} (then it is {_MAX_LINE_MB})",
        )
    return size


def numbered_lines(
    path: str | Path, tally: Tally | None = None, opened: BinaryIO | None = None
) -> Iterator[tuple[int, bytes]]:
    r"""Yield (line number from 1, bytes without the line end) for every line that is not blank.

    Lines end in \n or \r\n; a line of spaces only is blank, one of tabs is not. `path` is opened by
    `open_decompressed`; what cannot be read, another encoding or compression, and a line above
    `longest_line`, is an InputError.
    """
    number, limit = 0, longest_line()
    with reading(path, lambda: number + 1), open_decompressed(path, tally, opened) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(limit + 1), b""), 1):
            if number == 1:
                _refuse_unread(line, path)
            if len(line) > limit:
                raise too_long(f"{shown_name(path)}:{number}", "a line", limit)
            rest = line.removeprefix(_BOM) if number == 1 else line
            if rest.strip(b" \r\n"):
                yield number, line.rstrip(b"\r\n")


def unread_form(data: bytes, path: str | Path) -> tuple[str, str] | None:
    """What the first bytes of a file say that it is, and the remedy, where such files are not read."""
    given = "FILE" if str(path) == STANDARD_INPUT else shlex.quote(str(path))
    found = (said for magic, said in _UNREAD.items() if data.startswith(magic))
    return next(((what, remedy.format(path=given)) for what, remedy in found), None)


def _refuse_unread(data: bytes, path: str | Path) -> None:
    if found := unread_form(data, path):
        message = f"expected UTF-8 text, plain or in gzip, bzip2 or zstd, found {found[0]}"
        raise InputError(message, where=shown_name(path), remedy=found[1])


def too_long(where: str, what: str, limit: int) -> InputError:
    """Say that `what` is longer than `limit` bytes."""
    return InputError(
        f"expected {what} of at most {limit / 1e6:,.0f} MB, found a longer one",
        where=where,
        remedy=f"check that the file is not damaged; {MAX_LINE_VARIABLE} (in MB) allows longer ones",
    )


@contextlib.contextmanager
def reading(path: str | Path, line: Callable[[], int] | None = None) -> Iterator[None]:
    """Turn what goes wrong when an input file is read into an InputError; `line` says where that is."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, gzip.BadGzipFile):
            raise unreadable(path, error) from error
        if not isinstance(error, OSError | EOFError | zlib.error) and type(error).__name__ != "ZstdError":
            raise
        raise InputError(  # bz2 says so of damage by an OSError without a number
            f"broken compression: expected a whole gzip, bzip2 or zstd file, found: {error}",
            where=shown_name(path) + (f":{line()}" if line else ""),
            remedy="copy or download the file again (gzip -t, bzip2 -t or zstd -t tests it)",
        ) from error


def unreadable(path: str | Path, error: OSError) -> InputError:
    """Say that an input file is missing or cannot be read."""
    if isinstance(error, FileNotFoundError):
        message = "no such file: expected a file that is there"
    else:
        message = f"cannot be read: {error.strerror or error}"
    return InputError(message, where=shown_name(path), remedy="check the path and its permissions")
