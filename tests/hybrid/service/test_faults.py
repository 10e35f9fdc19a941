"""Kills, signals, and an index that changes under load."""

from __future__ import annotations

import json
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from sparta.api import Index
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.search.searcher import Searcher
from tests.conftest import WORDS
from tests.hybrid.service.services import QUESTION, RECORDS, Running, lines

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def begun(running: Running, body: bytes, sent: int, path: str = "/search") -> socket.socket:
    """A connection that has sent a head and a part of the body of a search."""
    connection = socket.create_connection(("127.0.0.1", running.port), timeout=60)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body[:sent])
    return connection


def ended(connection: socket.socket) -> tuple[int, Any]:
    """The status and JSON of the answer, to the end of the connection."""
    data = b""
    while part := connection.recv(1 << 20):
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_a_term_signal_loses_no_request_in_flight(running, index) -> None:
    one = running(index, "--writable", "--queue", "2000")
    many = json.dumps({"query": [QUESTION] * 100, "k": 100}).encode()
    searches = [begun(one, many, len(many)) for _ in range(6)]
    halves = [begun(one, many, 40) for _ in range(6)]
    acknowledged: list[Any] = []

    def upload() -> None:
        passages = lines(*({"id": f"t{i}", "text": f"word {i}"} for i in range(200)))
        acknowledged.append(one.ask("PUT", "/passages", passages))

    writing = threading.Thread(target=upload)
    writing.start()
    time.sleep(1)
    one.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    for connection in halves:
        connection.sendall(many[40:])
    for connection in [*searches, *halves]:
        status, answer = ended(connection)
        assert status == 200
        assert len(answer["results"]) == 100
    writing.join(60)
    assert acknowledged[0].status == 200
    assert acknowledged[0].body["added"] == 200
    assert one.process.wait(60) == 0
    with pytest.raises(OSError, match=r"refused|reset"):
        one.ask("GET", "/ready")
    with Index(index) as opened:
        assert opened.passage("t199")["text"] == "word 199"


def test_a_reader_does_not_hold_up_the_end(built, tmp_path) -> None:
    """What is read when the time is over is refused, and the process ends."""
    code = (
        "import sys, time; from hybrid.service.live.answers import Answers; Answers.answer = lambda *_,"
        " **__: time.sleep(100); from hybrid.service.server import serve; from hybrid.service.settings import"
        " Settings; serve(Settings(index=sys.argv[1], port=int(sys.argv[2]), drain=1))"
    )
    one = Running(built, tmp_path / "log", (), {}, (code,))
    try:
        one.wait_until_ready()
        body = json.dumps({"query": QUESTION}).encode()
        waiting = [begun(one, body, len(body), "/answer") for _ in range(2)]
        time.sleep(0.5)
        began = time.monotonic()
        one.process.send_signal(signal.SIGTERM)
        answers = [ended(connection) for connection in waiting]
        assert [(status, told["error"]["code"]) for status, told in answers] == [(503, "unavailable")] * 2
        assert one.process.wait(60) == 0
        assert time.monotonic() - began < 20
        assert '"traceback"' not in one.log.read_text()
    finally:
        one.kill()


def test_no_acknowledged_write_is_lost_by_kills(running, index) -> None:
    """Killed while it writes, three times; what was not acknowledged is there whole or not at all."""
    draw = random.Random(5)
    acknowledged: dict[str, str] = {}
    uploads: list[list[str]] = []
    for turn in range(3):
        one = running(index, "--writable")
        for passage_id, text in acknowledged.items():
            assert one.ask("GET", f"/passages/{passage_id}").body["text"] == text
        assert one.ask("PUT", "/passages", lines({"id": f"warm{turn}", "text": "up"})).status == 200

        def write(one: Running = one, turn: int = turn) -> None:
            for number in range(1000):
                texts = {f"k{turn}-{number}-{i}": f"moon {draw.random()}" for i in range(5)}
                uploads.append(list(texts))
                body = lines(*({"id": i, "text": text} for i, text in texts.items()))
                try:
                    answer = one.ask("POST" if number % 2 else "PUT", "/passages", body)
                except OSError:
                    return
                assert (answer.status, answer.body["added"]) == (200, 5)
                acknowledged.update(texts)

        writer = threading.Thread(target=write)
        writer.start()
        before = len(acknowledged)
        while len(acknowledged) < before + 10 and writer.is_alive():
            time.sleep(0.01)
        time.sleep(draw.random() / 2)
        one.kill()
        writer.join(60)
    one = running(index, "--writable")
    assert len(acknowledged) >= 30
    for passage_id, text in acknowledged.items():
        assert one.ask("GET", f"/passages/{passage_id}").body["text"] == text
    for ids in uploads:
        assert len({one.ask("GET", f"/passages/{passage_id}").status for passage_id in ids}) == 1
    assert one.ask("POST", "/passages", lines({"id": "after", "text": "all"})).body["added"] == 1


def test_an_append_after_a_kill_between_its_commit_and_the_manifest(
    index, tiny_model_folder, monkeypatch
) -> None:
    """All was committed, only the manifest says otherwise: the next append goes on."""
    from sparta.index.folder import IndexFolder

    options = IndexOptions(model=str(tiny_model_folder), dtype="fp32")

    def killed(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(IndexFolder, "finish", killed)
        with pytest.raises(SystemExit):
            build_index(index, [{"id": "first", "text": "sun"}], "append", options)
    build_index(index, [{"id": "second", "text": "moon"}], "append", options)
    with Index(index) as opened:
        assert [opened.passage(i)["text"] for i in ("first", "second")] == ["sun", "moon"]
    assert IndexFolder(index).require_live().complete


def test_a_failure_to_open_a_commit_is_told_and_tried_again(index, open_client, caplog) -> None:
    client, manifest = open_client(index, watch=0.01), index / "manifest.json"

    def told() -> list[Any]:
        return [record for record in caplog.records if "cannot be opened" in record.getMessage()]

    def until(holds: Callable[[], bool]) -> None:
        ends = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < ends
            time.sleep(0.01)

    whole = manifest.read_bytes()

    def replace(content: bytes) -> None:
        """As writers do: the service never sees a half of it."""
        new = manifest.with_suffix(".new")
        new.write_bytes(content)
        new.replace(manifest)

    replace(b"{")
    until(lambda: bool(told()))
    time.sleep(0.2)  # it looks again, which is not told again
    assert client.post("/search", json={"query": QUESTION}).status_code == 200
    replace(whole)
    build_index(index, [{"id": "later", "text": "sun"}], "append", IndexOptions())
    until(lambda: client.get("/passages/later").status_code == 200)
    [record] = told()
    assert "--overwrite" in record.getMessage()
    assert not record.exc_info


class Load:
    """Threads that search for the same questions again and again, and keep every answer."""

    def __init__(self, one: Running, queries: list[str]) -> None:
        self.one, self.queries = one, queries
        self.answers: list[tuple[tuple[int, int], str, list[Any]]] = []
        self.failed: list[Any] = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(4)]

    def _run(self, seed: int) -> None:
        draw = random.Random(seed)
        while not self._end.is_set():
            query = draw.choice(self.queries)
            answer = self.one.ask("POST", "/search", json.dumps({"query": query, "k": 5}).encode())
            if answer.status != 200:
                self.failed.append(answer)
                continue
            version = answer.body["version"]
            key = version["generation"], version["commit"]
            hits = [(hit["id"], hit["score"], hit["text"]) for hit in answer.body["hits"]]
            self.answers.append((key, query, hits))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()


def test_an_index_that_others_change_is_followed_without_a_wrong_answer(
    running, index, tiny_model_folder, make_records: Callable[..., Any]
) -> None:
    queries = [QUESTION, "moon", *(" ".join(WORDS[i : i + 2]) for i in range(40, 60, 2))]
    options = IndexOptions(model=str(tiny_model_folder), dtype="fp32")
    known: dict[tuple[int, int], dict[str, list[Any]]] = {}
    one = running(index)

    def change(step: int) -> None:
        if step % 4 == 0:
            records = [*RECORDS, *make_records(80 + step, seed=step, prefix=f"g{step}-")]
            build_index(index, records, "overwrite", options)
        elif step % 4 == 1:
            build_index(index, make_records(5, seed=step, prefix=f"a{step}-"), "append", options)
        elif step % 4 == 2:
            build_index(index, [{**RECORDS[0], "text": f"google founded {step}"}], "update", options)
        else:
            with Index(index) as opened:
                opened.delete(["moon", "g0-1"])

    def learn() -> None:
        with Index(index) as opened:
            known[tuple(opened.version)] = {  # type: ignore[index]
                query: [(h.passage_id, h.score, h.text) for h in opened.search(query, 5)] for query in queries
            }

    learn()
    with Load(one, queries) as load:
        for step in range(10):
            change(step)
            learn()
            time.sleep(0.5)
    assert load.failed == []
    assert len(load.answers) > 200
    seen = {version for version, _, _ in load.answers}
    assert len(seen) >= 6
    wrong = [(v, q) for v, q, hits in load.answers if v not in known or known[v][q] != hits]
    assert wrong == []
    assert max(seen) == max(known)


def test_an_index_that_takes_the_place_of_another_is_seen(tmp_path) -> None:
    """Its generation and commit have the same numbers."""
    folders = [tmp_path / "live", tmp_path / "new"]
    for folder, text in zip(folders, ("moon", "sun"), strict=True):
        build_index(folder, [{"id": "one", "text": text}], "create", IndexOptions(channels="bm25"))
    with Searcher(folders[0], channel="bm25") as live:
        folders[0].rename(tmp_path / "old")
        folders[1].rename(folders[0])
        assert live.refresh()
        assert not live.refresh()
        assert live.passage("one")["text"] == "sun"
