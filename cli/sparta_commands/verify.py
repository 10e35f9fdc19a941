"""`sparta verify`: check an index for damage."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import command
from cli._options import index_option
from cli._output import dumps, visible


@command()
@index_option
@click.option("--quick", is_flag=True, help="Open every file, but read only the small ones.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per part of the index, each on its own line.",
)
def verify(index: Path | None, quick: bool, as_json: bool) -> None:
    """Check every file of an index for damage.

    Checks manifest, tokenizer, Lucene's files (CheckIndex) and vectors, and prints how to repair damage.
    Changes nothing. The exit code is 1 if a part is damaged.
    """
    from sparta.base.remedies import on_command_line
    from sparta.index.folder import default_index
    from sparta.index.verify import verify_index

    parts = verify_index(index or default_index(), quick=quick)
    for part in parts:
        advice = on_command_line(part.remedy)
        if as_json:
            shown = {"name": part.name, "found": part.state, "problem": part.problem, "remedy": advice}
            click.echo(dumps(shown))
            continue
        state = f"BAD  {part.name}: {part.problem}" if part.problem else f"ok   {part.name}: {part.state}"
        click.echo(visible(state) + (f"\n       → {visible(advice)}" if advice else ""))
    if any(part.problem for part in parts):
        click.get_current_context().exit(1)
