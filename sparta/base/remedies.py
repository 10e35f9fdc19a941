"""Remedies for errors: sentences with options and commands as data.

Each `{}` in a sentence stands for an `Option` or a `Command`. The front end chooses the syntax: the command
line shows `--resume`, Python shows `resume=True`. A service omits steps that only its own machine can take.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_./=:-]*(\.[a-z]+)?")
_NO_VALUE = ...  # Ellipsis, because it stays the same object when it is pickled


@dataclass(frozen=True, slots=True)
class Option:
    """A command option, which is an argument in Python.

    :param name: the name in Python, such as `held_out`
    :param value: the recommended value; True sets a flag; without a value, only the name is shown
    :param flag: the command-line name, if it differs from `name`
    :param python: the form in Python, if it is no argument `name=value`
    """

    name: str
    value: Any = _NO_VALUE
    flag: str = ""
    python: str = ""

    def for_python(self) -> str:
        """Return `name`, or `name=value`, or the form in Python."""
        if self.python:
            return self.python
        if self.value is _NO_VALUE:
            return self.name
        return f"{self.name}={self.value if _is_placeholder(self.value) else repr(self.value)}"

    def for_command_line(self) -> str:
        """Return `--name`, or `--name value`; a name of one letter is `-K`."""
        name = (self.flag or self.name).replace("_", "-")
        flag = f"-{name}" if len(name) == 1 else f"--{name}"
        return flag if self.value is _NO_VALUE or self.value is True else f"{flag} {_quoted(self.value)}"


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run. Every front end shows it in the same syntax, unless `python` names a method.

    :param name: program and subcommand, such as `sparta index`
    :param words: the positional arguments, shown before the options
    :param options: the options of the command
    :param python: the method that does the same in Python
    """

    name: str
    words: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    python: str = ""

    @classmethod
    def of(cls, name: str, /, *words: object, **options: Any) -> Command:
        """Return a command; keyword arguments become options, in their order.

        None and False omit an option.
        """
        shown_options = tuple(
            Option(key, value) for key, value in options.items() if value not in (None, False)
        )
        return cls(name, tuple(str(word) for word in words), shown_options)

    def for_command_line(self) -> str:
        """Return the command as a user types it."""
        words = [
            self.name,
            *map(_quoted, self.words),
            *(option.for_command_line() for option in self.options),
        ]
        return " ".join(words)

    def for_python(self) -> str:
        """Return the method in Python, or else the command as a user types it."""
        return self.python or self.for_command_line()


@dataclass(frozen=True, slots=True)
class Remedy:
    """Advice for the user: `text` contains one `{}` for each element of `parts`.

    A part is an Option, a Command, another Remedy, or a string that is shown unchanged.
    """

    text: str = ""
    parts: tuple[Any, ...] = field(default=())

    def __str__(self) -> str:
        return self._rendered(lambda part: part.for_python())

    def __bool__(self) -> bool:
        return bool(self.text)

    def __add__(self, addition: str | Remedy) -> Remedy:
        """Return both remedies, one after the other. A string is shown unchanged."""
        return Remedy("{}{}", (self, addition if isinstance(addition, Remedy) else Remedy(addition)))

    def for_command_line(self) -> str:
        """Return the sentence with options in command-line syntax."""
        return self._rendered(lambda part: part.for_command_line())

    for_python = __str__

    @property
    def commands(self) -> list[Command]:
        """The commands in this remedy; commands of nested remedies come last."""
        nested = [part.commands for part in self.parts if isinstance(part, Remedy)]
        return [part for part in self.parts if isinstance(part, Command)] + [
            command for commands in nested for command in commands
        ]

    @property
    def options(self) -> list[Option]:
        """The options in this remedy, without the options of its commands; nested remedies come last."""
        nested = [part.options for part in self.parts if isinstance(part, Remedy)]
        return [part for part in self.parts if isinstance(part, Option)] + [
            option for options in nested for option in options
        ]

    def _rendered(self, render_part: Callable[[Any], str]) -> str:
        if not self.parts:
            return self.text
        pieces = self.text.split("{}")
        if len(pieces) != len(self.parts) + 1:
            raise ValueError(f"expected {len(pieces) - 1} parts for {self.text!r}, found {len(self.parts)}")
        rendered_parts = [part if isinstance(part, str) else render_part(part) for part in self.parts]
        return pieces[0] + "".join(
            part + piece for part, piece in zip(rendered_parts, pieces[1:], strict=True)
        )


def remedy(text: str, *parts: Option | Command | Remedy | str) -> Remedy:
    """Return a remedy; `text` contains one `{}` for each part."""
    return Remedy(text, parts)


def _is_placeholder(value: Any) -> bool:
    """Return whether a value stands for the user's own value, such as FILE or FILE.json."""
    return isinstance(value, str) and _PLACEHOLDER.fullmatch(value) is not None


def _quoted(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_quoted, value))
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    return text if _is_placeholder(text) else shlex.quote(text)


def on_command_line(advice: str | Remedy) -> str:
    """Return a remedy with options in command-line syntax; a string is returned unchanged."""
    return advice if isinstance(advice, str) else advice.for_command_line()
