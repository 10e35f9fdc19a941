"""Two thousand malformed requests: each is refused with a 4xx, and the service answers as before."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.hybrid.service.services import QUESTION, lines

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
REQUESTS = 2000
SLOW = 24
CLOSED = 0
"""What stands for a connection that was closed without an answer."""


def post(path: str, body: bytes, *more: bytes, method: str = "POST", length: int | None = None) -> bytes:
    """A whole request, whose body may be of another length than it says."""
    size = len(body) if length is None else length
    head = [f"{method} {path} HTTP/1.1".encode(), b"Host: localhost", b"Connection: close", *more]
    return b"\r\n".join([*head, f"Content-Length: {size}".encode(), b"", body])


def get(path: bytes) -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def wrong_value(draw: random.Random) -> Any:
    return draw.choice([None, True, 1.5, -1, 2**70, [], [[]], {}, {"a": {"b": [1]}}, [1, 2], [None], 10**300])


def wrong_json(draw: random.Random) -> bytes:
    """A body that is JSON, and no search."""
    body: dict[str, Any] = {"query": QUESTION}
    kind = draw.randrange(7)
    if kind == 0:
        body["query"] = wrong_value(draw)
    elif kind == 1:
        body["k"] = draw.choice([0, -5, 1001, 2**63, "ten", 1.5, None, [], True])
    elif kind == 2:
        body["offset"] = draw.choice([-1, 10**6, 2**70, "x", None, {}])
    elif kind == 3:
        body["channels"] = draw.choice(
            ["", "dense", "impact,,=", "bm25=inf", "x" * 999, "impact=1,impact=2", 3, []]
        )
        if body["channels"] == "":
            body["k"] = 0
    elif kind == 4:
        body["filter"] = draw.choice(
            ["x", [], 3, {"nothing": 1}, {"lang": {"near": 1}}, {"lang": {}}, {"": None}]
        )
        if not body["filter"]:
            body["query"] = 3
    elif kind == 5:
        body["collapse"] = draw.choice(["nothing", 3, [], {}, "\0", "x" * 5000])
    else:
        body[draw.choice(["", "Query", "x" * 300, "\ud800", "__proto__"])] = wrong_value(draw)
    return json.dumps(draw.choice([body, body, body, [body], QUESTION, 3, None])).encode()


def broken_json(draw: random.Random) -> bytes:
    whole = json.dumps({"query": QUESTION, "k": 3}).encode()
    return draw.choice(
        [
            whole[: draw.randrange(len(whole))],
            b"[" * draw.randrange(1, 100_000),
            b'{"query":' * draw.randrange(1, 20_000),
            b'{"filter":' + b'{"a":' * 500 + b"1" + b"}" * 501,
            draw.randbytes(draw.randrange(1, 3000)),
            whole.replace(b"who", b"\xff\xfe"),
            b'{"query": "\\ud800"}',
            b'{"query": "a\\u0000" "b"}',
            b'{"query": NaN}',
            b'{"query": "' + b"x" * 1500 + b'"}',
            whole + whole,
            whole.decode().encode("utf-16"),
        ]
    )


def wrong_upload(draw: random.Random) -> bytes:
    """An upload without one good line, or of a kind that is none."""
    method = draw.choice(["PUT", "POST", "DELETE"])
    kind = draw.choice([b"text/plain", b"application/json", b"", b"application/x-ndjson" * 4, b"\xff"])
    bad = [
        b"{",
        b"[]",
        b"3.5",
        b'{"text": "x"}',
        b'{"id": ""}',
        b'{"id": "a b", "text": "x"}',
        b"\xff" * 30,
        b"[" * 999,
    ]
    if draw.random() < 0.7:
        kind = b"application/x-ndjson"
    body = b"\n".join(draw.choices(bad, k=draw.randrange(1, 30)))
    return post("/passages", body, b"Content-Type: " + kind, method=method)


def wrong_path(draw: random.Random) -> bytes:
    return get(
        draw.choice(
            [
                b"/passages/" + b"x" * draw.randrange(513, 3000),
                b"/passages/%ff%fe",
                b"/passages/nope%00",
                b"/terms/google?n=" + draw.choice([b"0", b"-1", b"x", b"1e9", b"%00", b"9" * 400]),
                b"/static/../../etc/passwd",
                b"/static/%2e%2e/%2e%2e/app.py",
                b"/static/" + bytes(draw.choices(range(97, 123), k=9)),
                b"//" + b"a/" * draw.randrange(1, 999),
                b"/" + bytes(draw.choices(range(33, 127), k=40)).replace(b"?", b"_").replace(b"#", b"_"),
            ]
        )
    )


def wrong_method(draw: random.Random) -> bytes:
    name = draw.choice(["GET", "PATCH", "DELETE", "PUT", "OPTIONS", "TRACE"])
    return post("/search", b"{}", method=name)


def wrong_http(draw: random.Random) -> bytes:
    """What is no HTTP, or says two things at once."""
    host = b"Host: localhost\r\n"
    return draw.choice(
        [
            draw.randbytes(draw.randrange(1, 2000)) + b"\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/x.y\r\n" + host + b"\r\n",
            b"get / http\r\n\r\n",
            b"GET /info HTTP/1.1\r\n" + host + b"No colon here\r\n\r\n",
            b"GET /info HTTP/1.1\r\n" + host + b" : x\r\n\r\n",
            b"GET /info HTTP/1.1\r\n" + host + b"X: a\0b\r\n\r\n",
            b"GET /info HTTP/1.1\r\n" + host + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
            b"GET /info HTTP/1.1\r\n" + host + b"".join(b"X%d: y\r\n" % i for i in range(20_000)) + b"\r\n",
            b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n" + host + b"\r\n",
            b"POST /search HTTP/1.1\r\n" + host + b"Content-Length: -1\r\n\r\n{}",
            b"POST /search HTTP/1.1\r\n" + host + b"Content-Length: " + b"9" * 60 + b"\r\n\r\n{}",
            b"POST /search HTTP/1.1\r\n" + host + b"Content-Length: 2\r\nContent-Length: 30\r\n\r\n{}",
            b"POST /search HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
            b"POST /search HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n",
            b"GET /info HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"GET /info HTTP/1.1\r\nHost: " + b"a" * 3000 + b"\r\n\r\n",
        ]
    )


def too_large(draw: random.Random) -> bytes:
    if draw.random() < 0.5:
        return post("/search", b"{}", length=draw.choice([(1 << 20) + 1, 10**12, 10**17]))
    parts = b"".join(b"10000\r\n" + b" " * 0x10000 + b"\r\n" for _ in range(18))
    return (
        b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        + parts
        + b"0\r\n\r\n"
    )


KINDS: list[tuple[int, Callable[[random.Random], bytes]]] = [
    (6, lambda draw: post("/search", wrong_json(draw))),
    (5, lambda draw: post(draw.choice(["/search", "/explain", "/answer"]), broken_json(draw))),
    (3, wrong_upload),
    (3, wrong_path),
    (1, wrong_method),
    (4, wrong_http),
    (1, too_large),
]


def answer(port: int, parts: list[bytes], pause: float = 0.0) -> int:
    """The status of the answer to what is sent, part by part."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        data = b""
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except OSError:
            pass  # it has been refused already
        try:
            while b"\r\n" not in data and (more := connection.recv(65536)):
                data += more
        except ConnectionError:
            pass
    return int(data.split()[1]) if data.startswith(b"HTTP/1.1 ") else CLOSED


def test_malformed_requests_are_refused_and_do_no_harm(running, index) -> None:
    one = running(index, "--writable", "--timeout", "2")
    draw = random.Random(11)
    kinds = draw.choices([kind for _, kind in KINDS], [weight for weight, _ in KINDS], k=REQUESTS)
    requests = [kind(draw) for kind in kinds]
    before = one.search(QUESTION, k=5), one.ask("GET", "/info").body
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda request: answer(one.port, [request]), requests))
    others = [(s, r[:200]) for s, r in zip(statuses, requests, strict=True) if not 400 <= s < 500]
    closed = [r for s, r in others if s == CLOSED]
    assert {one for one in others if one[0] != CLOSED} == set()
    assert len(closed) < REQUESTS / 50, closed[:3]  # refused before all of it was sent
    assert len(set(statuses)) >= 6
    after = one.search(QUESTION, k=5), one.ask("GET", "/info").body
    assert [hit["id"] for hit in after[0]["hits"]] == [hit["id"] for hit in before[0]["hits"]]
    assert after[1] == before[1]
    assert '"level":"error"' not in one.log.read_text()
    assert one.ask("PUT", "/passages", lines({"id": "n", "text": "still"})).status == 200


def test_slow_requests_are_given_up(running, index) -> None:
    """A head or a body that stops half way, and a head that comes byte by byte."""
    one = running(index, "--writable", "--timeout", "1")
    whole = post("/search", json.dumps({"query": QUESTION}).encode())
    upload = post(
        "/passages", lines({"id": "s", "text": "slow"}), b"Content-Type: application/x-ndjson", method="PUT"
    )
    slow: list[list[bytes]] = [
        [whole[:20]],
        [whole[:-10]],
        [upload[:-10]],
        [b""],
        [bytes([byte]) for byte in whole],
        [b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\n{"],
    ]
    began = time.monotonic()
    with ThreadPoolExecutor(SLOW) as pool:
        statuses = list(pool.map(lambda i: answer(one.port, slow[i % len(slow)], 0.05), range(SLOW)))
        assert one.search(QUESTION)["hits"]
    assert set(statuses) == {408}
    assert time.monotonic() - began < 30
    assert answer(one.port, [whole[:50], whole[50:]], 0.3) == 200
    assert one.ask("GET", "/passages/s").status == 404
