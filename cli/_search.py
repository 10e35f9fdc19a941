"""What the commands named search share: options, how a hit looks, runs of many queries."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._arguments import HIGHEST_COUNT, Text, argument, arguments, flag, group, option, output_type, whole
from cli._options import Bm25Arguments, index_option, refuse_unused_bm25
from cli._output import counted, dumps, is_kept, visible
from sparta.base.errors import InputError
from sparta.base.files import atomic_path
from sparta.base.records import Query

if TYPE_CHECKING:
    from sparta.search.explain import Snippet, TermShare

_CHANNELS = ("impact", "bm25", "dense")
_QUERIES_AT_ONCE = 500  # bounds the memory that results take

filter_option = option(
    "Only passages whose metadata is so: lang=en, 'lang in en,de', 'year>=1990', or JSON as"
    ' {"year": {"gte": 1990, "lt": 2000}}. Several must all hold.',
    "--filter",
    "filters",
    multiple=True,
    metavar="CONDITION",
    type=Text(),
)


@arguments
class PageArguments:
    """The part of a ranking to show: filter, collapse, offset."""

    filters: tuple[str, ...] = filter_option
    collapse: str | None = option(
        "Only the best passage of each value of this field.", metavar="FIELD", type=Text()
    )
    offset: int = whole(0, "Leave out so many of the best passages.", least=0, most=HIGHEST_COUNT)

    def for_retriever(self) -> dict[str, Any]:
        """The keywords of a retriever's methods."""
        from sparta.base.filters import Filter

        return {"offset": self.offset, "filter": Filter.parse(self.filters), "collapse": self.collapse}


@arguments
class SearchArguments:
    """What all commands named search share."""

    query: str = argument("query", required=False, type=Text())
    index: Path | None = index_option
    k: int = whole(10, "How many passages.", "-k", most=HIGHEST_COUNT)
    as_json: bool = flag("One JSON object a line for each hit; also with --queries.", "--json")
    queries: str | None = option("Many queries: TSV (id, text) or BEIR JSONL.", metavar="FILE")
    output: Path = option(
        "With --queries: file for the TREC run, or with --json for the hits; - is standard output.",
        type=output_type,
    )
    threads: int = whole(1, "With --queries: threads.")
    page: PageArguments = group(PageArguments)


def channel_option(what: str = "What is searched", name: str = "channel", default: str = "") -> Any:
    """Option of a channel or several, as `open_retriever` takes them; another name is refused at once.

    :param default: where it is not `impact`
    """
    return option(
        (
            f"{what}: impact, bm25 or dense, or several that are fused, as in dense,impact or"
            f" bm25=1.2,impact=1 [default: {default or 'impact, or bm25 in an index for BM25 alone'}]."
        ),
        "--channel",
        name,
        metavar="NAME[=WEIGHT],…",
        callback=_known,
    )


def _known(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value not in (None, "sparta", *_CHANNELS) and not re.search("[,=]", value or ""):
        names = ", ".join(map(repr, _CHANNELS))
        raise click.BadParameter(f"{visible(value or '')!r} is not one of {names}")
    return value


def check_search(command: str, search: Any, output_name: str = "run.trec") -> None:
    """Refuse options that do not go together."""
    query, queries, output = search.query, search.queries, search.output
    if (query is None) == (queries is None):
        raise InputError(
            f"expected a query or --queries FILE, found {'neither' if query is None else 'both'}",
            remedy=f'{command} "who founded google"',
        )
    if (queries is None) != (output is None):
        raise InputError(
            "expected --queries and --output together,"
            f" found {'--output' if queries is None else '--queries'} alone",
            remedy=f"{command} --queries questions.jsonl --output {output_name}",
        )


def has_styles() -> bool:
    """Whether words can be shown bold: on a terminal that is not `dumb`, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def mark(word: str) -> str:
    """A word that matched, as a terminal or a file can show it."""
    return click.style(word, bold=True, underline=True) if has_styles() else f"*{word}*"


def bold(text: str) -> str:
    """A title or an id as a heading."""
    return click.style(text, bold=True) if has_styles() else text


def echo_hit(rank: int, hit: Any, score: str, snippet: str) -> None:
    """Print rank, title, [id] and score, and below them a part of the text."""
    passage_id, title = visible(hit.passage_id), visible(hit.title)
    heading = f"{bold(title)}  [{passage_id}]" if title else bold(passage_id)
    click.echo(f"{rank:>3}  {heading}  {score}")
    click.echo(f"     {snippet}")


def shown_snippet(hit: Any, marked: Callable[[str], Snippet], *, as_json: bool) -> str:
    """A part of a hit's text with the words marked that `marked` finds in it."""
    if as_json:
        return marked(hit.text).shown("*{}*".format)
    return marked(visible(hit.text, keep="\n\t")).shown(mark)


def print_hits(
    retriever: Any,
    search: SearchArguments,
    places: Callable[[Any], str] = lambda hit: f"{hit.score:.4g}",
    shares_of: Callable[[Sequence[Any]], Sequence[Sequence[TermShare]]] | None = None,
    matched: Callable[[str], Snippet] | None = None,
) -> None:
    """Search for a query and print its hits, with the words of the query marked in their texts.

    `places` says how a hit's score is shown. `shares_of` returns, for each of the hits, the terms that its
    score is the sum of. `matched` marks a text otherwise than by the terms of the query.
    """
    from sparta.search.explain import marked_snippet

    query, as_json = search.query, search.as_json
    terms = set(retriever.tokenizer.terms(query))
    page = search.page.for_retriever()
    hits = retriever.search(query, search.k, **page)
    if not hits and not as_json:
        unknown = retriever.channel == "impact" and not terms
        which = " of this page" if page["offset"] else " that the filter keeps" if page["filter"] else ""
        click.echo(
            "no passage: the vocabulary of the index has no word of this query"
            if unknown
            else f"no passage{which} has a word or a term of this query"
        )
        for bound in page["filter"].text_bounds() if page["filter"] else ():
            click.echo(f"{bound!r} is compared as a text, not as a number")
    all_shares = shares_of(hits) if shares_of else [()] * len(hits)
    for rank, (hit, shares) in enumerate(zip(hits, all_shares, strict=True), 1 + page["offset"]):
        by_terms = partial(
            marked_snippet, retriever.tokenizer, terms={s.term: float(s.share) for s in shares} or terms
        )
        snippet = shown_snippet(hit, matched or by_terms, as_json=as_json)
        if as_json:
            more = {"terms": [s.as_dict() for s in shares]} if shares else {}
            click.echo(dumps({"rank": rank, **hit.as_dict(), "snippet": snippet, **more}))
            continue
        echo_hit(rank, hit, places(hit), snippet)
        if shares:
            click.echo("     " + " + ".join(f"{visible(s.term)} {s.share}" for s in shares))


def search_fused(
    index: Path, fusion: Any, search: SearchArguments, bm25: Bm25Arguments, opened: Any = None
) -> None:
    """Search several channels as one, for a query or for many; a hit shows its rank in each of them.

    :param opened: a searcher of another place than the index folder
    """
    from hybrid.retrieval.searcher import HybridSearcher

    def places(hit: Any) -> str:
        ranks = ", ".join(f"{name} {place.rank or chr(8211)}" for name, place in hit.channels.items())
        return f"{hit.score:.4g} ({ranks})"

    with opened or HybridSearcher(index, fusion, bm25=bm25.parameters) as searcher:
        refuse_unused_bm25(searcher.channel)
        if search.queries is not None:
            run_queries(searcher, search)
        else:
            print_hits(searcher, search, places)


def _write_hits(retriever: Any, search: SearchArguments, queries: Sequence[Query], output: Path) -> None:
    """Write a JSON object for each hit: the query's id, the rank, and the hit with its texts."""
    lines, page = 0, search.page.for_retriever()
    with atomic_path(output) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for block in itertools.batched(queries, _QUERIES_AT_ONCE):
            texts, query_ids = [q.text for q in block], [q.query_id for q in block]
            for query_id, hits in retriever.batch_search(
                texts, query_ids, search.k, threads=search.threads, **page
            ).items():
                for rank, hit in enumerate(hits, 1 + page["offset"]):
                    line = {"query_id": query_id, "rank": rank, **hit.as_dict()}
                    stream.write(dumps(line, unicode=True) + "\n")
                    lines += 1
    click.echo(f"{output}: {counted(lines, 'hit')} for {counted(len(queries), 'query')}", err=True)


def run_queries(retriever: Any, search: SearchArguments) -> None:
    """Answer a file of queries with a TREC run."""
    from sparta.data.queries import read_queries
    from sparta.data.trec import write_run

    queries = list(read_queries(str(search.queries)))
    output = search.output
    if search.as_json:
        _write_hits(retriever, search, queries, output)
        return
    counts, page = {"lines": 0, "empty": 0}, search.page.for_retriever()

    def rankings() -> Iterator[tuple[str, Any]]:
        for block in itertools.batched(queries, _QUERIES_AT_ONCE):
            texts, query_ids = [q.text for q in block], [q.query_id for q in block]
            found = retriever.run(texts, query_ids, search.k, search.threads, **page)
            for query_id, ranking in found.items():
                counts["lines"] += len(ranking)
                counts["empty"] += not ranking
                yield query_id, ranking

    write_run(output, rankings(), tag="-".join(f"sparta-{retriever.channel}".split()))
    none = f", {counts['empty']:,} without any hit" if counts["empty"] else ""
    said = f"{output}: {counted(counts['lines'], 'line')} for {counted(len(queries), 'query')}{none}"
    click.echo(said, err=not is_kept(output))
