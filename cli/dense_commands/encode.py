"""`dense encode`: encode a corpus into shards of vectors."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import arguments, command, flag, folder_type, group, made, one_of, option, takes
from cli._options import (
    ClusterArguments,
    FieldArguments,
    ShardArguments,
    UnitArguments,
    corpus_option,
    device_option,
    dtype_option,
    language_option,
    quiet_option,
    skip_invalid_option,
)
from cli._output import counted
from cli._reports import only_beginnings, read_counts
from sparta.data.units import UNITS, unit_noun


@arguments
class _Unit(UnitArguments):
    unit: str | None = one_of(UNITS, "What a hit is, as in the index for the vectors.")


@arguments
class _Encoding:
    corpus: str = corpus_option(required=True)
    output: Path = option("Folder for the shards.", required=True, type=folder_type)
    model: str | None = option(
        "Dense model [default: the model shipped for the language].", metavar="FOLDER|ID", section="Encoder"
    )
    unit: _Unit = group(_Unit)
    language: str = language_option
    shards: ShardArguments = group(ShardArguments)
    resume: bool = flag("Continue an interrupted command: encode only the missing shards.", section="Shards")
    ray: ClusterArguments = group(ClusterArguments)
    skip_invalid: bool = skip_invalid_option
    fields: FieldArguments = group(FieldArguments)
    device: str | None = device_option
    dtype: str = dtype_option
    quiet: bool = quiet_option


@command()
@takes(_Encoding)
def encode(encoding: _Encoding) -> None:
    """Encode a corpus on several machines, to index it later.

    Writes shards of vectors, which dense index --vectors reads. Each machine encodes its own part (--shard),
    or all machines are nodes of a Ray cluster (--ray).

    \b
    dense encode --corpus wiki.jsonl --output vectors-0 --shard 0/2
    dense encode --corpus wiki.jsonl --output vectors-1 --shard 1/2
    dense index --vectors vectors-*
    """  # noqa: D301 (click looks for the backspace)
    from dense.models.resolve import vector_width
    from sparta.models.resolve import model_for

    corpus, output = encoding.corpus, encoding.output
    # A wrong path fails before the model is loaded.
    reader = encoding.fields.open(corpus, skip_invalid=encoding.skip_invalid)
    part, cluster = encoding.shards.part, encoding.ray.cluster
    model = model_for(encoding.model, encoding.language, "dense")
    vector_width(model)
    from dense.channel.encode import VectorOptions, encode_vectors

    unit = encoding.unit.name or "passage"
    report, counts = encode_vectors(
        reader,
        output,
        model,
        made(VectorOptions, encoding, part=part, unit=unit),
        resume=encoding.resume,
        device=encoding.device,
        progress=False if encoding.quiet else None,
        cluster=cluster,
    )
    click.echo(
        f"{output}: encoded {counted(report.encoded, unit_noun(unit))}, kept {report.kept:,} from before,"
        " left"
        f" {report.elsewhere:,} to other machines{only_beginnings(report)}{read_counts(counts)}"
    )
