"""`dense links`: make training data from the links of a Wikipedia dump."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import command, output_type
from cli._options import quiet_option


@command()
@click.option(
    "--dump",
    required=True,
    type=click.Path(path_type=Path, exists=True),
    help="Wikipedia's pages-articles XML (plain or .bz2), or a folder from WikiExtractor with --links.",
)
@click.option("--output", required=True, type=output_type, help="File for paragraphs with links, JSONL.")
@click.option(
    "--passages", required=True, type=output_type, help="File for the passages of all pages, a corpus."
)
@quiet_option
def links(dump: Path, output: Path, passages: Path, quiet: bool) -> None:
    """Make training data from the links of a Wikipedia dump.

    dense train-skills learns entity links and expanded queries from the paragraphs with links, and single
    retrieval from parts of the passages (Chain-of-Skills, §3.2). It looks up linked pages among the passages.
    An XML dump is read twice, first for its redirects.

    \b
    dense links --dump enwiki-latest-pages-articles.xml.bz2 --output links.jsonl --passages passages.jsonl
    dense train-skills --assignment pretraining --single passages.jsonl --link links.jsonl \\
        --expanded links.jsonl --texts passages.jsonl --encoder bert-base-uncased --output pretrained
    """  # noqa: D301 (click looks for the backspace)
    from tqdm import tqdm

    from hybrid.replications.wikipedia.dump import write_links

    with tqdm(unit="page", disable=True if quiet else None) as bar:
        counts = write_links(dump, output, passages, advance=bar.update)
    click.echo(
        f"{output}: {counts.paragraphs:,} paragraphs with {counts.links:,} links\n"
        f"{passages}: {counts.passages:,} passages from {counts.pages:,} pages"
    )
