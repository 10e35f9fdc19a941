"""Too much at a time, and what takes too long."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest

from hybrid.service.app import create_app
from hybrid.service.settings import Limits, Settings
from tests.hybrid.service.services import QUESTION, GivenReader

pytestmark = pytest.mark.jvm


LONG_LIMITS = {"queries": 2000, "hits": 80_000}


def asked(index, limits: Limits, n: int, queries: int) -> tuple[list[Any], Any, Any]:
    """The answers to `n` searches at a time, to one after them, and to one that keeps the thread busy.

    The last has so many queries, and begins before the others.
    """
    long_body = {"query": ["the moon of the earth has no water"] * queries, "k": 40}
    import httpx2 as httpx

    async def ask() -> tuple[list[Any], Any]:
        app = create_app(Settings(index=index, limits=limits))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:

                async def one() -> httpx.Response:
                    return await client.post("/search", json={"query": QUESTION})

                long = asyncio.create_task(client.post("/search", json=long_body))
                while b"sparta_batch_queries_count 0.0" in app.state.service.metrics.text():
                    await asyncio.sleep(0.001)
                answers = await asyncio.gather(*(one() for _ in range(n)))
                return list(answers), await one(), await long

    return asyncio.run(ask())


def test_more_than_may_wait_is_told_to_come_back_and_the_service_recovers(built) -> None:
    answers, later, long = asked(built, Limits(queue=5, refusal=0.001, **LONG_LIMITS), 40, 500)
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 429}
    assert 5 <= statuses.count(200) <= 12
    assert len(long.json()["results"]) == 500
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "busy"
    assert later.status_code == 200
    assert {answer.json()["hits"][0]["id"] for answer in answers if answer.status_code == 200} == {"google"}


@pytest.mark.slow
def test_a_search_that_takes_too_long_is_given_up(built) -> None:
    answers, later, long = asked(built, Limits(timeout=0.05, **LONG_LIMITS), 3, 2000)
    assert {answer.status_code for answer in (*answers, later, long)} == {503}
    assert answers[0].json()["error"]["message"] == "the request took longer than the limit of 0.05 s"


def test_side_work_is_bounded_too(built, open_client) -> None:
    client, go = open_client(built), threading.Event()
    for _ in range(32):
        client.portal.start_task_soon(client.app.state.service.aside, go.wait)
    try:
        answer = client.get("/passages/google")
    finally:
        go.set()
    assert answer.status_code == 429
    assert "32 requests are waiting" in answer.json()["error"]["message"]


def test_busy_side_threads_hold_up_neither_new_commits_nor_uploads(built, open_client, monkeypatch) -> None:
    from sparta.index.reader import IndexReader

    client, go, looked = open_client(built, watch=0.01, writable=True), threading.Event(), threading.Event()
    for _ in range(32):
        client.portal.start_task_soon(client.app.state.service.aside, go.wait)
    monkeypatch.setattr(IndexReader, "refresh", lambda _: looked.set())
    try:
        assert looked.wait(5)
        answer = client.put("/passages", json=[{"text": 1}])
    finally:
        go.set()
    assert answer.status_code == 400
    assert "no line of the upload is valid" in answer.json()["error"]["message"]


def test_a_search_that_nobody_waits_for_stops_after_its_query(built, open_client, monkeypatch) -> None:
    counted, go, both = list[str](), threading.Event(), threading.Barrier(2, timeout=20)

    def count(_: Any, query: str, *_args: Any, **_more: Any) -> Any:
        counted.append(query)
        go.wait(20)
        return {}

    monkeypatch.setattr("hybrid.service.live.search.count_values", count)
    client = open_client(built, limits=Limits(timeout=0.1))
    answer = client.post("/search", json={"query": ["moon", "sun", "earth"], "facets": ["lang"]})
    assert answer.status_code == 503
    go.set()
    aside = client.app.state.service.aside
    for done in [client.portal.start_task_soon(aside, both.wait, 20) for _ in range(2)]:
        done.result()  # both side threads are free
    assert counted == ["moon"]


def test_a_collapse_reads_so_many_passages_as_hits_are_allowed(
    tmp_path, tiny_model_folder, open_client
) -> None:
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index

    options = IndexOptions(channels="bm25", model=str(tiny_model_folder))
    langs = ["en"] * 59 + ["fr"]
    records = [{"id": str(i), "text": "moon" + " sun" * i, "lang": lang} for i, lang in enumerate(langs)]
    build_index(tmp_path / "ix", records, "create", options)

    def found(hits: int, query: str | list[str]) -> Any:
        client = open_client(tmp_path / "ix", limits=Limits(hits=hits))
        answer = client.post("/search", json={"query": query, "k": 2, "collapse": "lang"}).json()
        return [[hit["id"] for hit in one["hits"]] for one in answer.get("results", [answer])]

    assert found(60, "moon") == [["0", "59"]]
    assert found(59, "moon") == [["0"]]
    assert found(60, ["moon", "moon"]) == [["0"], ["0"]]


def test_documents_are_grouped_from_so_many_chunks_as_hits_are_allowed(
    tmp_path, tiny_model_folder, open_client
) -> None:
    """Also in a fusion, and for answers."""
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index

    options = IndexOptions(channels="bm25", model=str(tiny_model_folder), unit="chunk:1:0")
    records = [{"id": "long", "text": "moon " * 59}, {"id": "short", "text": "Moon"}]
    build_index(tmp_path / "ix", records, "create", options)
    texts = list[str]()
    readers = GivenReader(lambda text: texts.append(text.text) or [])
    for hits, documents in ((60, 2), (59, 1)):
        client = open_client(tmp_path / "ix", readers, limits=Limits(hits=hits))
        for channels in ("bm25", "bm25=1"):
            body = {"query": "moon", "channels": channels}
            assert len(client.post("/search", json={**body, "k": 2}).json()["hits"]) == documents
            texts.clear()
            assert client.post("/answer", json={**body, "depth": 2}).status_code == 200
            assert len(texts) == documents


def test_a_collapse_does_not_hold_up_searches(built, open_client) -> None:
    """It is no batch of the thread that searches."""
    client = open_client(built)

    def batches() -> str:
        [line] = [line for line in client.get("/metrics").text.splitlines() if "batch_queries_count" in line]
        return line.split()[-1]

    for more, expected in (({"collapse": "lang"}, "0.0"), ({}, "1.0")):
        assert client.post("/search", json={"query": QUESTION, **more}).json()["hits"]
        assert batches() == expected


@pytest.mark.slow
def test_answers_take_no_place_of_other_side_work(built, open_client) -> None:
    go = threading.Event()
    client = open_client(built, GivenReader(lambda _: go.wait(60) and []), limits=Limits(answer=3))
    with ThreadPoolExecutor(33) as others:
        answers = [others.submit(client.post, "/answer", json={"query": QUESTION}) for _ in range(33)]
        first = next(as_completed(answers)).result()
        assert first.status_code == 429, "all places of answers are taken"
        assert client.get("/passages/google").status_code == 200
        assert sorted(answer.result().status_code for answer in answers) == [429, *[503] * 32]
    assert client.post("/answer", json={"query": QUESTION}).status_code == 503  # it waited, and is not begun
    go.set()
    assert client.post("/answer", json={"query": QUESTION}).status_code == 200
