"""Too much at a time, and what takes too long."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hybrid.service.app import create_app
from hybrid.service.live import batching
from hybrid.service.live.search import BatchSearch
from hybrid.service.settings import Limits, Settings
from tests.hybrid.service.services import QUESTION

pytestmark = pytest.mark.jvm


def asked(index, limits: Limits, n: int, after: float = 0.0) -> tuple[list[Any], Any]:
    """The answers to `n` searches at a time, and to one after them."""
    import httpx2 as httpx

    async def ask() -> tuple[list[Any], Any]:
        app = create_app(Settings(index=index, limits=limits))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:

                async def one() -> httpx.Response:
                    return await client.post("/search", json={"query": QUESTION})

                answers = await asyncio.gather(*(one() for _ in range(n)))
                await asyncio.sleep(after)
                return list(answers), await one()

    return asyncio.run(ask())


@pytest.fixture
def slow(monkeypatch):
    """Each batch takes so many seconds more."""
    real = BatchSearch.__call__

    def make(seconds: float) -> None:
        def call(self, jobs):
            time.sleep(seconds)
            return real(self, jobs)

        monkeypatch.setattr(BatchSearch, "__call__", call)

    return make


def test_more_than_may_wait_is_told_to_come_back_and_the_service_recovers(built, slow, monkeypatch) -> None:
    monkeypatch.setattr(batching, "_REFUSED_AFTER", (0, 0))
    slow(0.2)
    answers, later = asked(built, Limits(queue=5), 40)
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 429}
    assert 5 <= statuses.count(200) <= 12  # those of the first batch, and five more
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "busy"
    assert later.status_code == 200
    assert {answer.json()["hits"][0]["id"] for answer in answers if answer.status_code == 200} == {"google"}


@pytest.mark.slow
def test_a_search_that_takes_too_long_is_given_up(built, slow) -> None:
    slow(1.6)
    answers, later = asked(built, Limits(timeout=0.8), 3, after=2.0)
    assert {answer.status_code for answer in answers} == {503}
    assert answers[0].json()["error"]["message"] == "the request took longer than the limit of 0.8 s"
    assert later.status_code == 503


def test_side_work_is_bounded_too(built, monkeypatch, open_client) -> None:
    from hybrid.service.live import service

    monkeypatch.setattr(service, "_MOST_ASIDE", 0)
    assert open_client(built).get("/passages/google").status_code == 429


def test_a_collapse_reads_so_many_passages_as_hits_are_allowed(
    tmp_path, tiny_model_folder, open_client
) -> None:
    from sparta.index.pipeline import IndexOptions, build_index

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


def test_a_collapse_does_not_hold_up_searches(built, monkeypatch, open_client) -> None:
    client = open_client(built)
    body = {"query": QUESTION, "collapse": "lang"}
    expected = client.post("/search", json=body).json()["hits"]
    monkeypatch.setattr(BatchSearch, "__call__", None)
    assert client.post("/search", json=body).json()["hits"] == expected


@pytest.mark.slow
def test_answers_take_no_place_of_other_side_work(built, monkeypatch, open_client) -> None:
    from hybrid.service.live import service
    from hybrid.service.live.answers import Answers

    go = threading.Event()
    monkeypatch.setattr(Answers, "answer", lambda *_, **__: go.wait(60) and {"answers": []})
    monkeypatch.setattr(service, "_MOST_ASIDE", 1)
    client = open_client(built, limits=Limits(answer=1))
    with ThreadPoolExecutor(1) as other:
        late = other.submit(client.post, "/answer", json={"query": QUESTION})
        time.sleep(0.1)
        assert client.get("/passages/google").status_code == 200
        assert late.result().status_code == 503
    assert client.post("/answer", json={"query": QUESTION}).status_code == 503  # it waited, and is not begun
    go.set()
    assert client.post("/answer", json={"query": QUESTION}).status_code == 200
