"""`sparta explain` and `sparta terms`: why a passage has its score, and what it is found by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli._chains import chain_options, explain_chain, optional_chain
from cli._options import Text, counted, dumps, index_option, number, table
from cli._page import filter_of, filter_option
from sparta.base.errors import InputError


@click.command()
@click.argument("query", type=Text())
@click.argument("passage_id", metavar="ID", type=Text())
@index_option
@filter_option
@chain_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def explain(
    query: str, passage_id: str, index: Path | None, filters: tuple[str, ...], as_json: bool, **given: Any
) -> None:
    """Explain a passage's score for a query.

    Each term's impact and the weight it stands for, their sum, the passage's rank (with --filter, among the
    passages that it keeps). With --chain, the best path that holds it, with what each step scored.
    """
    if given["chain"] and filters:
        raise InputError("expected --chain without --filter, found both", remedy="leave one of them out")
    if chain := optional_chain({**given, "index": index}):
        explain_chain(chain, query, passage_id, as_json=as_json)
        return
    from sparta.api import Index

    with Index(index) as opened:
        why = opened.explain(query, passage_id, filter=filter_of({"filters": filters}))
        total = len(opened)
    if as_json:
        click.echo(dumps(why.as_dict()))
        return
    rows = [[s.term, str(s.count), str(s.impact), f"{s.weight:.3f}", str(s.share)] for s in why.terms]
    click.echo(table(["term", "in the query", "impact", "weight", "adds to the score"], rows))
    rank = f"rank {why.rank:,} of {total:,}" if why.rank else "not among the hits"
    click.echo(f"score {why.score}: {rank}")


@click.command()
@click.argument("passage_id", metavar="ID", type=Text())
@number("-n", default=30, text="How many terms.")
@index_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def terms(passage_id: str, n: int, index: Path | None, as_json: bool) -> None:
    """List the strongest terms of a passage: what it is found by."""
    from sparta.api import Index

    with Index(index) as opened:
        strongest = opened.terms(passage_id)
    if as_json:
        named = [{"term": t, "impact": i, "weight": w} for t, i, w in strongest[:n]]
        click.echo(dumps({"id": passage_id, "terms": named, "of": len(strongest)}))
        return
    click.echo(table(["term", "impact", "weight"], [[t, str(i), f"{w:.3f}"] for t, i, w in strongest[:n]]))
    click.echo(f"{counted(len(strongest), 'term')} in all")
