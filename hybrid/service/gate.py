"""What every request passes: an id, keys, limits, the log, the counters; errors become JSON here."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from hybrid.service.errors import HttpError, as_exception, error_body
from hybrid.service.journal import OTHER, Journal
from hybrid.service.keys import READ, WRITE
from hybrid.service.settings import Settings

type Message = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]
type App = Callable[[Message, Receive, Send], Awaitable[None]]

OPEN_PATHS = ("/health", "/ready", "/openapi.json", "/", "/favicon.ico")
_STATIC = "/static/"
_GONE = 499
"""Told to the log: nobody was there any more to be answered."""
_LOCAL_NAMES = (b"localhost", b"127.0.0.1", b"[::1]")
TASKS = "sparta.tasks"
"""Where the state of a scope keeps the running requests of its connection."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ID = "sparta.request_id"


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: App, settings: Settings, journal: Journal) -> None:
        self._app, self._settings, self._journal = app, settings, journal
        host = settings.host.strip("[]").lower()
        self._names = {*_LOCAL_NAMES, (f"[{host}]" if ":" in host else host).encode()}
        self._within: Any = self._pass
        if settings.origins:  # around what makes the errors, which browsers are to read too
            self._within = CORSMiddleware(
                self._within,
                allow_origins=settings.origins,
                allow_methods=["GET", "POST", "PUT", "DELETE"],
                allow_headers=["Authorization", "Content-Type", "X-API-Key", "X-Request-ID"],
                expose_headers=["X-Request-ID", "Retry-After"],
            )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it with an error."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        request_id = self._journal.request_id(dict(scope["headers"]).get(b"x-request-id", b""))
        scope[_ID], status = request_id, 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        tasks, task = scope.get("state", {}).get(TASKS, set()), asyncio.current_task()
        tasks.add(task)
        try:  # a stranger gets no answer to a CORS preflight either
            within = self._pass if self._is_foreign(scope, dict(scope["headers"])) else self._within
            await within(scope, receive, answer)
        except asyncio.CancelledError:
            if task in tasks:
                raise
            status = _GONE
        finally:
            tasks.discard(task)
        self._journal.answered(
            request_id,
            status or _GONE,
            time.perf_counter() - began,
            method=scope["method"],
            path=scope["path"],
            route=_route(scope),
            client=(scope.get("client") or ("",))[0],
        )

    async def _pass(self, scope: Message, receive: Receive, send: Send) -> None:
        """Check a request and have it answered; what is raised is the answer, unless one has begun."""
        headers, begun = dict(scope["headers"]), False
        inner = scope
        if scope["method"] == "HEAD":  # as GET; the server leaves the body out
            inner = {**scope, "method": "GET"}

        async def answer(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            self._check(scope, headers)
            await self._app(inner, self._bounded(scope, headers, receive), answer)
            return
        except ClientDisconnect:
            return
        except asyncio.CancelledError:
            if asyncio.current_task() not in scope.get("state", {}).get(TASKS, {asyncio.current_task()}):
                raise  # the client has left
            # the server ends, and waits no longer
            failed: Exception = HttpError(503, _ENDING, remedy="try again later")
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # also a panic of an extension
            failed = as_exception(error)
        finally:
            scope["route"] = inner.get("route")
        self._journal.failed(scope[_ID], failed)
        if not begun:
            await _send_error(failed, scope[_ID], send)

    def _check(self, scope: Message, headers: dict[bytes, bytes]) -> None:
        """Refuse who has no key for this, and pages of others that a browser sends here.

        :raises HttpError: 400, 401, 403 or 421.
        """
        path, method = scope["path"], scope["method"]
        if _CONTROL.search(path):  # routes would take a line end at the end of an id for none
            raise HttpError(400, "expected a path without control characters, found one")
        keys = self._settings.keys
        writes = path.startswith("/passages") and method not in ("GET", "HEAD", "OPTIONS")
        if not keys:
            self._check_host(headers.get(b"host", b""))
            if self._is_foreign(scope, headers):
                raise HttpError(
                    403, "expected a request of a page of this service, found another", remedy=_CORS_REMEDY
                )
        elif path not in OPEN_PATHS and not path.startswith(_STATIC) and method != "OPTIONS":
            allowed = keys.scope(_key(headers))
            if allowed is None:
                raise HttpError(401, "expected an API key, found none that is known", remedy=_KEY_REMEDY)
            if writes and allowed != WRITE:
                raise HttpError(403, f"expected a key to {WRITE}, found one to {READ}")
        if writes and not self._settings.writable:
            raise HttpError(403, "this service does not change its index", remedy="sparta serve --writable")

    def _is_foreign(self, scope: Message, headers: dict[bytes, bytes]) -> bool:
        """Whether a browser sends a request for a page of another origin, to a service without keys."""
        if self._settings.keys:
            return False
        origin = headers.get(b"origin")
        if origin is None:
            links = scope["path"] == "/" or scope["path"].startswith(_STATIC)
            opened = links and scope["method"] in ("GET", "HEAD")
            return headers.get(b"sec-fetch-site", b"").lower() == b"cross-site" and not opened
        scheme, _, host = origin.decode("latin-1").lower().partition("://")
        own = scheme in ("http", "https") and host == headers.get(b"host", b"").decode("latin-1").lower()
        return not own and origin.decode("latin-1") not in self._settings.origins

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
        limits = self._settings.limits
        coding = headers.get(b"content-encoding", b"identity").lower().decode("latin-1")
        if coding != "identity":
            raise HttpError(415, f"expected a body that is not compressed, found Content-Encoding: {coding}")
        upload = scope["path"].startswith("/passages")  # whose whole time is bounded where it is read
        most, ends = limits.upload if upload else limits.body, time.perf_counter() + limits.timeout
        said = headers.get(b"content-length", b"")
        known = said.isdigit() and b"transfer-encoding" not in headers
        if known and int(said[:20]) > most:
            raise _too_large(most)
        size, more = 0, True

        async def bounded() -> Message:
            nonlocal size, more
            if not more:  # waits for the end of the connection
                return await receive()
            try:
                seconds = limits.timeout if upload else ends - time.perf_counter()
                async with asyncio.timeout(seconds):
                    message = await receive()
            except TimeoutError:
                what = "the next part of the body" if upload else "the whole body"
                raise HttpError(408, f"expected {what} within {limits.timeout:g} s") from None
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
            if size > most:
                raise _too_large(most)
            return message

        return bounded


_ENDING = "the service ended before it had an answer; an upload may still be committed"
_CORS_REMEDY = "start the service with --cors ORIGIN, or with --keys FILE"
_KEY_REMEDY = "send one as X-API-Key: KEY, or as Authorization: Bearer KEY"


def _route(scope: Message) -> str:
    """The name of a request's route, also of one that was refused before it came there."""
    routes = scope["app"].routes if "app" in scope else ()
    matching = (route for route in routes if route.path_regex.match(scope["path"]))
    return getattr(scope.get("route") or next(matching, None), "path", OTHER)


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
