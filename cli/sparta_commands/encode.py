"""`sparta encode`: a corpus becomes shards of sparse vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli._options import (
    cluster_of,
    corpus_bar,
    counted,
    encode_options,
    folder_type,
    language_option,
    model_options,
    number,
    part_of,
    quiet_option,
    ray_options,
    shard_option,
    unit_options,
)
from cli._reports import read_counts, windowed
from sparta.base.errors import folder_in_use


@click.command()
@click.option("--corpus", metavar="PATH", required=True, help="As for sparta index.")
@click.option("--output", required=True, type=folder_type, help="Folder for the shards.")
@model_options
@unit_options
@shard_option
@number("--shard-size", default=2048, text="Passages per shard.")
@language_option
@click.option("--resume", is_flag=True, help="Encode only what is missing.")
@ray_options
@quiet_option
def encode(corpus: str, output: Path, shard: str, resume: bool, quiet: bool, **given: Any) -> None:
    """Encode a corpus into shards of sparse vectors.

    Afterwards: sparta index --vectors. Several machines may share a corpus (--shard), or be
    the nodes of a Ray cluster (--ray).
    """
    from sparta.data.corpus import CorpusReader
    from sparta.models.resolve import model_for

    CorpusReader(corpus)  # wrong paths are errors before torch is loaded
    if not resume and (output / "manifest.json").exists():
        raise folder_in_use(output)
    part, cluster = part_of(shard), cluster_of(given)
    model = model_for(given["model"], given["language"])
    from sparta.shards.encode import encode_corpus

    options = encode_options(**given, part=part)
    with corpus_bar(corpus, options.unit, quiet=quiet) as bar:
        report = encode_corpus(
            corpus,
            output,
            model,
            options,
            bits=given["bits"],
            resume=resume,
            skip_invalid=given["skip_invalid"],
            advance=bar.update,
            cluster=cluster,
        )
    click.echo(
        f"{output}: encoded {counted(report.encoded, 'passage')} "
        f"({report.mean_terms:,.0f} terms per passage), "
        f"kept {report.kept:,}, left to other machines {report.elsewhere:,}"
        f"{windowed(report.windowed)}{read_counts(report.corpus['counts'])}"
    )
