"""`sparta search`: passages for a query, or for many."""

from __future__ import annotations

import re
from typing import Any

import click

from cli._options import bm25_of, bm25_options, dumps, visible
from cli._search import check_search, echo_hit, run_queries, search_fused, search_options, shown_snippet

_CHANNELS = ("impact", "bm25", "dense")


def _known(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value not in (None, "sparta", *_CHANNELS) and not re.search("[,=]", value or ""):
        names = ", ".join(map(repr, _CHANNELS))
        raise click.BadParameter(f"{visible(value or '')!r} is not one of {names}")
    return value


@click.command()
@search_options
@click.option(
    "--channel",
    metavar="NAME[=WEIGHT],…",
    callback=_known,
    help="impact, bm25 or dense, or several that are fused, as in dense,impact or bm25=1.2,impact=1"
    " [default: impact, or bm25 in an index for BM25 alone].",
)
@bm25_options
def search(channel: str | None, **given: Any) -> None:
    """Find passages for a query, or for many.

    A hit shows rank, title, [id], score, the words that matched, and each term's share of the score; of
    several channels, its rank in each. --queries takes many queries; their rankings go to --output as a TREC
    run.
    """
    check_search("sparta search", given)
    if channel and ("," in channel or "=" in channel):
        _search_several(channel, given)
        return
    from sparta.api import Index

    with Index(given["index"], bm25=bm25_of(given)) as index:
        retriever = index.retriever(channel)
        if given["queries"] is not None:
            run_queries(retriever, given)
            return
        query, as_json = given["query"], given["as_json"]
        hits = retriever.search(query, given["k"])
        tokenizer = index.searcher.tokenizer
        terms = set(tokenizer.terms(query))
        if not hits and not as_json:
            click.echo(
                "no passage has a term of this query"
                if terms
                else "no passage: the vocabulary of the index has no word of this query"
            )
        for rank, hit in enumerate(hits, 1):
            shares = []
            if retriever.channel == "impact":
                shares = [s for s in index.explain(query, hit.passage_id).terms if s.impact]
            snippet = shown_snippet(
                tokenizer, hit, {s.term: float(s.share) for s in shares} or terms, as_json=as_json
            )
            if as_json:
                more = {"terms": [s.as_dict() for s in shares]} if shares else {}
                click.echo(dumps({"rank": rank, **hit.as_dict(), "snippet": snippet, **more}))
            else:
                echo_hit(rank, hit, f"{hit.score:.6g}", snippet)
                if shares:
                    click.echo("     " + " + ".join(f"{visible(s.term)} {s.share}" for s in shares))


def _search_several(channels: str, given: dict[str, Any]) -> None:
    from hybrid.retrieval.channels import CHANNELS
    from hybrid.retrieval.fusion import Fusion, parse_weights
    from sparta.index.folder import default_index

    fusion = Fusion(parse_weights(channels, CHANNELS, "--channel"), candidates=max(100, given["k"]))
    search_fused(given["index"] or default_index(), fusion, given)
