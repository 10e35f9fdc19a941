"""Turn Java's exceptions into sparta's errors, each with a remedy."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from sparta.base.errors import (
    IndexStateError,
    InputError,
    JavaError,
    JavaMemoryError,
    NewerFormatError,
    SpartaError,
    StorageError,
    rebuild_index,
)
from sparta.base.files import (
    DISK_FAILURES,
    FAILED_DISK,
    MORE_MAPPED_MEMORY,
    MORE_OPEN_FILES,
    NO_MAPPED_FILES,
    NOT_PERMITTED,
)
from sparta.base.remedies import Option, Remedy, remedy
from sparta.lucene import jvm
from sparta.lucene.java_runtime import OLDEST_JAVA, OWN_VARIABLE

_STATE_ERRORS: dict[str, tuple[str, str | None]] = {
    "LockObtainFailedException": (
        "another writer holds the index",
        "wait until the other writer has finished, or end it; nothing was changed",
    ),
    "IndexNotFoundException": ("there is no Lucene index", None),
    "IndexFormatTooNewException": (
        "the index was written by a newer Lucene",
        "use the version of sparta that wrote it",
    ),
    "IndexFormatTooOldException": ("the index was written by a Lucene too old to read", None),
    "CorruptIndexException": ("the index is damaged", None),
    "IllegalStateException": ("the index cannot be used", "open it again"),
    "AlreadyClosedException": ("the index is closed", "open it again"),
}
"""The problem and the remedy for each class of exceptions; None stands for the remedy `_rebuild`."""
_NO_ROOM = ("No space left on device", "Disk quota exceeded", "Read-only file system", "File too large")
_TOO_MANY_FILES = "Too many open files"
_NOT_MAPPED = {
    "Map failed": MORE_MAPPED_MEMORY,
    "No such device": NO_MAPPED_FILES,
}
"""The reasons why Lucene cannot map a file into memory, and their remedies."""
_SIGN_IN_FIELDS = re.compile(r"expected a metadata field of the passages \(.*[=<>!].*\), found ", re.DOTALL)
_NAMED_IN_JSON = remedy(
    "write a filter on a field name with =, <, > or ! as JSON, as in {}", Option("filter", '{"a=b": "en"}')
)
_NOT_WRITABLE = (
    "AccessDeniedException",
    "FileSystemException",
    "NoSuchFileException",
    "NotDirectoryException",
    "FileAlreadyExistsException",
    "ReadOnlyFileSystemException",
)
_BROKEN_DATA = ("ArrayIndexOutOfBoundsException", "IndexOutOfBoundsException")
_FILE_MISSING = ("NoSuchFileException", "FileNotFoundException", "EOFException")


def translate(thrown: Any, path: Path, *, reading: bool) -> SpartaError:
    """Return the sparta error, with a remedy, for a Java exception.

    :param thrown: `jnius.JavaException`
    :param path: the index folder in which the exception occurred
    :param reading: whether a reader raised the exception; then a missing file means a damaged index, not an
        unwritable folder
    """
    causes = _causes(thrown)
    where = str(path)
    for name, message in reversed(causes):
        error = _known(name, message, where, reading)
        if error is not None:
            return error
    name, message = causes[-1]
    return JavaError(
        f"Java failed: {name}: {message}", where=where, remedy="to find the reason, run: sparta doctor"
    )


def _rebuild(where: str) -> Remedy:
    """Return the remedy for a damaged index, whose Lucene index is this folder."""
    path = Path(where)
    return rebuild_index(path.parent if re.fullmatch(r"sparta-\d{6,}", path.name) else path)


def _causes(thrown: Any) -> list[tuple[str, str]]:
    """Return class and message of an exception and of each of its causes, the root cause last."""
    if thrown.classname is None:  # pyjnius itself failed
        return [("pyjnius", str(thrown))]
    lines = [str(line).strip() for line in thrown.stacktrace or ()]
    top_exception = (str(thrown.classname), str(thrown.innermessage or ""))
    causes = [lines[i + 1].partition(": ") for i, line in enumerate(lines[:-1]) if line == "Caused by:"]
    return [top_exception, *((name, message) for name, _, message in causes)]


def _of_storage(short: str, message: str, reading: bool) -> str:
    """Return the remedy for an error of the file system that says nothing about the index; else empty."""
    if _TOO_MANY_FILES in message:
        return MORE_OPEN_FILES
    if reading and short == "AccessDeniedException":
        return NOT_PERMITTED
    if any(os.strerror(number) in message for number in DISK_FAILURES):
        return f"{FAILED_DISK}; all committed passages are kept"
    if any(words in message for words in _NO_ROOM) or (short in _NOT_WRITABLE and not reading):
        return "free space or use another writable disk; all committed passages are kept"
    return ""


def _known(name: str, message: str, where: str, reading: bool) -> SpartaError | None:
    """Recognize an exception by its class, or by its message for file system errors.

    Returns the sparta error, or None for an unknown exception.
    """
    short = name.rpartition(".")[2]
    if short == "OutOfMemoryError":
        return JavaMemoryError(
            f"Java ran out of memory ({message})",
            where=where,
            remedy=f"raise Java's memory ({jvm.doubled_heap()}), ask for fewer hits or queries at once,"
            " or use smaller batches or fewer threads",
        )
    if short == "UnsupportedOperationException" and "Thai" in message:
        return JavaError(
            f"this Java cannot find words in Thai: it lacks the module jdk.localedata ({message})",
            where=where,
            remedy=f"set {OWN_VARIABLE} to a JDK (version {OLDEST_JAVA} or newer) with this module",
        )
    if short in _STATE_ERRORS:
        problem, advice = _STATE_ERRORS[short]
        kind = NewerFormatError if short == "IndexFormatTooNewException" else IndexStateError
        return kind(f"{problem} ({message})", where=where, remedy=advice or _rebuild(where))
    if short == "IllegalArgumentException":
        json_form = _NAMED_IN_JSON if _SIGN_IN_FIELDS.match(message) else ""
        return InputError(message, where=str(Path(where).parent) if reading else where, remedy=json_form)
    reason, is_mapping, _ = message.partition(": MemorySegmentIndexInput(")
    if is_mapping and reason in _NOT_MAPPED:
        return StorageError(
            f"the index cannot be mapped into memory ({reason})", where=where, remedy=_NOT_MAPPED[reason]
        )
    if advice := _of_storage(short, message, reading):
        verb = "read" if reading and not any(words in message for words in _NO_ROOM) else "written"
        return StorageError(f"the index cannot be {verb} ({short}: {message})", where=where, remedy=advice)
    if reading and short in _BROKEN_DATA:
        return IndexStateError(
            f"the index is damaged: its data is inconsistent ({short}: {message})",
            where=where,
            remedy=_rebuild(where),
        )
    if reading and short == "InternalError" and "memory access" in message:
        return IndexStateError(
            f"another program changed a file of the index while the index was open ({message})",
            where=where,
            remedy="open the index again; to replace an index, rename a folder instead of copying into it",
        )
    if reading and short in _FILE_MISSING:
        return IndexStateError(
            f"a file of the index is missing or cut short ({message})",
            where=where,
            remedy=_rebuild(where),
        )
    return None
