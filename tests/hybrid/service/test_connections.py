"""Connections of real clients: early refusals, offers of another protocol, requests in pieces."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hybrid.service.settings import Limits, Settings
from tests.hybrid.service.services import guarded

pytest.importorskip("uvicorn", reason="needs the extra serve")


async def reads(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the size of the body; of a body to /refused nothing is read."""
    from hybrid.service.app import read_body

    refused = scope["path"] == "/refused"
    body = b"" if refused else await read_body(receive)
    told = b"%s %d" % (scope["method"].encode(), len(body))
    if "é" in scope["path"]:
        told = f"{scope['path']} {scope['query_string'].decode()}".encode()
    if scope["path"] == "/large":
        told = bytes(64 << 20)
    headers = [(b"content-length", str(len(told)).encode())]
    await send({"type": "http.response.start", "status": 403 if refused else 200, "headers": headers})
    await send({"type": "http.response.body", "body": told})


@pytest.fixture
def seconds() -> float:
    """How long a connection waits."""
    return 10


@pytest.fixture
def limit() -> int | None:
    """The number of connections that the server accepts; further requests get 503."""
    return None


@pytest.fixture
def metrics() -> Any:
    """The metrics of the server."""
    from hybrid.service.metrics import Metrics

    return Metrics()


@pytest.fixture
def served(seconds: float, limit: int | None, metrics: Any) -> Iterator[tuple[int, set[Any]]]:
    """The port of a server with our connections, and those that are open."""
    import uvicorn

    from hybrid.service.connections import TimedProtocol
    from hybrid.service.journal import Journal

    journal = Journal(metrics)
    http_class: Any = partial(TimedProtocol, seconds=seconds, refusal=journal.refusal)
    app = guarded(reads, Settings(limits=Limits(timeout=seconds, body=1 << 20)), journal)
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=http_class, log_config=None, lifespan="off", limit_concurrency=limit)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    yield listening.getsockname()[1], server.server_state.connections
    server.should_exit = True
    thread.join(20)


@pytest.fixture
def port(served: tuple[int, set[Any]]) -> int:
    """That of the server."""
    return served[0]


def asked(port: int, *parts: bytes) -> bytes:
    """All that is answered until the end of the connection; what is sent first is waited for."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while more := connection.recv(65536):
            found += more
    return found


@pytest.mark.parametrize("size", [300_000, 12_000_000])
def test_a_refusal_reaches_a_client_that_still_sends(port: int, size: int) -> None:
    """And its connection is good for the next request."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
        for _ in range(4):
            client.request("POST", "/refused", b"x" * size)
            answer = client.getresponse()
            assert (answer.status, len(answer.read()) > 0) == (413 if size > 1 << 20 else 403, True)
            client.request("GET", "/next")
            assert client.getresponse().read() == b"GET 0"


@pytest.mark.parametrize("cut", [2, 22, 160])
def test_a_body_beside_an_offer_of_http2_is_read(port: int, cut: int) -> None:
    """As Java's HTTP client sends it, the head by itself, also in two pieces; once more on the connection."""
    head = (
        b"POST /search HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 20\r\n"
        b"Host: localhost\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        for _ in range(2):
            connection.sendall(head[:cut])
            time.sleep(0.1)
            connection.sendall(head[cut:] + b"\r\n")
            connection.sendall(b"x" * 20)
            found = b""
            while b"POST 20" not in found:
                more = connection.recv(65536)
                assert more, found
                found += more
            assert found.startswith(b"HTTP/1.1 200 ")


def test_a_body_beside_an_offer_is_never_a_request(port: int) -> None:
    """Of a request that comes while another is answered, its head in two pieces."""
    inner = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    first = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n" + b"x" * 19
    offer = b"POST /y HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(inner)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(first)
        time.sleep(0.1)
        connection.sendall(b"x" + offer)
        time.sleep(0.1)
        connection.sendall(b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + inner)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while more := connection.recv(65536):
            found += more
    assert b"POST 20" in found
    assert b"GET 0" not in found


@pytest.mark.parametrize(
    ("limit", "sent", "status", "code"),
    [
        (None, b"\x16\x03\x01 TLS, not HTTP\r\n\r\n", 400, "bad_request"),
        (1, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 503, "unavailable"),
    ],
)
def test_refusals_of_uvicorn_are_json_and_counted(
    port: int, metrics: Any, sent: bytes, status: int, code: str
) -> None:
    head, _, body = asked(port, sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(body)["error"]["code"] == code
    count = f'sparta_requests_total{{method="other",route="other",status="{status}"}} 1.0'
    assert count in metrics.text().decode()


@pytest.mark.parametrize("limit", [1])
def test_the_refusal_of_a_connection_has_the_id_that_the_client_sent(port: int) -> None:
    head, _, body = asked(
        port, b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: mine-7\r\n\r\n"
    ).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nx-request-id: mine-7" in head.lower()
    assert json.loads(body)["request_id"] == "mine-7"


def test_a_broken_body_gets_no_second_response(port: int) -> None:
    """The path answers before it reads the body, whose first chunk has no length."""
    head = b"POST /refused HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(head)
        answer = connection.recv(65536)
        connection.sendall(b"zz\r\n")
        while more := connection.recv(65536):
            answer += more
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("seconds", [0.3])
@pytest.mark.parametrize(
    ("sent", "status"), [(b"GET / HTTP/1.1\r\nHo", 408), (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, 431)]
)
def test_what_is_no_whole_request_is_told_so_and_logged(
    port: int, sent: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sparta.serve")
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(sent)
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    told = json.loads(body)
    assert head.startswith(b"HTTP/1.1 %d " % status)
    [logged] = [record for record in caplog.records if record.getMessage() == "request"]
    assert (logged.status, logged.request_id) == (status, told["request_id"])


@pytest.mark.parametrize("seconds", [0.3])
@pytest.mark.parametrize(
    "begun", [b"GET / HTTP/1.1\r\nX: ", b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n"]
)
def test_a_request_that_comes_byte_by_byte_is_given_up(port: int, begun: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=0.02) as connection:
        connection.sendall(begun)
        answer, ends = b"", time.monotonic() + 10
        while not answer and time.monotonic() < ends:
            connection.sendall(b"x")
            with suppress(TimeoutError):
                answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("seconds", [0.3])
@pytest.mark.parametrize(
    ("begun", "rest"),
    [
        (b"POST /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n", [b"1", b"2", b"3", b"4"]),
        (b"GET /first HTTP/1.1\r\nHost: localhost\r\n\r\n", [b"\r\n"]),
    ],
)
def test_a_rest_after_the_answer_costs_the_next_request_no_time(
    served: tuple[int, set[Any]], begun: bytes, rest: list[bytes]
) -> None:
    """Nor the connection its end: without a next request, it ends as usual, without an answer."""
    port, connections = served
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for turn in range(2):
            connection.sendall(begun)
            assert connection.recv(65536).startswith(b"HTTP/1.1 ")
            for part in rest:
                time.sleep(0.1)
                connection.sendall(part)
            if turn == 0:
                time.sleep(0.4)
                [protocol] = connections
                protocol.timeout_keep_alive = 0.15
        assert connection.recv(65536) == b""


def test_a_head_request_is_answered_as_a_get_without_a_body(port: int) -> None:
    found = asked(port, b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"content-length: 5" in head
    assert body == b""


def test_an_address_in_plain_utf_8_is_understood(port: int) -> None:
    """Also that of a later request of a connection; the body stays as it is."""
    first = "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\né".encode()
    second = "GET /passages/Zürich-é?n=ü HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(first)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(second)
        found = b""
        while more := connection.recv(65536):
            found += more
    assert found.endswith("/passages/Zürich-é n=%C3%BC".encode())


def test_a_compressed_body_is_told_to_be_one(port: int) -> None:
    request = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nConnection: close\r\n"
    found = asked(port, request + b"Content-Length: 2\r\n\r\n\x1f\x8b")
    assert found.startswith(b"HTTP/1.1 415 ")
    assert b"Content-Encoding: gzip" in found


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.1])
@pytest.mark.parametrize("reading", [False, True])
def test_an_answer_that_nobody_reads_is_given_up(served: tuple[int, set[Any]], reading: bool) -> None:
    """One that is read slowly, with pauses below the limit, is not."""
    port, connections = served
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        size, ends = 0, time.monotonic() + 20
        while not reading and time.monotonic() < ends and not connections:
            time.sleep(0.001)
        while not reading and connections:
            assert time.monotonic() < ends, "the connection is still open"
            time.sleep(0.01)
        while reading and size < 64 << 20 and time.monotonic() < ends and (more := connection.recv(1 << 20)):
            size += len(more)
            time.sleep(0.01)
        assert size >= 64 << 20 or not reading


@pytest.mark.parametrize(
    ("listens", "host", "status"),
    [
        ("127.0.0.2", b"127.0.0.2:8080", 200),
        ("::1", b"[::1]", 200),
        ("127.0.0.1", b"127.0.0.2", 421),
        ("127.0.0.2", b"evil.example", 421),
    ],
)
def test_a_service_answers_to_the_address_it_listens_at(listens: str, host: bytes, status: int) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    service = guarded(reads, Settings(host=listens))
    scope = {"type": "http", "path": "/health", "method": "GET", "headers": [(b"host", host)]}
    asyncio.run(service(scope, receive, send))
    assert sent[0]["status"] == status


@pytest.mark.jvm
@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_server_listens_to_it_ends_it(built: Path, number: signal.Signals) -> None:
    """Between the last line of ours and uvicorn's first."""
    from hybrid.service.server import serve

    signal.signal(number, signal.SIG_DFL)  # under nohup, a server leaves SIGHUP ignored
    late = threading.Timer(60, os.kill, (os.getpid(), signal.SIGTERM))
    late.start()
    serve(Settings(index=built, port=0), announce=lambda _: signal.raise_signal(number))
    assert late.is_alive()
    late.cancel()


@pytest.mark.parametrize(
    "upgrade",
    [b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"Connection: Upgrade\r\nUpgrade: h2c\r\n folded\r\n"],
)
@pytest.mark.parametrize("first", [b"", b"GET /first HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(
    port: int, upgrade: bytes, first: bytes
) -> None:
    lengths = b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"
    head = b"POST /two HTTP/1.1\r\nHost: localhost\r\n" + lengths + upgrade + b"\r\n"
    answer = asked(port, first + head + b"3\r\nabc\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")
    assert b"POST 3" not in answer
    assert b"400" in answer
    assert b"GET 0" not in answer.partition(b"400")[2]


def test_work_stops_when_its_client_leaves() -> None:
    """The request is cancelled at once, also beside an offer of another protocol."""
    import uvicorn

    from hybrid.service.connections import TimedProtocol
    from hybrid.service.journal import Journal
    from hybrid.service.metrics import Metrics

    began, stopped = threading.Semaphore(0), threading.Semaphore(0)

    async def works(scope: Any, receive: Any, send: Any) -> None:
        began.release()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.release()
            raise

    journal = Journal(Metrics())
    app = guarded(works, Settings(), journal)
    listening = socket.create_server(("127.0.0.1", 0))
    http_class: Any = partial(TimedProtocol, seconds=10, refusal=journal.refusal)
    server = uvicorn.Server(uvicorn.Config(app, http=http_class, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        for more in ("", "Connection: Upgrade\r\nUpgrade: h2c\r\n"):
            with socket.create_connection(listening.getsockname()) as client:
                client.sendall(f"GET /work HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode())
                assert began.acquire(timeout=10)
            assert stopped.acquire(timeout=5), more
    finally:
        server.should_exit = server.force_exit = True
        thread.join(20)
