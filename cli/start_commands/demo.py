"""`sparta demo`: build the example index, ask it a question, and print the next commands."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path

import click

from cli._arguments import command
from cli._options import index_option
from cli._output import visible
from cli._reports import print_index_report

_QUESTION = "who founded google"
_NEXT = (
    ("search", "which metal is liquid at room temperature"),
    ("explain", _QUESTION, "google"),
    ("serve",),
)


@command()
@index_option
@click.pass_context
def demo(context: click.Context, index: Path | None) -> None:
    """Build the example index and ask it a question.

    Prints the next commands to try. Indexes 223 short passages that are part of the installation. A second
    run asks again and builds nothing. Other indexes stay unchanged.
    """
    from sparta.index.folder import default_index

    place = ("--index", str(index)) if index and index != Path("sparta-index") else ()
    click.echo("The example corpus has 223 short passages. A transformer reads each of them once:")
    _build(index or default_index())
    words = ("answer", _QUESTION, *place)
    click.echo(f"\n$ {_typed(words)}")
    program = context.find_root().command
    if code := program.main(list(words), prog_name="sparta", standalone_mode=False):
        context.exit(code)
    click.echo("\nNext:")
    for following in _NEXT:
        click.echo(f"  {_typed((*following, *place))}")


def _build(path: Path) -> None:
    """Build or resume the example index, or leave it as it is if it is complete.

    :raises IndexStateError: the folder holds another index, which stays unchanged.
    """
    from sparta.base.errors import IndexStateError
    from sparta.base.remedies import Command, remedy
    from sparta.index.folder import IndexFolder
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index

    folder = IndexFolder(path)
    resume = folder.exists() and folder.state().building is not None
    try:
        report = build_index(path, _corpus(), "create", IndexOptions(resume=resume), progress=None)
    except IndexStateError as error:
        if "overwrite" in {option.name for option in error.remedy.options}:
            # The folder holds another index, and no option of this command changes it.
            error.remedy = remedy("name a new folder: {}", Command.of("sparta demo", index="demo-index"))
        raise
    print_index_report(report)


def _corpus() -> Path:
    """Return the file with the passages of the example corpus."""
    return Path(str(files("sparta.resources") / "examples" / "wiki.jsonl"))


def _typed(words: tuple[str, ...]) -> str:
    """Return a command as a user types it."""
    shown = (f'"{word}"' if " " in word and '"' not in word else shlex.quote(word) for word in words)
    return visible(" ".join(("sparta", *shown)))
