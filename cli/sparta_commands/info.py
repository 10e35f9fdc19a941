"""`sparta info`: passages, model, size and channels of an index."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import command
from cli._options import index_option, json_option
from cli._output import dumps, visible


@command()
@index_option
@json_option
def info(index: Path | None, as_json: bool) -> None:
    """Show passages, model, size and channels of an index."""
    from sparta.index.folder import default_index
    from sparta.index.info import describe_index

    facts = describe_index(index or default_index())
    if as_json:
        click.echo(dumps(facts))
        return
    sizes = facts.pop("bytes")
    for name, value in facts.items():
        if value not in (None, ""):
            click.echo(f"{name:<11} {visible(f'{value:,}' if name == 'passages' else str(value))}")
    for name, size in sizes.items():
        click.echo(f"{name:<16}{size / 1e6:,.1f} MB")
