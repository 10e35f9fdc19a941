"""`sparta update`: replace passages by id, add new passages."""

from __future__ import annotations

from pathlib import Path

from cli._arguments import arguments, command, flag, group, option, takes
from cli._options import (
    FieldArguments,
    IndexModelArguments,
    IndexTermArguments,
    WriteArguments,
    index_option,
    index_options,
)
from cli._reports import fail_if_behind, print_index_report


@arguments
class _Update:
    corpus: str = option(
        "Passages to add; each replaces the passage with the same id.", metavar="PATH", required=True
    )
    index: Path | None = index_option
    model: IndexModelArguments = group(IndexModelArguments)
    terms: IndexTermArguments = group(IndexTermArguments)
    fields: FieldArguments = group(FieldArguments)
    resume: bool = flag("Continue an interrupted update.")
    writing: WriteArguments = group(WriteArguments)


@command()
@takes(_Update)
def update(update: _Update) -> None:
    """Replace passages by id, and add new ones.

    The passages are encoded with the index's own model and settings.
    """
    from sparta.index.folder import default_index
    from sparta.index.pipeline import build_index

    index, options = update.index or default_index(), index_options(update, terms=update.terms)
    progress = False if update.writing.quiet else None
    report = build_index(index, update.corpus, "update", options, progress=progress)
    print_index_report(report)
    fail_if_behind(report.behind)
