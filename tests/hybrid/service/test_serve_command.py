"""The command: what it says when it cannot begin, its log, and that importing it costs nothing."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hybrid.service.settings import Settings
from sparta.base.errors import InputError
from sparta.index.reader import IndexReader
from tests.hybrid.service.services import QUESTION, ROOT
from tests.programs import sparta


def refused(*arguments: object) -> str:
    """The error that a command ends with before it listens."""
    done = sparta("serve", *arguments)
    assert done.exit_code == 2, done.output
    assert done.stderr.count("error: ") == 1
    assert "→" in done.stderr
    assert "in a browser" not in done.output
    return done.stderr


def test_a_service_that_cannot_begin_says_why(built, tmp_path: Path) -> None:
    assert "no index" in refused("--index", tmp_path / "nothing")
    assert "weights" in refused("--index", built, "--channel", "bm25=x")
    assert "no channel dense; its channels: bm25, impact" in refused(
        "--index", built, "--channel", "dense,impact"
    )
    assert "no such folder of a reader" in refused("--index", built, "--reader", tmp_path / "nothing")
    assert "no such model folder" in refused("--index", built, "--writable", "--model", tmp_path / "nothing")
    assert "keys" in refused("--index", built, "--host", "0.0.0.0")
    assert "no such file" in refused("--index", built, "--keys", tmp_path / "keys")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "cannot listen on this address" in refused("--index", built, "--port", taken.getsockname()[1])


def test_the_folder_of_an_index_names_it_whatever_its_path_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is not UTF-8 also gets into the log."""
    from hybrid.service.server import JsonFormatter

    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    monkeypatch.chdir(folder)
    name = Settings(index=Path()).shown_name
    assert name == folder.name
    record = logging.makeLogRecord({"msg": "opened", "index": name, "folder": folder})
    logged = json.loads(JsonFormatter().format(record))
    assert (logged["event"], logged["index"], logged["folder"]) == ("opened", name, str(folder))


@pytest.mark.jvm
def test_a_channel_that_lacks_is_told_with_the_command_that_adds_it(built, tmp_path: Path) -> None:
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index

    alone = tmp_path / "ix"
    build_index(alone, [{"id": "a", "text": "the moon"}], "create", IndexOptions(channels="bm25"))
    told = refused("--index", alone, "--channel", "impact")
    assert "sparta index --corpus FILE --resume" in told
    assert "dense index" not in told
    assert "dense index" in refused("--index", built, "--channel", "dense")


@pytest.mark.jvm
@pytest.mark.usefixtures("as_before")
def test_a_damaged_index_ends_the_command_as_any_other(index: Path) -> None:
    [compound, *_] = index.glob("sparta-*/*.cfs")
    compound.write_bytes(compound.read_bytes()[:100])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "--overwrite" in refused("--index", index, "--port", port)


@pytest.mark.usefixtures("as_before")
def test_connections_are_as_many_as_open_files_allow(built, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def config(*_: object, limit_concurrency: int, timeout_keep_alive: int, **__: object) -> None:
        limits.append(limit_concurrency)
        assert timeout_keep_alive > 60, "a proxy keeps idle connections for 60 s"
        raise InputError("stopped before it listens", remedy="none")

    monkeypatch.setattr("uvicorn.Config", config)
    monkeypatch.setattr("hybrid.service.server.allow_open_files", lambda more: more // 64)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "allows about 64 connections of 4096" in sparta("serve", "--index", built, "--port", port).stderr
    assert limits == [64]


@pytest.mark.jvm
@pytest.mark.usefixtures("as_before")
def test_connections_are_refused_until_the_index_is_open(built, monkeypatch: pytest.MonkeyPatch) -> None:
    from hybrid.service.server import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outcomes: list[int] = []

    def connect(*_: object) -> None:
        with socket.socket() as client:
            outcomes.append(client.connect_ex(("127.0.0.1", port)))

    def opened(*arguments: Any, **options: Any) -> IndexReader:
        connect()
        return IndexReader(*arguments, **options)

    def announce(_address: str) -> None:
        connect()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("hybrid.service.live.service.IndexReader", opened)
    serve(Settings(index=built, port=port), announce=announce)
    assert outcomes == [errno.ECONNREFUSED, 0]


@pytest.mark.jvm
@pytest.mark.usefixtures("as_before")
def test_an_address_that_is_taken_while_the_index_opens_is_an_error(
    built, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two services that start at once can both reserve the port, but only one of them can listen."""
    from hybrid.service.server import serve

    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))

        def opened(*arguments: Any, **options: Any) -> IndexReader:
            other.listen()
            return IndexReader(*arguments, **options)

        monkeypatch.setattr("hybrid.service.live.service.IndexReader", opened)
        with pytest.raises(InputError, match="cannot listen on this address"):
            serve(Settings(index=built, port=other.getsockname()[1]))


@pytest.mark.usefixtures("as_before")
def test_every_logger_writes_json_from_the_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    from hybrid.service import server

    server.log_as_json("error")
    for name in ("sparta.x", "hybrid.x", "dense.x", "asyncio", "uvicorn.error"):
        logging.getLogger(name).warning("hidden")
        logging.getLogger(name).error("shown by %s", name)
    server.log_as_json("info")
    for name in ("hybrid.x", "asyncio"):
        logging.getLogger(name).info("started %s", name)
    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    shown = [f"shown by {name}" for name in ("sparta.x", "hybrid.x", "dense.x", "asyncio", "uvicorn.error")]
    assert events == [*shown, "started hybrid.x"]


@pytest.mark.slow
@pytest.mark.jvm
def test_every_request_has_a_line_of_json_in_the_log(running, built) -> None:
    one = running(built)
    one.search(QUESTION)
    one.ask("GET", "/passages/nope", X_Request_ID="mine-7")
    assert one.kill(signal.SIGINT) == 0
    log = one.log.read_text().splitlines()
    [address] = [line for line in log if not line.startswith("{")]
    assert f"http://127.0.0.1:{one.port} in a browser" in address
    lines = [json.loads(line) for line in log if line != address]
    requests = [line for line in lines if line["event"] == "request" and line["path"] != "/ready"]
    assert [(line["method"], line["path"], line["status"]) for line in requests] == [
        ("POST", "/search", 200),
        ("GET", "/passages/nope", 404),
    ]
    assert requests[1]["request_id"] == "mine-7"
    assert all(line["ms"] >= 0 and line["level"] and line["time"].endswith("Z") for line in requests)


def test_the_command_line_loads_no_web_framework() -> None:
    code = "import sys, cli._sparta, hybrid, hybrid.service; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not {"fastapi", "uvicorn", "pydantic", "prometheus_client"} & set(loaded.stdout.split())
