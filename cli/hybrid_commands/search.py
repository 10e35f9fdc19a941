"""`hybrid search`: several channels as one ranking."""

from __future__ import annotations

from typing import Any

import click

from cli._fusion_options import (
    alpha_option,
    base_option,
    folder_of,
    fusion_of,
    method_options,
    weights_of,
    weights_option,
)
from cli._opensearch import REMOTE_CHANNELS, remote_searcher, server_options
from cli._options import bm25_options, typed
from cli._search import check_search, search_fused, search_options


@click.command()
@search_options
@base_option("dense + impact without BM25, or impact where there are no vectors; impact with --alpha")
@alpha_option
@weights_option()
@method_options
@bm25_options
@server_options(required=False)
def search(**given: Any) -> None:
    """Find passages in several channels: dense + impact, or base + α·bm25, or as --weights says.

    A hit shows its rank, title, [id], score and its rank in each channel, and where its text has words of the
    query. --queries takes many queries; their rankings go to --output as a TREC run. A passage that is not
    among the --candidates of any channel is not found.
    """
    check_search("hybrid search", given)
    from hybrid.retrieval.channels import channels_of
    from hybrid.retrieval.fusion import default_weights
    from sparta.index.folder import index_flag

    index, remote = folder_of(given), given["opensearch"]
    if typed("base", "alpha", "weights"):
        weights = weights_of(given)
    else:
        channels = REMOTE_CHANNELS if remote else channels_of(index)
        weights = default_weights(channels)
        if not remote and "dense" not in channels:
            lacks = f"{index} has no dense channel: searched by {next(iter(weights))} alone"
            click.echo(f"{lacks}\n  → dense index {index_flag(index)}", err=True)
    fusion = fusion_of(weights, given)
    search_fused(index, fusion, given, remote_searcher(given, fusion) if remote else None)
