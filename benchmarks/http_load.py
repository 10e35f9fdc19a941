"""A light load of HTTP requests: so many connections, each with its next request as soon as it has an answer.

    python benchmarks/http_load.py < PLAN.json

A plan is `{"host", "port", "connections", "seconds", "count", "requests": [text, …], "same": [begin, end]}`:
requests are whole, with their heads, and are sent in turn; it ends after `seconds`, or sooner with `count`.
Of the answers, the part between the marks of `same` must always be the one that the request had first. Prints
JSON: answers by status, changed ones, broken connections, and latencies in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from array import array
from collections import Counter
from itertools import count
from typing import Any, cast


class Load:
    """What all connections of a load share."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.requests = [request.encode() for request in plan["requests"]]
        self.begin, self.end = (mark.encode() for mark in plan.get("same") or ("", ""))
        self.most = plan.get("count") or sys.maxsize
        self.first: dict[int, bytes] = {}
        self.statuses: Counter[int] = Counter()
        self.latencies = array("d")
        self.changed = self.broken = 0
        self.numbers = count()
        self.done = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()

    def check(self, number: int, body: bytes) -> None:
        """Compare an answer with the first one to the same request."""
        if self.begin:
            start = body.find(self.begin)
            own = body[start : body.rfind(self.end)]
            self.changed += start < 0 or self.first.setdefault(number, own) != own


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: Load) -> None:
        self.load = load

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast(asyncio.Transport, transport)
        self.send()

    def send(self) -> None:
        """Send the next request."""
        self.data = bytearray()
        self.body = -1
        number = next(self.load.numbers)
        self.number = number % len(self.load.requests)
        if number >= self.load.most:
            self.load.done.set()
            return
        self.began = time.perf_counter()
        self.transport.write(self.load.requests[self.number])

    def data_received(self, data: bytes) -> None:
        """Wait for the end of the answer, and go on."""
        self.data += data
        if self.body < 0:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.data[:end]).lower()
            at = head.find(b"content-length:")
            self.status = int(head[9:12])
            self.body = end + 4
            self.size = int(head[at + 15 : at + 30].split(b"\r\n")[0]) if at >= 0 else 0
        if len(self.data) - self.body >= self.size:
            load = self.load
            load.latencies.append((time.perf_counter() - self.began) * 1000)
            load.statuses[self.status] += 1
            if self.status == 200:
                load.check(self.number, bytes(self.data[self.body :]))
            if not load.done.is_set():
                self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Connect again."""
        if not self.load.done.is_set():
            self.load.broken += 1
            again = connect(self.load, *self.transport.get_extra_info("peername")[:2])
            self.load.tasks.add(asyncio.get_running_loop().create_task(again))


async def connect(load: Load, host: str, port: int) -> None:
    """Open a connection, which begins at once."""
    try:
        await asyncio.get_running_loop().create_connection(lambda: Client(load), host, port)
    except OSError:
        load.broken += 1
        await asyncio.sleep(0.1)
        if not load.done.is_set():
            await connect(load, host, port)


async def run(plan: dict[str, Any]) -> dict[str, Any]:
    """Do what a plan says."""
    load = Load(plan)
    began = time.perf_counter()
    for _ in range(plan["connections"]):
        await connect(load, plan["host"], plan["port"])
    try:
        async with asyncio.timeout(plan["seconds"]):
            await load.done.wait()
    except TimeoutError:
        load.done.set()
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "statuses": {str(status): n for status, n in sorted(load.statuses.items())},
        "changed": load.changed,
        "broken": load.broken,
        "ms": percentiles(load.latencies),
    }


def percentiles(latencies: array[float]) -> dict[str, float]:
    """p50, p99 and the highest."""
    ordered = sorted(latencies) or [0.0]
    return {
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
        "max": ordered[-1],
    }


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    try:
        import uvloop

        runner = uvloop.run
    except ModuleNotFoundError:
        runner = asyncio.run
    print(json.dumps(runner(run(json.load(sys.stdin)))))
