"""`sparta backup`: copy one commit of an index while other processes write."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import command
from cli._options import index_option
from cli._output import counted


@command()
@click.argument("destination", metavar="DIR", type=click.Path(path_type=Path))
@index_option
def backup(destination: Path, index: Path | None) -> None:
    """Copy one commit of an index, even while it is written.

    The new folder DIR gets all channels. Searches and writes go on meanwhile. DIR takes as much space as the
    index, and shares no file with it. DIR is an index: check it with sparta verify --index DIR. To restore
    it, move the folder of the index away, and copy DIR to its place.
    """
    from sparta.index.folder import default_index
    from sparta.sharing.backup import backup_index

    report = backup_index(index or default_index(), destination)
    click.echo(
        f"{report.path}: {counted(report.passages, 'passage')}, {counted(report.files, 'file')}"
        f", {report.size / 1e6:,.1f} MB in {report.seconds:.1f} s"
    )
