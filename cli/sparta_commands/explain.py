"""`sparta explain` and `sparta terms`: the score of a passage, and the terms of a passage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli._arguments import Excludes, Text, argument, arguments, command, group, option, takes, whole
from cli._chains import ChainArguments, explain_chain
from cli._options import index_option, json_option
from cli._output import counted, dumps, table
from cli._search import filter_option


@arguments
class _Explanation:
    query: str = argument("query", type=Text())
    passage_id: str = argument("passage_id", metavar="ID", type=Text())
    index: Path | None = index_option
    channel: str | None = option(
        "Channel whose score is explained [default: impact; bm25 if the index has no impacts].",
        type=click.Choice(["impact", "bm25"]),
    )
    filters: tuple[str, ...] = filter_option
    chain: ChainArguments = group(ChainArguments)
    as_json: bool = json_option
    RULES = (Excludes(("chain",), ("filters", "channel")),)


@command()
@takes(_Explanation)
def explain(explanation: _Explanation) -> None:
    """Show why a passage has its score for a query.

    Prints what each word of the query adds to the score, and the passage's rank. A word of several terms has
    a line for each term, with count, impact and weight. With --channel bm25, prints what each word adds to
    the BM25 score. With --filter the rank counts only passages that pass the filter. With --chain, prints the
    best path that contains the passage, with the score of each step.

    \b
    sparta explain "who founded google" google
    sparta explain "who founded google" google --channel bm25
    """  # noqa: D301 (click looks for the backspace)
    query, passage_id = explanation.query, explanation.passage_id
    if chain := explanation.chain.open(explanation.index):
        explain_chain(chain, query, passage_id, as_json=explanation.as_json)
        return
    from sparta.api import Index
    from sparta.base.filters import Filter

    with Index(explanation.index) as opened:
        filter = Filter.parse(explanation.filters)
        channel = explanation.channel or opened.channels[0]
        why = opened.explain(query, passage_id, channel=channel, filter=filter)
        counts_passages = opened.searcher.unit == "passage" and filter is None
        total = f" of {len(opened):,}" if counts_passages else ""
    if explanation.as_json:
        click.echo(dumps(why.as_dict()))
        return
    click.echo(table(*_columns(why)))
    rank = (
        f"rank {why.rank:,}{total}"
        if why.rank
        else "not a hit: no query term finds it, or the filter excludes it"
    )
    click.echo(f"score {why.score:.4f}: {rank}" if channel == "bm25" else f"score {why.score}: {rank}")


def _columns(why: Any) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table of an explanation."""
    from sparta.search.explain_bm25 import Bm25Explanation

    if isinstance(why, Bm25Explanation):
        rows = [[word.term, str(word.count), f"{word.contribution:.4f}"] for word in why.terms]
        return ["word", "count in query", "adds to score"], rows
    rows = []
    for word in why.words:
        is_split = len(word.terms) > 1
        if is_split:
            rows.append([word.word, "", "", "", str(word.contribution)])
        for term in word.terms:
            name = f"  {term.term}" if is_split else word.word
            numbers = [str(term.count), str(term.impact), f"{term.weight:.3f}"]
            rows.append([name, *numbers, "" if is_split else str(term.contribution)])
    return ["word", "count in query", "impact", "weight", "adds to score"], rows


@command()
@click.argument("passage_id", metavar="ID", type=Text())
@whole(30, "Number of terms.", "-n")
@index_option
@json_option
def terms(passage_id: str, n: int, index: Path | None, as_json: bool) -> None:
    """List the terms with the highest impacts of a passage.

    A query finds the passage by these terms.
    """
    from sparta.api import Index

    with Index(index) as opened:
        strongest = opened.terms(passage_id)
    if as_json:
        term_objects = [term._asdict() for term in strongest[:n]]
        click.echo(dumps({"id": passage_id, "terms": term_objects, "of": len(strongest)}))
        return
    click.echo(
        table(
            ["term", "impact", "weight"],
            [[term, str(impact), f"{weight:.3f}"] for term, impact, weight in strongest[:n]],
        )
    )
    click.echo(f"{counted(len(strongest), 'term')} in all")
