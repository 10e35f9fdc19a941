"""`sparta info`: what an index holds."""

from __future__ import annotations

from pathlib import Path

import click

from cli._options import index_option
from cli._output import dumps, visible


@click.command()
@index_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def info(index: Path | None, as_json: bool) -> None:
    """Show what an index holds: passages, model, size, channels."""
    from sparta.index.folder import default_index
    from sparta.index.info import describe_index

    found = describe_index(index or default_index())
    if as_json:
        click.echo(dumps(found))
        return
    sizes = found.pop("bytes")
    for name, value in found.items():
        if value not in (None, ""):
            click.echo(f"{name:<12}{visible(f'{value:,}' if name == 'passages' else str(value))}")
    for name, size in sizes.items():
        click.echo(f"{name:<16}{size / 1e6:,.1f} MB")
