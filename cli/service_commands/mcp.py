"""`sparta mcp`: an index as tools for a language model."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import whole
from cli._options import index_option
from cli._search import channel_option


@click.command()
@index_option
@channel_option()
@whole(10, "Hits where the model asks for no other number.", "-k", most=100)
@click.option("--reader", metavar="FOLDER", help="Reader's folder [default: the one that ships].")
def mcp(index: Path | None, channel: str | None, k: int, reader: str | None) -> None:
    """Serve an index to a language model (MCP).

    It speaks over standard input and output. Tools: search, explain, passage, and answer where there is a
    reader. None of them writes. A client is told the command, as in {"command": "sparta", "args": ["mcp",
    "--index", "/path/to/index"]}.
    """
    from hybrid.integrations import mcp_server

    mcp_server(index, channel, k=k, reader=reader).run("stdio", show_banner=False)
