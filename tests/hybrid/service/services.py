"""A service in a process of its own, and what its tests share."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hybrid.answering.open_readers import OpenReaders
from sparta.reader.config import ReaderConfig
from sparta.reader.records import Span, Text
from tests.cli.commands import DRIVER

ROOT = Path(__file__).parents[3]
NDJSON = {"Content-Type": "application/x-ndjson"}
QUESTION = "who founded google"
RECORDS: list[dict[str, Any]] = [
    {
        "id": "google",
        "title": "Google",
        "text": "Google was founded by Larry Page and Sergey Brin, two students.",
        "lang": "en",
        "year": 1998,
    },
    {"id": "moon", "title": "Moon", "text": "The moon of the earth has no water.", "lang": "en"},
    {"id": "a/b", "title": "Path", "text": "Paris is the capital city of France.", "lang": "en"},
]
FRENCH = {"id": "lune", "title": "Lune", "text": "la moon de la terre", "lang": "fr", "big": 2**70}


class Answer(NamedTuple):
    """What a service answered: the status, and the JSON, or the text of what is none."""

    status: int
    body: Any
    headers: dict[str, str]


class GivenReader(OpenReaders):
    """The readers of a service: a single reader, which gives the spans of `read`."""

    def __init__(self, read: Callable[[Text], list[Span]]) -> None:
        super().__init__()
        self.read, self.config = read, ReaderConfig()

    def reader(self, _language: str, _name: object = None) -> Any:
        return self

    def read_each(self, _question: str, texts: Sequence[Text], _n: int) -> Iterator[list[Span]]:
        yield from map(self.read, texts)


def guarded(app: Any, settings: Any, journal: Any = None) -> Any:
    """An application behind the middleware of the service."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from hybrid.service.journal import Journal
    from hybrid.service.metrics import Metrics
    from hybrid.service.middleware import middleware

    layers = middleware(settings, journal or Journal(Metrics()))
    return Starlette(routes=[Mount("/", app)], middleware=layers)


def lines(*values: Any) -> bytes:
    """NDJSON."""
    return "".join(json.dumps(value) + "\n" for value in values).encode()


class Running:
    """`sparta serve` in a process of its own."""

    def __init__(
        self,
        index: Path,
        log: Path,
        options: tuple[str, ...],
        variables: dict[str, str],
        code: tuple[str, ...] = (),
    ) -> None:
        self.index, self.log = index, log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        command = [sys.executable, "-c", DRIVER, "serve", "--index", str(index)]
        command += ["--port", str(self.port), *options]
        if code:  # in place of the command
            command = [sys.executable, "-c", *code, str(index), str(self.port)]
        more = {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **more, "OMP_NUM_THREADS": "1", **variables},
                stdout=stream,
                stderr=subprocess.STDOUT,
            )

    def wait_until_ready(self, seconds: float = 120) -> None:
        """Return as soon as it answers."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and self.process.poll() is None:
            try:
                if self.ask("GET", "/ready").status == 200:
                    return
            except OSError:
                time.sleep(0.1)
        raise AssertionError(self.log.read_text())

    def ask(
        self, method: str, path: str, body: bytes | None = None, timeout: float = 120, **headers: str
    ) -> Answer:
        """Send a request."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and path.startswith("/passages"):
            named = {**NDJSON, **named}
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data=body, method=method, headers=named)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return _answer(answer.status, answer)
        except urllib.error.HTTPError as error:
            return _answer(error.code, error)

    def search(self, query: str, **more: Any) -> Any:
        """The JSON of a search that went well."""
        answer = self.ask("POST", "/search", json.dumps({"query": query, **more}).encode())
        assert answer.status == 200, answer
        return answer.body

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal, and wait for the end."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)


def _answer(status: int, answer: Any) -> Answer:
    text = answer.read()
    try:
        body = json.loads(text)
    except ValueError:
        body = text
    return Answer(status, body, {name.lower(): value for name, value in answer.headers.items()})
