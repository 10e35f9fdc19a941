"""`dense`: encode, index and search vectors; train, mine, convert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli._args import (
    SpartaGroup,
    corpus_bar,
    counted,
    dtype_option,
    folder_type,
    index_option,
    options,
    part_of,
    read_counts,
    shard_option,
)
from cli._dense_train import convert, mine, train
from cli._search import check_search, print_hits, search_many, search_options


@click.group(
    cls=SpartaGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="sparta-search", prog_name="dense")
def main() -> None:
    """Dense retrieval: passages found by the vectors of a bi-encoder.

    \b
    sparta index --corpus wiki.jsonl
    dense index
    dense search "who founded google"
    """  # noqa: D301 (click looks for the backspace)


encoder_options = options(
    click.option("--device", metavar="NAME", help="Device [default: the best there is]."),
    dtype_option,
    click.option("--quiet", is_flag=True, help="No progress bar."),
)


@main.command()
@click.option(
    "--corpus",
    metavar="PATH",
    required=True,
    help="JSONL, DPR TSV, a folder of them, gzipped or not, or - for standard input.",
)
@click.option("--output", required=True, type=folder_type, help="Folder for the shards.")
@click.option("--model", metavar="FOLDER|ID", help="Dense model [default: the one that ships with sparta].")
@click.option(
    "--unit",
    type=click.Choice(["passage", "sentence"]),
    default="passage",
    show_default=True,
    help="Unit of the index that the vectors are for.",
)
@click.option("--language", default="en", show_default=True, help="Language of the texts, for sentences.")
@shard_option
@click.option(
    "--shard-size", type=click.IntRange(1), default=2048, show_default=True, help="Passages a shard."
)
@click.option("--resume", is_flag=True, help="Encode only what is missing.")
@click.option("--skip-invalid", is_flag=True, help="Skip and count bad records instead of stopping.")
@encoder_options
def encode(corpus: str, output: Path, model: str | None, shard: str, **given: Any) -> None:
    """Encode a corpus into shards of vectors.

    Afterwards: dense index --vectors. Several machines may share a corpus (--shard).
    """
    from dense.models.resolve import vector_width
    from sparta.data.corpus import CorpusReader

    CorpusReader(corpus)  # a wrong path is told before torch is loaded
    part = part_of(shard)
    vector_width(model)
    from dense.channel.encode import VectorOptions, encode_vectors

    chosen = {k: given[k] for k in ("unit", "language", "dtype", "shard_size")}
    with corpus_bar(corpus, given["unit"], quiet=given["quiet"]) as bar:
        report, counts = encode_vectors(
            corpus,
            output,
            model,
            VectorOptions(part=part, **chosen),
            resume=given["resume"],
            skip_invalid=given["skip_invalid"],
            device=given["device"],
            advance=bar.update,
        )
    click.echo(
        f"{output}: encoded {counted(report.encoded, given['unit'])}, kept {report.kept:,}, left to other"
        f" machines {report.elsewhere:,}{read_counts(counts)}"
    )


@main.command()
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
    type=folder_type,
    help="Folders that dense encode wrote; what they lack is encoded.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Make the channel anew, also of another model; vectors of the same model are kept.",
)
@encoder_options
def index(index: Path | None, **given: Any) -> None:
    """Give an index a dense channel, or bring it up to date.

    The passages are those that sparta index put into the index. An interrupted command goes on when it is
    repeated. sparta index --append, sparta update and sparta delete keep the channel up to date.
    """
    from sparta.index.folder import default_index

    sync_dense(index or default_index(), **given)


def sync_dense(index: Path, *, quiet: bool, **given: Any) -> None:
    """Bring the dense channel of an index up to date, with a bar, and say what was done."""
    import sys

    from tqdm import tqdm

    from dense.channel.sync import sync

    with tqdm(unit="passage", disable=True if quiet else None, smoothing=0.1, file=sys.stderr) as bar:

        def expect(total: int) -> None:
            bar.total = total

        report = sync(index, expect=expect, advance=bar.update, **given)
    held = f"{report.path}: {report.kind}, {counted(report.passages, 'vector')} of {Path(report.model).name}"
    if report.unchanged:
        click.echo(f"{held}: up to date; nothing to do")
        return
    click.echo(
        f"{held}: encoded {report.encoded:,}, taken over {report.taken:,}, forgotten {report.forgotten:,}"
        f" in {report.seconds:.1f} s"
    )


@main.command()
@search_options
def search(**given: Any) -> None:
    """Find passages for a question, or for many.

    A hit shows its rank, title, [id] and score, and where its text has words of the question. Many questions
    come from --queries, and their answers go to --output.
    """
    check_search("dense search", given)
    from dense.channel.searcher import DenseSearcher

    if given["queries"] is not None:
        search_many(lambda: DenseSearcher(given["index"]), given)
        return
    with DenseSearcher(given["index"]) as searcher:
        print_hits(searcher, given, lambda hit: (f"{hit.score:.4g}", {}))


main.add_command(train)
main.add_command(mine)
main.add_command(convert)

if __name__ == "__main__":
    main()
