"""`sparta index`: a corpus, or ready vectors, become an index."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import Excludes, argument, arguments, flag, group, option, takes, typed
from cli._options import (
    IndexModelArguments,
    IndexTermArguments,
    WriteArguments,
    codec_option,
    corpus_option,
    index_option,
    index_options,
    refuse_leftover,
)
from cli._reports import print_index_report
from sparta.base.errors import InputError

_OF_CORPUS = ("channels", "model", "bits", "unit", "chunk", "overlap", "top_k", "min_weight", "skip_invalid")


@arguments
class _Index:
    corpus: str | None = corpus_option(required=False)
    vectors: tuple[Path, ...] = option(
        "Folders of shards that sparta encode wrote, or JSON vectors; one, or several: shards-*.",
        metavar="PATH...",
    )
    more: tuple[Path, ...] = argument("more", nargs=-1, metavar="", type=click.Path(path_type=Path))
    tokenizer: str | None = option(
        "With JSON vectors: the model whose wordpieces their terms are, and whose query-term weights count.",
        metavar="FOLDER|ID",
    )
    index: Path | None = index_option
    channels: str | None = option(
        "With bm25 alone nothing is encoded, which takes seconds; --resume adds impacts later"
        " [default: impact,bm25, or as in the index].",
        type=click.Choice(["impact,bm25", "bm25"]),
    )
    model: IndexModelArguments = group(IndexModelArguments)
    terms: IndexTermArguments = group(IndexTermArguments)
    language: str | None = option("Language of the texts [default: en, or that of the index].")
    append: bool = flag("Add to an existing index.")
    overwrite: bool = flag("Replace an existing index when this one is done.")
    resume: bool = flag("Continue an interrupted command.")
    optimize: bool = flag("Merge into one segment at the end.")
    codec: str | None = codec_option
    writing: WriteArguments = group(WriteArguments)
    RULES = (
        Excludes(
            ("append",), ("overwrite",), "--append adds to the index that is there, --overwrite replaces it"
        ),
    )

    def check(self) -> None:
        """Refuse options that do not go together."""
        corpus = self.corpus
        refuse_leftover(self.more, "vectors", f"sparta index --corpus {corpus or next(iter(self.more), '')}")
        if bool(corpus) == bool(self.vectors):
            raise InputError(
                "expected either --corpus or --vectors, found " + ("both" if corpus else "neither"),
                remedy="sparta index --corpus wiki.jsonl",
            )
        if others := typed("tokenizer") if corpus else typed(*_OF_CORPUS):
            kind, remedy = (
                ("a corpus", "a corpus has the tokenizer of its --model")
                if corpus
                else ("ready vectors", "they are as they were encoded: give these options to sparta encode")
            )
            raise InputError(f"expected options for {kind}, found {', '.join(others)}", remedy=remedy)


@click.command()
@takes(_Index)
def index(index: _Index) -> None:
    """Index a corpus, or sparse vectors made before.

    The corpus is encoded and indexed in one stream. An existing index is never changed without --append or
    --overwrite.
    """
    index.check()
    from sparta.index.folder import default_index
    from sparta.index.pipeline import build_index, build_index_from_vectors

    path = index.index or default_index()
    mode = "append" if index.append else "overwrite" if index.overwrite else "create"
    options = index_options(index, terms=index.terms)
    if index.corpus is None:
        vectors = (*index.vectors, *index.more)
        report = build_index_from_vectors(path, vectors, mode, options, tokenizer=index.tokenizer)
    else:
        progress = False if index.writing.quiet else None
        report = build_index(path, index.corpus, mode, options, progress=progress)
    print_index_report(report, optimized=options.optimize)
