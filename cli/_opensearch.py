"""Options of commands that use an index in OpenSearch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cli._arguments import arguments, flag, made, option, typed, whole
from hybrid.opensearch.server import URL_VARIABLE
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from hybrid.opensearch.searcher import OpenSearchChannels, OpenSearchHybrid
    from hybrid.opensearch.server import Server
    from hybrid.retrieval.fusion import Fusion

REMOTE_CHANNELS = ("bm25", "impact")


@arguments
class ServerArguments:
    """An OpenSearch cluster and an index in it."""

    SECTION = "OpenSearch"

    opensearch: str | None = option(
        (
            "Search an index in this OpenSearch cluster, given by its nodes, instead of an index folder"
            f" [default with --name: ${URL_VARIABLE}]."
        ),
        metavar="URL[,URL]…",
    )
    name: str | None = option("Alias of the index in OpenSearch.", metavar="ALIAS")
    ca: str | None = option(
        "File of certificates to trust [default: the certificates of this machine].", metavar="FILE"
    )
    insecure: bool = flag("Accept any certificate, without a check.")

    @property
    def url(self) -> str | None:
        """The nodes: as typed, or from $SPARTA_OPENSEARCH_URL if --name is typed. None: an index folder."""
        return self.opensearch or (os.environ.get(URL_VARIABLE) if self.name else None)

    def is_remote(self) -> bool:
        """Return whether the index lies in OpenSearch.

        :raises InputError: options of OpenSearch are typed, but no node is known
        """
        others = typed("name", "ca", "insecure")
        if others and not self.url:
            known = bool(os.environ.get(URL_VARIABLE))
            option, what = (
                ("--name", "alias") if known else ("--opensearch", f"server (or set ${URL_VARIABLE})")
            )
            raise InputError(
                f"{' and '.join(others)} needs {option}",
                remedy=f"name the {what} with {option}, or omit {others[0]}",
            )
        return bool(self.url)

    def server(self) -> Server:
        """Return an open connection to the cluster."""
        from hybrid.opensearch.server import Access, Server

        return Server(made(Access, self, urls=self.url))

    def searcher(self, fusion: Fusion) -> OpenSearchHybrid:
        """Return an open searcher that fuses channels of the index in OpenSearch."""
        from hybrid.opensearch.searcher import OpenSearchHybrid

        return OpenSearchHybrid(self.server(), self._alias(), fusion)

    def channels(self) -> OpenSearchChannels:
        """Return the open channels of the index in OpenSearch, to measure them."""
        from hybrid.opensearch.remote import RemoteIndex
        from hybrid.opensearch.searcher import OpenSearchChannels

        alias = self._alias()
        return OpenSearchChannels(RemoteIndex(self.server(), alias), REMOTE_CHANNELS)

    def _alias(self) -> str:
        """Return the alias; raise InputError without --name, or with options for index folders only."""
        others = typed("index", "k1", "b", "build_dense", "no_dense")
        if not self.name or others:
            raise InputError(
                f"with --opensearch, only --name selects the index, found {', '.join(others) or 'no --name'}",
                remedy="add --name and omit the others: OpenSearch has no dense channel or BM25 options",
            )
        return self.name


@arguments
class RequiredServer(ServerArguments):
    """An OpenSearch cluster and an index in it, both required."""

    opensearch: str = option(
        "Nodes of the OpenSearch cluster.",
        metavar="URL[,URL]…",
        envvar=URL_VARIABLE,
        required=True,
        show_envvar=True,
    )
    name: str = option("Alias of the index there.", metavar="ALIAS", required=True)
    batch_bytes: int = whole(4 << 20, "Largest size of a bulk request; proxies may limit it.")
