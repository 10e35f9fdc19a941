"""The command: what it says when it cannot begin, its log, and that importing it costs nothing."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hybrid.service.settings import Settings
from sparta.base.errors import InputError
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

    def config(*_: object, limit_concurrency: int, **__: object) -> None:
        limits.append(limit_concurrency)
        raise InputError("stopped before it listens", remedy="none")

    monkeypatch.setattr("uvicorn.Config", config)
    monkeypatch.setattr("hybrid.service.server.allow_open_files", lambda more: more // 64)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "allows about 64 connections of 4096" in sparta("serve", "--index", built, "--port", port).stderr
    assert limits == [64]


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
