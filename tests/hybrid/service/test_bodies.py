"""How long a body may take, what is told of what fails, and how many connections there may be."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import resource
import signal
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hybrid.service.errors import HttpError, error_body
from hybrid.service.live.ndjson import LineErrors, as_lines, read_lines
from hybrid.service.settings import Limits, Settings
from sparta.base.errors import (
    IndexStateError,
    InputError,
    JavaMemoryError,
    ModelError,
    SpartaError,
    StorageError,
)
from sparta.base.remedies import Option, remedy
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


def test_too_little_memory_of_java_tells_the_client_to_ask_for_less() -> None:
    error = JavaMemoryError("Java ran out of memory (Java heap space)", where="/x/ix", remedy="more")
    status, body, headers = error_body(error, "id-1")
    assert (status, dict(headers)[b"retry-after"]) == (503, b"1")
    assert "fewer hits or queries" in json.loads(body)["error"]["remedy"]
    assert b"/x/ix" not in body


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


def test_the_log_has_the_remedy_as_a_command(caplog: pytest.LogCaptureFixture) -> None:
    async def app(*_: Any) -> None:
        raise IndexStateError("in the way", remedy=remedy("use {}", Option("overwrite", True)))

    asyncio.run(answered(app))
    assert [vars(record)["error"] for record in caplog.records if "error" in vars(record)] == [
        "in the way\n  → use --overwrite"
    ]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModelError("the model of the index, '/home/me/my models/small', is missing"),
            "the model of the index, 'small', is missing",
        ),
        (
            IndexStateError('the index is damaged (resource=Input(path="/home/me/ix/sparta-000001/_0.cfs"))'),
            'the index is damaged (resource=Input(path="_0.cfs"))',
        ),
        (InputError("no passage has the field '/a/b'"), "no passage has the field '/a/b'"),
    ],
)
def test_no_body_names_folders_of_the_machine(error: SpartaError, message: str) -> None:
    assert json.loads(error_body(error, "1")[1])["error"]["message"] == message


def test_a_request_that_the_server_cancels_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    async def app(*_: Any) -> None:
        await asyncio.sleep(60)

    start, body = asyncio.run(answered(app, seconds=0.05))
    assert (start["status"], json.loads(body["body"])["error"]["code"]) == (503, "unavailable")
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("pause", [0.02, 60])
def test_a_body_that_trickles_or_stops_is_given_up(pause: float) -> None:
    from hybrid.service.app import read_body

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        await read_body(receive)

    async def receive() -> Any:
        await asyncio.sleep(pause)
        return {"type": "http.request", "body": b"x", "more_body": True}

    began = time.monotonic()
    sent = asyncio.run(answered(app, receive))
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    assert time.monotonic() - began < 10


@pytest.mark.jvm
@pytest.mark.usefixtures("as_before")
def test_connections_are_bounded(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No other protocol is spoken, and no header names another client."""
    from hybrid.service.server import serve

    assert Settings(index=built).connections == 4096
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "X-Forwarded-For": "192.0.2.1"}
    statuses: list[int] = []

    def ask(address: str) -> None:
        try:
            with ExitStack() as stack:
                for _ in range(3):
                    connection = HTTPConnection("127.0.0.1", urlsplit(address).port or 0, timeout=60)
                    stack.callback(connection.close)
                    connection.request("GET", "/health", headers=headers)
                    statuses.append(connection.getresponse().status)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as thread:
        serve(Settings(index=built, port=0, connections=3), announce=partial(thread.submit, ask))
    assert statuses == [200, 200, 503]
    logged = capsys.readouterr().err
    assert '"path":"/health"' in logged
    assert '"client":"127.0.0.1"' in logged
    assert "192.0.2.1" not in logged


def test_json_bodies_have_the_limit_of_lines() -> None:
    """Each element of a JSON body is as long as in the body, whatever its script."""
    text = "月" * 200_000
    record = json.dumps({"id": "1", "text": text}, ensure_ascii=False).encode()
    assert len(record) < Limits().line < len(json.dumps({"text": text}))
    for body in (record, b"[" + record + b"]"):
        assert json.loads(as_lines(io.BytesIO(body), Limits()).read()) == {"id": "1", "text": text}
        assert len(as_lines(io.BytesIO(body), Limits()).read()) <= len(record) + 1


def test_json_lists_report_each_bad_element_like_lines() -> None:
    elements = [
        '{"id": "1", "text": "moon \\ud800"}',
        '{"id": "2",\n "text": "moon"}',
        '{"id": "3", "n": 1e400}',
    ]
    lists, lines = LineErrors(), LineErrors()
    stream = as_lines(io.BytesIO(f"[{', '.join(elements)}]".encode()), Limits())
    body = io.BytesIO("\n".join(element.replace("\n", "") for element in elements).encode())
    assert [line.passage_id for line in read_lines(stream, Limits(), lists, ids=False)] == ["2"]
    assert [line.passage_id for line in read_lines(body, Limits(), lines, ids=False)] == ["2"]
    assert lists.report() == lines.report()
    assert [error["line"] for error in lists] == [1, 3]


def test_escapes_of_a_json_list_do_not_count_as_its_lines_bytes() -> None:
    body = json.dumps([{"id": "1", "text": "\u6708" * 40}, {"id": "2", "text": "a"}]).encode()
    limits, errors = replace(Limits(), line=200), LineErrors()
    assert len(body) > 240
    stream = as_lines(io.BytesIO(body), limits)
    assert [line.passage_id for line in read_lines(stream, limits, errors, ids=False)] == ["1", "2"]


@pytest.mark.parametrize(
    ("element", "limits", "message"),
    [
        (
            b"[" + b"[]," * 1_100_000 + b"1]",
            Limits(),
            "element 2 .*: the element has more than 2,000,000 JSON",
        ),
        (
            b'"%b"' % (b"a" * (3 << 20)),
            Limits(line=1000),
            "element 2 .*: the element is longer than 6,000 characters",
        ),
    ],
)
def test_a_large_element_of_a_json_list_is_refused_before_it_is_decoded(
    element: bytes, limits: Limits, message: str
) -> None:
    with pytest.raises(HttpError, match=message) as refused:
        as_lines(io.BytesIO(b"[1, " + element + b"]"), limits)
    assert refused.value.status == 413


def test_blanks_of_a_json_body_cost_no_time() -> None:
    blanks, begun = b" " * (4 << 20), time.process_time()
    assert as_lines(io.BytesIO(blanks + b"[" + blanks + b"1]"), Limits()).read() == b"1\n"
    assert time.process_time() - begun < 1


def test_json_bodies_may_begin_with_a_byte_order_mark() -> None:
    for body in (b'[{"id": "1"}, "2"]', b' [{"id": "1"},"2"]', b'{"id": "1"}'):
        with_mark = as_lines(io.BytesIO(b"\xef\xbb\xbf" + body), Limits()).read()
        assert with_mark == as_lines(io.BytesIO(body), Limits()).read() != b""


def test_a_full_folder_for_temporary_files_is_told_of_json_bodies() -> None:
    """Files of this process may hold nothing for a moment, as with a quota that is used up."""
    body = json.dumps([{"id": str(i), "text": "x" * 1000} for i in range(2000)]).encode()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))
    try:
        with pytest.raises(StorageError, match="cannot be written: File too large"):
            as_lines(io.BytesIO(body), Limits())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


@pytest.mark.parametrize("bad", [3, 4])
def test_one_bad_line_too_many_at_the_end_is_counted(bad: int) -> None:
    limits, errors = replace(Limits(), bad_lines=3), LineErrors()
    body = b'{"id": "1", "text": "moon"}\n' + b"not JSON\n" * bad
    if bad <= limits.bad_lines:
        assert [line.passage_id for line in read_lines(io.BytesIO(body), limits, errors, ids=False)] == ["1"]
        return
    with pytest.raises(HttpError, match="more than 3 bad lines"):
        list(read_lines(io.BytesIO(body), limits, errors, ids=False))
