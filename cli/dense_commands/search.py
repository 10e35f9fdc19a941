"""`dense search`: passages by the vectors of a bi-encoder."""

from __future__ import annotations

from typing import Any

import click

from cli._search import check_search, print_hits, run_queries, search_options


@click.command()
@search_options
def search(**given: Any) -> None:
    """Find passages for a query, or for many, in the dense channel.

    A hit shows its rank, title, [id] and score, and where its text has words of the query.
    --queries takes many queries; their rankings go to --output as a TREC run.
    """
    check_search("dense search", given)
    from dense.channel.searcher import DenseSearcher

    with DenseSearcher(given["index"]) as searcher:
        if given["queries"] is not None:
            run_queries(searcher, given)
        else:
            print_hits(searcher, given)
