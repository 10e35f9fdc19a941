"""Options of the three search commands, printing of hits, and runs of many queries."""

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

from cli._arguments import (
    HIGHEST_COUNT,
    Needs,
    Text,
    argument,
    arguments,
    flag,
    group,
    one_of,
    option,
    output_type,
    typed,
    whole,
)
from cli._options import Bm25Arguments, index_option, refuse_unused_bm25
from cli._output import WHITE_SPACE, counted, dumps, is_kept, visible
from sparta.base.errors import InputError
from sparta.base.files import atomic_path
from sparta.base.records import Query

if TYPE_CHECKING:
    from sparta.search.explain import TermContribution
    from sparta.search.snippet import Snippet

_CHANNELS = ("impact", "bm25", "dense")
_QUERIES_AT_ONCE = 500  # bounds the memory of the rankings
_FACET_VALUES = 10  # printed for each field

filter_option = option(
    "Only passages whose metadata meets a condition: lang=en, lang!=en, 'lang in en,de', 'year>=1990',"
    " 'author.name exists', 'not year>=1990', 'lang=en or year>=1990', or JSON:"
    ' {"year": {"gte": 1990, "lt": 2000}}. Repeat the option for several conditions; all must hold.',
    "--filter",
    "filters",
    section="Filter",
    multiple=True,
    metavar="CONDITION",
    type=Text(),
)


@arguments
class PageArguments:
    """The part of a ranking to return: filter, collapse, offset."""

    SECTION = "Page"
    filters: tuple[str, ...] = filter_option
    collapse: str | None = option(
        "Return only the best passage for each value of this metadata field.", metavar="FIELD", type=Text()
    )
    offset: int = whole(0, "Skip this many of the best passages.", least=0, most=HIGHEST_COUNT)
    hits: str = one_of(
        ("documents", "chunks"),
        "What a hit is, in an index of chunks: a document with its best chunk, or a chunk with its place in"
        " the document.",
    )
    join: bool = flag("With --hits chunks: join hits of neighboring chunks of a document into one hit.")
    facets: tuple[str, ...] = option(
        "Count the values of this metadata field over all hits of the query. Repeat the option for several.",
        "--facet",
        "facets",
        multiple=True,
        metavar="FIELD",
        type=Text(),
    )
    RULES = (Needs("--hits chunks", ("join",), lambda page: page.hits == "chunks", "add --hits chunks"),)

    def for_retriever(self, *, ranks: bool = False) -> dict[str, Any]:
        """Return the keyword arguments of a retriever's search methods.

        :param ranks: for `run`, which returns rankings and joins no texts
        """
        from sparta.base.filters import Filter

        conditions = {"filter": Filter.parse(self.filters), "collapse": self.collapse}
        page = {"offset": self.offset, **conditions, "hits": self.hits}
        if not self.join:
            return page
        if ranks:
            raise InputError("a TREC run cannot join chunks", remedy="omit --join, or add --json")
        return {**page, "join": True}


@arguments
class RerankArguments:
    """A cross-encoder that orders the first hits anew."""

    SECTION = "Reranking"
    rerank: str | None = option(
        "Order the first hits anew with this cross-encoder: a folder, or the name of an installed model, such"
        " as reranker-minilm-en.",
        metavar="FOLDER|NAME",
    )
    rerank_depth: int = whole(20, "Number of hits that are ordered anew.", most=HIGHEST_COUNT)
    RULES = (Needs("--rerank", ("rerank_depth",), remedy="add --rerank reranker-minilm-en"),)

    def begin(self) -> None:
        """Begin to open the cross-encoder, while Java starts; without --rerank, do nothing."""
        if self.rerank is not None:
            from sparta.rerank.reranked import open_reranker
            from sparta.runtime.ahead import begin

            begin(partial(open_reranker, self.rerank))

    def candidates(self, number: int) -> int:
        """Return the number of candidates of each channel of a fusion.

        :param number: the value of --candidates; a default grows to --rerank-depth
        :raises InputError: both options are typed, and there are fewer candidates
        """
        if self.rerank is None:
            return number
        from sparta.rerank.reranked import check_candidates

        if not typed("candidates"):
            return max(number, self.rerank_depth)
        check_candidates(number, self.rerank_depth if typed("rerank_depth") else None)
        return number

    def of(self, retriever: Any) -> Any:
        """Return the retriever; with --rerank, a retriever whose first hits are ordered anew."""
        if self.rerank is None:
            return retriever
        from sparta.rerank.reranked import reranked

        return reranked(retriever, self.rerank, self.rerank_depth)

    def for_evaluation(self, language: str) -> Any:
        """Return the reranking of rankings in this language; None without --rerank."""
        if self.rerank is None:
            return None
        from sparta.rerank.reranked import Reranking

        return Reranking(self.rerank, self.rerank_depth, language)


@arguments
class SearchArguments:
    """Options of all three search commands."""

    query: str = argument("query", required=False, type=Text())
    index: Path | None = index_option
    k: int = whole(10, "Number of hits.", "-k", most=HIGHEST_COUNT)
    as_json: bool = flag("Print one JSON object per hit, each on its own line.", "--json")
    queries: str | None = option(
        "File of queries: TSV (id, text) or BEIR JSONL.", metavar="FILE", section="Many queries"
    )
    output: Path = option(
        "File for the TREC run, or with --json for the hits; - is standard output.",
        type=output_type,
        section="Many queries",
    )
    threads: int = whole(1, "Number of threads.", section="Many queries")
    page: PageArguments = group(PageArguments)


def channel_option(purpose: str = "Channel to search", name: str = "channel", section: str = "") -> Any:
    """Declare the option of one or several channels, as `open_retriever` takes them.

    :raises click.BadParameter: when the command runs, for an unknown channel
    """
    return option(
        (
            f"{purpose}: impact, bm25 or dense; or several, fused: dense,impact or bm25=1.2,impact=1"
            " [default: impact; bm25 if the index has no impacts]."
        ),
        "--channel",
        name,
        metavar="NAME[=WEIGHT],…",
        callback=_check_channel,
        section=section,
    )


def _check_channel(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Return the value of --channel; raise click.BadParameter if it names a single, unknown channel."""
    if value not in (None, "sparta", *_CHANNELS) and not re.search("[,=]", value or ""):
        names = ", ".join(map(repr, _CHANNELS))
        raise click.BadParameter(f"{visible(value or '')!r} is not one of {names}")
    return value


def check_search(command: str, search: Any, output_name: str = "run.trec") -> None:
    """Raise InputError unless there is one query, or --queries with --output.

    :param command: the command line shown in the remedy
    """
    query, queries, output = search.query, search.queries, search.output
    if (query is None) == (queries is None):
        raise InputError(
            f"name either a query or --queries FILE, found {'neither' if query is None else 'both'}",
            remedy=f'for example: {command} "who founded google"',
        )
    if queries is not None and (page := getattr(search, "page", None)) and page.facets:
        raise InputError(
            "--facet counts the hits of one query, but --queries names many",
            remedy="omit --facet, or search for one query",
        )
    if (queries is None) != (output is None):
        raise InputError(
            "--queries and --output must be used together,"
            f" found only {'--output' if queries is None else '--queries'}",
            remedy=f"for example: {command} --queries questions.jsonl --output {output_name}",
        )


def has_styles() -> bool:
    """Return whether standard output can show bold words: a terminal that is not `dumb`, NO_COLOR not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def mark(word: str) -> str:
    """Return a matched word, bold on a terminal and between asterisks elsewhere."""
    return click.style(word, bold=True, underline=True) if has_styles() else f"*{word}*"


def bold(text: str) -> str:
    """Return a title or an id, bold on a terminal."""
    return click.style(text, bold=True) if has_styles() else text


def echo_hit(rank: int, hit: Any, score: str, snippet: str) -> None:
    """Print rank, title, [id] and score, and a snippet of the text on the next line."""
    passage_id, title = visible(hit.passage_id), visible(hit.title)
    heading = f"{bold(title)}  [{passage_id}]" if title else bold(passage_id)
    if hit.document_id not in ("", hit.passage_id):
        heading += f"  characters {hit.start:,} to {hit.end:,}"
    click.echo(f"{rank:>3}  {heading}  {score}")
    click.echo(f"     {snippet}")


def shown_snippet(hit: Any, marked: Callable[[str], Snippet], *, as_json: bool) -> str:
    """Return a snippet of a hit's text with its matched words marked.

    :param marked: finds the snippet and the matched words of a text
    """
    if as_json:
        return marked(hit.text).shown("*{}*".format)
    return marked(visible(hit.text, keep=WHITE_SPACE)).shown(mark)


def print_hits(
    retriever: Any,
    search: SearchArguments,
    shown_score: Callable[[Any], str] = lambda hit: f"{hit.score:.4g}",
    contributions_of: Callable[[Sequence[Any]], Sequence[Sequence[TermContribution]]] | None = None,
    matched: Callable[[str], Snippet] | None = None,
) -> None:
    """Search for a query and print the hits with the matched words marked in their texts.

    :param shown_score: writes the score of a hit
    :param contributions_of: returns the terms' contributions to each hit's score
    :param matched: marks the matched words of a text [default: the terms of the query]
    """
    from sparta.search.explain import by_word
    from sparta.search.snippet import marked_snippet

    query, as_json = search.query, search.as_json
    terms = set(retriever.tokenizer.terms(query))
    page = search.page.for_retriever()
    hits = retriever.search(query, search.k, **page)
    if not hits and not as_json:
        has_no_known_term = retriever.channel == "impact" and not terms
        which = " after --offset" if page["offset"] else " that passes the filter" if page["filter"] else ""
        click.echo(
            "no passage found: no word of the query is in the vocabulary of the index"
            if has_no_known_term
            else f"no passage{which} matches the query"
        )
        for bound in page["filter"].text_bounds() if page["filter"] else ():
            click.echo(f"note: the filter compares {bound!r} as a string, not as a number")
    all_contributions = contributions_of(hits) if contributions_of else [()] * len(hits)
    for rank, (hit, contributions) in enumerate(
        zip(hits, all_contributions, strict=True), 1 + page["offset"]
    ):
        marked_by_terms = partial(
            marked_snippet,
            retriever.tokenizer,
            terms={s.term: float(s.contribution) for s in contributions} or terms,
        )
        snippet = shown_snippet(hit, matched or marked_by_terms, as_json=as_json)
        if as_json:
            term_fields = {"terms": [s.as_dict() for s in contributions]} if contributions else {}
            click.echo(dumps({"rank": rank, **hit.as_dict(), "snippet": snippet, **term_fields}))
            continue
        echo_hit(rank, hit, shown_score(hit), snippet)
        if contributions:
            words = by_word(contributions)
            click.echo("     " + " + ".join(f"{visible(word.word)} {word.contribution}" for word in words))
    _print_facets(retriever, search)


def _print_facets(retriever: Any, search: SearchArguments) -> None:
    """Print how many hits have each value of the fields of --facet."""
    from sparta.search.facets import count_values

    if not search.page.facets:
        return
    filter = search.page.for_retriever()["filter"]
    facets = count_values(
        retriever, str(search.query), search.page.facets, filter=filter, hits=search.page.hits
    )
    if search.as_json:
        click.echo(dumps({"facets": facets}))
        return
    for field, values in facets.items():
        shown = [
            f"{visible(value)} {count:,}" for value, count in itertools.islice(values.items(), _FACET_VALUES)
        ]
        more = f", and {len(values) - _FACET_VALUES:,} more values" if len(values) > _FACET_VALUES else ""
        click.echo(f"{visible(field)}: {', '.join(shown)}{more}")


def begin_models(index: Path | None, channel: str | None, rerank: RerankArguments) -> None:
    """Begin to open the models that a search of these channels needs, while Java starts."""
    from sparta.index.folder import IndexFolder, default_index
    from sparta.runtime.ahead import begin

    if channel is None or re.search("impact|sparta", channel):
        begin(IndexFolder(index or default_index()).open_query_network)
    rerank.begin()


def search_plainly(retriever: Any, search: SearchArguments) -> None:
    """Search for one query or many and print the hits, each with its score alone."""
    if search.queries is not None:
        run_queries(retriever, search)
    else:
        print_hits(retriever, search)


def search_fused(
    index: Path,
    fusion: Any,
    search: SearchArguments,
    bm25: Bm25Arguments,
    rerank: RerankArguments,
    opened: Any = None,
) -> None:
    """Search several channels, fused, for one query or many, and print each hit's rank in each channel.

    :param rerank: a cross-encoder that orders the first hits anew; a hit then shows only its score
    :param opened: an open searcher of an index elsewhere [default: the index folder is opened]
    """
    from hybrid.retrieval.searcher import HybridSearcher

    def shown_score(hit: Any) -> str:
        ranks = [
            f"{name} #{place.rank}" if place.rank else f"not in {name}"
            for name, place in hit.channels.items()
        ]
        return f"{hit.score:.4g}  ({', '.join(ranks)})"

    with opened or HybridSearcher(index, fusion, bm25=bm25.parameters) as searcher:
        refuse_unused_bm25(searcher.channel)
        if rerank.rerank is not None:
            search_plainly(rerank.of(searcher), search)
        elif search.queries is not None:
            run_queries(searcher, search)
        else:
            print_hits(searcher, search, shown_score)


def _write_hits(
    find: Callable[..., Any], search: SearchArguments, queries: Sequence[Query], output: Path
) -> None:
    """Write a JSON object per hit: the query's id, the rank, and the hit with its text.

    :param find: returns the hits of queries, by query id
    """
    lines = 0
    with atomic_path(output) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for block in itertools.batched(queries, _QUERIES_AT_ONCE):
            texts, query_ids = [q.text for q in block], [q.query_id for q in block]
            for query_id, hits in find(texts, query_ids, search.k, search.threads).items():
                for rank, hit in enumerate(hits, 1 + search.page.offset):
                    line = {"query_id": query_id, "rank": rank, **hit.as_dict()}
                    stream.write(dumps(line, unicode=True) + "\n")
                    lines += 1
    click.echo(f"{output}: {counted(lines, 'hit')} for {counted(len(queries), 'query')}", err=True)


def run_queries(retriever: Any, search: SearchArguments, find: Callable[..., Any] | None = None) -> None:
    """Search for a file of queries and write a TREC run, or with --json the hits.

    :param find: finds what --json writes [default: the hits of the retriever]
    """
    from sparta.data.queries import read_queries
    from sparta.data.trec import write_run

    queries = list(read_queries(str(search.queries)))
    output = search.output
    if search.as_json:
        find = find or partial(retriever.batch_search, **search.page.for_retriever())
        _write_hits(find, search, queries, output)
        return
    counts, page = {"lines": 0, "empty": 0}, search.page.for_retriever(ranks=True)

    def rankings() -> Iterator[tuple[str, Any]]:
        for block in itertools.batched(queries, _QUERIES_AT_ONCE):
            texts, query_ids = [q.text for q in block], [q.query_id for q in block]
            run = retriever.run(texts, query_ids, search.k, search.threads, **page)
            for query_id, ranking in run.items():
                counts["lines"] += len(ranking)
                counts["empty"] += not ranking
                yield query_id, ranking

    write_run(output, rankings(), tag="-".join(f"sparta-{retriever.channel}".split()))
    without_hits = f", {counts['empty']:,} without hits" if counts["empty"] else ""
    report = f"{output}: {counted(counts['lines'], 'line')} for {counted(len(queries), 'query')}"
    click.echo(report + without_hits, err=not is_kept(output))
