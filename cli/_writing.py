"""`sparta index`, `update`, `delete`, `encode`: what an index holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._args import (
    Text,
    corpus_bar,
    counted,
    encode_options,
    folder_type,
    index_option,
    model_options,
    open_model,
    own_unit_options,
    part_of,
    read_counts,
    shard_option,
    told_what_is_kept,
    typed,
    unit_options,
    write_options,
)
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from sparta.index.folder import IndexFolder

_INDEX_BLOCK = 512  # passages that Ctrl-C may cost
_FORM = {"language": "en", "unit": "passage", "top_k": None, "min_weight": 0.0}


@click.command()
@click.option(
    "--corpus",
    metavar="PATH",
    help="JSONL, DPR TSV, a folder of them, gzipped or not, or - for standard input.",
)
@click.option(
    "--vectors",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Folders of shards that sparta encode wrote, or JSON vectors.",
)
@click.argument("more", nargs=-1, metavar="", type=click.Path(path_type=Path))
@click.option(
    "--tokenizer",
    metavar="FOLDER|ID",
    help="With JSON vectors: the model whose wordpieces their terms are, and whose weights questions have.",
)
@index_option
@model_options
@own_unit_options
@click.option(
    "--language", help="Language of the texts, for BM25 and sentences [default: en, or that of the index]."
)
@click.option("--append", is_flag=True, help="Add to an existing index.")
@click.option("--overwrite", is_flag=True, help="Replace an existing index when this one is done.")
@click.option("--resume", is_flag=True, help="Go on where an interrupted command stopped.")
@click.option("--optimize", is_flag=True, help="Merge into one segment at the end.")
@click.option(
    "--codec",
    type=click.Choice(["lucene", "sparta"]),
    help="Form of the postings: lucene opens in any Pyserini, sparta is searched faster [default: lucene].",
)
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
    """Index a corpus, or vectors that are ready.

    A corpus is encoded on the way. An existing index is never changed without --append or --overwrite.
    """
    if more and not vectors:
        raise InputError(
            f"expected options only, found {' '.join(map(str, more))}",
            remedy=f"sparta index --corpus {corpus or more[0]}",
        )
    if bool(corpus) == bool(vectors):
        raise InputError(
            "expected either --corpus or --vectors, found " + ("both" if corpus else "neither"),
            remedy="sparta index --corpus wiki.jsonl",
        )
    unused = ("tokenizer",) if corpus else ("model", "bits", "unit", "top_k", "min_weight", "skip_invalid")
    if others := typed(*unused):
        kind, fixed = (
            ("a corpus", "a corpus has the tokenizer of its --model")
            if corpus
            else ("ready vectors", "they are as they were made: give these options to sparta encode")
        )
        raise InputError(f"expected options for {kind}, found {', '.join(others)}", remedy=fixed)
    if append and overwrite:
        raise InputError(
            "expected --append or --overwrite, found both",
            remedy="--append adds to the index that is there, --overwrite replaces it",
        )
    mode = "append" if append else "overwrite" if overwrite else "create"
    if not vectors:
        _index_corpus(str(corpus), mode, given)
        return
    folder, form = _target(given, mode)
    _check_runtime()
    from sparta.index.build import kept_passages
    from sparta.index.sources import vectors_source

    with told_what_is_kept(lambda: kept_passages(folder, mode)):
        source = vectors_source((*vectors, *more), tokenizer)
        if given["language"] is None and mode != "append":
            form["language"] = source.language or form["language"]
        _write(folder, source, mode, {**given, **form})
    _dense_follows(folder, given["device"], given["dtype"], quiet=given["quiet"])


@click.command()
@click.option(
    "--corpus", metavar="PATH", required=True, help="Passages that are new or replace those of the same id."
)
@index_option
@model_options
@own_unit_options
@click.option("--resume", is_flag=True, help="Go on where an interrupted update stopped.")
@write_options
def update(corpus: str, **given: Any) -> None:
    """Replace passages by id, and add those that are new."""
    _index_corpus(corpus, "update", {**given, "optimize": False, "language": None, "codec": None})


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", type=Text())
@index_option
def delete(ids: tuple[str, ...], index: Path | None) -> None:
    """Delete passages by id."""
    from sparta.index.build import delete_passages
    from sparta.index.folder import IndexFolder, default_index

    folder = IndexFolder(index or default_index())
    folder.state()  # without an index, nothing is made
    named = tuple(dict.fromkeys(ids))
    deleted, missing = delete_passages(folder, named)
    sentences = f" ({counted(deleted, 'sentence')})" if folder.require_live().unit == "sentence" else ""
    click.echo(f"deleted {len(named) - len(missing)} of {len(named)}{sentences}")
    _dense_follows(folder)
    if missing:
        raise InputError(
            f"the index holds no passage with the id {', '.join(map(repr, missing))}",
            where=str(folder.path),
            remedy="sparta search prints ids",
        )


@click.command()
@click.option("--corpus", metavar="PATH", required=True, help="As for sparta index.")
@click.option("--output", required=True, type=folder_type, help="Folder for the shards.")
@model_options
@unit_options
@shard_option
@click.option(
    "--shard-size", type=click.IntRange(1), default=2048, show_default=True, help="Passages a shard."
)
@click.option("--language", default="en", show_default=True, help="Language of the texts, for sentences.")
@click.option("--resume", is_flag=True, help="Encode only what is missing.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def encode(corpus: str, output: Path, shard: str, resume: bool, quiet: bool, **given: Any) -> None:
    """Encode a corpus into shards of sparse vectors.

    Afterwards: sparta index --vectors. Several machines may share a corpus (--shard).
    """
    from sparta.data.corpus import CorpusReader
    from sparta.shards.store import passages_in

    CorpusReader(corpus)  # a wrong path is told before a model is loaded
    part = part_of(shard)
    with told_what_is_kept(lambda: passages_in(output)):
        from sparta.shards.encode import encode_corpus

        chosen = encode_options(**given, part=part)
        model = open_model(given["model"], given["bits"], given["device"])
        with corpus_bar(corpus, given["unit"], quiet=quiet) as bar:
            report = encode_corpus(
                corpus,
                output,
                model,
                chosen,
                resume=resume,
                skip_invalid=given["skip_invalid"],
                advance=bar.update,
            )
    click.echo(
        f"{output}: encoded {counted(report.encoded, 'passage')} ({report.mean_terms:,.0f} terms each), "
        f"kept {report.kept:,}, left to other machines {report.elsewhere:,}"
        f"{_windowed(report.windowed)}{read_counts(report.corpus['counts'])}"
    )


def _target(given: dict[str, Any], mode: str) -> tuple[IndexFolder, dict[str, Any]]:
    """Return the index folder, and how its texts are read and pruned; what is added to must be there."""
    from sparta.index.folder import GROWING, IndexFolder, default_index

    folder = IndexFolder(given["index"] or default_index())
    there = folder.state().searchable if mode in GROWING else None
    own = {**_FORM, **(there.form if there else {})}
    form = {name: value if given.get(name) is None else given[name] for name, value in own.items()}
    if there and form["language"] != own["language"]:
        raise InputError(
            f"expected texts in the index's own language {own['language']!r},"
            f" found --language {form['language']}",
            where=str(folder.path),
            remedy="leave --language out, or put these texts into another --index",
        )
    return folder, form


def _index_corpus(corpus: str, mode: str, given: dict[str, Any]) -> None:
    from sparta.data.corpus import CorpusReader

    CorpusReader(corpus)  # what can be told at once is told before a model is loaded
    folder, form = _target(given, mode)
    _check_runtime()
    from sparta.index.build import kept_passages

    with told_what_is_kept(lambda: kept_passages(folder, mode)):
        _encode_and_write(corpus, folder, mode, {**given, **form})
    _dense_follows(folder, given["device"], given["dtype"], quiet=given["quiet"])


def _encode_and_write(corpus: str, folder: IndexFolder, mode: str, given: dict[str, Any]) -> None:
    from sparta.index.sources import corpus_job, corpus_source

    job = corpus_job(corpus, given["unit"], given["top_k"], given["min_weight"])
    settled = _settled(folder, job, mode, given)
    if settled:
        _optimize(folder, given)
        _say(folder, settled)
        return
    options = encode_options(**given, shard_size=_INDEX_BLOCK)
    model = open_model(given["model"], given["bits"], given["device"])
    with corpus_bar(corpus, given["unit"], quiet=given["quiet"]) as bar:
        source = corpus_source(
            corpus,
            model,
            options,
            skip_invalid=given["skip_invalid"],
            advance=bar.update,
            job=job,
        )
        _write(folder, source, mode, given, bar)


def _settled(folder: IndexFolder, job: dict[str, Any], mode: str, given: dict[str, Any]) -> Any:
    """What can be said before torch and a model are loaded: that there is nothing to do, or what is wrong."""
    from sparta.index.build import up_to_date
    from sparta.index.jobs import Source
    from sparta.models.resolve import known_query_side

    if not folder.exists():
        return None
    side = known_query_side(given["model"], given["bits"])
    if side is None:
        return None
    return up_to_date(folder, Source(job, side, lambda _: iter(())), _write_options(mode, given))


def _check_runtime() -> None:
    """Without Java nothing can be written: say so before hours of encoding."""
    from sparta.lucene.jvm import find_runtime

    find_runtime()


def _write(folder: IndexFolder, source: Any, mode: str, given: dict[str, Any], bar: Any = None) -> None:
    from sparta.index.build import write_index

    report = write_index(folder, source, _write_options(mode, given))
    if bar is not None:
        bar.close()
    if report.unchanged:
        _optimize(folder, given)
    _say(folder, report)


def _optimize(folder: IndexFolder, given: dict[str, Any]) -> None:
    """Merge an index that holds its input already, where that is asked for."""
    if given["optimize"]:
        from sparta.index.build import optimize_index

        optimize_index(folder)
        click.echo(f"{folder.path}: merged into one segment")


def _dense_follows(
    folder: IndexFolder, device: str | None = None, dtype: str = "auto", *, quiet: bool = True
) -> None:
    """Bring the dense channel, where there is one, to what the index holds now."""
    from dense.channel.sync import has_dense

    if has_dense(folder.path):
        from cli._dense import sync_dense

        first = device.partition(",")[0] if device else None
        sync_dense(folder.path, device=first, dtype=dtype, quiet=quiet)


def _write_options(mode: str, given: dict[str, Any]) -> Any:
    from sparta.index.jobs import WriteOptions

    return WriteOptions(
        mode=mode,
        resume=given["resume"],
        language=given["language"],
        codec=given["codec"],
        threads=given["threads"],
        optimize=given["optimize"],
        commit_seconds=given["commit_seconds"],
    )


def _say(folder: IndexFolder, report: Any) -> None:
    """Print what was written."""
    if report.unchanged:
        click.echo(f"{folder.path}: up to date, {counted(report.documents, 'passage')}; nothing to do")
        return
    written = report.written
    passages, postings = int(written.get("passages", 0)), int(written.get("postings", 0))
    click.echo(
        f"{folder.path}: {counted(report.documents, 'passage')}, {counted(postings, 'posting')} written "
        f"({postings / max(1, passages):,.0f} a passage) in {report.seconds:.1f} s"
        f"{_windowed(int(written.get('windowed', 0)))}{read_counts(report.source)}"
    )
    for skip in report.source.get("first_skips", []):
        click.echo(f"  skipped {skip['where']}: {skip['reason']}", err=True)


def _windowed(n: int) -> str:
    return f"; {n:,} longer than the model reads at once, encoded in windows" if n else ""
