"""`sparta serve`: serve an index over HTTP."""

from __future__ import annotations

import click

from cli._arguments import arguments, command, flag, group, made, option, takes, whole
from cli._options import Bm25Arguments
from cli._search import RerankArguments, channel_option


@arguments
class _Service:
    index: tuple[str, ...] = option(
        "Index folder; NAME=PATH, once for each of several, serves an index under /indexes/NAME/"
        " [default: $SPARTA_INDEX or ./sparta-index].",
        metavar="[NAME=]PATH",
    )
    host: str = option(
        "Address to listen on. An address that other machines can reach needs --keys.", default="127.0.0.1"
    )
    port: int = whole(8080, "Port to listen on.", most=65535)
    keys: tuple[str, ...] = option(
        "File of API keys, one per line: read KEY, or write KEY; NAME=FILE has the keys of the index NAME"
        " [default: $SPARTA_SERVE_KEYS].",
        metavar="[NAME=]FILE",
        section="Access",
    )
    writable: bool = flag("Allow requests that add, replace and delete passages.", section="Access")
    cors: tuple[str, ...] = option(
        "Origin whose pages may call the service in a browser. Repeat the option for several.",
        metavar="ORIGIN",
        section="Access",
    )
    model: str | None = option(
        "Model that encodes written passages [default: the index's model].",
        metavar="FOLDER|ID",
        section="Models",
    )
    reader: str | None = option(
        "Reader that extracts answers [default: the shipped reader].", metavar="FOLDER", section="Models"
    )
    device: str | None = option(
        "Device of --model and --reader, such as cpu or cuda:0 [default: a GPU if there is one].",
        metavar="NAME",
        section="Models",
    )
    channels: str | None = channel_option("Channel to search by default", "channels")
    bm25: Bm25Arguments = group(Bm25Arguments)
    rerank: RerankArguments = group(RerankArguments)
    threads: int = whole(2, "Number of search threads.", section="Limits")
    queue: int = whole(
        64, "Number of waiting queries; further queries are refused with status 429.", section="Limits"
    )
    timeout: float = option(
        "Longest time in seconds for a search, and for the next part of a request.",
        type=click.FloatRange(0.1),
        section="Limits",
        default=10.0,
    )
    log_level: str = option(
        "Level of the log; info logs every request.",
        type=click.Choice(["info", "warning", "error"]),
        default="info",
    )


@command()
@takes(_Service)
def serve(service: _Service) -> None:
    """Serve an index over HTTP, with a web page.

    The command prints the address of the page. The address with /docs describes the API. Ctrl-C stops the
    service.

    \b
    sparta serve &
    sparta serve --index wiki=PATH --index news=PATH
    curl localhost:8080/search -d '{"query": "who founded google"}'
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.retrieval.limits import Limits
    from hybrid.service.server import serve as run
    from hybrid.service.settings import Settings, keys_by_index, named_indexes
    from sparta.index.folder import default_index

    indexes = named_indexes(service.index) or {"": default_index()}
    keys = keys_by_index(service.keys, indexes)
    settings = [
        made(
            Settings,
            service,
            name=name,
            index=path,
            keys=keys[name],
            origins=service.cors,
            bm25=service.bm25.parameters,
            reranker=service.rerank.rerank,
            rerank_depth=service.rerank.rerank_depth,
            limits=made(Limits, service),
        )
        for name, path in indexes.items()
    ]
    run(*settings, log_level=service.log_level, announce=_announce)


def _announce(address: str) -> None:
    """Print the service's address for people; standard error has the log, as JSON."""
    click.echo(f"Open {address} in a browser; {address}/docs describes the API. Ctrl-C stops the service.")
