"""`sparta search`, `explain`, `terms`, `export`: what an index answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli._args import Text, counted, dumps, file_type, index_option, table
from cli._search import check_search, search_many, search_options, show_hit
from sparta.base.errors import InputError


@click.command()
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
    from sparta.search.searcher import Searcher

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


def _points(score: float) -> str:
    """Of a score in units of impact, the first decimal: question weights have seven, whole impacts none."""
    return f"{round(score, 1):.10g}"


def _print_hit(searcher: Any, query: str, rank: int, hit: Any, *, as_json: bool) -> None:
    from sparta.search.explain import term_shares

    shares = [s for s in term_shares(searcher, query, hit.lucene_docid) if s.impact]
    by_impact = searcher.channel == "sparta"
    matched = {s.term for s in shares} if by_impact else set(searcher.terms(query))
    terms = [
        {"term": s.term, "count": s.count, "impact": s.impact, "weight": round(s.weight, 4)} for s in shares
    ]
    more = {"terms": terms} if by_impact else {}
    score = _points(hit.score) if by_impact else f"{hit.score:.4g}"
    show_hit(searcher, rank, hit, matched, score, more if as_json else None)
    if by_impact and not as_json:
        click.echo("     " + " + ".join(f"{s.term} {_points(s.share)}" for s in shares))


@click.command()
@click.argument("query", type=Text())
@click.argument("passage_id", metavar="ID", type=Text())
@index_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def explain(query: str, passage_id: str, index: Path | None, as_json: bool) -> None:
    """Say why a passage has its score for a question.

    Each term's impact and the weight it stands for, their sum, the passage's rank.
    """
    from sparta.search.explain import explain as explained
    from sparta.search.searcher import Searcher

    with Searcher(index) as searcher:
        why = explained(searcher, query, passage_id)
        total = searcher.num_docs
    if as_json:
        terms = [
            {"term": s.term, "count": s.count, "impact": s.impact, "weight": s.weight} for s in why.terms
        ]
        click.echo(dumps({"id": why.passage_id, "rank": why.rank, "score": why.score, "terms": terms}))
        return
    rows = [[s.term, f"{s.count:.4g}", str(s.impact), f"{s.weight:.3f}", _points(s.share)] for s in why.terms]
    click.echo(table(["term", "in the question", "impact", "weight", "adds to the score"], rows))
    rank = f"rank {why.rank:,} of {total:,}" if why.rank else "not among the passages found"
    click.echo(f"score {_points(why.score)}: {rank}")


@click.command()
@click.argument("passage_id", metavar="ID", type=Text())
@click.option("-n", type=click.IntRange(1), default=30, show_default=True, help="How many terms.")
@index_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def terms(passage_id: str, n: int, index: Path | None, as_json: bool) -> None:
    """List the strongest terms of a passage: what it would be found by."""
    from sparta.search.explain import top_terms
    from sparta.search.searcher import Searcher

    with Searcher(index) as searcher:
        strongest = top_terms(searcher, passage_id, None)
    if as_json:
        click.echo(dumps({"id": passage_id, "terms": strongest[:n], "of": len(strongest)}))
        return
    click.echo(table(["term", "impact", "weight"], [[t, str(i), f"{w:.3f}"] for t, i, w in strongest[:n]]))
    click.echo(f"{counted(len(strongest), 'term')} in all")


@click.command()
@index_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["pyserini-json", "ciff"]),
    required=True,
    help="What the other engine reads.",
)
@click.option("--output", required=True, type=file_type, help="File to write.")
@click.option(
    "--query-weights",
    type=file_type,
    help="Also write what each term counts in a question, as JSON; the default model has such weights.",
)
def export(index: Path | None, form: str, output: Path, query_weights: Path | None) -> None:
    """Write the impacts for another engine.

    As Pyserini's JSON vectors, or in the Common Index File Format, which PISA and others read. Neither says
    what the terms of a question count: --query-weights does.
    """
    if query_weights is not None and query_weights.absolute() == output.absolute():
        raise InputError(
            f"expected two files, found {output} for the impacts and for the weights of questions",
            remedy="give --query-weights a name of its own",
        )
    from sparta.export.exporters import export_index, export_query_weights
    from sparta.search.searcher import Searcher

    with Searcher(index) as searcher:
        if query_weights is not None:
            weighed = export_query_weights(searcher, query_weights)
            click.echo(f"{query_weights}: {counted(weighed, 'term')}")
        elif searcher.tokenizer.weights is not None:
            click.echo(
                "the terms of questions have weights of their own here: where each counts 1, the ranking is"
                " another (--query-weights FILE writes them)",
                err=True,
            )
        documents, postings = export_index(searcher, form, output)
    click.echo(f"{output}: {counted(documents, 'passage')}, {counted(postings, 'posting')}")
