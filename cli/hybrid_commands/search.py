"""`hybrid search`: one ranking from several channels."""

from __future__ import annotations

import click

from cli._arguments import arguments, command, group, takes, typed
from cli._fusion_options import FusionArguments, alpha_option, base_option, channel_weights, weights_option
from cli._opensearch import REMOTE_CHANNELS, ServerArguments
from cli._options import Bm25Arguments
from cli._search import RerankArguments, SearchArguments, begin_models, check_search, search_fused


@arguments
class _Search:
    search: SearchArguments = group(SearchArguments)
    base: str | None = base_option(
        "impact if --alpha is typed; else dense and impact without BM25, or impact if there is no dense"
        " channel"
    )
    alpha: float = alpha_option
    weights: str | None = weights_option()
    method: FusionArguments = group(FusionArguments)
    bm25: Bm25Arguments = group(Bm25Arguments)
    rerank: RerankArguments = group(RerankArguments)
    server: ServerArguments = group(ServerArguments)


@command()
@takes(_Search)
def search(chosen: _Search) -> None:
    """Find the best passages by several channels, fused.

    Without options: the sum of dense and impact. With --base or --alpha: base + α·bm25. With --weights: any
    weighted sum. Each hit shows its rank, title, [id], score, its rank in each channel (#1 is the best), and
    a snippet with the words of the query marked. --queries searches for many queries and writes a TREC run.

    \b
    hybrid search "who founded google"
    hybrid search "who founded google" --alpha 1.2
    hybrid search "who founded google" --weights dense=1,impact=0.5,bm25=1
    hybrid search "who founded google" --rerank reranker-minilm-en
    """  # noqa: D301 (click looks for the backspace)
    search, server = chosen.search, chosen.server
    check_search("hybrid search", search)
    from hybrid.retrieval.channels import channels_of
    from hybrid.retrieval.fusion import default_weights
    from sparta.base.remedies import Command
    from sparta.index.folder import default_index

    index, remote = search.index or default_index(), server.is_remote()
    if typed("base", "alpha", "weights"):
        weights = channel_weights(chosen.weights, chosen.base, chosen.alpha)
    else:
        channels = REMOTE_CHANNELS if remote else channels_of(index)
        weights = default_weights(channels)
        if not remote and "dense" not in channels:
            missing = f"{index} has no dense channel: only {next(iter(weights))} is searched"
            click.echo(
                f"{missing}\n  → {Command.of('dense index', index=index).for_command_line()}", err=True
            )
    fusion = chosen.method.fusion(weights, chosen.rerank.candidates(chosen.method.candidates))
    opened = server.searcher(fusion) if remote else None
    begin_models(index, ",".join(weights), chosen.rerank)
    search_fused(index, fusion, search, chosen.bm25, chosen.rerank, opened)
