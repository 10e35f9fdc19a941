"""`sparta sync`: make an index hold exactly the passages of a folder."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import argument, arguments, command, flag, group, option, takes
from cli._options import (
    FieldArguments,
    IndexModelArguments,
    IndexTermArguments,
    WriteArguments,
    channel_lists,
    index_option,
    index_options,
)
from cli._output import counted
from cli._reports import fail_if_behind, print_skips, read_counts


@arguments
class _Sync:
    corpus: str = argument("corpus", metavar="FOLDER")
    index: Path | None = index_option
    dry_run: bool = flag("Only print what would change.")
    yes: bool = flag("Delete even more than half of the index.")
    channels: str | None = option(
        "Channels of a new index. bm25 encodes nothing. dense also encodes vectors; an existing index gets"
        " this channel if it has none [default: as in the existing index, else impact,bm25].",
        type=channel_lists,
    )
    model: IndexModelArguments = group(IndexModelArguments)
    terms: IndexTermArguments = group(IndexTermArguments)
    fields: FieldArguments = group(FieldArguments)
    writing: WriteArguments = group(WriteArguments)


@command()
@takes(_Sync)
def sync(sync: _Sync) -> None:
    """Make an index follow a folder.

    Adds, updates and deletes passages, so that the index holds exactly those of FOLDER, a folder or a file.
    Compares the content, and encodes only changed passages. A renamed file is deleted and added. Without an
    index, the command builds it.
    """
    from sparta.index.folder import default_index
    from sparta.index.sync import sync_index

    options = index_options(sync, terms=sync.terms)
    progress = False if sync.writing.quiet else None
    report = sync_index(
        sync.index or default_index(),
        sync.corpus,
        options,
        dry_run=sync.dry_run,
        yes=sync.yes,
        progress=progress,
    )
    would = "would be: " if report.dry_run else ""
    counts = ", ".join(
        f"{len(ids):,} {name}"
        for name, ids in (("added", report.added), ("updated", report.updated), ("deleted", report.deleted))
    )
    click.echo(
        f"{report.path}: {would}{counts}, {counted(report.unchanged, 'passage')} unchanged"
        f"{read_counts(report.source) if report.skipped else ''}"
    )
    print_skips(report.source)
    if report.dry_run and report.deletes_most and not sync.yes:
        click.echo("warning: this would delete more than half of the index; to allow it, add --yes", err=True)
    fail_if_behind(report.behind)
