"""Programs as groups of commands: loading on demand, errors as messages, exit codes, Ctrl-C."""

from __future__ import annotations

import errno
import io
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from cli._arguments import output_type
from cli._output import counted, visible
from sparta.base.errors import InputError, Interrupted, SpartaError, StorageError
from sparta.base.extras import optional_packages
from sparta.base.files import storage_error

INTERRUPTED = 130
GROUP_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
"""Settings of the help of all three programs."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What the operating system says where standard output takes no more."""


class SpartaGroup(click.Group):
    """A program that imports a command when it is run, and prints an error as a message.

    :param places: where each command is, `module:name`, in the order of the help
    """

    def __init__(self, *args: Any, places: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, context_settings=GROUP_SETTINGS, **kwargs)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, not sorted."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        module, _, name = self._places.get(cmd_name, "").partition(":")
        command: click.Command | None = getattr(import_module(module), name) if module else None
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command and its arguments; an option is not given twice, unless it takes several.

        What the command reads is not written over.
        """
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _refuse_conflicts(command, name, rest, ctx)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        _quiet_logging()
        _never_fail_to_print()
        try:
            with optional_packages():
                result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except SpartaError as error:
            click.echo(f"error: {visible(error.for_command_line(), keep='\n')}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt as interrupt:
            # Python's own end waits for threads: broken off by another Ctrl-C, C++ would abort.
            signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            kept = interrupt if isinstance(interrupt, Interrupted) else None
            click.echo(_interrupted(command, kept), err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            sys.stderr.close()
            ctx.exit(0)
        except OSError as error:
            if error.filename is not None or error.errno not in _FULL:
                if error.errno is None:
                    raise
                failed = storage_error(error.filename or "a file", error)
                click.echo(f"error: {visible(str(failed), keep='\n')}", err=True)
                ctx.exit(failed.exit_code)
            full = StorageError(
                f"cannot be written: {error.strerror}",
                where="standard output",
                remedy="free some space, or write to another disk",
            )
            click.echo(f"error: {full}", err=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left cannot be written
            ctx.exit(full.exit_code)


def _refuse_conflicts(
    command: click.Command, name: str | None, args: Sequence[str], ctx: click.Context
) -> None:
    """Refuse an option that is given twice, of which click would take the last, and the same file to read
    and to write.
    """
    with click.Context(command, info_name=name, parent=ctx) as context:
        try:
            values, _, order = command.make_parser(context).parse_args(list(args))
        except click.UsageError:
            return  # the command says it, with its usage
    _refuse_overwriting(command, values)
    for option in order:
        once = isinstance(option, click.Option) and not (option.multiple or option.count or option.is_flag)
        if once and order.count(option) > 1:
            several = " (several files: put them into one folder)" if option.name == "corpus" else ""
            raise click.UsageError(
                f"expected {option.opts[-1] if len(option.opts[-1]) > 2 else option.opts[0]} once,"
                f" found it {order.count(option)} times{several}",
                context,
            )


def _interrupted(command: click.Command | None, interrupt: Interrupted | None) -> str:
    """What to print after Ctrl-C, where a job says what it keeps."""
    resumes = command is not None and any(option.name == "resume" for option in command.params)
    again = "the same command" + (" with --resume" if resumes else "")
    if interrupt is None:
        return "interrupted"
    if not interrupt.kept:
        there = f"new was written yet, {interrupt.untouched} is as it was" if interrupt.untouched else ""
        return f"interrupted: nothing {there or 'was written yet'}; {again} starts from the beginning"
    return f"interrupted: {counted(interrupt.kept, interrupt.unit)} kept; {again} continues"


def _never_fail_to_print() -> None:
    """On a terminal without Unicode, print something else instead of characters that it lacks.

    What would be printed where nobody listens is thrown away.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return the message, control characters shown."""
        return visible(super().format(record), keep="\n")


def _quiet_logging() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(levelname)s: %(message)s"))
    root = logging.getLogger("sparta")
    root.handlers = [handler]
    root.propagate = False


_IN_FOLDERS = ("corpus.jsonl", "queries.jsonl", "questions.jsonl", "qrels.tsv", "qrels/*.tsv")


def _refuse_overwriting(command: click.Command, values: Mapping[str, Any]) -> None:
    """Refuse an output file that another option or argument names, or that lies in a test set that one names.

    :param values: the words of each parameter, by its name, as they were typed
    :param outputs: the type of options that name a file to write
    :raises InputError: there is one.
    """
    options = {parameter.name: parameter for parameter in command.params if parameter.name in values}
    for name, option in options.items():
        if option.type is not output_type or not Path(str(values[name])).is_file():
            continue
        for other in options:
            if other != name and any(Path(values[name]).samefile(path) for path in _read(values[other])):
                source = options[other].opts[0] if isinstance(options[other], click.Option) else "an argument"
                raise InputError(
                    f"expected another file for {option.opts[0]} than for {source}, found the same",
                    where=str(values[name]),
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
                yield from (file for name in _IN_FOLDERS for file in path.glob(name))
        except (OSError, ValueError):  # a question, say, that no file can be called
            continue
