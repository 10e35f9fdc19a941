"""Requests to OpenSearch, repeated while the cluster is overloaded or changes its nodes."""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, InputError, ServerError
from sparta.base.extras import optional_packages
from sparta.base.remedies import Option, remedy

URL_VARIABLE = "SPARTA_OPENSEARCH_URL"
USER_VARIABLE, PASSWORD_VARIABLE = "SPARTA_OPENSEARCH_USER", "SPARTA_OPENSEARCH_PASSWORD"
KEY_VARIABLE = "SPARTA_OPENSEARCH_KEY"
BUSY = (429, 502, 503, 504)
_URL = re.compile(r"https?://[^/@\s]+(/\S*)?")


@dataclass(frozen=True, slots=True)
class Access:
    """URLs, credentials, certificates and timeouts of an OpenSearch cluster.

    Credentials come from the environment, never from a command line, which others may see:
    `$SPARTA_OPENSEARCH_USER` and `$SPARTA_OPENSEARCH_PASSWORD`, or `$SPARTA_OPENSEARCH_KEY`, which is sent as
    `Authorization: ApiKey …`.

    :param urls: URLs of nodes, with commas between; if a node fails, the next one gets the request
    :param ca: a file of certificates to trust, instead of the certificates of this machine
    :param insecure: accept any certificate
    :param patience: seconds in which a request is repeated while the server cannot answer it
    """

    urls: str
    ca: str | None = None
    insecure: bool = False
    patience: float = 60.0
    timeout: float = 60.0
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def hosts(self) -> list[str]:
        """Return the URLs of the nodes.

        :raises InputError: a URL is invalid or holds credentials
        """
        expected = "expected URLs such as https://host:9200, with commas between"
        if "@" in self.urls:  # a password may hold commas and slashes: no part of the URLs is shown
            raise InputError(
                f"{expected}, found an @ in them",
                remedy=f"credentials belong into ${USER_VARIABLE} and ${PASSWORD_VARIABLE}",
            )
        hosts = [url.strip().rstrip("/") for url in self.urls.split(",") if url.strip()]
        for url in hosts or [""]:
            if not _is_url(url):
                raise InputError(f"{expected}, found {url!r}", remedy="name a node of the cluster")
        return hosts

    def options(self) -> dict[str, Any]:
        """Return credentials and TLS settings as arguments of the client.

        :raises InputError: the credentials in the environment are incomplete or invalid
        """
        user, password = (self.environment.get(variable) for variable in (USER_VARIABLE, PASSWORD_VARIABLE))
        key = self.environment.get(KEY_VARIABLE)
        if (user is None) != (password is None):
            raise InputError(
                "expected a user and a password, found one of them",
                remedy=f"set both ${USER_VARIABLE} and ${PASSWORD_VARIABLE}",
            )
        client_arguments: dict[str, Any] = {}
        if user is not None:
            encoded = base64.b64encode(f"{user}:{password}".encode("utf-8", "surrogateescape"))
            client_arguments["headers"] = {"Authorization": f"Basic {encoded.decode()}"}
        elif key:
            if not (key.isascii() and key.isprintable()):
                raise InputError(
                    f"expected a key of printable ASCII characters in ${KEY_VARIABLE}, found others",
                    remedy="copy the key again, without quotes or a line end",
                )
            client_arguments["headers"] = {"Authorization": f"ApiKey {key}"}
        if self.insecure:
            client_arguments |= {"verify_certs": False, "ssl_show_warn": False}
        elif self.ca:
            client_arguments["ca_certs"] = self.ca
        return client_arguments


def _is_url(url: str) -> bool:
    try:
        url_parts = urlsplit(url)
        return bool(_URL.fullmatch(url) and url_parts.hostname) and url_parts.port != 0
    except ValueError:  # an invalid port or IPv6 address
        return False


class Patience:
    """Pauses between the attempts of one request: each twice as long (up to 5 s), for `seconds` in all."""

    def __init__(self, seconds: float) -> None:
        self._ends, self._pause = time.monotonic() + seconds, 0.1

    def wait(self) -> bool:
        """Pause and return True; return False at once if the pause would exceed the time."""
        if time.monotonic() + self._pause > self._ends:
            return False
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, 5.0)
        return True


class Server(Closing):
    """A connection to an OpenSearch cluster.

    :raises InputError: there is no URL, or a URL is invalid
    :raises MissingPackageError: the extra `opensearch` is not installed
    """

    def __init__(self, access: Access | str) -> None:
        self.access = Access(access) if isinstance(access, str) else access
        hosts = self.access.hosts()
        self._reached = False
        with optional_packages():
            from opensearchpy import OpenSearch

        self._client = OpenSearch(
            hosts,
            timeout=self.access.timeout,
            max_retries=len(hosts),
            retry_on_timeout=True,
            pool_maxsize=16,
            **self.access.options(),
        )

    @property
    def where(self) -> str:
        """The URLs of the cluster, for messages."""
        return self.access.urls

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        ignore: Collection[int] = (),
        patience: float | None = None,
        lines: bool = False,
        **parameters: Any,
    ) -> Any:
        """Send a request, repeat it while the server is busy, and return the response.

        :param body: a value for JSON; with `lines`, bytes of JSON lines
        :param ignore: statuses above 399 whose response is returned instead of raised
        :param patience: seconds in which the request may be repeated; None means the server's setting
        :raises ServerError: the server cannot be reached, or refuses the request
        :raises IndexStateError: 404, the index does not exist
        """
        headers = {"content-type": "application/x-ndjson"} if lines else None
        parameters = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in parameters.items()
        }

        def ask() -> Any:
            return self._client.transport.perform_request(
                method, path, params=parameters, body=body, headers=headers, ignore=ignore
            )

        return self._patiently(ask, Patience(self.access.patience if patience is None else patience))

    def _patiently(self, ask: Callable[[], Any], patience: Patience) -> Any:
        from opensearchpy.exceptions import (
            ImproperlyConfigured,
            SerializationError,
            SSLError,
            TransportError,
        )
        from urllib3.exceptions import NewConnectionError

        while True:
            try:
                answer = ask()
                self._reached = True
                if not isinstance(answer, Mapping):
                    raise SerializationError(str(answer))
                return answer
            except TransportError as error:
                self._reached |= isinstance(error.status_code, int)
                is_temporary = error.status_code in BUSY or not isinstance(error.status_code, int)
                if not self._reached and isinstance(error.info, NewConnectionError):
                    is_temporary = False  # a wrong URL is no passing fault
                if isinstance(error, SSLError) or not is_temporary or not patience.wait():
                    raise self._refused(error) from error
            except SerializationError as error:
                raise ServerError("expected an OpenSearch, found something else", where=self.where) from error
            except ImproperlyConfigured as error:
                raise InputError(str(error), where=self.where) from error

    def _refused(self, error: Any) -> ServerError | IndexStateError:
        status, said = error.status_code, reason_of(error.info) or str(error.error)
        if type(error).__name__ == "SSLError":
            return ServerError(
                f"expected a certificate that can be trusted, found: {said}",
                where=self.where,
                remedy=remedy("name the certificates of its authority with {}", Option("ca", "FILE")),
            )
        if not isinstance(status, int):
            return ServerError(
                f"expected an OpenSearch, could not reach it: {said}",
                where=self.where,
                remedy="is it running, and is this its URL?",
            )
        if "block" in said and status in (403, 429):
            return ServerError(
                f"the server lets nothing be written ({status}): {said}",
                where=self.where,
                remedy="free some space on its disks",
            )
        if status in (401, 403):
            return ServerError(
                f"the server refuses who asks ({status}): {said}",
                where=self.where,
                remedy=f"set ${USER_VARIABLE} and ${PASSWORD_VARIABLE}, or ${KEY_VARIABLE}, of one who may",
            )
        if status == 404:
            return IndexStateError(f"expected an index that is there: {said}", where=self.where)
        return ServerError(f"the server answers {status}: {said}", where=self.where)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def reason_of(info: Any) -> str:
    """Return the reasons of a failed request from the body of the response, the root cause first."""
    if not isinstance(info, Mapping):
        return str(info or "")
    error = info.get("error", info)
    if not isinstance(error, Mapping):
        return str(error)
    causes = [*(error.get("root_cause") or ()), error]
    reasons = [str(cause["reason"]) for cause in causes if isinstance(cause, Mapping) and cause.get("reason")]
    return "; ".join(dict.fromkeys(reasons)) or str(dict(error))
