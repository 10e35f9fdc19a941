"""`dense search`: passages by the vectors of a bi-encoder."""

from __future__ import annotations

import click

from cli._arguments import takes
from cli._search import SearchArguments, check_search, print_hits, run_queries


@click.command()
@takes(SearchArguments)
def search(search: SearchArguments) -> None:
    """Find passages for a query, or for many, in the dense channel.

    A hit shows its rank, title, [id] and score, and where its text has words of the query.
    --queries takes many queries; their rankings go to --output as a TREC run.
    """
    check_search("dense search", search)
    from dense.channel.searcher import DenseSearcher

    with DenseSearcher(search.index) as searcher:
        if search.queries is not None:
            run_queries(searcher, search)
        else:
            print_hits(searcher, search)
