"""Several indexes in one service: each below /indexes/NAME, with one Java and one copy of each model."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from hybrid.answering.open_readers import OpenReaders
from hybrid.service.app import APPLICATION, add_pages, add_state, create_app, describe_keys, refused
from hybrid.service.errors import HttpError
from hybrid.service.journal import Journal
from hybrid.service.keys import Keys
from hybrid.service.metrics import Metrics
from hybrid.service.middleware import OPEN_PATHS, middleware
from hybrid.service.schemas import Indexes
from hybrid.service.settings import INDEXES, Settings

_METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH"]


def application(indexes: Sequence[Settings]) -> FastAPI:
    """Return the application of a service: for one index without a name, or for several named indexes.

    Several indexes: requests to `/indexes/NAME/…` go to the application of this index, with the keys, limits,
    queues and metrics of the index. The other paths are those of the service.
    """
    first = indexes[0]
    if not first.name:
        return create_app(first)
    readers = OpenReaders(first.device, first.reader)
    apps = {settings.name: create_app(settings, readers) for settings in indexes}
    services = [app.state.service for app in apps.values()]

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for service in services:
                await stack.enter_async_context(service.open())
            yield

    metrics = Metrics()
    journal = Journal(metrics)
    common = replace(first, keys=Keys.of_all(settings.keys for settings in indexes), writable=True)
    # The page of an index needs no key, also without the slash at the end.
    open_paths = [*OPEN_PATHS, *(f"{INDEXES}{name}" for name in apps)]
    names = list(apps)

    async def not_answered(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException) or error.status_code != 404:
            return await refused(request, error)
        names_shown = "" if common.keys else f"; the indexes: {', '.join(names)}"  # /static/… needs no key
        raise HttpError(
            404,
            f"the path names no index{names_shown}",
            remedy=f"begin the path with {INDEXES}NAME/; GET /indexes lists the names",
        )

    app = _ServiceApp(
        **{
            **APPLICATION,
            "exception_handlers": dict.fromkeys(APPLICATION["exception_handlers"], not_answered),
        },
        lifespan=lifespan,
        middleware=[Middleware(_ByName, apps=apps), *middleware(common, journal, open_paths)],
    )
    app.state.apps, app.state.keys, app.state.journal = apps, common.keys, journal
    add_state(app, metrics)
    add_pages(app, "indexes.html")

    @app.get("/indexes", responses={200: {"model": Indexes}})
    async def list_indexes() -> Indexes:
        """Return the names of the indexes."""
        return Indexes(indexes=names)

    @app.api_route("/indexes/{name}", methods=_METHODS, include_in_schema=False)
    @app.api_route("/indexes/{name}/{path:path}", methods=_METHODS, include_in_schema=False)
    async def elsewhere(name: str, request: Request) -> Response:
        if name in names:  # without the slash, the page's addresses would be those of the service
            query = request.scope["query_string"].decode("latin-1")
            return Response(status_code=307, headers={"Location": f"{name}/{query and '?'}{query}"})
        raise HttpError(404, f"there is no index {name!r}; the indexes: {', '.join(names)}")

    return app


class _ByName:
    """Passes requests to `/indexes/NAME/…` to the application of the index, and others to the service's."""

    def __init__(self, app: ASGIApp, apps: Mapping[str, ASGIApp]) -> None:
        self._app, self._apps = app, apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        app = self._app
        if scope["type"] == "http" and scope["path"].startswith(INDEXES):
            name, slash, _ = scope["path"].removeprefix(INDEXES).partition("/")
            if slash and name in self._apps:
                app, scope = self._apps[name], {**scope, "root_path": f"{INDEXES}{name}"}
        await app(scope, receive, send)


class _ServiceApp(FastAPI):
    """The application of a service with several indexes; OpenAPI describes the paths of all indexes once."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document: the paths of the service, and those of the index `{index}`."""
        if self.openapi_schema:
            return self.openapi_schema
        described = super().openapi()
        apps: Mapping[str, FastAPI] = self.state.apps
        with_keys = [app for app in apps.values() if app.state.service.settings.keys]
        of_index = copy.deepcopy((with_keys or list(apps.values()))[0].openapi())
        names = {} if self.state.keys else {"enum": list(apps), "examples": list(apps)}
        parameter = {"name": "index", "in": "path", "required": True, "schema": {"type": "string", **names}}
        for path, methods in of_index["paths"].items():
            for operation in methods.values():
                operation["operationId"] = f"index_{operation['operationId']}"
                operation["parameters"] = [parameter, *operation.get("parameters", ())]
            described["paths"][f"{INDEXES}{{index}}{path}"] = methods
        described["components"]["schemas"] |= of_index["components"]["schemas"]
        if with_keys:
            describe_keys(described)
        return described
