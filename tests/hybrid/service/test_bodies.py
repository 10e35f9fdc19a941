"""How long a body may take, what is told of what fails, and how many connections there may be."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hybrid.service.settings import Limits, Settings
from sparta.base.errors import StorageError
from tests.hybrid.service.services import guarded


async def answered(
    app: Callable[..., Awaitable[None]], receive: Any = None, seconds: float = 20
) -> list[Any]:
    """What a service sends for a request to an application, which is cancelled after so many seconds."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    service = guarded(app, Settings(limits=Limits(timeout=0.2)))
    headers = [(b"host", b"localhost"), (b"content-length", b"1000")]
    scope = {"type": "http", "path": "/search", "method": "POST", "headers": headers}
    task = asyncio.ensure_future(service(scope, receive, send))
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    await task
    return sent


@pytest.mark.parametrize(
    ("error", "status", "traceback"),
    [(StorageError("no space", remedy="rm /x"), 503, False), (ValueError("odd"), 500, True)],
)
def test_a_traceback_is_told_of_faults_alone(
    error: Exception, status: int, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(*_: Any) -> None:
        raise error

    assert asyncio.run(answered(app))[0]["status"] == status
    [told] = [record for record in caplog.records if record.levelno > logging.INFO]
    assert (told.levelname, bool(told.exc_info)) == ("ERROR" if traceback else "WARNING", traceback)


def test_a_request_that_the_server_cancels_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    async def app(*_: Any) -> None:
        await asyncio.sleep(60)

    start, body = asyncio.run(answered(app, seconds=0.05))
    assert (start["status"], json.loads(body["body"])["error"]["code"]) == (503, "unavailable")
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("pause", [0.02, 60])
def test_a_body_that_trickles_or_stops_is_given_up(pause: float) -> None:
    from hybrid.service.app import _body

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        await _body(receive)

    async def receive() -> Any:
        await asyncio.sleep(pause)
        return {"type": "http.request", "body": b"x", "more_body": True}

    began = time.monotonic()
    sent = asyncio.run(answered(app, receive))
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    assert time.monotonic() - began < 10


@pytest.mark.jvm
def test_connections_are_bounded(built, monkeypatch) -> None:
    import uvicorn

    from hybrid.service import server

    made: list[uvicorn.Config] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, _sockets: made.append(self.config))
    monkeypatch.setattr(server, "_log_as_json", lambda _level: None)
    monkeypatch.setattr(server.signal, "signal", lambda *_: None)
    server.serve(Settings(index=built, port=0))
    assert made[0].limit_concurrency == 4096
    assert (made[0].ws, made[0].proxy_headers) == ("none", False)
