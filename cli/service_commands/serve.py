"""`sparta serve`: search over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import arguments, file_type, flag, group, made, option, takes, whole
from cli._options import Bm25Arguments, index_option
from cli._search import channel_option


@arguments
class _Service:
    index: Path | None = index_option
    host: str = option("Address; others than this need keys.", default="127.0.0.1")
    port: int = whole(8080, "Port.", most=65535)
    keys: Path | None = option(
        "File of API keys: `read KEY` or `write KEY` a line [default: $SPARTA_SERVE_KEYS].", type=file_type
    )
    writable: bool = flag("Let passages be added, replaced and deleted.")
    cors: tuple[str, ...] = option("Origin that a browser may call from; repeatable.", metavar="ORIGIN")
    model: str | None = option(
        "Model that encodes what is written [default: the index's].", metavar="FOLDER|ID"
    )
    reader: str | None = option("Reader that answers [default: the one that ships].", metavar="FOLDER")
    device: str | None = option("Device of both [default: the best there is].", metavar="NAME")
    channels: str | None = channel_option("What is searched by default", "channels")
    bm25: Bm25Arguments = group(Bm25Arguments)
    threads: int = whole(2, "Threads that search.")
    queue: int = whole(64, "Queries that may wait; more are answered with 429.")
    timeout: float = option(
        "Seconds that a search, or the next part of a request, may take.",
        type=click.FloatRange(0.1),
        default=10.0,
    )
    log_level: str = option(
        "info has a line for each request.", type=click.Choice(["info", "warning", "error"]), default="info"
    )


@click.command()
@takes(_Service)
def serve(service: _Service) -> None:
    """Answer searches over HTTP, with a page at /, until Ctrl-C.

    \b
    sparta serve &
    curl localhost:8080/search -d '{"query": "who founded google"}'
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.retrieval.limits import Limits
    from hybrid.service.keys import Keys
    from hybrid.service.server import serve as run
    from hybrid.service.settings import Settings
    from sparta.index.folder import default_index

    settings = made(
        Settings,
        service,
        index=service.index or default_index(),
        keys=Keys.read(service.keys),
        origins=service.cors,
        bm25=service.bm25.parameters,
        limits=made(Limits, service),
    )
    run(settings, log_level=service.log_level)
