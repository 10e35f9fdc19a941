"""The HTTP endpoints of `sparta serve`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from typing import Annotated, Any, BinaryIO

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hybrid.answering.open_readers import OpenReaders
from hybrid.service import schemas
from hybrid.service.errors import HttpError
from hybrid.service.journal import Journal
from hybrid.service.live.ndjson import CONTENT_TYPES, check_content_type, is_filter, is_json, spooled
from hybrid.service.live.parameters import ANSWER_PARAMETERS, SEARCH_PARAMETERS
from hybrid.service.live.service import Service
from hybrid.service.metrics import CONTENT_TYPE, IndexMetrics, Metrics
from hybrid.service.middleware import OPEN_PATHS, middleware, route_path
from hybrid.service.schemas import dumps
from hybrid.service.settings import Settings

_ID = Annotated[str, Path(max_length=512, examples=["google"])]
_JSON = "application/json"
_PAGE_HEADERS = {
    "Accept-Ranges": "none",
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "frame-ancestors 'none'",  # index.html declares the rest of the policy
    "X-Content-Type-Options": "nosniff",
}
_PASSAGES = '{"id": "moon", "title": "Moon", "text": "The Moon is 384,400 kilometres away."}\n'
_IDS = '{"id": "moon"}\n"sun"\n'


class _PageFiles(StaticFiles):
    """Serves the files of the web page; browsers revalidate each file, so that all have one version."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the whole file and ignore ranges: a bad range would get an error that is not JSON."""
        headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a file's response with the headers of the web page."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(_PAGE_HEADERS)
        return response


class _App(FastAPI):
    """The application; if it requires API keys, its OpenAPI document declares the security schemes."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document; if the service has keys, with security schemes."""
        described = super().openapi()
        if self.state.service.settings.keys:
            describe_keys(described)
        return described


def describe_keys(described: dict[str, Any]) -> None:
    """Declare in an OpenAPI document how clients send keys, and which paths need none."""
    described["components"]["securitySchemes"] = {
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "bearer": {"type": "http", "scheme": "bearer"},
    }
    described["security"] = [{"key": []}, {"bearer": []}]
    for path in described["paths"].keys() & OPEN_PATHS:
        described["paths"][path]["get"]["security"] = []


def create_app(settings: Settings, readers: OpenReaders | None = None) -> FastAPI:
    """Return the application for one index: it opens the index at startup and closes it at shutdown.

    :param readers: the readers, which other indexes may share; None opens new readers
    """
    metrics = IndexMetrics()
    readers = readers or OpenReaders(settings.device, settings.reader)
    service, journal = Service(settings, metrics, readers), Journal(metrics)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with service.open():
            yield

    app = _App(
        **APPLICATION,
        lifespan=lifespan,
        middleware=[*middleware(settings, journal), Middleware(_Search, service=service)],
    )
    app.state.service, app.state.journal = service, journal
    _add_reading(app, service)
    _add_writing(app, service)
    add_state(app, metrics)
    add_pages(app, "index.html")
    return app


def add_pages(app: FastAPI, first: str) -> None:
    """Add the page `first`, the page of the API, and their files."""
    static = files("hybrid.service") / "static"
    app.mount("/static", _PageFiles(directory=str(static)), name="static")

    def add_page(path: str, name: str) -> None:
        @app.get(path, include_in_schema=False)
        async def page() -> Response:
            html = (static / name).read_bytes()
            return Response(html, headers=_PAGE_HEADERS, media_type="text/html; charset=utf-8")

    add_page("/", first)
    add_page("/docs", "docs.html")

    @app.get("/favicon.ico", include_in_schema=False)  # browsers ask for it on pages without an icon
    async def icon() -> Response:
        return Response(
            (static / "favicon.svg").read_bytes(), headers=_PAGE_HEADERS, media_type="image/svg+xml"
        )


async def refused(request: Request, error: Exception) -> Response:
    """Raise FastAPI's own errors (routing, validation) again, as `HttpError`."""
    if isinstance(error, HTTPException):
        remedy = "GET /docs lists the endpoints"
        error_answer = HttpError(error.status_code, str(error.detail), remedy=remedy)
        if error.status_code == 405:
            error_answer.headers.append((b"allow", ", ".join(_allowed(request)).encode()))
        raise error_answer
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": (), "msg": str(error)}
    raise HttpError(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


APPLICATION: dict[str, Any] = {
    "title": "sparta",
    "summary": "Search that says why.",
    "version": "1",
    "docs_url": None,
    "redoc_url": None,
    "redirect_slashes": False,  # a redirect would use http, and the host that the client names
    "exception_handlers": {HTTPException: refused, RequestValidationError: refused},
    "responses": {
        "4XX": {"model": schemas.ErrorAnswer, "description": "What is wrong, and what to do."},
        "5XX": {"model": schemas.ErrorAnswer, "description": "Timeout, unavailable, or an internal error."},
    },
}
"""Arguments of every application of the service."""


def _allowed(request: Request) -> list[str]:
    """Return the HTTP methods that a request's path allows; a path without a route (a file) allows GET."""
    path = route_path(request.scope)
    routes = [
        route for route in request.app.routes if isinstance(route, Route) and route.path_regex.match(path)
    ]
    methods = {method for route in routes for method in route.methods or ()} or {"GET"}
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


def _json(value: Any) -> Response:
    return Response(dumps(value), media_type=_JSON)


def _takes(model: type[Any], text: str) -> dict[str, Any]:
    """Return the OpenAPI description of a request body that is parsed from bytes."""
    schema = model.model_json_schema()
    content = {_JSON: {"schema": schema, "example": schema["examples"][0]}}
    return {"requestBody": {"description": text, "required": True, "content": content}}


class _Search:
    """Answers POST /search before FastAPI, whose work per request would take half of the time."""

    path = "/search"

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a search, and pass other requests on."""
        if scope["type"] != "http" or route_path(scope) != self.path or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope["route"] = self
        request = schemas.parsed(schemas.SearchRequest, await read_body(receive))
        body = await self._service.search(request)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def read_body(receive: Receive) -> bytes:
    """Return the whole body of a request."""
    chunks, has_more = [], True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        has_more = message.get("more_body", False)
    return b"".join(chunks)


def _add_reading(app: FastAPI, service: Service) -> None:
    @app.get(
        "/search",
        responses={200: {"model": schemas.SearchAnswer}},
        openapi_extra={"parameters": SEARCH_PARAMETERS.described()},
    )
    async def search_by_url(request: Request) -> Response:
        """Search passages for one query."""
        body = await service.search(SEARCH_PARAMETERS.parse(request.scope["query_string"]))
        return Response(body, media_type=_JSON)

    @app.post(  # describes POST in OpenAPI, and answers other methods with 405
        "/search",
        responses={200: {"model": schemas.SearchAnswer | schemas.SearchAnswers}},
        openapi_extra=_takes(schemas.SearchRequest, "A query, or a list of queries."),
    )
    async def search() -> Response:
        """Search passages."""
        raise HTTPException(405)

    @app.post(
        "/explain",
        responses={200: {"model": schemas.Explanation}},
        openapi_extra=_takes(schemas.ExplainRequest, "A query and a passage."),
    )
    async def explain(request: Request) -> Response:
        """Explain a passage's impact score for a query."""
        body = schemas.parsed(schemas.ExplainRequest, await request.body())
        return _json(await service.explain(body.query, body.id))

    @app.get(
        "/answer",
        responses={200: {"model": schemas.Answers}},
        openapi_extra={"parameters": ANSWER_PARAMETERS.described()},
    )
    async def answer_by_url(request: Request) -> Response:
        """Answer one question from the best passages."""
        return _json(await service.answer(ANSWER_PARAMETERS.parse(request.scope["query_string"])))

    @app.post(
        "/answer",
        responses={200: {"model": schemas.Answers}},
        openapi_extra=_takes(schemas.AnswerRequest, "A question."),
    )
    async def answer(request: Request) -> Response:
        """Answer a question from the best passages."""
        body = schemas.parsed(schemas.AnswerRequest, await request.body())
        return _json(await service.answer(body))

    @app.get("/terms/{passage_id:path}", responses={200: {"model": schemas.Terms}})
    async def terms(passage_id: _ID, n: Annotated[int, Query(ge=1, le=10_000)] = 20) -> Response:
        """Return a passage's terms with the highest impacts."""
        return _json(await service.terms(passage_id, n))

    @app.get("/passages/{passage_id:path}", responses={200: {"model": schemas.Passage}})
    async def passage(passage_id: _ID) -> Response:
        """Return a stored passage."""
        return _json(await service.passage(passage_id))

    @app.get("/info", responses={200: {"model": schemas.Info}})
    async def info() -> Response:
        """Return facts about the searched index."""
        return _json(await service.info())


def _add_writing(app: FastAPI, service: Service) -> None:
    async def upload(request: Request, write: Callable[[BinaryIO], Awaitable[dict[str, Any]]]) -> Response:
        content_type = request.headers.get("content-type", "")
        check_content_type(content_type)
        with service.writer.place():
            async with spooled(request.stream(), service.settings.limits.upload_timeout) as stream:
                if not is_json(content_type):
                    return _json(await write(stream))
                with await service.writer.lines(stream) as lines:
                    return _json(await write(lines))

    async def delete_lines(stream: BinaryIO) -> dict[str, Any]:
        """Delete the ids of an upload, or the matches of its first line, if that is a filter."""
        first_line = stream.readline(service.settings.limits.line + 1)
        stream.seek(0)
        if is_filter(first_line):
            return await service.writer.delete_matching(stream)
        return await service.writer.delete(stream)

    @app.put("/passages", **_upload("Passages, one JSON object per line, or a JSON list.", _PASSAGES))
    async def put(request: Request) -> Response:
        """Replace passages by id, and add new ones. The answer comes after the commit."""
        return await upload(request, service.writer.put)

    @app.post("/passages", **_upload("New passages, one JSON object per line, or a JSON list.", _PASSAGES))
    async def add(request: Request) -> Response:
        """Add passages. The answer comes after the commit."""
        return await upload(request, service.writer.add)

    @app.delete("/passages", **_upload("Passage ids, one per line, or a JSON list; or a filter.", _IDS))
    async def delete(request: Request) -> Response:
        """Delete passages by id, or all that match a filter: {"filter": …}. Answers after the commit."""
        return await upload(request, delete_lines)

    @app.delete("/passages/{passage_id:path}", responses={200: {"model": schemas.Written}})
    async def delete_one(passage_id: _ID) -> Response:
        """Delete a passage."""
        with service.writer.place():
            return _json(await service.writer.delete_one(passage_id))


def _upload(text: str, example: str) -> dict[str, Any]:
    """Return the OpenAPI description of an upload."""
    value = json.loads(example.splitlines()[0])
    content = {
        CONTENT_TYPES[0]: {"schema": {"type": "string"}, "example": example},
        _JSON: {"schema": {}, "example": [value]},
    }
    body = {"requestBody": {"description": text, "required": True, "content": content}}
    return {"responses": {200: {"model": schemas.Written}}, "openapi_extra": body}


def add_state(app: FastAPI, metrics: Metrics) -> None:
    """Add the paths that say whether the service runs and can search, and the metrics."""

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Return "ok" while the service runs."""
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        """Return "ready": the service accepts connections only once the index is open."""
        return {"status": "ready"}

    @app.get("/metrics", include_in_schema=False)
    async def prometheus_metrics() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)
