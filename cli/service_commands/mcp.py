"""`sparta mcp`: serve an index to a language model."""

from __future__ import annotations

from pathlib import Path

from cli._arguments import command, option, whole
from cli._options import index_option
from cli._search import channel_option


@command()
@index_option
@channel_option()
@whole(10, "Number of hits, unless the language model asks for another number.", "-k", most=100)
@option("Reader's folder [default: the shipped reader].", "--reader", metavar="FOLDER")
def mcp(index: Path | None, channel: str | None, k: int, reader: str | None) -> None:
    """Serve an index to a language model (MCP).

    Communicates over standard input and output. The tools are search, explain, passage and answer (if there
    is a reader); none of them writes. Configure the client with this command:

    {"command": "sparta", "args": ["mcp", "--index", "/path/to/index"]}
    """
    from hybrid.integrations import mcp_server

    mcp_server(index, channel, k=k, reader=reader).run("stdio", show_banner=False)
