"""What the commands share: options, error handling, progress."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cli._numbers import HIGHEST_COUNT, CountOption, Finite
from cli._overwriting import refuse_overwriting
from sparta.base.errors import InputError, Interrupted, SpartaError, StorageError
from sparta.base.extras import optional_packages
from sparta.base.files import COMPRESSED, is_standard_output, storage_error, unreadable
from sparta.data.units import chunk_unit, unit_noun

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

INTERRUPTED = 130
GROUP_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
"""Of the help of all three programs."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What the operating system says where standard output takes no more."""


class SpartaGroup(click.Group):
    """A command group that prints a SpartaError as a message, with its exit code, and Ctrl-C as what it is.

    Its help lists the commands in the order in which they are written down.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, not sorted."""
        return list(self.commands)

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
            command = self.commands.get(ctx.invoked_subcommand or "")
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
    with click.Context(command, info_name=name, parent=ctx) as own:
        try:
            values, _, given = command.make_parser(own).parse_args(list(args))
        except click.UsageError:
            return  # the command says it, with its usage
    refuse_overwriting(command, values, output_type)
    for option in given:
        once = isinstance(option, click.Option) and not (option.multiple or option.count or option.is_flag)
        if once and given.count(option) > 1:
            several = " (several files: put them into one folder)" if option.name == "corpus" else ""
            raise click.UsageError(
                f"expected {option.opts[-1] if len(option.opts[-1]) > 2 else option.opts[0]} once,"
                f" found it {given.count(option)} times{several}",
                own,
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


def options(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, in the order given."""

    def apply(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


def number(*names: str, default: int, text: str, least: int = 1, most: int | None = None) -> Decorator:
    """Option of a whole number from `least` to `most`, whose default its help shows."""
    return click.option(
        *names,
        cls=CountOption,
        type=click.IntRange(least, most),
        default=default,
        show_default=True,
        help=text,
    )


def choice(*names: str, values: Sequence[str], text: str) -> Decorator:
    """Option of one of some words, of which the first is the default."""
    return click.option(*names, type=click.Choice(values), default=values[0], show_default=True, help=text)


class Text(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """Text from the command line, where bytes that the locale cannot read are read as UTF-8."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return valid Unicode, whatever was typed."""
        return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str, keep: str = "") -> str:
    r"""Show control characters as `\x1b`, but for `keep`: texts of a corpus never steer the terminal."""
    return _CONTROLS.sub(lambda m: m[0] if m[0] in keep else m[0].encode("unicode_escape").decode(), text)


JSON_VERSION = 1
"""Of what the commands print with --json: docs/output.schema.json. Keys may be added without a new one."""


def dumps(value: Mapping[str, Any], *, unicode: bool | None = None) -> str:
    """One JSON object as --json prints it, with the version of its schema; `unicode` by the terminal."""
    if unicode is None:
        unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
    text = json.dumps({"version": JSON_VERSION, **value}, ensure_ascii=not unicode)
    return _CONTROLS.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


folder_type = click.Path(path_type=Path, file_okay=False)
file_type = click.Path(path_type=Path, dir_okay=False)
output_type = click.Path(path_type=Path, dir_okay=False)
"""A file to write."""

index_option = click.option(
    "--index",
    type=folder_type,
    envvar="SPARTA_INDEX",
    help="Index folder [default: $SPARTA_INDEX or ./sparta-index].",
)


def corpus_option(*, required: bool) -> Decorator:
    """Option of a corpus, in any form that is known."""
    return click.option(
        "--corpus",
        metavar="PATH",
        required=required,
        help="JSONL, TSV, a folder of them or of texts, a BEIR folder; compressed or not;"
        " - for standard input.",
    )


bm25_options = options(
    click.option("--k1", type=Finite(0), default=0.9, show_default=True, help="BM25: saturation of counts."),
    click.option("--b", type=Finite(0, 1), default=0.4, show_default=True, help="BM25: share of length."),
)

depth_option = number("-k", "depth", default=100, most=HIGHEST_COUNT, text="Hits per query.")
threads_option = number("--threads", default=2, text="Threads.")
form_option = choice(
    "--format", "form", values=["text", "markdown", "csv", "json"], text="Form of the table."
)
quiet_option = click.option("--quiet", is_flag=True, help="No progress bar.")

dtype_option = choice(
    "--dtype",
    values=["auto", "fp32", "bf16", "fp16"],
    text="Arithmetic of the encoder; auto is bf16 where the machine is fast at it.",
)

_devices_option = click.option(
    "--device", metavar="NAME", help="Device, or several: cuda:0,cuda:1 [default: the best there is]."
)
model_options = options(
    click.option(
        "--model",
        metavar="FOLDER|ID",
        help="Model folder or hub id [default: the model that ships with sparta].",
    ),
    click.option(
        "--bits", type=click.IntRange(1, 16), help="Bits of an impact [default: the model's own, usually 8]."
    ),
    _devices_option,
    dtype_option,
)

codec_option = click.option(
    "--codec",
    type=click.Choice(["fast", "lucene", "sparta"]),  # sparta: the former name of fast
    metavar="[fast|lucene]",
    help="Postings format: fast is searched fastest, lucene opens in any Pyserini [default: fast].",
)

encoder_options = options(
    click.option("--device", metavar="NAME", help="Device [default: the best there is]."),
    dtype_option,
    quiet_option,
)

shard_option = click.option(
    "--shard", metavar="I/N", default="0/1", show_default=True, help="This machine's share, I from 0."
)

_RAY = ("workers", "cpus_per_worker", "gpus_per_worker")
ray_options = options(
    click.option(
        "--ray",
        metavar="ADDRESS",
        help="Encode on a Ray cluster: auto (this machine's), HOST:PORT, or local (this machine alone).",
    ),
    click.option(
        "--workers",
        type=click.IntRange(1),
        help="With --ray: processes that encode [default: as many as there is room for].",
    ),
    number("--cpus-per-worker", default=1, text="With --ray: CPUs and threads of a worker."),
    click.option(
        "--gpus-per-worker",
        type=Finite(0),
        default=0.0,
        show_default=True,
        help="With --ray: GPUs of a worker; 0.5: two share one.",
    ),
)

UNITS = ("passage", "sentence")
_UNIT = "Unit of retrieval: passages, or sentences, each read in its passage"
chunk_options = options(
    click.option(
        "--chunk",
        type=click.IntRange(1),
        metavar="WORDS",
        help="Cut texts into chunks of so many words; a hit is a text, by its best chunk.",
    ),
    click.option(
        "--overlap", type=click.IntRange(0), metavar="WORDS", help="Words that chunks share [default: 0]."
    ),
)
skip_invalid_option = click.option(
    "--skip-invalid",
    is_flag=True,
    help="Skip and count bad records instead of stopping; empty ones always are skipped.",
)

unit_option = choice("--unit", values=UNITS, text=f"{_UNIT}.")
unit_options = options(
    unit_option,
    chunk_options,
    click.option("--top-k", type=click.IntRange(1), help="Keep only the K strongest terms of each passage."),
    click.option("--min-weight", type=Finite(0), default=0.0, help="Drop terms below this weight."),
    skip_invalid_option,
)

# The same where an index may be there: what is not typed (None) is as the index has it.
own_model_options = options(
    click.option(
        "--model",
        metavar="FOLDER|ID",
        help="Model folder or hub id [default: the index's, else the one that ships].",
    ),
    click.option(
        "--bits",
        type=click.IntRange(1, 16),
        help="Bits of an impact [default: the index's, else the model's own, usually 8].",
    ),
    _devices_option,
    dtype_option,
)
own_unit_options = options(
    click.option(
        "--unit", type=click.Choice(UNITS), help=f"{_UNIT} [default: passage, or that of the index]."
    ),
    chunk_options,
    click.option(
        "--top-k",
        type=click.IntRange(1),
        help="Keep only the K strongest terms of each passage [default: all, or as in the index].",
    ),
    click.option(
        "--min-weight",
        type=Finite(0),
        help="Drop terms below this weight [default: 0, or that of the index].",
    ),
    skip_invalid_option,
)

write_options = options(
    number("--threads", default=2, text="Indexing threads."),
    click.option("--commit-seconds", type=click.FloatRange(0), default=30.0, hidden=True),
    quiet_option,
)


def refuse_leftover(words: Sequence[Path], option: str, remedy: str) -> None:
    """Refuse words without an option, where the option that takes several of them is not typed."""
    if words and not typed(option):
        raise InputError(f"expected options only, found {' '.join(map(str, words))}", remedy=remedy)


def typed(*names: str) -> list[str]:
    """Of these parameters, the options that stand on the command line itself, as they are spelled."""
    context = click.get_current_context(silent=True)
    known = context.command.params if context else []
    return [
        parameter.opts[0]
        for parameter in known
        if context and parameter.name in names
        if context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]


def command_line(*without: str) -> str:
    """Return the running command with the options that were typed, but for some, in the order of its help."""
    context = click.get_current_context()
    words = context.command_path.split()
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in without or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        flag = isinstance(parameter, click.Option) and parameter.is_flag
        for one in value if isinstance(value, tuple) else (value,):
            words += [parameter.opts[0]] if flag else [parameter.opts[0], str(one)]
    return shlex.join(words)


def encode_options(**given: Any) -> Any:
    """Return the encoding options that the command line gave."""
    from sparta.neural.encoding import parse_devices
    from sparta.shards.encode import EncodeOptions

    return EncodeOptions(
        unit=unit_of(given) or "passage",
        top_k=given["top_k"],
        min_weight=given["min_weight"],
        dtype=given["dtype"],
        language=given["language"],
        devices=parse_devices(given["device"]),
        **{k: given[k] for k in ("part", "shard_size") if k in given},
    )


language_option = click.option(
    "--language", default="en", show_default=True, help="Language of the texts, by its code."
)


def index_options_of(given: dict[str, Any]) -> Any:
    """Return the options of an index that the command line gave."""
    from sparta.index.pipeline import IndexOptions

    chosen = {f.name: given[f.name] for f in fields(IndexOptions) if f.name in given}
    return IndexOptions(**{**chosen, "unit": unit_of(given)})


def unit_of(given: dict[str, Any]) -> str | None:
    """Return the unit that --unit, or --chunk and --overlap, name."""
    unit, chunk, overlap = given["unit"], given.get("chunk"), given.get("overlap")
    if chunk is None and overlap is None:
        return unit
    if chunk is None or typed("unit"):
        raise InputError(
            "expected --chunk WORDS without --unit, and --overlap with --chunk only",
            remedy="--chunk 200 --overlap 50",
        )
    return chunk_unit(chunk, overlap or 0)


def bm25_of(given: dict[str, Any]) -> Any:
    """Return BM25's parameters that the command line gave; None, the usual ones, where it gave none."""
    from sparta.lucene.bridge import Bm25

    return Bm25(given["k1"], given["b"]) if typed("k1", "b") else None


def refuse_unused_bm25(channels: str) -> None:
    """Refuse BM25's parameters where none of the channels, which stand with + between them, is BM25."""
    if "bm25" not in channels.split("+") and (unused := typed("k1", "b")):
        raise InputError(
            f"expected {unused[0]} with BM25, found it with the channel {channels}",
            remedy="--channel bm25, or bm25 among several; or leave it out",
        )


def part_of(text: str) -> tuple[int, int]:
    """`I/N` to the two numbers."""
    try:
        i, n = (int(number) for number in text.split("/"))
    except ValueError:
        i, n = 0, 0
    if not 0 <= i < n:
        raise InputError(
            f"expected --shard i/n with 0 ≤ i < n, found {text!r}",
            remedy="for the first of two machines: 0/2",
        )
    return i, n


def cluster_of(given: dict[str, Any]) -> Any:
    """Return the Ray cluster that the command line names; None where it names none.

    Takes the options of the cluster out of `given`.
    """
    address, chosen = given.pop("ray"), {name: given.pop(name) for name in _RAY}
    if address is None:
        if alone := typed(*_RAY):
            raise InputError(f"expected {alone[0]} with --ray only", remedy="add --ray local or --ray auto")
        return None
    if typed("device"):
        raise InputError(
            "expected --ray without --device: a worker takes the device that Ray gives it",
            remedy="leave --device out; for GPUs: --gpus-per-worker 1",
        )
    from sparta.shards.ray_executor import RayCluster

    return RayCluster(address=address, **chosen)


def count_lines(source: str) -> int | None:
    """How many lines a plain file has, for the progress bar's ETA; None when that is not cheap to know."""
    path = Path(source)
    if not path.is_file() or path.suffix in COMPRESSED:
        return None
    try:
        with path.open("rb") as stream:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 22), b""))
    except OSError as error:
        raise unreadable(path, error) from error


def corpus_bar(corpus: str, unit: str | None, *, quiet: bool) -> Any:
    """Open a bar with rate and, where the number of units is cheap to know, ETA; only on a terminal."""
    from tqdm import tqdm

    total = count_lines(corpus) if unit == "passage" else None
    return tqdm(
        total=total,
        unit=unit_noun(unit or "passage"),
        disable=True if quiet else None,
        smoothing=0.1,
        file=sys.stderr,
    )


def is_kept(output: Path) -> bool:
    """Whether an output is a file of its own; elsewhere, what a command says must not stand among it."""
    return output.is_file() and not is_standard_output(output)


def counted(n: int, noun: str) -> str:
    """`1 passage`, `2 passages`, `2 queries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns, the first aligned to the left, the others to the right."""
    cells = [list(header), *([visible(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        first, *others = zip(row, widths, strict=True)
        parts = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)
