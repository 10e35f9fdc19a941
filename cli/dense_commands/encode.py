"""`dense encode`: a corpus becomes shards of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli._options import (
    UNITS,
    choice,
    chunk_options,
    cluster_of,
    corpus_bar,
    corpus_option,
    counted,
    encoder_options,
    folder_type,
    language_option,
    number,
    part_of,
    ray_options,
    shard_option,
    skip_invalid_option,
    unit_of,
)
from cli._reports import only_beginnings, read_counts
from sparta.data.units import unit_noun


@click.command()
@corpus_option(required=True)
@click.option("--output", required=True, type=folder_type, help="Folder for the shards.")
@click.option("--model", metavar="FOLDER|ID", help="Dense model [default: the one that ships with sparta].")
@choice("--unit", values=UNITS, text="Unit of the index that the vectors are for.")
@chunk_options
@language_option
@shard_option
@number("--shard-size", default=2048, text="Passages a shard.")
@click.option("--resume", is_flag=True, help="Encode only what is missing.")
@ray_options
@skip_invalid_option
@encoder_options
def encode(corpus: str, output: Path, model: str | None, shard: str, **given: Any) -> None:
    """Encode a corpus into shards of vectors.

    Afterwards: dense index --vectors. Several machines may share a corpus (--shard), or be
    the nodes of a Ray cluster (--ray).
    """
    from dense.models.resolve import vector_width
    from sparta.data.corpus import CorpusReader
    from sparta.models.resolve import model_for

    CorpusReader(corpus)  # a wrong path is told before torch is loaded
    part, cluster = part_of(shard), cluster_of(given)
    model = model_for(model, given["language"], "dense")
    vector_width(model)
    from dense.channel.encode import VectorOptions, encode_vectors

    unit = unit_of(given) or "passage"
    chosen = {k: given[k] for k in ("language", "dtype", "shard_size")}
    with corpus_bar(corpus, unit, quiet=given["quiet"]) as bar:
        report, counts = encode_vectors(
            corpus,
            output,
            model,
            VectorOptions(part=part, unit=unit, **chosen),
            resume=given["resume"],
            skip_invalid=given["skip_invalid"],
            device=given["device"],
            advance=bar.update,
            cluster=cluster,
        )
    click.echo(
        f"{output}: encoded {counted(report.encoded, unit_noun(unit))}, kept {report.kept:,}, left to other"
        f" machines {report.elsewhere:,}{only_beginnings(report)}{read_counts(counts)}"
    )
