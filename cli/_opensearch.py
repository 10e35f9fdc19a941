"""Options of commands that speak to an OpenSearch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli._options import Decorator, options

if TYPE_CHECKING:
    from hybrid.opensearch.server import Server


def server_options(*, required: bool) -> Decorator:
    """Options that name a server and an alias on it."""
    return options(
        click.option(
            "--opensearch",
            metavar="URL[,URL]…",
            envvar="SPARTA_OPENSEARCH_URL" if required else None,
            required=required,
            help="Nodes of an OpenSearch cluster"
            + (" [default: $SPARTA_OPENSEARCH_URL]." if required else ", in place of an index here."),
        ),
        click.option("--name", metavar="ALIAS", required=required, help="Alias of the index there."),
        click.option("--ca", metavar="FILE", help="Certificates to trust, where they are not the machine's."),
        click.option("--insecure", is_flag=True, help="Accept any certificate."),
    )


def server_of(given: dict[str, Any]) -> Server:
    """Open the server that the command line names."""
    from hybrid.opensearch.server import Access, Server

    return Server(Access(given["opensearch"], ca=given["ca"], insecure=given["insecure"]))
