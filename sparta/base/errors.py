"""The errors that the package sparta raises for its users, with their exit codes.

SpartaError                1 any other failure
├── InputError             2 an input file or an argument is wrong
│   ├── NoPassageError     2 the index has no passage with the requested id
│   ├── MostOfIndexError   2 a deletion would remove more than half of an index
│   ├── BadRecordError     2 a line is not a valid record (sparta.data.parsing)
│   └── InputChangedError  2 the input of a resumed job changed; also an IndexStateError (sparta.index.jobs)
├── IndexStateError        2 the index is missing, in the way, incomplete, locked or written by other software
│   ├── NewerFormatError   2 a newer release of sparta wrote the files
│   └── LackingError       2 the index has no impacts, metadata or texts, which the request needs
├── ModelError             2 the model folder cannot be used
│   ├── ReplacedError      2 the files of a model changed while they were read, or since then
│   └── ForkedError        2 a process was forked after OpenVINO compiled a network (sparta.runtime.processor)
├── JavaError              1 there is no usable Java runtime, or Java failed
│   └── JavaMemoryError    1 Java ran out of memory
├── StorageError           1 the disk is full or fails, or a file cannot be opened or written
├── ServerError            1 a server cannot be reached, or fails to answer a request
└── MissingPackageError    1 an optional Python package is not installed; also an ImportError

`hybrid.service.errors` adds errors of HTTP requests.

A message says what was expected, what was found, where, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.base.renames import renamed_fields

_FOLDERS = re.compile(
    r"""(?<=')/[^'\n]*/(?=[^'/\n]+')|(?<=")/[^"\n]*/(?=[^"/\n]+")|(?<![\w:/.])/(?:[^\s/]+/)*(?=[^\s/])"""
)
"""The folders of an absolute path in a message; a quoted path may contain spaces."""


class SpartaError(Exception):
    """Base class of the errors meant for the user. The command line shows them without a traceback.

    :param message: what is wrong, without command-line options
    :param where: the file, line or place of the problem
    :param remedy: what to do; its options and commands are data, so that each front end shows them in its
        syntax
    :param facts: the values in the message by name, such as `expected` and `found`
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
        """The advice shown with the error. An assigned string becomes a Remedy."""
        return self._remedy

    @remedy.setter
    def remedy(self, remedy: str | Remedy) -> None:
        """The advice shown with the error. An assigned string becomes a Remedy."""
        self._remedy = Remedy(remedy) if isinstance(remedy, str) else remedy

    def __str__(self) -> str:
        return self._shown(str)

    def for_command_line(self) -> str:
        """Return the message and the remedy, with options in command-line syntax."""
        return self._shown(Remedy.for_command_line)

    def _shown(self, format_remedy: Callable[[Remedy], str]) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f"\n  → {format_remedy(self.remedy)}" if self.remedy else ""
        return f"{place}{self.message}{advice}"


class InputError(SpartaError):
    """An input file or an argument is wrong."""

    code = "bad_input"
    exit_code = 2


class NoPassageError(InputError):
    """The index has no passage with the requested id."""

    code = "no_passage"


class IndexStateError(SpartaError):
    """The index is missing, in the way, incomplete, locked or written by other software."""

    code = "index_state"
    exit_code = 2


class NewerFormatError(IndexStateError):
    """A newer release of sparta wrote the files.

    The files are not damaged, so sparta never replaces them.
    """

    code = "newer_format"


class MostOfIndexError(InputError):
    """A deletion would remove more than half of an index, and the caller did not allow it."""


class LackingError(IndexStateError):
    """The index has no impacts, metadata or texts, which the request needs."""

    code = "lacking"


class ModelError(SpartaError):
    """The model folder cannot be used."""

    code = "bad_model"
    exit_code = 2


class ReplacedError(ModelError):
    """The files of a model changed while they were read, or since then."""


class JavaError(SpartaError):
    """There is no usable Java runtime, or Java failed."""

    code = "java"


class JavaMemoryError(JavaError):
    """Java ran out of memory."""


class StorageError(SpartaError):
    """The disk is full or fails, or a permission or limit prevents opening or writing a file."""

    code = "storage"


class ServerError(SpartaError):
    """A server cannot be reached, or fails to answer a request."""

    code = "server"


class MissingPackageError(SpartaError, ImportError):
    """An optional Python package is not installed. The remedy names the extra that installs the package."""

    code = "missing_package"


@renamed_fields(untouched="unchanged")
class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a job that keeps its finished work.

    :param kept: the number of finished units on disk
    :param unit: the kind of unit, such as `passage`, `vector` or `step`
    :param unchanged: a description of the earlier files that the job left unchanged; empty if there were
        none
    """

    def __init__(self, kept: int, unit: str, unchanged: str = "") -> None:
        super().__init__(f"{kept:,} {unit}s kept")
        self.kept = kept
        self.unit = unit
        self.unchanged = unchanged

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kept, self.unit, self.unchanged)


def first_line_of(error: Exception) -> str:
    """Return the first line of an error's message, or the error's name if there is no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


FREE_TEMPORARY = "free space in the folder for temporary files, or set TMPDIR to another folder"


def rebuild_index(index: Path) -> Remedy:
    """Return the remedy for a damaged index."""
    return remedy(
        "restore the index from a copy, or build it again: {}, with the same options as before",
        Command.of("sparta index", corpus="FILE", overwrite=True, index=index),
    )


def folder_in_use(output: object, *, resumable: bool = True) -> IndexStateError:
    """Return the error for an output folder that already holds files.

    :param resumable: whether the job can continue from the files in the folder; the remedy then offers it
    """
    return IndexStateError(
        "the output folder already contains files",
        where=str(output),
        remedy=remedy(
            "continue an interrupted job with {}, or choose another {}",
            Option("resume", True),
            Option("output"),
        )
        if resumable
        else remedy("choose another {}", Option("output")),
    )


def without_folders(message: str) -> str:
    """Return a message in which the last name of each absolute path replaces the path."""
    return _FOLDERS.sub("", message)
