"""`sparta delete`: delete passages by id."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import Text, command
from cli._options import index_option
from cli._reports import print_channel_reports, print_deletion
from sparta.base.errors import InputError

_SHOWN = 10


@command()
@click.argument("ids", nargs=-1, metavar="[ID]...", type=Text())
@click.option("--ids", "files", metavar="FILE", help="File of ids, one per line; - reads standard input.")
@index_option
def delete(ids: tuple[str, ...], files: str | None, index: Path | None) -> None:
    """Delete passages by id."""
    from sparta.base.files import numbered_lines
    from sparta.data.parsing import decoded
    from sparta.index.folder import default_index
    from sparta.index.pipeline import delete_from_index

    passage_ids = (
        [*ids, *(decoded(line).strip() for _, line in numbered_lines(files))] if files else list(ids)
    )
    if not passage_ids:
        raise InputError(
            "no passage id is named", remedy="run: sparta delete ID, or sparta delete --ids FILE"
        )
    path = index or default_index()
    report = delete_from_index(path, passage_ids)
    print_deletion(report)
    print_channel_reports(report.channels)
    if report.missing:
        raise InputError(
            f"the index holds no passage with the id {', '.join(map(repr, report.missing[:_SHOWN]))}"
            + (f" and {len(report.missing) - _SHOWN:,} more" if len(report.missing) > _SHOWN else ""),
            where=str(path),
            remedy="take an id from a search: sparta search prints ids in brackets",
        )
