"""`sparta serve`: search over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import arguments, file_type, flag, group, made, number, option, takes
from cli._options import Bm25Arguments, index_option
from cli._search import channel_option


@arguments
class _Service:
    index: Path | None = index_option
    host: str = option(
        "--host", default="127.0.0.1", show_default=True, help="Address; others than this need keys."
    )
    port: int = number("--port", default=8080, most=65535, text="Port.")
    keys: Path | None = option(
        "--keys",
        type=file_type,
        help="File of API keys: `read KEY` or `write KEY` a line [default: $SPARTA_SERVE_KEYS].",
    )
    writable: bool = flag("--writable", text="Let passages be added, replaced and deleted.")
    cors: tuple[str, ...] = option(
        "--cors", multiple=True, metavar="ORIGIN", help="Origin that a browser may call from; repeatable."
    )
    model: str | None = option(
        "--model", metavar="FOLDER|ID", help="Model that encodes what is written [default: the index's]."
    )
    reader: str | None = option(
        "--reader", metavar="FOLDER", help="Reader that answers [default: the one that ships]."
    )
    device: str | None = option(
        "--device", metavar="NAME", help="Device of both [default: the best there is]."
    )
    channels: str | None = channel_option("What is searched by default", "channels")
    bm25: Bm25Arguments = group(Bm25Arguments)
    threads: int = number("--threads", default=2, text="Threads that search.")
    queue: int = number("--queue", default=64, text="Queries that may wait; more are answered with 429.")
    timeout: float = option(
        "--timeout",
        type=click.FloatRange(0.1),
        default=10.0,
        show_default=True,
        help="Seconds that a search, or the next part of a request, may take.",
    )
    log_level: str = option(
        "--log-level",
        type=click.Choice(["info", "warning", "error"]),
        default="info",
        show_default=True,
        help="info has a line for each request.",
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
