"""`sparta delete`: passages leave the index."""

from __future__ import annotations

from pathlib import Path

import click

from cli._options import Text, counted, index_option
from cli._reports import print_channel_reports
from sparta.base.errors import InputError


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", type=Text())
@index_option
def delete(ids: tuple[str, ...], index: Path | None) -> None:
    """Delete passages by id."""
    from sparta.index.folder import default_index
    from sparta.index.pipeline import delete_from_index

    path = index or default_index()
    report = delete_from_index(path, ids)
    units = f" ({counted(report.deleted, 'sentence')})" if report.unit == "sentence" else ""
    click.echo(f"deleted {report.named - len(report.missing)} of {report.named}{units}")
    print_channel_reports(report.channels)
    if report.missing:
        raise InputError(
            f"the index holds no passage with the id {', '.join(map(repr, report.missing))}",
            where=str(path),
            remedy="sparta search prints ids",
        )
