"""`sparta`: index, search, explain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._args import (
    SpartaGroup,
    Text,
    corpus_bar,
    counted,
    dumps,
    encode_options,
    file_type,
    folder_type,
    index_option,
    model_options,
    open_model,
    own_unit_options,
    part_of,
    read_counts,
    shard_option,
    table,
    told_what_is_kept,
    typed,
    unit_options,
    write_options,
)
from cli._eval import eval_command
from cli._numbers import Finite
from cli._search import check_search, search_many, search_options, show_hit
from cli._train import data_options, end_options, length_options, loop_options, named_sets, report
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from sparta.layout import IndexFolder

_INDEX_BLOCK = 512  # passages that Ctrl-C may cost
_FORM = {"language": "en", "unit": "passage", "top_k": None, "min_weight": 0.0}


@click.group(
    cls=SpartaGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="sparta-search", prog_name="sparta")
def main() -> None:
    """Open-domain question answering from a Lucene index that a transformer wrote.

    \b
    sparta index --corpus wiki.jsonl
    sparta search "who founded google"
    """  # noqa: D301 (click looks for the backspace)


# ---------------------------------------------------------------- writing


@main.command()
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
    "--tokenizer", metavar="FOLDER|ID", help="With JSON vectors: the model whose wordpieces their terms are."
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
    from sparta.index import kept_passages
    from sparta.sources import vectors_source

    with told_what_is_kept(lambda: kept_passages(folder, mode)):
        source = vectors_source((*vectors, *more), tokenizer)
        if given["language"] is None and mode != "append":
            form["language"] = source.language or form["language"]
        _write(folder, source, mode, {**given, **form})
    _dense_follows(folder, given["device"], given["dtype"], quiet=given["quiet"])


@main.command()
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


@main.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", type=Text())
@index_option
def delete(ids: tuple[str, ...], index: Path | None) -> None:
    """Delete passages by id."""
    from sparta.index import delete_passages
    from sparta.layout import IndexFolder, default_index

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


@main.command()
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
    from sparta.base.corpus import CorpusReader
    from sparta.shards import passages_in

    CorpusReader(corpus)  # a wrong path is told before a model is loaded
    part = part_of(shard)
    with told_what_is_kept(lambda: passages_in(output)):
        from sparta.encode import encode_corpus

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
    from sparta.layout import GROWING, IndexFolder, default_index

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
    from sparta.base.corpus import CorpusReader

    CorpusReader(corpus)  # what can be told at once is told before a model is loaded
    folder, form = _target(given, mode)
    _check_runtime()
    from sparta.index import kept_passages

    with told_what_is_kept(lambda: kept_passages(folder, mode)):
        _encode_and_write(corpus, folder, mode, {**given, **form})
    _dense_follows(folder, given["device"], given["dtype"], quiet=given["quiet"])


def _encode_and_write(corpus: str, folder: IndexFolder, mode: str, given: dict[str, Any]) -> None:
    from sparta.sources import corpus_job, corpus_source

    job = corpus_job(corpus, given["unit"], given["top_k"], given["min_weight"])
    settled = _settled(folder, job, mode, given)
    if settled:
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
    from sparta.index import Source, up_to_date
    from sparta.locate import known_query_side

    if not folder.exists():
        return None
    side = known_query_side(given["model"], given["bits"])
    if side is None:
        return None
    return up_to_date(folder, Source(job, side, lambda _: iter(())), _write_options(mode, given))


def _check_runtime() -> None:
    """Without Java nothing can be written: say so before hours of encoding."""
    from sparta.jvm import find_runtime

    find_runtime()


def _write(folder: IndexFolder, source: Any, mode: str, given: dict[str, Any], bar: Any = None) -> None:
    from sparta.index import write_index

    report = write_index(folder, source, _write_options(mode, given))
    if bar is not None:
        bar.close()
    _say(folder, report)


def _dense_follows(
    folder: IndexFolder, device: str | None = None, dtype: str = "auto", *, quiet: bool = True
) -> None:
    """Bring the dense channel, where there is one, to what the index holds now."""
    from dense.index import has_dense

    if has_dense(folder.path):
        from cli._dense import sync_dense

        first = device.partition(",")[0] if device else None
        sync_dense(folder.path, device=first, dtype=dtype, quiet=quiet)


def _write_options(mode: str, given: dict[str, Any]) -> Any:
    from sparta.index import WriteOptions

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


# ---------------------------------------------------------------- searching


@main.command()
@search_options
@click.option(
    "--channel",
    type=click.Choice(["sparta", "bm25"]),
    default="sparta",
    show_default=True,
    help="Learned impacts, or BM25 over the same passages.",
)
def search(channel: str, **given: Any) -> None:
    """Find passages for a question, or for many.

    A hit shows its rank, title, [id] and score, the words that matched, and what each adds to the score. Many
    questions come from --queries, and their answers go to --output.
    """
    check_search("sparta search", given)
    from sparta.search import Searcher

    if given["queries"] is not None:
        search_many(lambda: Searcher(given["index"], channel=channel), given)
        return
    query, as_json = given["query"], given["as_json"]
    with Searcher(given["index"], channel=channel) as searcher:
        hits = searcher.search(query, given["k"])
        if not hits and not as_json:
            click.echo(_nothing(searcher, query))
        for rank, hit in enumerate(hits, 1):
            _print_hit(searcher, query, rank, hit, as_json=as_json)


def _nothing(searcher: Any, query: str) -> str:
    if not searcher.terms(query):
        return "no passage: the question has no word that the index's vocabulary knows"
    return "no passage has a term of this question"


def _print_hit(searcher: Any, query: str, rank: int, hit: Any, *, as_json: bool) -> None:
    from sparta.explain import term_shares

    shares = [s for s in term_shares(searcher, query, hit.lucene_docid) if s.impact]
    by_impact = searcher.channel == "sparta"
    matched = {s.term for s in shares} if by_impact else set(searcher.terms(query))
    terms = [
        {"term": s.term, "count": s.count, "impact": s.impact, "weight": round(s.weight, 4)} for s in shares
    ]
    more = {"terms": terms} if by_impact else {}
    score = f"{hit.score:g}" if by_impact else f"{hit.score:.4g}"
    show_hit(searcher, rank, hit, matched, score, more if as_json else None)
    if by_impact and not as_json:
        click.echo("     " + " + ".join(f"{s.term} {s.share:g}" for s in shares))


@main.command()
@click.argument("query", type=Text())
@click.argument("passage_id", metavar="ID", type=Text())
@index_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def explain(query: str, passage_id: str, index: Path | None, as_json: bool) -> None:
    """Say why a passage has its score for a question.

    Each term's impact and the weight it stands for, their sum, the passage's rank.
    """
    from sparta.explain import explain as explained
    from sparta.search import Searcher

    with Searcher(index) as searcher:
        why = explained(searcher, query, passage_id)
        total = searcher.num_docs
    if as_json:
        terms = [
            {"term": s.term, "count": s.count, "impact": s.impact, "weight": s.weight} for s in why.terms
        ]
        click.echo(dumps({"id": why.passage_id, "rank": why.rank, "score": why.score, "terms": terms}))
        return
    rows = [[s.term, f"{s.count:g}", str(s.impact), f"{s.weight:.3f}", f"{s.share:g}"] for s in why.terms]
    click.echo(table(["term", "count", "impact", "weight", "count × impact"], rows))
    rank = f"rank {why.rank:,} of {total:,}" if why.rank else "not among the passages found"
    click.echo(f"score {why.score:g}: {rank}")


@main.command()
@click.argument("passage_id", metavar="ID", type=Text())
@click.option("-n", type=click.IntRange(1), default=30, show_default=True, help="How many terms.")
@index_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def terms(passage_id: str, n: int, index: Path | None, as_json: bool) -> None:
    """List the strongest terms of a passage: what it would be found by."""
    from sparta.explain import top_terms
    from sparta.search import Searcher

    with Searcher(index) as searcher:
        strongest = top_terms(searcher, passage_id, None)
    if as_json:
        click.echo(dumps({"id": passage_id, "terms": strongest[:n], "of": len(strongest)}))
        return
    click.echo(table(["term", "impact", "weight"], [[t, str(i), f"{w:.3f}"] for t, i, w in strongest[:n]]))
    click.echo(f"{counted(len(strongest), 'term')} in all")


@main.command()
@index_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["pyserini-json", "ciff"]),
    required=True,
    help="What the other engine reads.",
)
@click.option("--output", required=True, type=file_type, help="File to write.")
def export(index: Path | None, form: str, output: Path) -> None:
    """Write the impacts for another engine.

    As Pyserini's JSON vectors, or in the Common Index File Format, which PISA and others read.
    """
    from sparta.export import export_index
    from sparta.search import Searcher

    with Searcher(index) as searcher:
        documents, postings = export_index(searcher, form, output)
    click.echo(f"{output}: {counted(documents, 'passage')}, {counted(postings, 'posting')}")


# ---------------------------------------------------------------- models and machines


@main.command()
@data_options
@length_options(learning_rate=1.5e-4)
@click.option(
    "--pressure", type=Finite(), default=0.001, show_default=True, help="Weight of the vocabulary penalty."
)
@click.option(
    "--terms",
    type=click.IntRange(1),
    metavar="N",
    help="Move the pressure so that a paragraph has about N terms.",
)
@click.option(
    "--pruned-to",
    type=click.IntRange(10),
    metavar="N",
    help="Learn to rank by the N strongest terms of each text alone, too: for indexes of --top-k N.",
)
@loop_options
@click.option("--segments", is_flag=True, help="Mark the answer by segment 1, as the paper does.")
@click.option("--tied", is_flag=True, help="Term embeddings are the encoder's word embeddings.")
@click.option(
    "--no-lexical",
    "lexical",
    flag_value=False,
    default=True,
    help="Do not add to a term's weight when it stands in the answer.",
)
@click.option(
    "--context-share",
    type=click.FloatRange(0, 1, max_open=True),
    help="Part of an answer's weights that its context gives, as far as it is read with it "
    "[default: 0.4, with --alone or --segments 0; a model that is trained further keeps its own].",
)
@click.option("--full-precision", is_flag=True, help="Store float weights instead of int8 with row scales.")
@end_options
def train(
    pairs: tuple[str, ...],
    articles: tuple[str, ...],
    passages: tuple[str, ...],
    batch_size: int,
    **given: Any,
) -> None:
    """Train a model on questions and the texts that answer them.

    Files hold pairs as JSONL (question, positive; maybe context, start, title, negative), SQuAD JSON, DPR
    JSON, MRQA JSONL, or TSV of triples, gzipped or not; a BEIR folder with qrels/train.tsv will do. With a
    SPARTA model as --encoder, that model is trained further. With several GPUs:

    \b
    torchrun --nproc-per-node 4 -m cli._sparta train …
    """  # noqa: D301 (click looks for the backspace)
    if given["alone"] and given["segments"]:
        raise InputError(
            "expected --alone or --segments, found both", remedy="segments mark an answer in a context"
        )
    sets = named_sets(pairs, articles, passages, batch_size)
    from dense.teacher import open_bi_encoder
    from sparta.train import train_model

    result = train_model(sets, openers=[open_bi_encoder], **given)
    report("sparta", result, sets, given["encoder"], f"MRR {result.validation:.4f}")


@main.command()
@index_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def doctor(index: Path | None, as_json: bool) -> None:
    """Check this machine, and say how to mend what is wrong.

    Looks at Python, Java, the jars, the model, GPU, memory and the index; starts none of them.
    """
    from sparta.doctor import examine

    findings = examine(index, needed=bool(typed("index")))
    if as_json:
        click.echo(dumps([f._asdict() for f in findings]))
    else:
        for finding in findings:
            mark = {
                "ok": click.style("ok  ", fg="green"),
                "note": "note",
                "bad": click.style("BAD ", fg="red"),
            }
            advice = f"\n      → {finding.remedy}" if finding.remedy else ""
            click.echo(f"{mark[finding.state]} {finding.name}: {finding.found}{advice}")
    if any(f.state == "bad" for f in findings):
        click.get_current_context().exit(1)


main.add_command(eval_command)

if __name__ == "__main__":
    main()
