"""`sparta serve`: search over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli._options import bm25_of, bm25_options, file_type, index_option, number
from cli._search import channel_option


@click.command()
@index_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address; others than this need keys.")
@number("--port", default=8080, most=65535, text="Port.")
@click.option(
    "--keys",
    type=file_type,
    help="File of API keys: `read KEY` or `write KEY` a line [default: $SPARTA_SERVE_KEYS].",
)
@click.option("--writable", is_flag=True, help="Let passages be added, replaced and deleted.")
@click.option(
    "--cors", multiple=True, metavar="ORIGIN", help="Origin that a browser may call from; repeatable."
)
@click.option(
    "--model", metavar="FOLDER|ID", help="Model that encodes what is written [default: the index's]."
)
@click.option("--reader", metavar="FOLDER", help="Reader that answers [default: the one that ships].")
@click.option("--device", metavar="NAME", help="Device of both [default: the best there is].")
@channel_option("What is searched by default", "channels")
@bm25_options
@number("--threads", default=2, text="Threads that search.")
@number("--queue", default=64, text="Queries that may wait; more are answered with 429.")
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    default=10.0,
    show_default=True,
    help="Seconds that a search, or the next part of a request, may take.",
)
@click.option(
    "--log-level",
    type=click.Choice(["info", "warning", "error"]),
    default="info",
    show_default=True,
    help="info has a line for each request.",
)
def serve(**given: Any) -> None:
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

    path: Path | None = given["keys"]
    settings = Settings(
        index=given["index"] or default_index(),
        host=given["host"],
        port=given["port"],
        keys=Keys.read(path),
        writable=given["writable"],
        origins=given["cors"],
        bm25=bm25_of(given),
        channels=given["channels"],
        threads=given["threads"],
        limits=Limits(queue=given["queue"], timeout=given["timeout"]),
        model=given["model"],
        reader=given["reader"],
        device=given["device"],
    )
    run(settings, log_level=given["log_level"])
