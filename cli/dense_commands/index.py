"""`dense index`: the dense channel of an index."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cli._arguments import folder_type
from cli._options import encoder_options, index_option, refuse_leftover
from cli._reports import print_channel_reports


@click.command()
@index_option
@click.option(
    "--model",
    metavar="FOLDER|ID",
    help="Dense model [default: that of the channel or of --vectors, or the one that ships with sparta].",
)
@click.option(
    "--kind",
    type=click.Choice(["auto", "flat", "ivf", "hnsw"]),
    help="flat is exact, ivf and hnsw are faster; auto chooses by size [default: the channel's, or auto].",
)
@click.option(
    "--vectors",
    multiple=True,
    metavar="FOLDER...",
    type=folder_type,
    help="Folders that dense encode wrote, one or several: shards-*; what they lack is encoded.",
)
@click.argument("more", nargs=-1, metavar="", type=folder_type)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Make the channel anew, also of another model; vectors of the same model are kept.",
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
    """Give an index a dense channel, or bring it up to date.

    The passages are those that sparta index put into the index. An interrupted command goes on when it is
    repeated. sparta index --append, sparta update and sparta delete keep the channel up to date.
    """
    refuse_leftover(more, "vectors", "dense index --vectors FOLDER...")
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
