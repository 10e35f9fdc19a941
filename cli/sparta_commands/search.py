"""`sparta search`: passages for a query, or for many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli._arguments import arguments, group, takes, typed, whole
from cli._chains import ChainArguments, search_chain
from cli._options import Bm25Arguments, refuse_unused_bm25
from cli._search import SearchArguments, channel_option, check_search, print_hits, run_queries, search_fused
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparta.base.records import Hit
    from sparta.search.explain import TermShare


@arguments
class _Search:
    search: SearchArguments = group(SearchArguments)
    channel: str | None = channel_option()
    candidates: int = whole(100, "Of several channels: passages from each.")
    bm25: Bm25Arguments = group(Bm25Arguments)
    chain: ChainArguments = group(ChainArguments)


@click.command()
@takes(_Search)
def search(chosen: _Search) -> None:
    """Find passages for a query, or for many.

    A hit shows rank, title, [id], score, the words that matched, and each term's share of the score; of
    several channels, its rank in each. --queries takes many queries; their rankings go to --output as a TREC
    run.

    With --chain, a result is a path of passages: each with its score, what each step gave it and, in quotes,
    the name that led to it; --channel is then what retrieves first.
    """
    search, channel, bm25 = chosen.search, chosen.channel, chosen.bm25
    check_search("sparta search", search)
    if chain := chosen.chain.open(search.index, channel):
        search_chain(chain, search)
        return
    if channel and ("," in channel or "=" in channel):
        from hybrid.retrieval.channels import CHANNELS
        from hybrid.retrieval.fusion import Fusion, parse_weights
        from sparta.index.folder import default_index

        fusion = Fusion(parse_weights(channel, CHANNELS, "channel"), candidates=chosen.candidates)
        search_fused(search.index or default_index(), fusion, search, bm25)
        return
    from sparta.api import Index
    from sparta.search.explain import term_shares, word_snippets

    with Index(search.index, bm25=bm25.parameters) as index:
        retriever = index.retriever(channel)
        refuse_unused_bm25(retriever.channel)
        if unused := typed("candidates"):
            raise InputError(
                f"expected {unused[0]} with several channels, found it with {retriever.channel} alone",
                remedy="leave it out, or name several: --channel bm25=1,impact=1",
            )
        if search.queries is not None:
            run_queries(retriever, search)
            return

        def shares_of(hits: Sequence[Hit]) -> list[list[TermShare]]:
            shares = term_shares(index.searcher, search.query, [hit.passage_id for hit in hits])
            return [[share for share in terms if share.impact] for terms in shares]

        explained = shares_of if retriever.channel == "impact" else None
        matched = word_snippets(index.searcher, search.query) if retriever.channel == "bm25" else None
        print_hits(retriever, search, lambda hit: f"{hit.score:.6g}", explained, matched)
