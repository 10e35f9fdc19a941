"""`sparta serve`: serve an index over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import arguments, command, file_type, flag, group, made, option, takes, whole
from cli._options import Bm25Arguments, index_option
from cli._search import channel_option


@arguments
class _Service:
    index: Path | None = index_option
    host: str = option("Address to listen on; any other address needs --keys.", default="127.0.0.1")
    port: int = whole(8080, "Port to listen on.", most=65535)
    keys: Path | None = option(
        "File of API keys, one per line: read KEY, or write KEY [default: $SPARTA_SERVE_KEYS].",
        type=file_type,
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
        "Device of both, such as cpu or cuda:0 [default: a GPU if there is one].",
        metavar="NAME",
        section="Models",
    )
    channels: str | None = channel_option("Channel to search by default", "channels")
    bm25: Bm25Arguments = group(Bm25Arguments)
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
    run(settings, log_level=service.log_level, announce=_announce)


def _announce(address: str) -> None:
    """Print the service's address for people; standard error has the log, as JSON."""
    click.echo(f"Open {address} in a browser; {address}/docs describes the API. Ctrl-C stops the service.")
