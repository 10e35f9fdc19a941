"""What to do about an error: a sentence whose options and commands are data.

A sentence has `{}` where an `Option` or a `Command` stands. Who shows it chooses the form: the command line
writes `--resume`, Python `resume=True`; a service leaves out what only its own machine can do.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_NAMED = ...  # no value: the same object in every process


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command, which is an argument in Python.

    :param name: its name in Python, such as `held_out`
    :param value: what to give; True sets a flag, and without a value only the name is shown
    :param flag: its name on the command line where that is not the same word
    """

    name: str
    value: Any = _NAMED
    flag: str = ""

    def for_python(self) -> str:
        """Return `name`, or `name=value`."""
        if self.value is _NAMED:
            return self.name
        return f"{self.name}={self.value if _is_placeholder(self.value) else repr(self.value)}"

    def for_command_line(self) -> str:
        """Return `--name`, or `--name value`."""
        flag = "--" + (self.flag or self.name).replace("_", "-")
        return flag if self.value is _NAMED or self.value is True else f"{flag} {_quoted(self.value)}"


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run; it reads the same everywhere.

    :param name: program and command, such as `sparta index`
    :param words: what stands before the options
    :param options: by their names in Python; None and False leave an option out
    """

    name: str
    words: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()

    @classmethod
    def of(cls, name: str, /, *words: object, **options: Any) -> Command:
        """Return a command with options as keywords, in this order."""
        wanted = tuple(Option(key, value) for key, value in options.items() if value not in (None, False))
        return cls(name, tuple(str(word) for word in words), wanted)

    def for_command_line(self) -> str:
        """Return the command as it is typed."""
        words = [
            self.name,
            *map(_quoted, self.words),
            *(option.for_command_line() for option in self.options),
        ]
        return " ".join(words)

    for_python = for_command_line


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do: `text` with a `{}` for each of `parts`.

    A part is an Option, a Command, another Remedy, or a text to be quoted as it is.
    """

    text: str = ""
    parts: tuple[Any, ...] = field(default=())

    def __str__(self) -> str:
        return self._rendered(lambda part: part.for_python())

    def __bool__(self) -> bool:
        return bool(self.text)

    def __add__(self, more: str | Remedy) -> Remedy:
        """Return both, one after the other; a text is taken as it is."""
        return Remedy("{}{}", (self, more if isinstance(more, Remedy) else Remedy(more)))

    def for_command_line(self) -> str:
        """Return the sentence with options as they are typed."""
        return self._rendered(lambda part: part.for_command_line())

    for_python = __str__

    @property
    def commands(self) -> list[Command]:
        """The commands that it names, in order."""
        inner = [part.commands for part in self.parts if isinstance(part, Remedy)]
        return [part for part in self.parts if isinstance(part, Command)] + [c for cs in inner for c in cs]

    @property
    def options(self) -> list[Option]:
        """The options that it names by themselves, in order."""
        inner = [part.options for part in self.parts if isinstance(part, Remedy)]
        return [part for part in self.parts if isinstance(part, Option)] + [o for os in inner for o in os]

    def _rendered(self, form: Callable[[Any], str]) -> str:
        if not self.parts:
            return self.text
        pieces = self.text.split("{}")
        if len(pieces) != len(self.parts) + 1:
            raise ValueError(f"expected {len(pieces) - 1} parts for {self.text!r}, found {len(self.parts)}")
        shown = [part if isinstance(part, str) else form(part) for part in self.parts]
        return pieces[0] + "".join(part + piece for part, piece in zip(shown, pieces[1:], strict=True))


def remedy(text: str, *parts: Option | Command | Remedy | str) -> Remedy:
    """Return a remedy; `text` has a `{}` for each part."""
    return Remedy(text, parts)


def _is_placeholder(value: Any) -> bool:
    """Whether it stands for what the user has: FILE, FOLDER/index."""
    return isinstance(value, str) and value.isupper()


def _quoted(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_quoted, value))
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    return text if _is_placeholder(text) else shlex.quote(text)


def on_command_line(advice: str | Remedy) -> str:
    """Return a remedy with options as they are typed; a text is one already."""
    return advice if isinstance(advice, str) else advice.for_command_line()
