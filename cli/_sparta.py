"""`sparta`: index, search, explain."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from cli._args import (
    SpartaGroup,
    count_lines,
    encode_options,
    index_option,
    model_options,
    open_model,
    progress_bar,
    table,
    unit_options,
    write_options,
)
from sparta.base.errors import InputError


@click.group(cls=SpartaGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="sparta-search", prog_name="sparta")
def main() -> None:
    """Open-domain question answering from a Lucene index that a transformer wrote.

    \b
    sparta index --corpus wiki.jsonl
    sparta search "who founded google"
    """


# ---------------------------------------------------------------- writing


@main.command()
@click.option("--corpus", help="JSONL, DPR TSV, a folder of them, gzipped or not, or - for standard input.")
@click.option(
    "--vectors", multiple=True, type=click.Path(path_type=Path), help="Shards of sparta encode, or JSON vectors."
)
@click.option("--tokenizer", help="With JSON vectors: the model whose vocabulary they use.")
@index_option
@model_options
@unit_options
@click.option("--language", default="en", show_default=True, help="Analysis of the texts for BM25.")
@click.option("--append", "mode", flag_value="append", help="Add to an existing index.")
@click.option("--overwrite", "mode", flag_value="overwrite", help="Replace an existing index when this one is done.")
@click.option("--resume", is_flag=True, help="Go on where an interrupted command stopped.")
@click.option("--optimize", is_flag=True, help="Merge into one segment at the end.")
@write_options
def index(
    corpus: str | None, vectors: tuple[Path, ...], tokenizer: str | None, mode: str | None, **given: Any
) -> None:
    """Index a corpus (encoding it on the way), or vectors that are ready."""
    if bool(corpus) == bool(vectors):
        raise InputError(
            "expected either --corpus or --vectors, found " + ("both" if corpus else "neither"),
            remedy="sparta index --corpus wiki.jsonl",
        )
    if vectors:
        from sparta.sources import vectors_source

        source = vectors_source(vectors, tokenizer)
        _write(source, mode or "create", given)
    else:
        _index_corpus(str(corpus), mode or "create", given)


@main.command()
@click.option("--corpus", required=True, help="Passages that are new or replace those of the same id.")
@index_option
@model_options
@unit_options
@click.option("--resume", is_flag=True, help="Go on where an interrupted update stopped.")
@write_options
def update(corpus: str, **given: Any) -> None:
    """Replace passages by id, and add those that are new."""
    _index_corpus(corpus, "update", {**given, "optimize": False, "language": None})


@main.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@index_option
def delete(ids: tuple[str, ...], index: Path | None) -> None:
    """Delete passages by id."""
    from sparta.index import delete_passages
    from sparta.layout import IndexFolder, default_index

    deleted, missing = delete_passages(IndexFolder(index or default_index()), ids)
    click.echo(f"deleted {deleted} of {len(ids)}")
    if missing:
        raise InputError(f"the index holds no passage with these ids: {', '.join(missing)}")


@main.command()
@click.option("--corpus", required=True, help="As for sparta index.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder for the shards.")
@model_options
@unit_options
@click.option("--shard", default="0/1", show_default=True, help="This machine's share: i/n, i from 0.")
@click.option("--shard-size", type=click.IntRange(1), default=2048, show_default=True, help="Passages a shard.")
@click.option("--resume", is_flag=True, help="Encode only what is missing.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def encode(corpus: str, output: Path, shard: str, resume: bool, quiet: bool, **given: Any) -> None:
    """Encode a corpus into shards of sparse vectors, for sparta index --vectors."""
    from sparta.base.corpus import CorpusReader
    from sparta.encode import encode_corpus

    CorpusReader(corpus)  # a wrong path is told before a model is loaded
    model = open_model(given["model"], given["bits"], given["device"])
    chosen = encode_options(**given, part=_part(shard))
    with progress_bar(count_lines(corpus), quiet=quiet) as bar:
        report = encode_corpus(
            corpus,
            output,
            model,
            chosen,
            resume=resume,
            skip_invalid=given["skip_invalid"],
            advance=bar.update,
        )
    counts = report.corpus["counts"]
    click.echo(
        f"{output}: encoded {report.encoded:,} passages ({report.mean_terms:,.0f} terms each), kept {report.kept:,}, "
        f"left to other machines {report.elsewhere:,}; {_read_counts(counts)}"
    )


def _part(text: str) -> tuple[int, int]:
    try:
        i, n = (int(number) for number in text.split("/"))
    except ValueError:
        raise InputError(f"expected --shard i/n, found {text!r}", remedy="for the first of two: 0/2") from None
    return i, n


def _index_corpus(corpus: str, mode: str, given: dict[str, Any]) -> None:
    from sparta.base.corpus import CorpusReader

    CorpusReader(corpus)  # a wrong path is told before a model is loaded
    _check_runtime()
    from sparta.sources import corpus_source

    model = open_model(given["model"], given["bits"], given["device"])
    with progress_bar(count_lines(corpus), quiet=given["quiet"]) as bar:
        source = corpus_source(
            corpus,
            model,
            encode_options(**given),
            skip_invalid=given["skip_invalid"],
            language=given["language"] or "en",
            advance=bar.update,
        )
        _write(source, mode, given, bar)


def _check_runtime() -> None:
    """Without Java nothing can be written: say so before hours of encoding."""
    from sparta.jvm import find_runtime

    find_runtime()


def _write(source: Any, mode: str, given: dict[str, Any], bar: Any = None) -> None:
    from sparta.index import WriteOptions, write_index
    from sparta.layout import IndexFolder, default_index

    folder = IndexFolder(given["index"] or default_index())
    report = write_index(
        folder,
        source,
        WriteOptions(
            mode=mode,
            resume=given["resume"],
            language=given["language"] or "en",
            threads=given["threads"],
            optimize=given["optimize"],
            commit_seconds=given["commit_seconds"],
        ),
    )
    if bar is not None:
        bar.close()
    if report.unchanged:
        click.echo(f"{folder.path}: up to date, {report.documents:,} passages; nothing to do")
        return
    written = report.written
    passages = int(written.get("passages", 0))
    click.echo(
        f"{folder.path}: {report.documents:,} passages, {int(written.get('postings', 0)):,} postings written "
        f"({written.get('postings', 0) / max(1, passages):,.0f} a passage) in {report.seconds:.1f} s; "
        f"{_read_counts(report.source)}"
    )
    for skip in report.source.get("first_skips", []):
        click.echo(f"  skipped {skip['where']}: {skip['reason']}", err=True)


def _read_counts(counts: dict[str, Any]) -> str:
    if "read" not in counts:
        return "records not counted"
    reasons = ", ".join(f"{n} {reason}" for reason, n in counts["reasons"].items())
    skipped = f"{counts['skipped']:,} skipped" + (f" ({reasons})" if reasons else "")
    return f"read {counts['read']:,} records = {counts['used']:,} used + {skipped}"


# ---------------------------------------------------------------- searching


@main.command()
@click.argument("query", required=False)
@index_option
@click.option("-k", type=click.IntRange(1), default=10, show_default=True, help="How many passages.")
@click.option(
    "--channel",
    type=click.Choice(["sparta", "bm25"]),
    default="sparta",
    show_default=True,
    help="Learned impacts, or BM25 over the same passages.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a hit.")
@click.option("--queries", help="Many questions: TSV (id, text) or BEIR JSONL.")
@click.option("--output", type=click.Path(path_type=Path), help="With --queries: the TREC run to write.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="With --queries.")
def search(
    query: str | None,
    index: Path | None,
    k: int,
    channel: str,
    as_json: bool,
    queries: str | None,
    output: Path | None,
    threads: int,
) -> None:
    """Find passages for a question, or for many with --queries and --output."""
    if (query is None) == (queries is None):
        raise InputError("expected a question, or --queries FILE", remedy='sparta search "who founded google"')
    from sparta.search import Searcher

    if queries is not None:
        _search_many(Searcher(index, channel=channel), queries, output, k, threads)
        return
    with Searcher(index, channel=channel) as searcher:
        hits = searcher.search(str(query), k)
        if not hits and not as_json:
            click.echo(_nothing(searcher, str(query)))
        for rank, hit in enumerate(hits, 1):
            _print_hit(searcher, str(query), rank, hit, as_json=as_json)


def _nothing(searcher: Any, query: str) -> str:
    if not searcher.terms(query):
        return "no passage: the question has no word that the index's vocabulary knows"
    return "no passage has a term of this question"


def _print_hit(searcher: Any, query: str, rank: int, hit: Any, *, as_json: bool) -> None:
    from sparta.explain import snippet, term_shares

    record = hit.doc()
    shares = [s for s in term_shares(searcher, query, hit.lucene_docid) if s.impact]
    if as_json:
        terms = [{"term": s.term, "count": s.count, "impact": s.impact, "weight": round(s.weight, 4)} for s in shares]
        found = {"rank": rank, "score": hit.score, "id": hit.docid, "title": record.get("title", ""), "terms": terms}
        click.echo(json.dumps({**found, "record": record}, ensure_ascii=False))
        return
    text = snippet(searcher, record["contents"], set(searcher.terms(query)), _mark)
    score = f"{hit.score:.4g}" if searcher.channel == "bm25" else f"{hit.score:g}"
    heading = click.style(record.get("title") or hit.docid, bold=True)
    click.echo(f"{rank:>3}  {heading}  [{hit.docid}]  {score}")
    click.echo(f"     {text}")
    if searcher.channel == "sparta":
        click.echo("     " + " + ".join(f"{s.term} {s.share:g}" for s in shares))


def _mark(word: str) -> str:
    return click.style(word, bold=True, underline=True) if sys.stdout.isatty() else f"*{word}*"


def _search_many(searcher: Any, queries: str, output: Path | None, k: int, threads: int) -> None:
    if output is None:
        raise InputError("expected --output with --queries", remedy="name the run to write: --output run.trec")
    from sparta.base.queries import read_queries
    from sparta.base.records import ScoredPassage
    from sparta.base.trec import write_run

    asked = list(read_queries(queries))
    with searcher:
        found = searcher.batch_search([q.text for q in asked], [q.query_id for q in asked], k, threads)
    runs = ((qid, [ScoredPassage(h.docid, h.score) for h in hits]) for qid, hits in found.items())
    write_run(output, runs, tag=f"sparta-{searcher.channel}")
    empty = sum(not hits for hits in found.values())
    none = f", {empty:,} without any hit" if empty else ""
    click.echo(f"{output}: {sum(map(len, found.values())):,} lines for {len(found):,} questions{none}")


@main.command()
@click.argument("query")
@click.argument("passage_id", metavar="ID")
@index_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def explain(query: str, passage_id: str, index: Path | None, as_json: bool) -> None:
    """Say why a passage has its score for a question: each term's impact, their sum, the passage's rank."""
    from sparta.explain import explain as explained
    from sparta.search import Searcher

    with Searcher(index) as searcher:
        why = explained(searcher, query, passage_id)
        total = searcher.num_docs
    if as_json:
        terms = [{"term": s.term, "count": s.count, "impact": s.impact, "weight": s.weight} for s in why.terms]
        click.echo(json.dumps({"id": why.passage_id, "rank": why.rank, "score": why.score, "terms": terms}))
        return
    rows = [[s.term, f"{s.count:g}", str(s.impact), f"{s.weight:.3f}", f"{s.share:g}"] for s in why.terms]
    click.echo(table(["term", "count", "impact", "weight", "count × impact"], rows))
    rank = f"rank {why.rank:,} of {total:,}" if why.rank else "not among the passages found"
    click.echo(f"score {why.score:g}: {rank}")


@main.command()
@click.argument("passage_id", metavar="ID")
@click.option("-n", type=click.IntRange(1), default=30, show_default=True, help="How many terms.")
@index_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def terms(passage_id: str, n: int, index: Path | None, as_json: bool) -> None:
    """The strongest terms of a passage: what it would be found by."""
    from sparta.explain import top_terms
    from sparta.search import Searcher

    with Searcher(index) as searcher:
        strongest = top_terms(searcher, passage_id, None)
    if as_json:
        click.echo(json.dumps({"id": passage_id, "terms": strongest[:n], "of": len(strongest)}, ensure_ascii=False))
        return
    click.echo(table(["term", "impact", "weight"], [[t, str(i), f"{w:.3f}"] for t, i, w in strongest[:n]]))
    click.echo(f"{len(strongest):,} terms in all")


@main.command()
@index_option
@click.option(
    "--format", "form", type=click.Choice(["pyserini-json", "ciff"]), required=True, help="What the other engine reads."
)
@click.option("--output", required=True, type=click.Path(path_type=Path), help="File to write.")
def export(index: Path | None, form: str, output: Path) -> None:
    """Write the impacts for another engine: Pyserini's JSON vectors, or the Common Index File Format (PISA)."""
    from sparta.export import export_index
    from sparta.search import Searcher

    with Searcher(index) as searcher:
        documents, postings = export_index(searcher, form, output)
    click.echo(f"{output}: {documents:,} passages, {postings:,} postings")


# ---------------------------------------------------------------- models and machines


@main.command()
@click.option("--encoder", required=True, help="Pretrained encoder to begin with: folder or hub id.")
@click.option("--pairs", multiple=True, metavar="FILE[=WEIGHT]", help="Pairs; the answer is the positive (a sentence).")
@click.option("--passages", multiple=True, metavar="FILE[=WEIGHT]", help="Pairs; the answer is the whole context.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder for checkpoints and the model.")
@click.option("--steps", type=click.IntRange(1), default=1100, show_default=True)
@click.option("--batch-size", type=click.IntRange(2), default=16, show_default=True, help="Questions a batch of pairs.")
@click.option("--passage-batch-size", type=click.IntRange(2), default=10, show_default=True)
@click.option("--learning-rate", type=float, default=5e-5, show_default=True)
@click.option("--pressure", type=float, default=0.001, show_default=True, help="Weight of the vocabulary penalty.")
@click.option("--validate-every", type=click.IntRange(1), default=200, show_default=True)
@click.option("--seed", type=int, default=13, show_default=True)
@click.option("--tied", is_flag=True, help="Term embeddings are the encoder's word embeddings.")
@click.option("--full-precision", is_flag=True, help="Store float weights instead of int8 with row scales.")
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint.")
@click.option("--device", help="Device [default: the best there is].")
def train(pairs: tuple[str, ...], passages: tuple[str, ...], **given: Any) -> None:
    """Train a model on questions and the texts that answer them."""
    import logging

    if not pairs and not passages:
        raise InputError("expected --pairs or --passages, found neither", remedy="name at least one file of pairs")
    from sparta.train import open_set, train_model

    logging.getLogger("sparta").setLevel(logging.INFO)
    sets = [open_set(name, "sentence", given["batch_size"]) for name in pairs]
    sets += [open_set(name, "passage", given["passage_batch_size"]) for name in passages]
    result = train_model(sets, **{k: v for k, v in given.items() if not k.endswith("batch_size")})
    click.echo(f"{result.folder}: validation MRR {result.validation:.4f} at step {result.step}")


@main.command()
@index_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def doctor(index: Path | None, as_json: bool) -> None:
    """Check Python, Java, the jar, the model, GPU, memory and the index; say how to mend what is wrong."""
    from sparta.doctor import examine
    from sparta.layout import default_index

    findings = examine(index or default_index())
    if as_json:
        click.echo(json.dumps([f._asdict() for f in findings], indent=1))
    else:
        for finding in findings:
            mark = {"ok": click.style("ok  ", fg="green"), "note": "note", "bad": click.style("BAD ", fg="red")}
            advice = f"\n      → {finding.remedy}" if finding.remedy else ""
            click.echo(f"{mark[finding.state]} {finding.name}: {finding.found}{advice}")
    if any(f.state == "bad" for f in findings):
        click.get_current_context().exit(1)


if __name__ == "__main__":
    main()
