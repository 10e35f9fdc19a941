"""Passages written over HTTP: what is good is committed and seen at once, what is bad is told by its line."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hybrid.service.settings import Limits
from sparta.api import Index
from sparta.index.folder import IndexFolder
from sparta.index.inputs.open_encoder import OpenEncoder
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from tests.hybrid.service.services import NDJSON, QUESTION, lines
from tests.moments import no_temporary_files

pytestmark = pytest.mark.jvm
JSON = {"Content-Type": "application/json"}


def write(client, method: str, body: bytes, path: str = "/passages", **headers: str) -> Any:
    answer = client.request(method, path, content=body, headers={**NDJSON, **headers})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_passages_are_added_replaced_and_deleted_and_seen_at_once(index, open_client) -> None:
    client = open_client(index, writable=True)
    before = client.get("/info").json()
    new = {"id": "new", "title": "New", "text": "jupiter is a planet", "lang": "de"}
    assert write(client, "POST", lines(new)) == {"added": 1, "failed": 0, "errors": []}
    assert client.get("/passages/new").json()["metadata"] == {"lang": "de"}
    found = client.post("/search", json={"query": "jupiter planet", "k": 1}).json()
    assert found["hits"][0]["id"] == "new"
    assert found["version"]["commit"] > before["version"]["commit"]
    replaced = write(client, "PUT", lines({**new, "text": "saturn"}, {"id": "n2", "text": "two"}))
    assert replaced == {"added": 1, "updated": 1, "failed": 0, "errors": []}
    assert client.get("/passages/new").json()["text"] == "saturn"
    assert client.get("/info").json()["passages"] == before["passages"] + 2
    assert write(client, "DELETE", b'"new"\n{"id": "google"}\n')["deleted"] == 2
    assert write(client, "DELETE", b"", "/passages/n2")["deleted"] == 1
    assert client.get("/passages/google").status_code == 404
    assert client.get("/info").json()["passages"] == before["passages"] - 1
    with Index(index) as opened:
        assert len(opened) == before["passages"] - 1
        assert opened.search("jupiter planet", 1)[0].passage_id != "new"


def test_every_bad_line_is_told_and_the_good_ones_are_written(index, open_client) -> None:
    client = open_client(index, writable=True, limits=Limits(line=2000))
    body = b"\n".join(
        [
            b'{"id": "one", "text": "sun"}',
            b"{broken",
            b"",
            b'{"id": "google", "text": "there already"}',
            b'{"id": "one", "text": "again"}',
            b'{"id": "a b", "text": "x"}',
            b'{"id": "empty", "text": ""}',
            b'{"text": "no id"}',
            b'["a list"]',
            b'{"id": "caf\xe9", "text": "no UTF-8"}',
            b'{"id": "half", "text": "\\ud800"}',
            b'{"id": "nan", "text": "x", "n": NaN}',
            b'{"id": "long", "text": "' + b"x" * 3000 + b'"}',
            b"[" * 1500,
            b'{"id": "two", "text": "moon"}\r',
        ]
    )
    told = write(client, "POST", body)
    assert told["added"] == 2
    assert [error["line"] for error in told["errors"]] == [2, *range(4, 15)]
    assert all(error["message"] for error in told["errors"])
    assert client.get("/passages/two").status_code == 200
    assert client.get("/passages/google").json()["text"] != "there already"
    told = write(client, "DELETE", b'"one"\n"nope"\n3\nfoo\n')
    assert told["deleted"] == 1
    assert [error["line"] for error in told["errors"]] == [2, 3, 4]


def test_uploads_have_the_fields_of_the_index(tmp_path, tiny_model_folder, open_client) -> None:
    record = {"id": 17, "url": "example.org/moon", "text": "teaser", "body": "full text"}
    names = {"id_field": "url", "text_field": "body"}
    options = IndexOptions(channels="bm25", model=str(tiny_model_folder), **names)
    build_index(tmp_path / "ix", [record], "create", options)
    client = open_client(tmp_path / "ix", writable=True)
    report = write(client, "PUT", lines({**record, "body": "new text"}, {"id": "18", "text": "no url"}))
    assert (report["added"], report["updated"]) == (0, 1)
    assert [error["line"] for error in report["errors"]] == [2]
    assert '"url"' in report["errors"][0]["message"]
    assert client.get("/passages/example.org/moon").json()["text"] == "new text"
    sun = {"url": "example.org/sun", "body": "sun"}
    assert write(client, "POST", lines(record, sun))["added"] == 1
    assert write(client, "DELETE", lines(record, {"id": "example.org/sun"}))["deleted"] == 2


def test_an_upload_of_nothing_good_is_refused_and_changes_nothing(index, open_client) -> None:
    client = open_client(index, writable=True)
    version = client.get("/info").json()["version"]
    answer = client.post("/passages", content=b"{\n[]\n", headers=NDJSON)
    assert answer.status_code == 400
    assert [error["line"] for error in answer.json()["errors"]] == [1, 2]
    assert client.delete("/passages/nope").status_code == 404
    unknown = client.request("DELETE", "/passages", content=b'"nope"\n"no"\n', headers=NDJSON)
    assert (unknown.status_code, [error["line"] for error in unknown.json()["errors"]]) == (400, [1, 2])
    assert client.get("/info").json()["version"] == version
    assert client.request("PUT", "/passages", content=b"\n", headers=NDJSON).json()["updated"] == 0
    assert client.get("/info").json()["version"]["generation"] == version["generation"]


def test_what_a_page_of_others_could_send_is_refused(index, open_client) -> None:
    client = open_client(index, writable=True)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = client.post(
            "/passages", content=lines({"id": "n", "text": "x"}), headers={"Content-Type": kind}
        )
        assert answer.status_code == 415
    assert client.get("/passages/n").status_code == 404


def test_a_body_beyond_its_limit_is_refused_whole(index, open_client) -> None:
    client = open_client(index, writable=True, limits=Limits(upload=1000, body=500))
    body = lines(*({"id": f"n{i}", "text": "word " * 20} for i in range(20)))
    assert len(body) > 1000
    assert client.put("/passages", content=body, headers=NDJSON).status_code == 413
    assert client.put("/passages", content=iter([body[:600], body[600:]]), headers=NDJSON).status_code == 413
    assert client.get("/passages/n0").status_code == 404
    assert client.post("/search", content=json.dumps({"query": "x" * 600})).status_code == 413
    assert client.post("/search", json={"query": QUESTION}).status_code == 200


def test_while_another_process_writes_an_upload_is_a_conflict(index, open_client) -> None:
    client = open_client(index, writable=True)
    with IndexFolder(index).lock():
        answer = client.put("/passages", content=lines({"id": "n", "text": "x"}), headers=NDJSON)
        assert answer.status_code == 409
        assert "another process" in answer.json()["error"]["message"]
        assert str(index) not in answer.text
        assert "its log says how" in answer.json()["error"]["remedy"]
    assert write(client, "PUT", lines({"id": "n", "text": "x"}))["added"] == 1


def test_an_index_for_bm25_alone_is_written_without_a_model(tmp_path, tiny_model_folder, open_client) -> None:
    options = IndexOptions(channels="bm25", model=str(tiny_model_folder))
    build_index(tmp_path / "words", [{"id": "1", "text": "alpha"}], "create", options)
    client = open_client(tmp_path / "words", writable=True)
    assert write(client, "POST", lines({"id": "2", "text": "beta"}))["added"] == 1
    found = client.post("/search", json={"query": "beta"}).json()
    assert (found["channels"], [hit["id"] for hit in found["hits"]]) == ("bm25", ["2"])
    refused = client.post("/explain", json={"query": "beta", "id": "2"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_request")
    assert "BM25-only" in refused.json()["error"]["message"]
    assert "/info" in refused.json()["error"]["remedy"]


def test_an_index_is_written_with_its_own_model_where_none_is_named(index, open_client) -> None:
    client = open_client(index, writable=True, model=None)
    assert write(client, "POST", lines({"id": "n", "text": "the moon"}))["added"] == 1
    assert client.get("/terms/n").json()["terms"]


class Late:
    """Lets a writer open its encoder once `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        opened = OpenEncoder.open

        def late(encoder: OpenEncoder, *arguments: Any) -> Any:
            self.begun.set()
            assert self.go.wait(60)
            return opened(encoder, *arguments)

        monkeypatch.setattr(OpenEncoder, "open", late)


def test_an_upload_that_takes_too_long_says_what_may_become_of_it(index, open_client, monkeypatch) -> None:
    late = Late(monkeypatch)
    client = open_client(index, writable=True, limits=Limits(upload_timeout=1))
    with ThreadPoolExecutor(1) as other:
        first = other.submit(
            client.put, "/passages", content=lines({"id": "n1", "text": "x"}), headers=NDJSON
        )
        assert late.begun.wait(60)
        second = client.put("/passages", content=lines({"id": "n2", "text": "x"}), headers=NDJSON)
        told = [answer.json()["error"] for answer in (first.result(), second)]
    assert [first.result().status_code, second.status_code] == [503, 503]
    assert "may still be committed" in told[0]["message"]
    assert "nothing is written" in told[1]["message"]
    late.go.set()
    ends = time.monotonic() + 60
    while client.get("/passages/n1").status_code == 404 and time.monotonic() < ends:
        time.sleep(0.05)
    assert client.get("/passages/n1").status_code == 200
    assert client.get("/passages/n2").status_code == 404


def test_an_upload_that_is_one_too_many_is_refused_before_it_is_read(index, open_client) -> None:
    client = open_client(index, writable=True)
    sent: list[Any] = []

    async def receive() -> Any:
        pytest.fail("the body was read")

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", NDJSON["Content-Type"].encode())]
    upload = {"type": "http", "method": "PUT", "path": "/passages", "query_string": b"", "headers": headers}
    with ExitStack() as places:
        for _ in range(16):
            places.enter_context(client.app.state.service.writer.place())
        client.portal.call(client.app, upload, receive, send)
        assert sent[0]["status"] == 429
        assert client.delete("/passages/google").status_code == 429
    assert client.delete("/passages/google").status_code == 200


def test_a_line_is_an_id_or_an_object_and_nothing_more(index, open_client) -> None:
    client = open_client(index, writable=True)
    bad = [b'1, "id": "moon"', b'"a": 1}, {"id": "moon"', b'["moon"]', b"true", b'"moon" "sun"', b'"\\ud800"']
    told = write(client, "DELETE", b"\n".join([*bad, b'"google"']))
    assert [error["line"] for error in told["errors"]] == [1, 2, 3, 4, 5, 6]
    assert told["deleted"] == 1
    assert client.get("/passages/moon").status_code == 200


def test_all_bad_lines_are_counted_and_the_first_are_told(index, open_client) -> None:
    client = open_client(index, writable=True)
    told = write(client, "DELETE", b"{\n" * 1500 + b'"google"\n')
    assert (told["deleted"], told["failed"], len(told["errors"])) == (1, 1500, 1000)
    answer = client.request("DELETE", "/passages", content=b"{\n" * 1500, headers=NDJSON)
    assert "1,500" in answer.json()["error"]["message"]


def test_an_id_with_a_number_is_no_part_of_another_passage(tmp_path, tiny_model_folder, open_client) -> None:
    """In an index of whole passages: `page#0` is one by itself, and so is `page`."""
    options = IndexOptions(model=str(tiny_model_folder), dtype="fp32")
    build_index(tmp_path / "ix", [{"id": "page#0", "text": "the moon"}], "create", options)
    client = open_client(tmp_path / "ix", writable=True)
    assert client.get("/passages/page").status_code == 404
    assert client.get("/terms/page").status_code == 404
    assert client.post("/explain", json={"query": "moon", "id": "page"}).status_code == 404
    told = write(client, "PUT", lines({"id": "page", "text": "the sun"}))
    assert (told["added"], told["updated"]) == (1, 0)
    write(client, "DELETE", b"", "/passages/page")
    assert write(client, "POST", lines({"id": "page", "text": "the sun"}))["added"] == 1
    assert client.get("/passages/page").json()["text"] == "the sun"
    assert client.get("/passages/page%230").json()["text"] == "the moon"


@pytest.mark.parametrize("unit", ["sentence", "chunk:5:0"])
def test_one_id_of_a_part_spoils_no_other_line(tmp_path, tiny_model_folder, open_client, unit) -> None:
    options = IndexOptions(model=str(tiny_model_folder), dtype="fp32", unit=unit)
    build_index(tmp_path / "ix", [{"id": "a", "text": "The moon. The sun."}], "create", options)
    client = open_client(tmp_path / "ix", writable=True)
    given = [("b", "The sea."), ("p#0", "A town."), ("a", "Ice.")]
    body = lines(*({"id": passage_id, "text": text} for passage_id, text in given))
    told = write(client, "PUT", body)
    assert (told["added"], told["updated"], told["failed"]) == (1, 1, 1)
    assert [error["line"] for error in told["errors"]] == [2]
    assert "found 'p#0'" in told["errors"][0]["message"]
    assert client.get("/passages/b%230").json()["text"] == "The sea."
    answer = client.post("/passages", content=lines({"id": "p#1", "text": "A town."}), headers=NDJSON)
    assert answer.status_code == 400
    assert [error["line"] for error in answer.json()["errors"]] == [1]
    told = write(client, "DELETE", b'"b#0"\n"a"\n')
    assert (told["deleted"], [error["line"] for error in told["errors"]]) == (1, [1])
    assert client.delete("/passages/b%230").status_code == 400
    assert client.get("/passages/b%230").json()["text"] == "The sea."


def test_an_id_that_ends_like_a_path_is_read_like_any_other(index, open_client) -> None:
    client = open_client(index, writable=True)
    write(client, "POST", lines({"id": "moon/terms", "text": "a crater"}))
    assert client.get("/passages/moon/terms").json()["text"] == "a crater"
    assert client.get("/terms/moon/terms").json()["id"] == "moon/terms"
    assert client.delete("/passages/moon/terms").json()["deleted"] == 1


def test_a_line_end_behind_an_id_deletes_nothing(index, open_client) -> None:
    client = open_client(index, writable=True)
    answer = client.delete("/passages/google%0a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
    assert client.get("/passages/google").status_code == 200


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
def test_a_full_disk_for_temporary_files_is_no_fault_of_the_service(index, open_client, monkeypatch) -> None:
    def full(_in_memory: int) -> Any:
        return Path("/dev/full").open("w+b")

    client = open_client(index, writable=True)
    with monkeypatch.context() as patched:
        patched.setattr("tempfile.SpooledTemporaryFile", full)
        answer = client.put("/passages", content=lines({"id": "n", "text": "x"}), headers=NDJSON)
    assert answer.status_code == 503
    assert "space" in answer.json()["error"]["message"]
    assert client.put("/passages", content=lines({"id": "n", "text": "x"}), headers=NDJSON).status_code == 200


def test_without_a_folder_for_temporary_files_small_uploads_are_written(
    index, open_client, monkeypatch, caplog
) -> None:
    client = open_client(index, writable=True)
    monkeypatch.setattr("tempfile.gettempdir", no_temporary_files)
    passage = {"id": "n", "text": "x"}
    for body, content_type in ((lines(passage), NDJSON), (json.dumps([passage]).encode(), JSON)):
        answer = client.put("/passages", content=body, headers=content_type)
        assert answer.status_code == 200, answer.text
    large = lines(*({"id": str(number), "text": "x" * 1000} for number in range(1100)))
    answer = client.put("/passages", content=large, headers=NDJSON)
    assert answer.status_code == 503
    assert "no folder for temporary files" in answer.json()["error"]["message"]
    [refused] = [record for record in caplog.records if record.getMessage() == "request refused"]
    assert "TMPDIR" in vars(refused)["error"]
    assert not refused.exc_info


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"1 2\n" * 10_002, 400),
        (b"\n" * 500_001, 413),
        (
            b"".join(b'{"id": "%d", "text": "x", "a": [%s[]]}\n' % (i, b"[]," * 300_000) for i in range(4)),
            413,
        ),
    ],
    ids=["bad lines", "empty lines", "empty lists"],
)
def test_a_bomb_is_refused_while_another_upload_is_written(
    index, open_client, monkeypatch, body: bytes, status: int
) -> None:
    """It is parsed before it waits for the writer."""
    late = Late(monkeypatch)
    client = open_client(index, writable=True)
    with ThreadPoolExecutor(1) as threads:
        try:
            first = threads.submit(write, client, "PUT", lines({"id": "slow", "text": "sun"}))
            assert late.begun.wait(60)
            answer = client.put("/passages", content=body, headers=NDJSON)
            assert answer.status_code == status, answer.text[:200]
            assert not first.done()
        finally:
            late.go.set()
        assert first.result()["added"] == 1


@pytest.mark.slow
def test_any_json_content_type_is_an_upload(index, open_client) -> None:
    client = open_client(index, writable=True)
    passages = [{"id": "j1", "text": "moon", "lang": "xx"}, {"id": "j2", "text": "sun", "lang": "xx"}]
    for kind in ("application/json", "application/json; charset=utf-8", "application/vnd.sparta+json"):
        for body in (json.dumps(passages), json.dumps(passages, indent=1), json.dumps(passages[0], indent=1)):
            answer = client.put("/passages", content=body, headers={"Content-Type": kind})
            assert answer.status_code == 200, answer.text
            assert answer.json()["failed"] == 0
    for broken in ("[", "[1,", '{"id": "x"', "[{}] x"):
        answer = client.put("/passages", content=broken, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request"), broken
    assert client.request("DELETE", "/passages", json=["j1"]).json()["deleted"] == 1
    assert client.request("DELETE", "/passages", json=[{"id": "j2"}]).json()["deleted"] == 1


def test_a_filter_deletes_its_matches(index, open_client) -> None:
    client = open_client(index, writable=True)
    passages = [{"id": f"j{i}", "text": "moon", "lang": "xx"} for i in range(3)]
    client.put("/passages", json=passages)
    n = client.get("/info").json()["passages"]
    answer = client.request("DELETE", "/passages", json={"filter": {"lang": "xx"}})
    assert (answer.status_code, answer.json()["deleted"]) == (200, 3)
    everything = {"filter": {"not": {"lang": "yy"}}}
    refused = client.request("DELETE", "/passages", json=everything)
    assert (refused.status_code, "more than half" in refused.text) == (400, True)
    assert '"yes": true' in refused.json()["error"]["remedy"]
    nothing = client.request("DELETE", "/passages", json={"filter": {"lang": "none"}})
    assert (nothing.status_code, nothing.json()["error"]["message"]) == (
        400,
        "no passage matches the filter",
    )
    assert client.request("DELETE", "/passages", content=b"", headers=NDJSON).status_code == 400
    for wrong in ({"filter": {}}, {"filter": {"lang": {"in": [*range(1001)]}}}, {"filter": {"a": 1}, "b": 2}):
        assert client.request("DELETE", "/passages", json=wrong).status_code == 400
    too_long = {"filter": {"lang": "x" * (1 << 20)}}
    assert client.request("DELETE", "/passages", json=too_long).status_code == 413
    content = json.dumps(too_long).encode()
    assert client.request("DELETE", "/passages", content=content, headers=NDJSON).status_code == 413
    assert client.get("/info").json()["passages"] == n - 3
    all_of_them = client.request("DELETE", "/passages", json={"yes": True, **everything})
    assert all_of_them.json()["deleted"] == n - 3, "the order of the fields does not count"
    assert client.get("/info").json()["passages"] == 0
