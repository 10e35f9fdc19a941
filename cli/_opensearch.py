"""Options of commands that speak to an OpenSearch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from cli._options import Decorator, options, typed
from hybrid.opensearch.server import URL_VARIABLE
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from hybrid.opensearch.searcher import OpenSearchChannels, OpenSearchHybrid
    from hybrid.opensearch.server import Server

REMOTE_CHANNELS = ("bm25", "impact")


def server_options(*, required: bool) -> Decorator:
    """Options that name a server and an alias on it.

    Where they are not required, the variable counts with an alias only: without one, an index here is meant.
    """
    here = f", in place of an index here [default with --name: ${URL_VARIABLE}]."
    return options(
        click.option(
            "--opensearch",
            metavar="URL[,URL]…",
            envvar=URL_VARIABLE if required else None,
            required=required,
            help="Nodes of an OpenSearch cluster" + ("." if required else here),
            show_envvar=required,
        ),
        click.option("--name", metavar="ALIAS", required=required, help="Alias of the index there."),
        click.option("--ca", metavar="FILE", help="Certificates to trust, where they are not the machine's."),
        click.option("--insecure", is_flag=True, help="Accept any certificate."),
    )


def is_remote(given: dict[str, Any]) -> bool:
    """Whether a server is named; its other options need one.

    With an alias alone, the server is that of the variable, which `given` then names.
    """
    if given["name"] and not given["opensearch"]:
        given["opensearch"] = os.environ.get(URL_VARIABLE)
    others = typed("name", "ca", "insecure")
    if others and not given["opensearch"]:
        known = bool(os.environ.get(URL_VARIABLE))
        wanted, what = ("--name", "alias") if known else ("--opensearch", f"server, also as ${URL_VARIABLE}")
        raise InputError(
            f"expected {wanted} with {' and '.join(others)}, found none",
            remedy=f"name the {what}, or leave {others[0]} out",
        )
    return bool(given["opensearch"])


def server_of(given: dict[str, Any]) -> Server:
    """Open the server that the command line names."""
    from hybrid.opensearch.server import Access, Server

    return Server(Access(given["opensearch"], ca=given["ca"], insecure=given["insecure"]))


def remote_searcher(given: dict[str, Any], fusion: Any) -> OpenSearchHybrid:
    """Open the searcher of several channels of an index in OpenSearch."""
    from hybrid.opensearch.searcher import OpenSearchHybrid

    _check(given)
    return OpenSearchHybrid(server_of(given), given["name"], fusion)


def remote_channels(given: dict[str, Any]) -> OpenSearchChannels:
    """Open the channels of an index in OpenSearch, to be measured."""
    from hybrid.opensearch.remote import RemoteIndex
    from hybrid.opensearch.searcher import OpenSearchChannels

    _check(given)
    return OpenSearchChannels(RemoteIndex(server_of(given), given["name"]), REMOTE_CHANNELS)


def _check(given: dict[str, Any]) -> None:
    others = typed("index", "k1", "b", "build_dense", "no_dense")
    if not given["name"] or others:
        raise InputError(
            f"expected --opensearch with --name alone, found {', '.join(others) or 'no --name'}",
            remedy="an index there has its own BM25 parameters, and no dense channel",
        )
