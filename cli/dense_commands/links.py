"""`dense links`: paragraphs with links from a dump of Wikipedia."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import output_type
from cli._options import quiet_option


@click.command()
@click.option(
    "--dump",
    required=True,
    type=click.Path(path_type=Path, exists=True),
    help="Wikipedia's pages-articles XML (plain, .bz2), or a folder that WikiExtractor made with --links.",
)
@click.option("--output", required=True, type=output_type, help="Paragraphs with links to write, as JSONL.")
@click.option("--passages", required=True, type=output_type, help="Passages of all pages to write: a corpus.")
@quiet_option
def links(dump: Path, output: Path, passages: Path, quiet: bool) -> None:
    """Make training data without labels from a dump of Wikipedia.

    The paragraphs with links teach train-skills linking and expanded queries, the passages cropped ones
    (Chain-of-Skills, §3.2): these are also what it finds the linked pages in. An XML dump is read twice, for
    its redirects first.

    \b
    dense links --dump enwiki-latest-pages-articles.xml.bz2 --output links.jsonl --passages passages.jsonl
    dense train-skills --assignment pretraining --single passages.jsonl --link links.jsonl \\
        --expanded links.jsonl --texts passages.jsonl --encoder bert-base-uncased --output pretrained
    """  # noqa: D301 (click looks for the backspace)
    from tqdm import tqdm

    from hybrid.replications.wikipedia.dump import write_links

    with tqdm(unit="page", disable=True if quiet else None) as bar:
        found = write_links(dump, output, passages, advance=bar.update)
    click.echo(
        f"{output}: {found.paragraphs:,} paragraphs with {found.links:,} links\n"
        f"{passages}: {found.passages:,} passages of {found.pages:,} pages"
    )
