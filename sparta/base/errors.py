"""Every error a user can meet.

SpartaError                 exit code 1
├── InputError         2    a file or an argument the user gave is wrong
│   └── NoPassageError 2    the index holds no passage with the id that was given
├── IndexStateError    2    the index is missing, present, incomplete, locked or of another making
│   └── LackingError   2    the index lacks what a request needs: impacts, metadata, texts
├── ModelError         2    the model folder cannot be used
├── JavaError          1    no usable Java runtime, or Java itself failed
├── StorageError       1    the disk is full, fails or may not be written
├── ServerError        1    a server cannot be reached, or does not do what it was asked
└── MissingPackageError 1   a Python package is not installed that only some work needs

A message says what was expected, what was found, where, and what to do.
"""

from __future__ import annotations


class SpartaError(Exception):
    """An error meant for the user: no traceback is shown for it."""

    exit_code = 1

    def __init__(self, message: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f"\n  → {self.remedy}" if self.remedy else ""
        return f"{place}{self.message}{advice}"


class InputError(SpartaError):
    """A file or an argument is wrong."""

    exit_code = 2


class NoPassageError(InputError):
    """The index holds no passage with the id that was given."""


class IndexStateError(SpartaError):
    """The index is missing, present, incomplete, locked or of another making."""

    exit_code = 2


class LackingError(IndexStateError):
    """The index lacks what a request needs: impacts, metadata, texts."""


class ModelError(SpartaError):
    """A model folder cannot be used."""

    exit_code = 2


class JavaError(SpartaError):
    """No usable Java runtime, or Java failed."""


class StorageError(SpartaError):
    """The disk is full, fails or may not be written."""


class ServerError(SpartaError):
    """A server cannot be reached, or does not do what it was asked."""


class MissingPackageError(SpartaError):
    """A Python package is not installed that only some work needs; the remedy names the extra."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a job that keeps what it finished: `kept` units (passages, vectors, steps) are on disk.

    `untouched` is what was there before and still is, if anything.
    """

    def __init__(self, kept: int, unit: str, untouched: str = "") -> None:
        super().__init__(f"{kept:,} {unit}s kept")
        self.kept = kept
        self.unit = unit
        self.untouched = untouched


FREE_TEMPORARY = "free some space in the folder for temporary files, or name another one in TMPDIR"
REBUILD_INDEX = "restore it from a copy, or build it again: sparta index --corpus FILE --overwrite"


def folder_in_use(output: object, *, resumable: bool = True) -> IndexStateError:
    """Return what is said where a job would begin in a folder that holds files."""
    return IndexStateError(
        "expected an empty or a new folder, found one that holds files",
        where=str(output),
        remedy=("continue with --resume, or " if resumable else "") + "choose another --output",
    )
