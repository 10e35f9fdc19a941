"""How long a body may take, and how many connections there may be."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from hybrid.service.settings import Limits, Settings


def test_a_body_that_trickles_is_given_up() -> None:
    from hybrid.service.app import _body
    from hybrid.service.gate import Gate
    from hybrid.service.metrics import Metrics

    sent: list[Any] = []

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        await _body(receive)

    async def receive() -> Any:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    gate = Gate(app, Settings(limits=Limits(timeout=0.2)), Metrics())
    headers = [(b"host", b"localhost"), (b"content-length", b"1000")]
    scope = {"type": "http", "path": "/search", "method": "POST", "headers": headers}
    began = time.monotonic()
    asyncio.run(asyncio.wait_for(gate(scope, receive, send), 20))
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
