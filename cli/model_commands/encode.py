"""`sparta encode`: encode a corpus into shards of sparse vectors."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import arguments, command, flag, folder_type, group, option, takes
from cli._options import (
    ClusterArguments,
    FieldArguments,
    ModelArguments,
    ShardArguments,
    TermArguments,
    encoding_options,
    language_option,
    quiet_option,
)
from cli._output import counted
from cli._reports import read_counts, windowed
from sparta.base.errors import folder_in_use
from sparta.data.units import unit_noun


@arguments
class _Encoding:
    corpus: str = option("Passages, in any format of sparta index.", metavar="PATH", required=True)
    output: Path = option("Folder for the shards.", required=True, type=folder_type)
    model: ModelArguments = group(ModelArguments)
    terms: TermArguments = group(TermArguments)
    fields: FieldArguments = group(FieldArguments)
    shards: ShardArguments = group(ShardArguments)
    language: str = language_option
    resume: bool = flag("Continue an interrupted command: encode only the missing shards.", section="Shards")
    ray: ClusterArguments = group(ClusterArguments)
    quiet: bool = quiet_option


@command()
@takes(_Encoding)
def encode(encoding: _Encoding) -> None:
    """Encode a corpus on several machines, to index it later.

    Writes shards of sparse vectors, which sparta index --vectors reads. Each machine encodes its own part
    (--shard), or all machines are nodes of a Ray cluster (--ray).

    \b
    sparta encode --corpus wiki.jsonl --output shards-0 --shard 0/2
    sparta encode --corpus wiki.jsonl --output shards-1 --shard 1/2
    sparta index --vectors shards-*
    """  # noqa: D301 (click looks for the backspace)
    from sparta.models.resolve import model_for

    corpus, output, model, terms = encoding.corpus, encoding.output, encoding.model, encoding.terms
    # A wrong path fails before the model is loaded.
    reader = encoding.fields.open(corpus, skip_invalid=terms.skip_invalid)
    if not encoding.resume and (output / "manifest.json").exists():
        raise folder_in_use(output)
    part, cluster = encoding.shards.part, encoding.ray.cluster
    name = model_for(model.model, encoding.language)
    from sparta.shards.encode import encode_corpus

    size = encoding.shards.shard_size
    options = encoding_options(model, terms, encoding.language, part=part, shard_size=size)
    unit = unit_noun(options.unit)
    report = encode_corpus(
        reader,
        output,
        name,
        options,
        bits=model.bits,
        query_encoder=model.query_encoder,
        resume=encoding.resume,
        progress=False if encoding.quiet else None,
        cluster=cluster,
    )
    click.echo(
        f"{output}: encoded {counted(report.encoded, unit)} "
        f"({report.mean_terms:,.0f} terms per {unit}), "
        f"kept {report.kept:,} from before, left {report.elsewhere:,} to other machines"
        f"{windowed(report.windowed)}{read_counts(report.corpus['counts'])}"
    )
