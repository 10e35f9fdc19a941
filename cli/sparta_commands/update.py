"""`sparta update`: replace passages, add new ones."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import arguments, flag, group, option, takes
from cli._options import IndexModelArguments, IndexTermArguments, WriteArguments, index_option, index_options
from cli._reports import print_index_report


@arguments
class _Update:
    corpus: str = option(
        "Passages that are new or replace those of the same id.", metavar="PATH", required=True
    )
    index: Path | None = index_option
    model: IndexModelArguments = group(IndexModelArguments)
    terms: IndexTermArguments = group(IndexTermArguments)
    resume: bool = flag("Continue an interrupted update.")
    writing: WriteArguments = group(WriteArguments)


@click.command()
@takes(_Update)
def update(update: _Update) -> None:
    """Replace passages by id, and add those that are new."""
    from sparta.index.folder import default_index
    from sparta.index.pipeline import build_index

    index, options = update.index or default_index(), index_options(update, terms=update.terms)
    progress = False if update.writing.quiet else None
    print_index_report(build_index(index, update.corpus, "update", options, progress=progress))
