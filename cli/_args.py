"""What the commands share: options, error handling, progress."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from sparta.base.errors import SpartaError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

INTERRUPTED = 130


class SpartaGroup(click.Group):
    """A command group that prints a SpartaError as a message, with its exit code, and Ctrl-C as what it is."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        _quiet_logging()
        try:
            return super().invoke(ctx)
        except SpartaError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("interrupted: what was finished is kept; the same command with --resume goes on", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            sys.stderr.close()
            ctx.exit(0)


def _quiet_logging() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
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


index_option = click.option(
    "--index", type=click.Path(path_type=Path), help="Index folder [default: $SPARTA_INDEX or ./sparta-index]."
)

model_options = options(
    click.option("--model", help="Model folder or hub id [default: the model that ships with sparta]."),
    click.option("--bits", type=click.IntRange(1, 16), default=8, show_default=True, help="Bits of an impact."),
    click.option("--device", help="Device, or several: cuda:0,cuda:1 [default: the best there is]."),
    click.option(
        "--dtype",
        type=click.Choice(["auto", "fp32", "bf16", "fp16"]),
        default="auto",
        show_default=True,
        help="Arithmetic of the encoder; auto is bf16 where the machine is fast at it.",
    ),
)

unit_options = options(
    click.option(
        "--unit",
        type=click.Choice(["passage", "sentence"]),
        default="passage",
        show_default=True,
        help="What is found: passages, or each sentence with its passage as context.",
    ),
    click.option("--top-k", type=click.IntRange(1), help="Keep only the K strongest terms of a passage."),
    click.option("--min-weight", type=click.FloatRange(0), default=0.0, help="Drop terms below this weight."),
    click.option("--skip-invalid", is_flag=True, help="Skip and count bad records instead of stopping."),
)

write_options = options(
    click.option("--threads", type=click.IntRange(1), default=2, show_default=True, help="Indexing threads."),
    click.option("--commit-seconds", type=click.FloatRange(0), default=30.0, hidden=True),
    click.option("--quiet", is_flag=True, help="No progress bar."),
)


def devices_of(text: str | None) -> tuple[str, ...]:
    """`cuda:0,cuda:1` to its parts."""
    return tuple(part.strip() for part in text.split(",")) if text else ()


def encode_options(**given: Any) -> Any:
    """Encoding options from what the command line gave."""
    from sparta.encode import EncodeOptions

    return EncodeOptions(
        unit=given["unit"],
        top_k=given["top_k"],
        min_weight=given["min_weight"],
        dtype=given["dtype"],
        devices=devices_of(given["device"]),
        **{k: given[k] for k in ("part", "shard_size") if k in given},
    )


def open_model(name: str | None, bits: int, device: str | None) -> Any:
    """The model on its first device."""
    from sparta.load import load_model
    from sparta.neural.encoding import pick_device

    first = devices_of(device)
    return load_model(name, bits=bits).to(pick_device(first[0] if first else None))


def count_lines(source: str) -> int | None:
    """How many lines a plain file has, for the progress bar's ETA; None when that is not cheap to know."""
    path = Path(source)
    if not path.is_file() or path.suffix == ".gz":
        return None
    with path.open("rb") as stream:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 22), b""))


def progress_bar(total: int | None, *, quiet: bool, unit: str = "passage") -> Any:
    """A bar with rate and ETA on a terminal, nothing elsewhere."""
    from tqdm import tqdm

    return tqdm(total=total, unit=unit, disable=True if quiet else None, smoothing=0.1, file=sys.stderr)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Columns, the first `left` aligned to the left, the others to the right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        parts = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)
