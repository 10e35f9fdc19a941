"""Requests to an OpenSearch, asked again while it is overloaded or changes its nodes."""

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
    """How a server is reached.

    Credentials come from the environment, never from a command line, which others may see:
    `$SPARTA_OPENSEARCH_USER` and `$SPARTA_OPENSEARCH_PASSWORD`, or `$SPARTA_OPENSEARCH_KEY`, which is sent as
    `Authorization: ApiKey …`.

    :param urls: one or several nodes, with commas between; when one fails, another is asked
    :param ca: a file of certificates to trust, in place of the machine's own
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
        """Return the URLs of the nodes; anything else, or credentials in one, is an InputError."""
        expected = "expected URLs such as https://host:9200, separated by commas"
        if "@" in self.urls:  # a password may hold commas and slashes, so no part of it all is shown
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
        """Return credentials and TLS, as the client takes them."""
        user, password = (self.environment.get(n) for n in (USER_VARIABLE, PASSWORD_VARIABLE))
        key = self.environment.get(KEY_VARIABLE)
        if (user is None) != (password is None):
            raise InputError(
                f"only one of ${USER_VARIABLE} and ${PASSWORD_VARIABLE} is set",
                remedy=f"set both ${USER_VARIABLE} and ${PASSWORD_VARIABLE}",
            )
        chosen: dict[str, Any] = {}
        if user is not None:
            encoded = base64.b64encode(f"{user}:{password}".encode("utf-8", "surrogateescape"))
            chosen["headers"] = {"Authorization": f"Basic {encoded.decode()}"}
        elif key:
            if not (key.isascii() and key.isprintable()):
                raise InputError(
                    f"the API key in ${KEY_VARIABLE} contains characters that are not printable ASCII",
                    remedy="copy the API key again, without quotes or a line end",
                )
            chosen["headers"] = {"Authorization": f"ApiKey {key}"}
        if self.insecure:
            chosen |= {"verify_certs": False, "ssl_show_warn": False}
        elif self.ca:
            chosen["ca_certs"] = self.ca
        return chosen


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(_URL.fullmatch(url) and parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        return False


class Patience:
    """Waits between the tries of one request, each twice as long as the last, for so many seconds in all."""

    def __init__(self, seconds: float) -> None:
        self._ends, self._pause = time.monotonic() + seconds, 0.1

    def wait(self) -> bool:
        """Wait, and say whether to try again: not, at once, where the time would be up."""
        if time.monotonic() + self._pause > self._ends:
            return False
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, 5.0)
        return True


class Server(Closing):
    """An OpenSearch cluster.

    :raises InputError: no URL, or one that cannot be.
    :raises MissingPackageError: the extra `opensearch` is not installed.
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
        """Its URLs, for messages."""
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
        """Send a request, which may be repeated, and return the answer.

        :param body: what becomes JSON, or with `lines` bytes of JSON lines
        :param ignore: statuses above 399 whose answer is returned too
        :raises ServerError: the server cannot be reached or refuses.
        :raises IndexStateError: 404, there is no such index.
        """
        headers = {"content-type": "application/x-ndjson"} if lines else None
        parameters = {name: str(v).lower() if isinstance(v, bool) else v for name, v in parameters.items()}

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
                passing = error.status_code in BUSY or not isinstance(error.status_code, int)
                if not self._reached and isinstance(error.info, NewConnectionError):
                    passing = False  # a wrong URL is told at once
                if isinstance(error, SSLError) or not passing or not patience.wait():
                    raise self._refused(error) from error
            except SerializationError as error:
                raise ServerError("the server at this URL is not OpenSearch", where=self.where) from error
            except ImproperlyConfigured as error:
                raise InputError(str(error), where=self.where) from error

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
        """Let go of the connections."""
        self._client.close()


def reason_of(info: Any) -> str:
    """Return why a request failed, from the body of the answer: the innermost cause."""
    if not isinstance(info, Mapping):
        return str(info or "")
    error = info.get("error", info)
    if not isinstance(error, Mapping):
        return str(error)
    causes = [*(error.get("root_cause") or ()), error]
    said = [str(cause["reason"]) for cause in causes if isinstance(cause, Mapping) and cause.get("reason")]
    return "; ".join(dict.fromkeys(said)) or str(dict(error))
