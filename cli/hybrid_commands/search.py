"""`hybrid search`: several channels as one ranking."""

from __future__ import annotations

import click

from cli._arguments import arguments, group, takes, typed
from cli._fusion_options import FusionArguments, alpha_option, base_option, channel_weights, weights_option
from cli._opensearch import REMOTE_CHANNELS, ServerArguments
from cli._options import Bm25Arguments
from cli._search import SearchArguments, check_search, search_fused


@arguments
class _Search:
    search: SearchArguments = group(SearchArguments)
    base: str | None = base_option(
        "dense + impact without BM25, or impact where there are no vectors; impact with --alpha"
    )
    alpha: float = alpha_option
    weights: str | None = weights_option()
    method: FusionArguments = group(FusionArguments)
    bm25: Bm25Arguments = group(Bm25Arguments)
    server: ServerArguments = group(ServerArguments)


@click.command()
@takes(_Search)
def search(chosen: _Search) -> None:
    """Find passages in several channels: dense + impact, or base + α·bm25, or as --weights says.

    A hit shows its rank, title, [id], score and its rank in each channel, and where its text has words of the
    query. --queries takes many queries; their rankings go to --output as a TREC run. A passage that is not
    among the --candidates of any channel is not found.
    """
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
            lacks = f"{index} has no dense channel: searched by {next(iter(weights))} alone"
            click.echo(f"{lacks}\n  → {Command.of('dense index', index=index).for_command_line()}", err=True)
    fusion = chosen.method.fusion(weights, chosen.method.candidates)
    search_fused(index, fusion, search, chosen.bm25, server.searcher(fusion) if remote else None)
