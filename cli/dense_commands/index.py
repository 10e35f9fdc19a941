"""`dense index`: add a dense channel to an index, or update it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cli._arguments import command, folder_type, option
from cli._options import encoder_options, index_option, refuse_leftover
from cli._reports import print_channel_reports


@command()
@index_option
@option(
    "Dense model [default: the model of the existing channel or of --vectors, else the shipped model].",
    "--model",
    metavar="FOLDER|ID",
)
@click.option(
    "--kind",
    type=click.Choice(["auto", "flat", "ivf", "ivfpq", "hnsw"]),
    help="Vector index: flat is exact; ivf, ivfpq and hnsw are faster; auto chooses by size [default: as in"
    " the existing channel, else auto].",
)
@click.option(
    "--vectors",
    multiple=True,
    metavar="FOLDER...",
    type=folder_type,
    help="One or more folders from dense encode (shards-*); passages that they lack are encoded.",
)
@click.argument("more", nargs=-1, metavar="", type=folder_type)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Build the channel anew, also with another model; vectors of the same model are reused.",
)
@encoder_options
def index(
    index: Path | None,
    vectors: tuple[Path, ...],
    more: tuple[Path, ...],
    model: str | None,
    kind: str | None,
    overwrite: bool,
    device: str | None,
    dtype: str,
    quiet: bool,
) -> None:
    """Add a dense channel to an index, or update it.

    Encodes the passages of an index from sparta index into vectors. After an interruption, the same command
    continues. Later, sparta index --append, sparta update and sparta delete update the channel, too.

    \b
    sparta index --corpus wiki.jsonl
    dense index
    """  # noqa: D301 (click looks for the backspace)
    refuse_leftover(more, "dense index --vectors FOLDER...")
    from tqdm import tqdm

    from dense.channel.sync import build_dense
    from sparta.index.folder import default_index

    with tqdm(unit="passage", disable=True if quiet else None, smoothing=0.1, file=sys.stderr) as bar:
        report = build_dense(
            index or default_index(),
            vectors=(*vectors, *more),
            expect=bar.reset,
            advance=bar.update,
            model=model,
            kind=kind,
            overwrite=overwrite,
            device=device,
            dtype=dtype,
        )
    print_channel_reports([report])
