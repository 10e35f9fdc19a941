"""An output that would be written over what the same command reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from sparta.base.errors import InputError

_IN_FOLDERS = ("corpus.jsonl", "queries.jsonl", "questions.jsonl", "qrels.tsv", "qrels/*.tsv")


def refuse_overwriting(command: click.Command, given: Mapping[str, Any], outputs: click.Path) -> None:
    """Refuse an output file that another option or argument names, or that lies in a test set that one names.

    :param given: the words of each parameter, by its name, as they were typed
    :param outputs: the type of options that name a file to write
    :raises InputError: there is one.
    """
    options = {one.name: one for one in command.params if one.name in given}
    for name, option in options.items():
        if option.type is not outputs or not Path(str(given[name])).is_file():
            continue
        for other in options:
            if other != name and any(Path(given[name]).samefile(path) for path in _read(given[other])):
                told = options[other].opts[0] if isinstance(options[other], click.Option) else "an argument"
                raise InputError(
                    f"expected another file for {option.opts[0]} than for {told}, found the same",
                    where=str(given[name]),
                    remedy="name a new file: this one would be written over",
                )


def _read(value: Any) -> Iterator[Path]:
    """The files that a parameter names, and those of the test sets that it names."""
    for word in value if isinstance(value, list | tuple) else [value]:
        path = Path(word) if isinstance(word, str) else None
        try:
            if path and path.is_file():
                yield path
            elif path and path.is_dir():
                yield from (found for name in _IN_FOLDERS for found in path.glob(name))
        except (OSError, ValueError):  # a question, say, that no file can be called
            continue
