"""What every request passes: an id, keys, limits, the log, the counters; errors become JSON here."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from itertools import count
from secrets import token_hex
from typing import Any

from starlette.requests import ClientDisconnect

from hybrid.service.errors import HttpError, error_body
from hybrid.service.keys import READ, WRITE
from hybrid.service.metrics import Metrics
from hybrid.service.settings import Settings

type Message = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]
type App = Callable[[Message, Receive, Send], Awaitable[None]]

logger = logging.getLogger("sparta.serve")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
OPEN_PATHS = ("/health", "/ready", "/openapi.json", "/", "/favicon.ico")
_STATIC = "/static/"
_GONE = 499
"""Told to the log: nobody was there any more to be answered."""
_METHODS = frozenset(("GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE"))
_LOCAL_NAMES = (b"localhost", b"127.0.0.1", b"[::1]")


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: App, settings: Settings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._prefix, self._numbers = token_hex(4), count(1)
        host = settings.host.strip("[]").lower()
        self._names = {*_LOCAL_NAMES, (f"[{host}]" if ":" in host else host).encode()}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it with an error."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, headers, method = time.perf_counter(), dict(scope["headers"]), scope["method"]
        given = headers.get(b"x-request-id", b"")
        request_id = (
            given.decode() if _REQUEST_ID.fullmatch(given) else f"{self._prefix}-{next(self._numbers)}"
        )
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        failed: Exception | None = None
        try:
            self._check(scope, headers)
            if scope["method"] == "HEAD":  # as GET; the server leaves the body out
                scope = {**scope, "method": "GET"}
            await self._app(scope, self._bounded(scope, headers, receive), answer)
        except ClientDisconnect:
            status = status or _GONE
        except Exception as error:
            failed = error
            if not status:
                await _send_error(error, request_id, answer)
        took = time.perf_counter() - began
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.request(method if method in _METHODS else "other", route, status, took)
        if failed is not None and status >= 500:
            logger.error("failed", exc_info=failed, extra={"request_id": request_id})
        if logger.isEnabledFor(logging.INFO):
            logger.info(
                "request",
                extra={
                    "request_id": request_id,
                    "method": method,
                    "path": scope["path"],
                    "status": status,
                    "ms": round(took * 1000, 2),
                    "client": (scope.get("client") or ("",))[0],
                },
            )

    def _check(self, scope: Message, headers: dict[bytes, bytes]) -> None:
        """Refuse who has no key for this, and pages of others that a browser sends here.

        :raises HttpError: 401, 403, 415 or 421.
        """
        path, method = scope["path"], scope["method"]
        keys = self._settings.keys
        writes = path.startswith("/passages") and method not in ("GET", "HEAD", "OPTIONS")
        if not keys:
            self._check_host(headers.get(b"host", b""))
        elif path not in OPEN_PATHS and not path.startswith(_STATIC) and method != "OPTIONS":
            allowed = keys.scope(_key(headers))
            if allowed is None:
                raise HttpError(401, "expected an API key, found none that is known", remedy=_KEY_REMEDY)
            if writes and allowed != WRITE:
                raise HttpError(403, f"expected a key to {WRITE}, found one to {READ}")
        if writes and not self._settings.writable:
            raise HttpError(403, "this service does not change its index", remedy="sparta serve --writable")

    def _check_host(self, host: bytes) -> None:
        """Without keys, a page on the web must not reach the service by a name that leads to this machine."""
        name = host.rpartition(b":")[0] if re.search(rb":\d*$", host) else host
        if host and name.lower() not in self._names:
            raise HttpError(
                421,
                "expected the host localhost, found another one",
                remedy="give the service keys (--keys FILE)",
            )

    def _bounded(self, scope: Message, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """The body of a request, of a bounded size, that comes in a bounded time."""
        limits, ends = self._settings.limits, math.inf
        coding = headers.get(b"content-encoding", b"identity").lower().decode("latin-1")
        if coding != "identity":
            raise HttpError(415, f"expected a body that is not compressed, found Content-Encoding: {coding}")
        if scope["path"].startswith("/passages"):
            most = limits.upload  # whose time is bounded where it is read
        else:
            most, ends = limits.body, time.perf_counter() + limits.timeout
        said = headers.get(b"content-length", b"")
        known = said.isdigit() and b"transfer-encoding" not in headers
        if known and int(said[:20]) > most:
            raise _too_large(most)
        size = 0

        async def bounded() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > most:
                raise _too_large(most)
            if message.get("more_body") and time.perf_counter() > ends:
                raise HttpError(408, f"expected the whole body within {limits.timeout:g} s")
            return message

        return bounded


_KEY_REMEDY = "send one as X-API-Key: KEY, or as Authorization: Bearer KEY"


def _key(headers: dict[bytes, bytes]) -> str:
    key = headers.get(b"x-api-key")
    if key is None:
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        key = key.strip() if scheme.lower() == b"bearer" else b""
    return key.decode("latin-1")


def _too_large(most: int) -> HttpError:
    return HttpError(413, f"expected a body of at most {most:,} bytes, found a longer one")


async def _send_error(error: Exception, request_id: str, send: Send) -> None:
    status, body, more = error_body(error, request_id)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    if status == 408:
        headers.append((b"connection", b"close"))  # what is left of the body is not read
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
