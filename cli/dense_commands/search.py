"""`dense search`: passages by the vectors of a bi-encoder."""

from __future__ import annotations

from cli._arguments import command, takes
from cli._search import SearchArguments, check_search, print_hits, run_queries


@command()
@takes(SearchArguments)
def search(search: SearchArguments) -> None:
    """Find the best passages by the dense channel alone.

    Each hit shows rank, title, [id], score and a snippet with the words of the query marked. --queries
    searches for many queries and writes a TREC run. To fuse channels: hybrid search.
    """
    check_search("dense search", search)
    from dense.channel.searcher import DenseSearcher

    with DenseSearcher(search.index) as searcher:
        if search.queries is not None:
            run_queries(searcher, search)
        else:
            print_hits(searcher, search)
