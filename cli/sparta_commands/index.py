"""`sparta index`: a corpus, or ready vectors, become an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli._options import (
    codec_option,
    corpus_bar,
    corpus_option,
    index_option,
    index_options_of,
    own_model_options,
    own_unit_options,
    refuse_leftover,
    typed,
    write_options,
)
from cli._reports import print_index_report
from sparta.base.errors import InputError


@click.command()
@corpus_option(required=False)
@click.option(
    "--vectors",
    multiple=True,
    metavar="PATH...",
    type=click.Path(path_type=Path),
    help="Folders of shards that sparta encode wrote, or JSON vectors; one, or several: shards-*.",
)
@click.argument("more", nargs=-1, metavar="", type=click.Path(path_type=Path))
@click.option(
    "--tokenizer",
    metavar="FOLDER|ID",
    help="With JSON vectors: the model whose wordpieces their terms are, and whose query-term weights count.",
)
@index_option
@click.option(
    "--channels",
    type=click.Choice(["impact,bm25", "bm25"]),
    help="With bm25 alone nothing is encoded, which takes seconds; --resume adds impacts later"
    " [default: impact,bm25, or as in the index].",
)
@own_model_options
@own_unit_options
@click.option("--language", help="Language of the texts [default: en, or that of the index].")
@click.option("--append", is_flag=True, help="Add to an existing index.")
@click.option("--overwrite", is_flag=True, help="Replace an existing index when this one is done.")
@click.option("--resume", is_flag=True, help="Continue an interrupted command.")
@click.option("--optimize", is_flag=True, help="Merge into one segment at the end.")
@codec_option
@write_options
def index(
    corpus: str | None,
    vectors: tuple[Path, ...],
    more: tuple[Path, ...],
    tokenizer: str | None,
    append: bool,
    overwrite: bool,
    **given: Any,
) -> None:
    """Index a corpus, or sparse vectors made before.

    The corpus is encoded and indexed in one stream. An existing index is never changed without --append or
    --overwrite.
    """
    _check(corpus, vectors, more, append=append, overwrite=overwrite)
    from sparta.index.folder import default_index
    from sparta.index.pipeline import build_index, build_index_from_vectors

    path = given["index"] or default_index()
    mode = "append" if append else "overwrite" if overwrite else "create"
    options = index_options_of(given)
    if corpus is None:
        report = build_index_from_vectors(path, (*vectors, *more), mode, options, tokenizer=tokenizer)
    else:
        with corpus_bar(corpus, options.unit, quiet=given["quiet"]) as bar:
            report = build_index(path, corpus, mode, options, advance=bar.update)
    print_index_report(report, optimized=options.optimize)


def _check(
    corpus: str | None, vectors: tuple[Path, ...], more: tuple[Path, ...], *, append: bool, overwrite: bool
) -> None:
    """Refuse options that do not go together."""
    refuse_leftover(more, "vectors", f"sparta index --corpus {corpus or next(iter(more), '')}")
    if bool(corpus) == bool(vectors):
        raise InputError(
            "expected either --corpus or --vectors, found " + ("both" if corpus else "neither"),
            remedy="sparta index --corpus wiki.jsonl",
        )
    unused = (
        ("tokenizer",)
        if corpus
        else ("channels", "model", "bits", "unit", "chunk", "overlap", "top_k", "min_weight", "skip_invalid")
    )
    if others := typed(*unused):
        kind, fixed = (
            ("a corpus", "a corpus has the tokenizer of its --model")
            if corpus
            else ("ready vectors", "they are as they were encoded: give these options to sparta encode")
        )
        raise InputError(f"expected options for {kind}, found {', '.join(others)}", remedy=fixed)
    if append and overwrite:
        raise InputError(
            "expected --append or --overwrite, found both",
            remedy="--append adds to the index that is there, --overwrite replaces it",
        )
