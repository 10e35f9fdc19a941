"""`dense search`: passages by the vectors of a bi-encoder."""

from __future__ import annotations

from cli._arguments import arguments, command, group, takes
from cli._search import RerankArguments, SearchArguments, check_search, search_plainly


@arguments
class _Search:
    search: SearchArguments = group(SearchArguments)
    rerank: RerankArguments = group(RerankArguments)


@command()
@takes(_Search)
def search(chosen: _Search) -> None:
    """Find the best passages by the dense channel alone.

    Each hit shows rank, title, [id], score and a snippet with the words of the query marked. --queries
    searches for many queries and writes a TREC run. To fuse channels: hybrid search.
    """
    check_search("dense search", chosen.search)
    chosen.rerank.begin()
    from dense.channel.searcher import DenseSearcher

    with DenseSearcher(chosen.search.index) as searcher:
        search_plainly(chosen.rerank.of(searcher), chosen.search)
