"""Reading files as streams, and replacing files atomically, so that a crash keeps the old file."""

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
import stat
import sys
import tempfile
import zlib
from collections.abc import Buffer, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from sparta.base.errors import IndexStateError, InputError, StorageError, folder_in_use

STANDARD_INPUT = STANDARD_OUTPUT = "-"
TEMPORARY = ".sparta-*.tmp"
"""The pattern of the names of temporary files and folders. A killed process leaves them behind."""
_ALSO_STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")

COMPRESSED = {
    ".gz": re.compile(rb"\x1f\x8b"),
    ".bz2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),  # a block follows, or the end of an empty file
    ".zst": re.compile(rb"\x28\xb5\x2f\xfd"),
}
"""The suffix of each compressed format, and a pattern for the first bytes of its files."""
_LONGEST_MAGIC = 10
_PANDOC_FORMS = ("docx", "epub", "odt")
_OFFICE = {
    "word/document.xml": ("a Word document", "convert it: {docx}"),
    "xl/workbook.": ("a spreadsheet", "save it as CSV in UTF-8"),
    "ppt/presentation.xml": ("a presentation", "save it as PDF"),
    "application/epub+zip": ("an EPUB book", "convert it: {epub}"),
    "application/vnd.oasis.opendocument.text": ("an OpenDocument text", "convert it: {odt}"),
    "application/vnd.oasis.opendocument.spreadsheet": ("a spreadsheet", "save it as CSV in UTF-8"),
    "application/vnd.oasis.opendocument.presentation": ("a presentation", "save it as PDF"),
}
"""The beginning of a file name or of the media type in a zip archive, its description, and the conversion."""
_TAR = re.compile(rb"(?=[^\0]{0,256}\0)[\s\S]{257}ustar")
_ZIP = b"PK\3\4"
_UNSUPPORTED = {  # in this order: UTF-32 begins as UTF-16 does
    b"\xfd7zXZ\0": ("a file compressed with xz", "decompress it: xz -dk {path}"),
    b"PAR1": (
        "a Parquet file",
        "rename a corpus: mv {path} {path}.parquet; convert any other file to JSONL with pyarrow:"
        ' python3 -c "import json, sys; from pyarrow.parquet import ParquetFile as F; [print(json.dumps(row,'
        ' default=str)) for rows in F(sys.argv[1]).iter_batches() for row in rows.to_pylist()]" {path}'
        " > NEW_FILE",
    ),
    _ZIP: ("a zip archive", "unpack it: unzip {path}"),
    b"\xff\xfe\0\0": ("text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 {path} > NEW_FILE"),
    b"\0\0\xfe\xff": ("text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 {path} > NEW_FILE"),
    b"\xff\xfe": ("text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 {path} > NEW_FILE"),
    b"\xfe\xff": ("text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 {path} > NEW_FILE"),
}
"""The first bytes of each unsupported format, its description, and a command that converts it."""
MAX_LINE_VARIABLE = "SPARTA_MAX_LINE_MB"
_MAX_LINE_MB = 64
_BOM = b"\xef\xbb\xbf"
_BUFFER_BYTES = 1 << 20
_ZSTD_BYTES = 512  # decompress to at most 16 MB, since 4 bytes of zstd may stand for 128 kB
_LONGEST_ZSTD_HEADER = 18
_LONGEST_ZSTD_WINDOW = 128 << 20  # zstd itself reads no longer window without -M
_SPARE_FILES = 256
_FAILED_DISK = "the disk or its network connection fails: look into the system log (dmesg)"
_FAILURES = ("EIO", "ESTALE", "ENODEV", "ENXIO", "EREMOTEIO", "EBADMSG", "EUCLEAN", "ETIMEDOUT", "ENOTCONN")
NOT_PERMITTED = "change the permissions of the file and of its folders, or read as the user who owns them"
MORE_OPEN_FILES = "raise the limit on open files (ulimit -n 65536)"
_STORAGE_REMEDIES = {
    errno.ENOSPC: "free some space on this disk, or write to another one",
    errno.EDQUOT: "free some of your quota, or write to another disk",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or write to another disk",
    errno.EROFS: "write to a folder that is not mounted read-only",
    errno.EACCES: "change the permissions of the folder, or write to another one",
    errno.EPERM: "change the permissions of the folder, or write to another one",
    **{getattr(errno, name): _FAILED_DISK for name in _FAILURES if hasattr(errno, name)},
    errno.EMFILE: MORE_OPEN_FILES,
    errno.ENFILE: "close other programs: the machine has reached its limit on open files",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "remove the symbolic links that point to each other",
}
_PERMISSIONS, _LIMITS = (errno.EACCES, errno.EPERM), (errno.EMFILE, errno.ENFILE)
_UNKNOWN_CAUSE = "look for the reason in the system log (dmesg), then repeat the command"
_OF_CALLER = "_is_of_caller"


@contextlib.contextmanager
def storage_errors(where: str | Path, *, reading: bool = False) -> Iterator[None]:
    """Convert the operating system's file errors into errors meant for the user.

    A missing file, a missing folder, a file in place of a folder and a folder in place of a file become
    InputError. All other file errors (full disk or quota, missing permission, failing disk) become
    StorageError. Errors of pipes and sockets, errors without an error number, and errors of a caller's
    iterator (`caller_errors`) pass unchanged.

    :param reading: whether the block only reads files
    """
    try:
        yield
    except OSError as error:
        passes = BrokenPipeError | ConnectionError | BlockingIOError | InterruptedError | ChildProcessError
        if error.errno is None or isinstance(error, passes) or hasattr(error, _OF_CALLER):
            raise
        if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError | FileExistsError):
            culprit = f" ({error.filename})" if error.filename else ""
            message = f"{error.strerror}{culprit}"
            raise InputError(message, where=str(where), remedy="check the path") from error
        raise storage_error(where, error, reading=reading) from error


@contextlib.contextmanager
def caller_errors() -> Iterator[None]:
    """Mark the operating system's errors in a caller's iterator, so that `storage_errors` passes them."""
    try:
        yield
    except OSError as error:
        setattr(error, _OF_CALLER, True)
        raise


def storage_error(where: str | Path, error: OSError, *, reading: bool = False) -> StorageError:
    """Return the StorageError for a file that cannot be written, or read.

    :param reading: whether the file was only read
    """
    remedy = _STORAGE_REMEDIES.get(error.errno or 0, _UNKNOWN_CAUSE)
    is_of_both = error.errno in _LIMITS or remedy in (_FAILED_DISK, _UNKNOWN_CAUSE)
    verb = "read" if reading else "read or written" if is_of_both else "written"
    if reading and error.errno in _PERMISSIONS:
        remedy = NOT_PERMITTED
    return StorageError(f"the file cannot be {verb}: {error.strerror}", where=str(where), remedy=remedy)


def raise_if_unreadable(path: str | Path, error: BaseException) -> None:
    """Raise StorageError for an error in reading a file that says nothing about the file's content.

    Such errors are a failing disk, a missing permission and the limit on open files.
    """
    if isinstance(error, OSError) and (
        error.errno in (*_PERMISSIONS, *_LIMITS) or _STORAGE_REMEDIES.get(error.errno or 0) == _FAILED_DISK
    ):
        raise storage_error(path, error, reading=True) from error


def is_file(path: Path) -> bool:
    """Return whether a path is a file.

    :raises StorageError: nobody can tell, because a folder of the path cannot be read.
    """
    with storage_errors(path, reading=True):
        try:
            return stat.S_ISREG(path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # a null byte is in no path
            return False


def make_folder(path: str | Path) -> None:
    """Create a folder and its missing parent folders. An existing folder is fine.

    File errors are converted as in `storage_errors`.
    """
    with storage_errors(path):
        Path(path).mkdir(parents=True, exist_ok=True)


def check_new_folder(path: Path, remedy: str = "") -> None:
    """Check that an output folder does not exist yet or is empty.

    :param remedy: the advice if no option `--output` names the folder
    :raises IndexStateError: the folder holds files, or the path is a file.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        error = folder_in_use(path, resumable=False)
        error.remedy = remedy or error.remedy
        raise error


def check_output_file(path: Path | None, description: str) -> None:
    """Check, before long work, that an output file can be written at `path`; None means no output file.

    :param description: a description of the output file, for the error message
    :raises InputError: the parent folder does not exist, or the name has the suffix of a compressed file.
    """
    if path is None:
        return
    if not path.parent.is_dir():
        raise InputError(f"no such folder: the {description} cannot be written", where=str(path.parent))
    if path.suffix in COMPRESSED:
        raise InputError(
            f"the {description} cannot be compressed, but its name ends in {path.suffix}",
            where=str(path),
            remedy=f"name the file {plain_name(path.name)}, and compress it afterwards",
        )


def refuse_links(*paths: Path) -> None:
    """Check that output paths are not symbolic links, since writing through a link changes another file.

    :raises IndexStateError: a path is a symbolic link; the error names the first.
    """
    for path in paths:
        if path.is_symlink():
            raise IndexStateError(
                "the output path is a symbolic link, not a file or folder",
                where=str(path),
                remedy="replace the link by a copy of its target, or remove the link (rm)",
            )


def refuse_links_below(folder: Path) -> None:
    """Check that no file or folder below `folder` is a symbolic link. The folder itself may be a link.

    :raises IndexStateError: there is a symbolic link; the error names it.
    :raises StorageError: a folder cannot be read.
    """
    removed = FileNotFoundError, NotADirectoryError  # a writer may remove old files meanwhile
    with storage_errors(folder, reading=True), contextlib.suppress(*removed), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                refuse_links(Path(entry.path))
            if entry.is_dir(follow_symlinks=False):
                refuse_links_below(Path(entry.path))


def is_standard_output(path: str | Path) -> bool:
    """Return whether `path` is `-` or a device name of standard output, such as /dev/stdout.

    Standard output may be a file that other programs write to as well.
    """
    return str(path) in (STANDARD_OUTPUT, *_ALSO_STANDARD_OUTPUT)


def temporary_name() -> str:
    """Return a new name for a temporary file or folder. The name matches `TEMPORARY`."""
    return TEMPORARY.replace("*", secrets.token_hex(8))


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; the file there replaces `path` after the block.

    The file and its folder are synced to disk. After an error, the temporary file is removed and `path` is
    unchanged. Standard output, by any name, is written at the end of the block. A symbolic link keeps its
    target. A device or a pipe cannot be replaced and is written in place. File errors, including those
    raised in the block, are converted as in `storage_errors`.
    """
    if is_standard_output(path):
        with _to_standard_output() as temporary:
            yield temporary
        return
    target = Path(path).resolve()
    with storage_errors(path):
        original = Path(path)  # /dev/stdout resolves to a pipe that has no name in the file system
        if original.exists() and not original.is_file() and not original.is_dir():
            yield original
            return
        temporary = target.with_name(temporary_name())
        temporary.touch(exist_ok=False)
        try:
            yield temporary
            _sync(temporary)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)


@contextlib.contextmanager
def _to_standard_output() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder, "output")
        temporary.touch()
        yield temporary
        with temporary.open("rb") as stream:
            shutil.copyfileobj(stream, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk, on file systems that can sync a folder."""
    with contextlib.suppress(OSError):
        _sync(folder, os.O_RDONLY)


def _sync(path: Path, flags: int = os.O_RDWR) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def atomic_write(path: str | Path, data: bytes | Callable[[BinaryIO], object]) -> None:
    """Replace a file's content.

    :param data: the new content, or a function that writes the new content to the stream it receives
    """
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        if callable(data):
            data(stream)
        else:
            stream.write(data)


def sha256_file(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with storage_errors(path, reading=True), Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def short_hash(values: Iterable[object]) -> str:
    """Return a hash of the `repr` of the values, in order: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(repr(value).encode())
    return digest.hexdigest()[:16]


def allow_open_files(more: int) -> int:
    """Raise this process's limit on open files by `more`, as far as the machine allows.

    The default limit, often 1,024, suits old programs. A process may raise its limit up to the hard limit.

    :returns: how many of the `more` files can now be opened, at least 1
    """
    limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = Path("/dev/fd")
    open_now = len(list(descriptors.iterdir())) if descriptors.is_dir() else 256
    needed = open_now + more + _SPARE_FILES
    if limit != resource.RLIM_INFINITY and limit < needed:
        new_limit = needed if hard_limit == resource.RLIM_INFINITY else max(limit, min(needed, hard_limit))
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard_limit))
            limit = new_limit
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return more
    return max(1, limit - open_now - min(_SPARE_FILES, limit // 2))


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
                f" zstd -dc -M2048MB {_shell_path(path)} > NEW_FILE",
            )
    return _Stream(_zstd(stream, zstandard.ZstdDecompressor().decompressobj))


def plain_name(path: str | Path) -> str:
    """Return a path without the suffix of its compression."""
    name = str(path)
    return next((name[: -len(suffix)] for suffix in COMPRESSED if name.lower().endswith(suffix)), name)


def shown_name(path: str | Path) -> str:
    """Return the name of a path in messages; standard input is `<stdin>`."""
    return "<stdin>" if str(path) == STANDARD_INPUT else str(path)


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
            content = line.removeprefix(_BOM) if number == 1 else line
            if content.strip(b" \r\n"):
                yield number, line.rstrip(b"\r\n")
            elif blank:
                yield number, b""


def unread_form(data: bytes, path: str | Path) -> tuple[str, str] | None:
    """Recognize a file in an unsupported format by its first bytes; return None for other files.

    :return: a description of the format, and the command that converts the file
    """
    forms = [form for magic, form in _UNSUPPORTED.items() if data.startswith(magic)]
    if data.startswith(_ZIP):
        forms = [*_office_forms(path), *forms]
    if _TAR.match(data):
        forms = [("a tar archive", "unpack it: tar -xf {path}")]
    if not forms:
        return None
    description, conversion = forms[0]
    commands = {form: _pandoc(form, path) for form in _PANDOC_FORMS}
    return description, conversion.format(path=_shell_path(path), **commands)


def _pandoc(form: str, path: str | Path) -> str:
    """Return the command that converts a document to Markdown.

    A document with the suffix of another format is renamed, because it would stay part of a corpus.
    """
    document = str(path) if str(path).lower().endswith(f".{form}") else f"{path}.{form}"
    rename = "" if document == str(path) else f"mv {_shell_path(path)} {_shell_path(document)} && "
    markdown = _shell_path(Path(path).with_suffix(".md"))
    return f"{rename}pandoc -f {form} {_shell_path(document)} -o {markdown}"


def _office_forms(path: str | Path) -> list[tuple[str, str]]:
    """Return the forms of `_OFFICE` that a zip archive has; empty if it cannot be opened."""
    import zipfile

    marks: list[str] = []
    damages = (OSError, EOFError, KeyError, RuntimeError, ValueError, zlib.error, zipfile.BadZipFile)
    with contextlib.suppress(*damages), zipfile.ZipFile(path) as archive:
        marks += archive.namelist()
        with archive.open("mimetype") as stream:
            marks.append(stream.read(100).decode("ascii"))
    return [form for start, form in _OFFICE.items() if any(mark.startswith(start) for mark in marks)]


def _shell_path(path: str | Path) -> str:
    """Return a path as a shell command needs it; FILE for standard input."""
    return "FILE" if str(path) == STANDARD_INPUT else shlex.quote(str(path))


def refuse_unsupported(first_line: bytes, path: str | Path) -> None:
    """Raise InputError if a file begins as a file in an unsupported format does."""
    if unsupported := unread_form(first_line, path):
        description, conversion = unsupported
        message = f"expected UTF-8 text, plain or in gzip, bzip2 or zstd, found {description}"
        raise InputError(message, where=shown_name(path), remedy=conversion)


def too_long(where: str, description: str, max_bytes: int) -> InputError:
    """Return the error for a line, field or record of more than `max_bytes` bytes.

    :param description: a description of the line, field or record, for the error message
    """
    return InputError(
        f"{description} is longer than the limit of {max_bytes / 1e6:,.0f} MB",
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


def unreadable(path: str | Path, error: OSError) -> InputError:
    """Return the error for an input file that is missing or cannot be read."""
    if isinstance(error, FileNotFoundError):
        message = "no such file"
    else:
        message = f"the file cannot be read: {error.strerror or error}"
    return InputError(message, where=shown_name(path), remedy="check the path and its permissions")
