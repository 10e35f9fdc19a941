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
    :param batch_bytes: largest size of a bulk request, below the server's `http.max_content_length`
    :param most_hits: maximum number of hits of a search, the server's `index.max_result_window`
    """

    urls: str
    ca: str | None = None
    insecure: bool = False
    patience: float = 60.0
    timeout: float = 60.0
    batch_bytes: int = 4 << 20
    most_hits: int = 10_000
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def hosts(self) -> list[str]:
        """Return the URLs of the nodes.

        :raises InputError: a URL is invalid or holds credentials
        """
        expected = "expected URLs such as https://host:9200, separated by commas"
        if "@" in self.urls:  # a password may hold commas and slashes: no part of the URLs is shown
            raise InputError(
                f"{expected}; a URL must not contain a user or password (@)",
                remedy=f"set ${USER_VARIABLE} and ${PASSWORD_VARIABLE} instead",
            )
        hosts = [url.strip().rstrip("/") for url in self.urls.split(",") if url.strip()]
        for url in hosts or [""]:
            if not _is_url(url):
                raise InputError(f"{expected}, found {url!r}", remedy="name the URL of a node of the cluster")
        return hosts

    def options(self) -> dict[str, Any]:
        """Return credentials and TLS settings as arguments of the client.

        :raises InputError: the credentials in the environment are incomplete or invalid
        """
        user, password = (self.environment.get(variable) for variable in (USER_VARIABLE, PASSWORD_VARIABLE))
        key = self.environment.get(KEY_VARIABLE)
        if (user is None) != (password is None):
            raise InputError(
                f"only one of ${USER_VARIABLE} and ${PASSWORD_VARIABLE} is set",
                remedy=f"set both ${USER_VARIABLE} and ${PASSWORD_VARIABLE}",
            )
        client_arguments: dict[str, Any] = {}
        if user is not None:
            encoded = base64.b64encode(f"{user}:{password}".encode("utf-8", "surrogateescape"))
            client_arguments["headers"] = {"Authorization": f"Basic {encoded.decode()}"}
        elif key:
            if not (key.isascii() and key.isprintable()):
                raise InputError(
                    f"the API key in ${KEY_VARIABLE} contains characters that are not printable ASCII",
                    remedy="copy the API key again, without quotes or a line end",
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
                raise self.not_opensearch() from error
            except ImproperlyConfigured as error:
                raise InputError(str(error), where=self.where) from error

    def not_opensearch(self) -> ServerError:
        """Return the error of a server whose answers are not those of OpenSearch."""
        return ServerError(
            "the server at this URL is not OpenSearch",
            where=self.where,
            remedy="check host and port of the URL",
        )

    def _refused(self, error: Any) -> ServerError | IndexStateError:
        status, said = error.status_code, reason_of(error.info) or str(error.error)
        if type(error).__name__ == "SSLError":
            return ServerError(
                f"the certificate of the server cannot be verified: {said}",
                where=self.where,
                remedy=remedy("name the file of the CA certificates with {}", Option("ca", "FILE")),
            )
        if not isinstance(status, int):
            return ServerError(
                f"the OpenSearch server cannot be reached: {said}",
                where=self.where,
                remedy="check that the server is running and that the URL is correct",
            )
        if "block" in said and status in (403, 429):
            return ServerError(
                f"the server blocks writing ({status}): {said}",
                where=self.where,
                remedy="free some space on the disks of the server",
            )
        if status in (401, 403):
            return ServerError(
                f"authentication failed ({status}): {said}",
                where=self.where,
                remedy=f"correct ${USER_VARIABLE} and ${PASSWORD_VARIABLE}, or ${KEY_VARIABLE}",
            )
        if status == 404:
            return IndexStateError(f"no such index on the server: {said}", where=self.where)
        return ServerError(f"the server responds with status {status}: {said}", where=self.where)

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
