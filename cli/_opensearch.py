"""Options of commands that speak to an OpenSearch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cli._arguments import arguments, flag, made, option, typed
from hybrid.opensearch.server import URL_VARIABLE
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from hybrid.opensearch.searcher import OpenSearchChannels, OpenSearchHybrid
    from hybrid.opensearch.server import Server
    from hybrid.retrieval.fusion import Fusion

REMOTE_CHANNELS = ("bm25", "impact")


@arguments
class ServerArguments:
    """A cluster of OpenSearch, and an index in it."""

    opensearch: str | None = option(
        (
            "Nodes of an OpenSearch cluster, in place of an index here"
            f" [default with --name: ${URL_VARIABLE}]."
        ),
        metavar="URL[,URL]…",
    )
    name: str | None = option("Alias of the index there.", metavar="ALIAS")
    ca: str | None = option("Certificates to trust, where they are not the machine's.", metavar="FILE")
    insecure: bool = flag("Accept any certificate.")

    @property
    def url(self) -> str | None:
        """The nodes: as typed, or those of the variable if an alias is named; None means an index here."""
        return self.opensearch or (os.environ.get(URL_VARIABLE) if self.name else None)

    def is_remote(self) -> bool:
        """Whether a server is named; its other options need one."""
        others = typed("name", "ca", "insecure")
        if others and not self.url:
            known = bool(os.environ.get(URL_VARIABLE))
            option, what = (
                ("--name", "alias") if known else ("--opensearch", f"server, also as ${URL_VARIABLE}")
            )
            raise InputError(
                f"expected {option} with {' and '.join(others)}, found none",
                remedy=f"name the {what}, or leave {others[0]} out",
            )
        return bool(self.url)

    def server(self) -> Server:
        """Open the server."""
        from hybrid.opensearch.server import Access, Server

        return Server(made(Access, self, urls=self.url))

    def searcher(self, fusion: Fusion) -> OpenSearchHybrid:
        """Open the searcher of several channels of an index in OpenSearch."""
        from hybrid.opensearch.searcher import OpenSearchHybrid

        return OpenSearchHybrid(self.server(), self._alias(), fusion)

    def channels(self) -> OpenSearchChannels:
        """Open the channels of an index in OpenSearch, to be measured."""
        from hybrid.opensearch.remote import RemoteIndex
        from hybrid.opensearch.searcher import OpenSearchChannels

        alias = self._alias()
        return OpenSearchChannels(RemoteIndex(self.server(), alias), REMOTE_CHANNELS)

    def _alias(self) -> str:
        others = typed("index", "k1", "b", "build_dense", "no_dense")
        if not self.name or others:
            raise InputError(
                f"expected --opensearch with --name alone, found {', '.join(others) or 'no --name'}",
                remedy="an index there has its own BM25 parameters, and no dense channel",
            )
        return self.name


@arguments
class RequiredServer(ServerArguments):
    """The same where there must be one."""

    opensearch: str = option(
        "Nodes of an OpenSearch cluster.",
        metavar="URL[,URL]…",
        envvar=URL_VARIABLE,
        required=True,
        show_envvar=True,
    )
    name: str = option("Alias of the index there.", metavar="ALIAS", required=True)
