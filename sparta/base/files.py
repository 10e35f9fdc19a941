"""Files: errors, names, checks of output paths, hashes, and writing that keeps the old file after a crash."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import resource
import secrets
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

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
_SPARE_FILES = 256
FAILED_DISK = "the disk or its network connection fails: look into the system log (dmesg)"
_FAILURES = ("EIO", "ESTALE", "EREMOTEIO", "EBADMSG", "EUCLEAN", "ETIMEDOUT", "ENOTCONN")
DISK_FAILURES = tuple(getattr(errno, name) for name in _FAILURES if hasattr(errno, name))
"""The numbers of the errors of a failing disk."""
NOT_PERMITTED = "change the permissions of the file and of its folders, or read as the user who owns them"
_NO_LOCKS = "write to another disk: this file system lacks locks or another operation"
MORE_OPEN_FILES = "raise the limit on open files (ulimit -n 65536)"
MORE_MAPPED_MEMORY = (
    "raise the limits on the address space (ulimit -v) and on mapped files (sysctl vm.max_map_count)"
)
_MORE_MEMORY = "free memory, or raise the limits on memory (ulimit -v, sysctl vm.max_map_count)"
NO_MAPPED_FILES = "copy the files to a file system that can map files into memory (mmap)"
_STORAGE_REMEDIES = {
    errno.ENOSPC: "free some space on this disk, or write to another one",
    errno.EDQUOT: "free some of your quota, or write to another disk",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or write to another disk",
    errno.EROFS: "write to a folder that is not mounted read-only",
    errno.EACCES: "change the permissions of the folder, or write to another one",
    errno.EPERM: "change the permissions of the folder, or write to another one",
    **dict.fromkeys(DISK_FAILURES, FAILED_DISK),
    errno.EMFILE: MORE_OPEN_FILES,
    errno.ENOMEM: _MORE_MEMORY,
    errno.ENODEV: NO_MAPPED_FILES,
    errno.EBADF: "check the redirections of the command, such as > FILE",
    errno.ENFILE: "close other programs: the machine has reached its limit on open files",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "remove the symbolic links that point to each other",
    errno.ENOLCK: _NO_LOCKS,  # sparta does without locks; huggingface_hub does not
    errno.EOPNOTSUPP: _NO_LOCKS,
}
_PERMISSIONS, _LIMITS = (errno.EACCES, errno.EPERM), (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
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
    remedy = _remedy(error, _UNKNOWN_CAUSE, reading=reading)
    is_of_both = error.errno in _LIMITS or remedy in (FAILED_DISK, _UNKNOWN_CAUSE)
    verb = "read" if reading else "read or written" if is_of_both else "written"
    return StorageError(f"the file cannot be {verb}: {error.strerror}", where=str(where), remedy=remedy)


def _remedy(error: OSError, otherwise: str, *, reading: bool) -> str:
    if reading and error.errno in _PERMISSIONS:
        return NOT_PERMITTED
    advice = _STORAGE_REMEDIES.get(error.errno or 0, otherwise)
    return otherwise if reading and advice == _NO_LOCKS else advice


def raise_if_unreadable(path: str | Path, error: BaseException) -> None:
    """Raise StorageError for an error in reading a file that says nothing about the file's content.

    Such errors are a failing disk, a missing permission, the limits on open files and on memory, and a file
    system that cannot map files into memory.
    """
    numbers = (*_PERMISSIONS, *_LIMITS, *DISK_FAILURES, errno.ENODEV)
    if isinstance(error, OSError) and error.errno in numbers:
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


def temporary_files_folder() -> Path:
    """Return the system's folder for temporary files.

    :raises StorageError: no such folder can be written
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise StorageError(
            "no folder for temporary files can be written",
            remedy="make /tmp writable, or set TMPDIR to a folder that is writable",
        ) from error


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
    with tempfile.TemporaryDirectory(dir=temporary_files_folder()) as folder:
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


def by_hash[T](values: Iterable[T], key: Callable[[T], str] = str) -> list[T]:
    """Return the values in the order of the SHA-256 of their keys; data are held out in this order."""
    return sorted(values, key=lambda value: hashlib.sha256(key(value).encode()).digest())


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


def plain_name(path: str | Path) -> str:
    """Return a path without the suffix of its compression."""
    name = str(path)
    return next((name[: -len(suffix)] for suffix in COMPRESSED if name.lower().endswith(suffix)), name)


def shown_name(path: str | Path) -> str:
    """Return the name of a path in messages; standard input is `<stdin>`."""
    return "<stdin>" if str(path) == STANDARD_INPUT else str(path)


def shell_path(path: str | Path) -> str:
    """Return a path as a shell command needs it; FILE for standard input."""
    return "FILE" if str(path) == STANDARD_INPUT else shlex.quote(str(path))


def unreadable(path: str | Path, error: OSError) -> InputError:
    """Return the error for an input file that is missing or cannot be read."""
    if isinstance(error, FileNotFoundError):
        message = "no such file"
    else:
        message = f"the file cannot be read: {error.strerror or error}"
    remedy = _remedy(error, "check the path and its permissions", reading=True)
    return InputError(message, where=shown_name(path), remedy=remedy)
