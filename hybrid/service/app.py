"""The endpoints."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from hybrid.service import schemas
from hybrid.service.errors import HttpError
from hybrid.service.gate import Gate
from hybrid.service.metrics import CONTENT_TYPE, Metrics
from hybrid.service.search import dumps
from hybrid.service.service import Service
from hybrid.service.settings import Settings

_ID = Annotated[str, Path(max_length=512, examples=["google"])]
_JSON = "application/json"


def create_app(settings: Settings) -> FastAPI:
    """The application of one index. It opens the index when it starts, and closes it when it ends."""
    metrics = Metrics()
    service = Service(settings, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with service.open():
            yield

    app = FastAPI(
        title="sparta",
        summary="Search that says why.",
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        exception_handlers={HTTPException: _refused, RequestValidationError: _refused},
        responses={"4XX": {"model": schemas.ErrorAnswer, "description": "What was wrong, and what to do."}},
    )
    app.state.service = service
    _add_reading(app, service)
    _add_state(app, service, metrics)
    static = files("hybrid.service") / "static"
    app.mount("/static", StaticFiles(directory=str(static)), name="static")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response((static / "index.html").read_bytes(), media_type="text/html; charset=utf-8")

    app.add_middleware(Gate, settings=settings, metrics=metrics)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", "X-Request-ID"],
            expose_headers=["X-Request-ID", "Retry-After"],
        )
    return app


async def _refused(_request: Request, error: Exception) -> Response:
    """What FastAPI itself refuses, told as all other errors are."""
    if isinstance(error, HTTPException):
        raise HttpError(error.status_code, str(error.detail), remedy="GET /openapi.json lists what there is")
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": (), "msg": str(error)}
    raise HttpError(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


def _json(value: Any) -> Response:
    return Response(dumps(value), media_type=_JSON)


def _takes(model: type[Any], text: str) -> dict[str, Any]:
    """The body of a request, for OpenAPI: it is read by hand, as bytes."""
    schema = model.model_json_schema()
    content = {_JSON: {"schema": schema, "example": schema["examples"][0]}}
    return {"requestBody": {"description": text, "required": True, "content": content}}


def _add_reading(app: FastAPI, service: Service) -> None:
    @app.post(
        "/search",
        responses={200: {"model": schemas.SearchAnswer | schemas.SearchAnswers}},
        openapi_extra=_takes(schemas.SearchRequest, "A question, or a list of them."),
    )
    async def search(request: Request) -> Response:
        """Find passages."""
        asked = schemas.parsed(schemas.SearchRequest, await request.body())
        return Response(await service.search(asked), media_type=_JSON)

    @app.post(
        "/explain",
        responses={200: {"model": schemas.Explanation}},
        openapi_extra=_takes(schemas.ExplainRequest, "A question and a passage."),
    )
    async def explain(request: Request) -> Response:
        """Say why a passage has its score by impacts."""
        asked = schemas.parsed(schemas.ExplainRequest, await request.body())
        return _json(await service.explain(asked.query, asked.id))

    @app.get("/passages/{passage_id}", responses={200: {"model": schemas.Passage}})
    async def passage(passage_id: _ID) -> Response:
        """Give a passage as it is stored."""
        return _json(await service.passage(passage_id))

    @app.get("/passages/{passage_id}/terms", responses={200: {"model": schemas.Terms}})
    async def terms(passage_id: _ID, n: Annotated[int, Query(ge=1, le=10_000)] = 20) -> Response:
        """Give the strongest terms of a passage: what it is found by."""
        return _json(await service.terms(passage_id, n))

    @app.get("/info", responses={200: {"model": schemas.Info}})
    async def info() -> Response:
        """Say what is searched."""
        return _json(await service.info())


def _add_state(app: FastAPI, service: Service, metrics: Metrics) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """Say that the service runs."""
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        """Say whether it answers searches: 503 before the index is open, and while it ends."""
        if not service.ready:
            raise HttpError(503, "the index is not open")
        return {"status": "ready"}

    @app.get("/metrics", include_in_schema=False)
    async def told() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)
