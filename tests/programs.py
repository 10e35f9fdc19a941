"""The three programs, run in the process of the test."""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import distribution
from typing import BinaryIO

import click
from click.testing import CliRunner, Result


class Program:
    """A program; a call runs it with arguments, as a shell would: `sparta("search", "moon", "-k", 3)`.

    :param name: the name of its console script
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def main(self) -> click.Group:
        """The function behind the console script: a group of commands."""
        group: click.Group = distribution("sparta-search").entry_points[self.name].load()
        return group

    def __call__(
        self, *arguments: object, stdin: str | bytes | BinaryIO | None = None, catch_exceptions: bool = True
    ) -> Result:
        """Return the exit code and what the program printed."""
        words = [str(argument) for argument in arguments]
        return CliRunner().invoke(self.main, words, input=stdin, catch_exceptions=catch_exceptions)


sparta, dense, hybrid = Program("sparta"), Program("dense"), Program("hybrid")
PROGRAMS = {program.name: program for program in (sparta, dense, hybrid)}
