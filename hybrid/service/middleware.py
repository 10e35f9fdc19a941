"""Middleware of the endpoints: request ids, log, allowed origins, JSON errors, API keys, limits of bodies."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hybrid.retrieval.limits import Limits
from hybrid.service.errors import HttpError, as_exception, error_body
from hybrid.service.journal import OTHER, Journal
from hybrid.service.keys import READ, WRITE
from hybrid.service.settings import Settings
from sparta.base.remedies import Command, remedy

PAGES = ("/", "/docs")
OPEN_PATHS = ("/health", "/ready", "/openapi.json", "/favicon.ico", *PAGES)
TASKS = "sparta.tasks"
"""Key in the `state` of an ASGI scope: the asyncio tasks of a connection's running requests."""
_STATIC = "/static/"
_CLIENT_LEFT = 499  # only for the log: the client has left
_LOCAL_NAMES = (b"localhost", b"127.0.0.1", b"[::1]")
_PORT = re.compile(rb":\d*$")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ID, _HEADERS = "sparta.request_id", "sparta.headers"
"""Keys in an ASGI scope: the id of the request, and the headers of the request by name."""
_WITH_KEYS = Command.of("sparta serve", keys="FILE")


def route_path(scope: Scope) -> str:
    """Return the path of a request below the path of its index."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def middleware(
    settings: Settings, journal: Journal, open_paths: Collection[str] = OPEN_PATHS
) -> list[Middleware]:
    """Return the layers that every request passes, the outermost first.

    `SameOrigin` stands before CORS, so that foreign pages get no answer to a preflight either. CORS stands
    before `JsonErrors`, so that pages of allowed origins can read errors.

    :param open_paths: the paths that need no key
    """
    cors = Middleware(
        Cors,
        allow_origins=settings.origins,
        allow_methods=["GET", "POST", "PUT", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "X-API-Key", "X-Request-ID"],
        expose_headers=["X-Request-ID", "Retry-After"],
    )
    return [
        Middleware(Recorded, journal=journal),
        *([] if settings.keys else [Middleware(SameOrigin, origins=settings.origins)]),
        *([cors] if settings.origins else []),
        Middleware(JsonErrors, journal=journal),
        Middleware(Access, settings=settings, open_paths=open_paths),
        Middleware(BoundedBody, limits=settings.limits),
    ]


class Recorded:
    """Gives each request an id, logs and counts its answer, and lets the server cancel its work."""

    def __init__(self, app: ASGIApp, journal: Journal) -> None:
        self._app, self._journal = app, journal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; HEAD is answered as GET, and the server leaves the body out."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, method, status = time.perf_counter(), scope["method"], 0
        path = route_path(scope)
        if method == "HEAD":
            scope = {**scope, "method": "GET"}
        scope[_HEADERS] = headers = dict(scope["headers"])
        scope[_ID] = request_id = self._journal.request_id(headers.get(b"x-request-id", b""))

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        tasks, task = scope.setdefault("state", {}).setdefault(TASKS, set()), asyncio.current_task()
        tasks.add(task)
        try:
            await self._app(scope, receive, answer)
        except asyncio.CancelledError:
            if task in tasks:
                raise
            status = _CLIENT_LEFT
        finally:
            tasks.discard(task)
        self._journal.answered(
            request_id,
            status or _CLIENT_LEFT,
            time.perf_counter() - began,
            method=method,
            path=scope["path"],
            route=_route(scope, path),
            client=(scope.get("client") or ("",))[0],
        )


class SameOrigin:
    """Refuses requests that a browser sends for a page of another origin (403); for services without keys.

    :param origins: allowed origins besides the service's own
    """

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._app, self._origins = app, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 403."""
        if scope["type"] == "http" and self._is_foreign(scope, scope[_HEADERS]):
            error = HttpError(
                403, "requests from pages of other origins are not allowed", remedy=_CORS_REMEDY
            )
            await _send_error(error, scope[_ID], send)
            return
        await self._app(scope, receive, send)

    def _is_foreign(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        """Return whether a browser sent the request for a page of an origin that is not allowed."""
        origin = headers.get(b"origin")
        if origin is None:
            is_link = scope["method"] == "GET" and (
                route_path(scope) in PAGES or route_path(scope).startswith(_STATIC)
            )
            return headers.get(b"sec-fetch-site", b"").lower() == b"cross-site" and not is_link
        scheme, _, host = origin.decode("latin-1").lower().partition("://")
        is_same = scheme in ("http", "https") and host == headers.get(b"host", b"").decode("latin-1").lower()
        return not is_same and origin.decode("latin-1") not in self._origins


class Cors(CORSMiddleware):
    """Starlette's CORS, but with refusals in JSON, like other errors."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            await super().__call__(scope, receive, send)
        except HttpError as error:  # of `preflight_response`: `JsonErrors` answers all others
            await _send_error(error, scope[_ID], send)

    def preflight_response(self, request_headers: Headers) -> Response:
        """Return the answer to a preflight.

        :raises HttpError: 400, the origin, the method or a header is not allowed
        """
        answer = super().preflight_response(request_headers)
        if answer.status_code == 400:
            reason = bytes(answer.body).decode()
            error = HttpError(400, f"the preflight is refused: {reason}", remedy=_PREFLIGHT_REMEDY)
            error.headers = [(k, v) for k, v in answer.raw_headers if not k.startswith(b"content-")]
            raise error
        return answer


class JsonErrors:
    """Turns an exception of the inner layers into a JSON response, unless a response has begun."""

    def __init__(self, app: ASGIApp, journal: Journal) -> None:
        self._app, self._journal = app, journal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; log an exception and answer it with JSON."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, answer)
            return
        except ClientDisconnect:
            return
        except asyncio.CancelledError:
            if asyncio.current_task() not in scope["state"][TASKS]:
                raise  # the client has left
            # the server shuts down, and no longer waits for requests
            failure: Exception = HttpError(503, _ENDING, remedy="try again later")
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # also a panic of an extension
            failure = as_exception(error)
        self._journal.failed(scope[_ID], failure)
        if not begun:
            await _send_error(failure, scope[_ID], send)


class Access:
    """Refuses requests without permission: 401 and 403 by API key; without keys, 421 by the header Host."""

    def __init__(self, app: ASGIApp, settings: Settings, open_paths: Collection[str]) -> None:
        self._app, self._keys, self._writable = app, settings.keys, settings.writable
        self._open_paths = open_paths
        host = settings.host.strip("[]").lower()
        self._names = {*_LOCAL_NAMES, (f"[{host}]" if ":" in host else host).encode()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a permitted request on.

        :raises HttpError: 401, 403 or 421 for a refused request; 400 for a path with a control character
        """
        if scope["type"] == "http":
            self._check(route_path(scope), scope["method"], scope[_HEADERS])
        await self._app(scope, receive, send)

    def _check(self, path: str, method: str, headers: dict[bytes, bytes]) -> None:
        if _CONTROL.search(path):  # routes would ignore a line end after an id
            raise HttpError(400, "the path of the URL contains a control character")
        writes = path.startswith("/passages") and method not in ("GET", "OPTIONS")
        if not self._keys:
            self._check_host(headers.get(b"host", b""))
        elif path not in self._open_paths and not path.startswith(_STATIC) and method != "OPTIONS":
            allowed = self._keys.scope(_key(headers))
            if allowed is None:
                raise HttpError(
                    401, "authentication failed: the request has no valid API key", remedy=_KEY_REMEDY
                )
            if writes and allowed != WRITE:
                raise HttpError(403, f"the API key may only {READ}, but the request needs a key to {WRITE}")
        if writes and not self._writable:
            raise HttpError(403, "this service is read-only", remedy=_WRITE_REMEDY)

    def _check_host(self, host: bytes) -> None:
        """Refuse another host's name, which a web page can point to this machine (DNS rebinding)."""
        name = host.rpartition(b":")[0] if _PORT.search(host) else host
        if host and name.lower() not in self._names:
            raise HttpError(421, "without keys, the Host header must be localhost", remedy=_HOST_REMEDY)


class BoundedBody:
    """Limits the size (413) and the time (408) of a request's body, and refuses compression (415)."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with a bounded body.

        :raises HttpError: 413 or 415; reading the body raises 408 or 413
        """
        if scope["type"] == "http":
            receive = self._bounded(route_path(scope), scope[_HEADERS], receive)
        await self._app(scope, receive, send)

    def _bounded(self, path: str, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """Return a `receive` that raises once the body is too large or too late."""
        limits = self._limits
        coding = headers.get(b"content-encoding", b"identity").lower().decode("latin-1")
        if coding != "identity":
            raise HttpError(415, f"compressed bodies are not supported, found Content-Encoding: {coding}")
        upload = path.startswith("/passages")  # `spooled` bounds its whole time
        most_bytes, deadline = limits.upload if upload else limits.body, time.perf_counter() + limits.timeout
        content_length = headers.get(b"content-length", b"")
        is_length_known = content_length.isdigit() and b"transfer-encoding" not in headers
        if is_length_known and int(content_length[:20]) > most_bytes:
            raise _too_large(most_bytes)
        received, is_more_expected = 0, True

        async def bounded() -> Message:
            nonlocal received, is_more_expected
            if not is_more_expected:  # the body is whole: this call waits for the disconnect
                return await receive()
            try:
                seconds = limits.timeout if upload else deadline - time.perf_counter()
                async with asyncio.timeout(seconds):
                    message = await receive()
            except TimeoutError:
                what = "the next part of the body" if upload else "the whole body"
                raise HttpError(408, f"{what} did not arrive within {limits.timeout:g} s") from None
            received, is_more_expected = (
                received + len(message.get("body", b"")),
                message.get("more_body", False),
            )
            if received > most_bytes:
                raise _too_large(most_bytes)
            return message

        return bounded


_ENDING = "the service stopped before it could answer; an upload may still be committed"
_HOST_REMEDY = remedy("start the service with keys: {}", _WITH_KEYS)
_CORS_REMEDY = remedy(
    "start the service with: {}, or with: {}", Command.of("sparta serve", cors="ORIGIN"), _WITH_KEYS
)
_PREFLIGHT_REMEDY = remedy(
    "the response lists the allowed methods and headers; to allow an origin, start the service with: {}",
    Command.of("sparta serve", cors="ORIGIN"),
)
_WRITE_REMEDY = remedy("start the service with: {}", Command.of("sparta serve", writable=True))
_KEY_REMEDY = "send a key in the header X-API-Key: KEY, or Authorization: Bearer KEY"


def _route(scope: Scope, path: str) -> str:
    """Return the name of a request's route, even if the request was refused before routing.

    :param path: the request's `route_path` before routing, because a mount changes `root_path`
    """
    routes = scope["app"].routes if "app" in scope else ()
    matching = (route for route in routes if route.path_regex.match(path))
    return getattr(scope.get("route") or next(matching, None), "path", OTHER)


def _key(headers: dict[bytes, bytes]) -> str:
    key = headers.get(b"x-api-key")
    if key is None:
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        key = key.strip() if scheme.lower() == b"bearer" else b""
    return key.decode("latin-1")


def _too_large(most: int) -> HttpError:
    return HttpError(413, f"the body is longer than the limit of {most:,} bytes")


async def _send_error(error: Exception, request_id: str, send: Send) -> None:
    status, body, error_headers = error_body(error, request_id)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *error_headers,
    ]
    if status == 408:
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
