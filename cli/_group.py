"""The three programs as groups of commands: lazy imports, error messages, exit codes, Ctrl-C."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from collections.abc import Buffer, Iterator, Mapping, Sequence
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import click

from cli._arguments import output_type
from cli._output import counted, visible
from sparta.base.errors import InputError, Interrupted, SpartaError
from sparta.base.extras import optional_packages
from sparta.base.files import storage_error
from sparta.base.remedies import Remedy

INTERRUPTED = 130
GROUP_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
"""Settings of the help of all three programs."""

_STANDARD_OUTPUT = "standard output"


class Place(NamedTuple):
    """A command's function, and the summary of the command.

    :param function: `module:name`
    :param summary: the first line of the command's help; the help of the program shows it without an import
    """

    function: str
    summary: str


class SpartaGroup(click.Group):
    """A program that imports only the command that runs, and prints errors as messages.

    :param sections: heading of each section of the help, with its commands by name
    """

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, Place]], **kwargs: Any) -> None:
        super().__init__(*args, context_settings=GROUP_SETTINGS, **kwargs)
        self.sections = sections
        self._places = {name: place for places in sections.values() for name, place in places.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None for an unknown name."""
        place = self._places.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.function.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under the headings of their sections; imports none of them."""
        width = max(map(len, self._places))
        for heading, places in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), place.summary) for name, place in places.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the command and its arguments.

        :raises click.UsageError: an option that takes one value is typed twice
        :raises InputError: the output file is also an input file
        """
        name, command, arguments = super().resolve_command(ctx, args)
        if command is not None:
            _refuse_conflicts(command, name, arguments, ctx)
        return name, command, arguments

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; print an error if standard output is full or broken, also for --help."""
        _never_fail_to_print()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.filename != _STANDARD_OUTPUT:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again at exit
            failed = storage_error(_STANDARD_OUTPUT, error)
            click.echo(f"error: {failed}", err=True)
            sys.exit(failed.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        _quiet_logging()
        try:
            with optional_packages():
                result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except SpartaError as error:
            click.echo(f"error: {visible(error.for_command_line(), keep='\n')}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt as interrupt:
            # At exit Python waits for threads; a second Ctrl-C during that wait would make C++ abort.
            signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            interruption = interrupt if isinstance(interrupt, Interrupted) else None
            click.echo(_interrupted(command, interruption), err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            sys.stderr.close()
            ctx.exit(0)
        except OSError as error:
            if error.errno is None or error.filename == _STANDARD_OUTPUT:
                raise  # to `main`
            failed = storage_error(error.filename or "a file", error)
            click.echo(f"error: {visible(str(failed), keep='\n')}", err=True)
            ctx.exit(failed.exit_code)


def _refuse_conflicts(
    command: click.Command, name: str | None, args: Sequence[str], ctx: click.Context
) -> None:
    """Refuse a repeated option (click would take the last value) and an output file that is also an input."""
    with click.Context(command, info_name=name, parent=ctx) as context:
        try:
            values, _, order = command.make_parser(context).parse_args(list(args))
        except click.UsageError:
            return  # the command itself raises the same error and prints its usage
    _refuse_overwriting(command, values)
    for option in order:
        takes_one_value = isinstance(option, click.Option) and not (
            option.multiple or option.count or option.is_flag
        )
        if takes_one_value and order.count(option) > 1:
            several = " (several files: put them into one folder)" if option.name == "corpus" else ""
            raise click.UsageError(
                f"{option.opts[-1] if len(option.opts[-1]) > 2 else option.opts[0]} may be given only once,"
                f" found {order.count(option)} times{several}",
                context,
            )


def _interrupted(command: click.Command | None, interrupt: Interrupted | None) -> str:
    """Return the message after Ctrl-C: what was kept, and how to continue."""
    resumes = command is not None and any(option.name == "resume" for option in command.params)
    again = "the same command" + (" with --resume" if resumes else "")
    if interrupt is None:
        return "interrupted"
    if not interrupt.kept:
        unchanged = f"; {interrupt.unchanged} is unchanged" if interrupt.unchanged else ""
        return f"interrupted: nothing was written yet{unchanged}; {again} starts from the beginning"
    return f"interrupted: {counted(interrupt.kept, interrupt.unit)} kept; {again} continues"


class _StandardOutput(io.FileIO):
    """Standard output, whose errors have a file name that tells them from errors of other files.

    :param stream: the stream that this file replaces
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream.fileno(), "w", closefd=False)
        self._stream = stream  # without a reference, the stream would close its file

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _STANDARD_OUTPUT
            raise


def _never_fail_to_print() -> None:
    """Make standard output and error safe to print to.

    Characters that the terminal's encoding lacks are printed as `?`. Closed streams are replaced by
    the null device. The errors of standard output get its name.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    _name_errors_of_standard_output(sys.stdout)


def _name_errors_of_standard_output(stream: TextIO) -> None:
    """Replace standard output, if it is a stream over a file descriptor, by one over `_StandardOutput`."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # Python's option -u leaves out the buffer
    if not isinstance(stream, io.TextIOWrapper) or type(raw) is not io.FileIO:
        return
    stream.flush()
    output = _StandardOutput(stream)
    sys.stdout = io.TextIOWrapper(
        output if raw is buffer else io.BufferedWriter(output),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return the message with visible control characters, and with remedies in the syntax of commands."""
        arguments = record.args
        if isinstance(arguments, tuple):
            record = copy(record)
            record.args = tuple(
                argument.for_command_line() if isinstance(argument, SpartaError | Remedy) else argument
                for argument in arguments
            )
        return visible(super().format(record), keep="\n")


def _quiet_logging() -> None:
    """Send the log of sparta's packages to standard error, as lines without timestamps."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(levelname)s: %(message)s"))
    for package in ("sparta", "hybrid", "dense"):
        logging.getLogger(package).handlers = [handler]
    logging.getLogger("sparta").propagate = False


_IN_FOLDERS = ("corpus.jsonl*", "queries.jsonl*", "questions.jsonl*", "qrels.tsv*", "qrels/*.tsv*")
"""Files that commands read in the folder of a test set."""


def _refuse_overwriting(command: click.Command, values: Mapping[str, Any]) -> None:
    """Refuse an output file that another parameter reads, itself or in a test set's folder.

    :param values: the typed words of each parameter, by its name
    :raises InputError: an option would overwrite a file that the command reads
    """
    options = {parameter.name: parameter for parameter in command.params if parameter.name in values}
    for name, option in options.items():
        if option.type is not output_type or not Path(str(values[name])).is_file():
            continue
        for other in options:
            if other != name and any(Path(values[name]).samefile(path) for path in _read(values[other])):
                source = options[other].opts[0] if isinstance(options[other], click.Option) else "an argument"
                raise InputError(
                    f"{option.opts[0]} names the same file as {source}",
                    where=str(values[name]),
                    remedy="name a new file: the command would overwrite this one",
                )


def _read(value: Any) -> Iterator[Path]:
    """Yield the files that a parameter's value names, and the test-set files in folders that it names."""
    for word in value if isinstance(value, list | tuple) else [value]:
        path = Path(word) if isinstance(word, str) else None
        try:
            if path and path.is_file():
                yield path
            elif path and path.is_dir():
                yield from (file for name in _IN_FOLDERS for file in path.glob(name))
        except (OSError, ValueError):  # the word is no path, a long query for example
            continue
