"""`sparta update`: replace passages, add new ones."""

from __future__ import annotations

from typing import Any

import click

from cli._options import (
    corpus_bar,
    index_option,
    index_options_of,
    own_model_options,
    own_unit_options,
    write_options,
)
from cli._reports import print_index_report


@click.command()
@click.option(
    "--corpus", metavar="PATH", required=True, help="Passages that are new or replace those of the same id."
)
@index_option
@own_model_options
@own_unit_options
@click.option("--resume", is_flag=True, help="Continue an interrupted update.")
@write_options
def update(corpus: str, **given: Any) -> None:
    """Replace passages by id, and add those that are new."""
    from sparta.index.folder import default_index
    from sparta.index.pipeline import build_index

    path = given["index"] or default_index()
    options = index_options_of(given)
    with corpus_bar(corpus, options.unit, quiet=given["quiet"]) as bar:
        report = build_index(path, corpus, "update", options, advance=bar.update)
    print_index_report(report)
