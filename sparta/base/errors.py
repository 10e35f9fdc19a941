"""Every error a user can meet.

SpartaError                 exit code 1
├── InputError         2    a file or an argument the user gave is wrong
│   └── NoPassageError 2    the index holds no passage with the id that was given
├── IndexStateError    2    the index is missing, present, incomplete, locked or of another making
│   ├── NewerFormatError 2  a newer release wrote it
│   └── LackingError   2    the index lacks what a request needs: impacts, metadata, texts
├── ModelError         2    the model folder cannot be used
├── JavaError          1    no usable Java runtime, or Java itself failed
├── StorageError       1    the disk is full, fails or may not be written
├── ServerError        1    a server cannot be reached, or does not do what it was asked
└── MissingPackageError 1   a Python package is not installed that only some work needs

A message says what was expected, what was found, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparta.base.remedies import Command, Option, Remedy, remedy


class SpartaError(Exception):
    """An error meant for the user: no traceback is shown for it.

    :param message: what is wrong, without options of any front end
    :param where: the file, line or place that it is about
    :param remedy: what to do; options and commands in it are data, so that each front end shows its own form
    :param facts: the values that the message names, such as `expected` and `found`
    """

    code = "failed"
    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        where: str = "",
        remedy: str | Remedy = "",
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.remedy = remedy
        self.facts = dict(facts or {})

    @property
    def remedy(self) -> Remedy:
        """What to do; setting a text makes it one."""
        return self._remedy

    @remedy.setter
    def remedy(self, remedy: str | Remedy) -> None:
        self._remedy = Remedy(remedy) if isinstance(remedy, str) else remedy

    def __str__(self) -> str:
        return self._shown(str)

    def for_command_line(self) -> str:
        """Return the message and the remedy, with options as they are typed."""
        return self._shown(Remedy.for_command_line)

    def _shown(self, form: Callable[[Remedy], str]) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f"\n  → {form(self.remedy)}" if self.remedy else ""
        return f"{place}{self.message}{advice}"


class InputError(SpartaError):
    """A file or an argument is wrong."""

    code = "bad_input"
    exit_code = 2


class NoPassageError(InputError):
    """The index holds no passage with the id that was given."""

    code = "no_passage"


class IndexStateError(SpartaError):
    """The index is missing, present, incomplete, locked or of another making."""

    code = "index_state"
    exit_code = 2


class NewerFormatError(IndexStateError):
    """What a newer release wrote; nothing here is damaged, so nothing is replaced."""

    code = "newer_format"


class LackingError(IndexStateError):
    """The index lacks what a request needs: impacts, metadata, texts."""

    code = "lacking"


class ModelError(SpartaError):
    """A model folder cannot be used."""

    code = "bad_model"
    exit_code = 2


class JavaError(SpartaError):
    """No usable Java runtime, or Java failed."""

    code = "java"


class StorageError(SpartaError):
    """The disk is full, fails or may not be written."""

    code = "storage"


class ServerError(SpartaError):
    """A server cannot be reached, or does not do what it was asked."""

    code = "server"


class MissingPackageError(SpartaError):
    """A Python package is not installed that only some work needs; the remedy names the extra."""

    code = "missing_package"


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
REBUILD_INDEX = remedy(
    "restore it from a copy, or build it again: {}", Command.of("sparta index", corpus="FILE", overwrite=True)
)


def folder_in_use(output: object, *, resumable: bool = True) -> IndexStateError:
    """Return what is said where a job would begin in a folder that holds files."""
    return IndexStateError(
        "expected an empty or a new folder, found one that holds files",
        where=str(output),
        remedy=remedy("continue with {}, or choose another {}", Option("resume", True), Option("output"))
        if resumable
        else remedy("choose another {}", Option("output")),
    )
