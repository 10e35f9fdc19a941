"""`sparta index`: build an index from a corpus or from encoded shards."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import Excludes, argument, arguments, command, flag, group, option, takes, typed
from cli._options import (
    FieldArguments,
    IndexModelArguments,
    IndexTermArguments,
    WriteArguments,
    channel_lists,
    codec_option,
    corpus_option,
    index_option,
    index_options,
    refuse_leftover,
)
from cli._reports import fail_if_behind, print_index_report
from sparta.base.errors import InputError

# Options that have an effect only with --corpus.
_OF_CORPUS = (
    *(
        "channels",
        "model",
        "bits",
        "query_encoder",
        "unit",
        "chunk",
        "overlap",
        "top_k",
        "min_weight",
        "skip_invalid",
    ),
    *("id_field", "text_field", "title_field", "query"),
)
_OF_ENCODING = ("device", "dtype")
"""The options that --vectors needs only for a dense channel."""


@arguments
class _Index:
    corpus: str | None = corpus_option(required=False)
    vectors: tuple[Path, ...] = option(
        "Instead of --corpus: one or more folders of shards from sparta encode (shards-*), or JSON vectors.",
        metavar="PATH...",
    )
    more: tuple[Path, ...] = argument("more", nargs=-1, metavar="", type=click.Path(path_type=Path))
    tokenizer: str | None = option(
        "For JSON vectors: the model whose wordpieces are their terms. Its query-term weights are used, too.",
        metavar="FOLDER|ID",
    )
    index: Path | None = index_option
    channels: str | None = option(
        "bm25 encodes nothing and takes seconds. To add the impacts later, repeat the command with --resume"
        " and without --channels. dense also encodes vectors, in the same pass over the corpus"
        " [default: as in the extended index, else impact,bm25].",
        type=channel_lists,
    )
    model: IndexModelArguments = group(IndexModelArguments)
    terms: IndexTermArguments = group(IndexTermArguments)
    fields: FieldArguments = group(FieldArguments)
    language: str | None = option("Language code of the texts [default: as in the extended index, else en].")
    append: bool = flag("Add passages to an existing index.", section="Existing index")
    overwrite: bool = flag(
        "Replace an existing index, once the new one is complete. Options that you omit have the defaults of"
        " a new index.",
        section="Existing index",
    )
    resume: bool = flag("Continue an interrupted command.", section="Existing index")
    optimize: bool = flag("Merge the index into one segment at the end.", section="Writing")
    codec: str | None = codec_option
    writing: WriteArguments = group(WriteArguments)
    RULES = (
        Excludes(
            ("append",), ("overwrite",), "--append adds to the index that is there, --overwrite replaces it"
        ),
    )

    def check(self, path: Path) -> None:
        """Raise InputError unless there is either --corpus or --vectors, with options of that kind only.

        :param path: the index folder; --vectors encodes passages for its dense channel
        """
        corpus = self.corpus
        if corpus and self.more:
            raise InputError(
                f"--corpus takes one file or folder, found also {' '.join(map(str, self.more))}",
                remedy="put several files into one folder, or write a name with spaces in quotes",
            )
        refuse_leftover(self.more, f"sparta index --corpus {next(iter(self.more), '')}")
        if bool(corpus) == bool(self.vectors):
            raise InputError(
                "name either --corpus or --vectors, found " + ("both" if corpus else "neither"),
                remedy="for example: sparta index --corpus wiki.jsonl",
            )
        if others := typed("tokenizer") if corpus else typed(*_without_effect(path)):
            kind, remedy = (
                ("--corpus", "omit the option: the model of --model tokenizes a corpus")
                if corpus
                else ("--vectors", "omit these options; sparta encode takes them")
            )
            raise InputError(f"{', '.join(others)} has no effect on {kind}", remedy=remedy)


def _without_effect(path: Path) -> tuple[str, ...]:
    """Return the options that --vectors does not use in an index folder."""
    from sparta.index.channels import other_channels

    return _OF_CORPUS if other_channels(path) else (*_OF_CORPUS, *_OF_ENCODING)


@command()
@takes(_Index)
def index(index: _Index) -> None:
    """Build an index from your passages.

    Encodes the corpus and indexes it in one stream, with a commit every 30 seconds. An existing index is
    changed only with --append, --overwrite or --resume.

    \b
    sparta index --corpus wiki.jsonl
    sparta index --corpus my-folder --index my-index --chunk 200 --overlap 50
    """  # noqa: D301 (click looks for the backspace)
    from sparta.index.folder import default_index

    path = index.index or default_index()
    index.check(path)
    from sparta.index.pipeline import build_index, build_index_from_vectors

    mode = "append" if index.append else "overwrite" if index.overwrite else "create"
    options = index_options(index, terms=index.terms)
    if index.corpus is None:
        vectors = (*index.vectors, *index.more)
        report = build_index_from_vectors(path, vectors, mode, options, tokenizer=index.tokenizer)
    else:
        progress = False if index.writing.quiet else None
        report = build_index(path, index.corpus, mode, options, progress=progress)
    print_index_report(report, optimized=options.optimize)
    fail_if_behind(report.behind)
