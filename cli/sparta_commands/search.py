"""`sparta search`: the best passages for one query or many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli._arguments import arguments, command, group, takes, typed, whole
from cli._chains import ChainArguments, search_chain
from cli._options import Bm25Arguments, refuse_unused_bm25
from cli._search import (
    RerankArguments,
    SearchArguments,
    begin_models,
    channel_option,
    check_search,
    print_hits,
    run_queries,
    search_fused,
    search_plainly,
)
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparta.base.records import Hit
    from sparta.search.explain import TermContribution


@arguments
class _Search:
    search: SearchArguments = group(SearchArguments)
    channel: str | None = channel_option(section="Channels")
    candidates: int = whole(
        100,
        "Number of passages fused from each of several channels; a larger --rerank-depth raises the default.",
        section="Channels",
    )
    bm25: Bm25Arguments = group(Bm25Arguments)
    rerank: RerankArguments = group(RerankArguments)
    chain: ChainArguments = group(ChainArguments)


@command()
@takes(_Search)
def search(chosen: _Search) -> None:
    """Find the best passages for a query.

    Each hit shows rank, title, [id], score, a snippet with the matched words marked, and how much each term
    adds to the score. With several channels, a hit shows its rank in each channel instead. --queries searches
    for many queries and writes a TREC run.

    With --chain, each result is a path of passages. Each passage shows its score, the score of each step, and
    the name that linked to it; --channel then selects what the first step searches.

    \b
    sparta search "who founded google"
    sparta search "who founded google" --channel dense,impact
    sparta search "who founded google" --rerank reranker-minilm-en
    sparta search --queries questions.jsonl --output run.trec -k 100
    """  # noqa: D301 (click looks for the backspace)
    search, channel, bm25 = chosen.search, chosen.channel, chosen.bm25
    check_search("sparta search", search)
    if chosen.rerank.rerank is not None and chosen.chain.chain is not None:
        raise InputError(
            "--rerank orders passages, but --chain finds paths of passages", remedy="omit one of the two"
        )
    if chain := chosen.chain.open(search.index, channel):
        search_chain(chain, search)
        return
    begin_models(search.index, channel, chosen.rerank)
    from sparta.search.searcher import is_fusion

    if channel and is_fusion(channel):
        from hybrid.retrieval.channels import CHANNELS
        from hybrid.retrieval.fusion import Fusion
        from sparta.index.folder import default_index

        fusion = Fusion.parse(channel, CHANNELS, chosen.rerank.candidates(chosen.candidates))
        search_fused(search.index or default_index(), fusion, search, bm25, chosen.rerank)
        return
    from sparta.api import Index
    from sparta.search.explain import term_contributions
    from sparta.search.snippet import word_snippets

    with Index(search.index, bm25=bm25.parameters) as index:
        retriever = index.retriever(channel)
        refuse_unused_bm25(retriever.channel)
        if unused := typed("candidates"):
            raise InputError(
                f"{unused[0]} has no effect on the single channel {retriever.channel}",
                remedy=f"omit {unused[0]}, or search several channels: --channel bm25=1,impact=1",
            )
        if chosen.rerank.rerank is not None:
            search_plainly(chosen.rerank.of(retriever), search)
            return
        if search.queries is not None:
            run_queries(retriever, search)
            return

        def contributions_of(hits: Sequence[Hit]) -> list[tuple[TermContribution, ...]]:
            places = [(hit.passage_id, hit.start) for hit in hits]
            return term_contributions(index.searcher, search.query, places)

        contributions_function = contributions_of if retriever.channel == "impact" else None
        snippet_of_words = (
            word_snippets(index.searcher, search.query) if retriever.channel == "bm25" else None
        )
        print_hits(
            retriever, search, lambda hit: f"{hit.score:.6g}", contributions_function, snippet_of_words
        )
