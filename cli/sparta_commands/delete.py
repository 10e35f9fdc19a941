"""`sparta delete`: delete passages by id or by a filter."""

from __future__ import annotations

from pathlib import Path

from cli._arguments import Text, argument, arguments, command, flag, option, takes
from cli._options import index_option
from cli._reports import fail_if_behind, print_channel_reports, print_deletion
from cli._search import filter_option
from sparta.base.errors import InputError

_SHOWN = 10


@arguments
class _Deletion:
    ids: tuple[str, ...] = argument("ids", nargs=-1, metavar="[ID]...", type=Text())
    files: str | None = option(
        "File of ids, one per line; - reads standard input.", "--ids", metavar="FILE", type=Text()
    )
    filters: tuple[str, ...] = filter_option
    yes: bool = flag("Delete even if the filter matches more than half of the index.", section="Filter")
    index: Path | None = index_option


@command()
@takes(_Deletion)
def delete(deletion: _Deletion) -> None:
    """Delete passages by id or by a filter."""
    from sparta.base.disk.streams import numbered_lines
    from sparta.base.filters import Filter
    from sparta.data.parsing import decoded
    from sparta.index.folder import default_index
    from sparta.index.pipeline import delete_from_index, ids_or_filter

    named = numbered_lines(deletion.files) if deletion.files else ()
    passage_ids = [*deletion.ids, *(decoded(line).strip() for _, line in named)]
    filter = Filter.parse(deletion.filters)
    if filter and (deletion.ids or deletion.files):  # also if the file holds no id
        raise ids_or_filter()
    if not passage_ids and not filter:
        raise InputError(
            "no passage id is named",
            remedy="run: sparta delete ID, sparta delete --ids FILE, or sparta delete --filter CONDITION",
        )
    path = deletion.index or default_index()
    report = delete_from_index(path, passage_ids, filter=filter, yes=deletion.yes)
    print_deletion(report)
    print_channel_reports(report.channels)
    if report.missing:
        raise InputError(
            f"the index holds no passage with the id {', '.join(map(repr, report.missing[:_SHOWN]))}"
            + (f" and {len(report.missing) - _SHOWN:,} more" if len(report.missing) > _SHOWN else ""),
            where=str(path),
            remedy="take an id from a search: sparta search prints ids in brackets",
        )
    fail_if_behind(report.behind)
