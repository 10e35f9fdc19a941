"""`sparta search`: passages for a query, or for many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli._chains import chain_options, optional_chain, search_chain
from cli._options import bm25_of, bm25_options, number, refuse_unused_bm25, typed
from cli._search import channel_option, check_search, print_hits, run_queries, search_fused, search_options
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparta.base.records import Hit
    from sparta.search.explain import TermShare


@click.command()
@search_options
@channel_option()
@number("--candidates", default=100, text="Of several channels: passages from each.")
@bm25_options
@chain_options
def search(channel: str | None, **given: Any) -> None:
    """Find passages for a query, or for many.

    A hit shows rank, title, [id], score, the words that matched, and each term's share of the score; of
    several channels, its rank in each. --queries takes many queries; their rankings go to --output as a TREC
    run.

    With --chain, a result is a path of passages: each with its score, what each step gave it and, in quotes,
    the name that led to it; --channel is then what retrieves first.
    """
    check_search("sparta search", given)
    if chain := optional_chain(given, channel):
        search_chain(chain, given)
        return
    if channel and ("," in channel or "=" in channel):
        _search_several(channel, given)
        return
    from sparta.api import Index
    from sparta.search.explain import term_shares, word_snippets

    with Index(given["index"], bm25=bm25_of(given)) as index:
        retriever = index.retriever(channel)
        refuse_unused_bm25(retriever.channel)
        if unused := typed("candidates"):
            raise InputError(
                f"expected {unused[0]} with several channels, found it with {retriever.channel} alone",
                remedy="leave it out, or name several: --channel bm25=1,impact=1",
            )
        if given["queries"] is not None:
            run_queries(retriever, given)
            return

        def shares_of(hits: Sequence[Hit]) -> list[list[TermShare]]:
            shares = term_shares(index.searcher, given["query"], [hit.passage_id for hit in hits])
            return [[share for share in terms if share.impact] for terms in shares]

        explained = shares_of if retriever.channel == "impact" else None
        matched = word_snippets(index.searcher, given["query"]) if retriever.channel == "bm25" else None
        print_hits(retriever, given, lambda hit: f"{hit.score:.6g}", explained, matched)


def _search_several(channels: str, given: dict[str, Any]) -> None:
    from hybrid.retrieval.channels import CHANNELS
    from hybrid.retrieval.fusion import Fusion, parse_weights
    from sparta.index.folder import default_index

    fusion = Fusion(parse_weights(channels, CHANNELS, "channel"), candidates=given["candidates"])
    search_fused(given["index"] or default_index(), fusion, given)
