"""Batches: the same answers as one by one, in one call into Java; what is too much is refused."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from hybrid.service.errors import BusyError
from hybrid.service.live.batching import Batcher
from hybrid.service.live.search import BatchSearch, Job, Plan, weights_of
from hybrid.service.metrics import IndexMetrics
from sparta.index.reader import IndexReader
from sparta.search.retriever import Page
from tests.conftest import WORDS

CHANNELS = ("impact", "bm25", "bm25=1.2,impact", "impact=1")


def plain(answer: Any) -> Any:
    """An answer without the time it took."""
    assert isinstance(answer, bytes), answer
    found = orjson.loads(answer)
    found.pop("took_ms")
    return found


@pytest.mark.jvm
def test_a_batch_of_everything_equals_single_searches_bit_for_bit(built) -> None:
    queries = [" ".join(WORDS[i : i + 3]) for i in range(0, 300, 3)]
    jobs = [
        Job([query], Plan(name, weights_of(name), Page(1 + i % 7), explain=i % 11 == 0))
        for i, query in enumerate(queries)
        for name in CHANNELS
    ]
    jobs.append(Job(queries[:5], Plan("impact", weights_of("impact")), one=False))
    with IndexReader(built, channels=None) as index:
        search = BatchSearch(index, 2, IndexMetrics())
        together = search(jobs)
        alone = [search([job])[0] for job in jobs]
    assert [plain(answer) for answer in together] == [plain(answer) for answer in alone]
    assert sum(bool(plain(a).get("hits")) for a in alone) > 300


@pytest.mark.jvm
def test_what_is_batched_goes_into_java_once(built, calls) -> None:
    from sparta.lucene.bridge import ImpactSearcher
    from sparta.search.searcher import Searcher

    recorded = calls(Searcher.rank, ImpactSearcher.raws)
    with IndexReader(built, channels=None) as index:
        answers = BatchSearch(index, 2, IndexMetrics())(
            [Job([w], Plan("impact", weights_of("impact"))) for w in WORDS[:9]]
        )
    hits = sum(len(plain(answer)["hits"]) for answer in answers)
    [(rank, ranked), (raws, read)] = recorded
    assert (rank, len(ranked["queries"]), raws, len(read["docids"])) == ("rank", 9, "raws", hits)


@pytest.mark.jvm
def test_one_job_that_fails_fails_alone(built) -> None:
    with IndexReader(built, channels=None) as index:
        search = BatchSearch(index, 2, IndexMetrics())
        good, bad = Plan("impact", weights_of("impact")), Plan("dense", weights_of("dense"))
        found = search([Job(["moon"], good), Job(["moon"], bad), Job(["moon"], good)])
    assert plain(found[0]) == plain(found[2])
    assert isinstance(found[1], Exception)


class Slow:
    """Answers by the batch that a job was in, when it is let go."""

    def __init__(self) -> None:
        self.go, self.batches = threading.Semaphore(0), list[list[int]]()

    def __call__(self, jobs: Sequence[int]) -> list[Any]:
        self.batches.append(list(jobs))
        assert self.go.acquire(timeout=20)
        if 13 in jobs:
            raise ValueError(13)
        return [job * 2 for job in jobs]


async def started(batcher: Batcher[int, int], slow: Slow, jobs: Sequence[int]) -> list[asyncio.Task[int]]:
    """Ask jobs while the first of them is being answered."""
    tasks = [asyncio.create_task(batcher.ask(jobs[0]))]
    while not slow.batches:
        await asyncio.sleep(0.001)
    tasks += [asyncio.create_task(batcher.ask(job)) for job in jobs[1:]]
    await asyncio.sleep(0)
    return tasks


def test_what_waits_during_a_call_goes_into_the_next() -> None:
    async def ask() -> list[int]:
        batcher = Batcher[int, int](slow, most=3, queue=10)
        tasks = await started(batcher, slow, range(8))
        slow.go.release(9)
        answers = await asyncio.gather(*tasks)
        await asyncio.to_thread(batcher.close)
        return answers

    slow = Slow()
    assert asyncio.run(ask()) == [job * 2 for job in range(8)]
    assert slow.batches == [[0], [1, 2, 3], [4, 5, 6], [7]]


def test_a_full_queue_refuses_and_what_nobody_waits_for_is_left_out() -> None:
    async def ask() -> list[Any]:
        batcher = Batcher[int, int](slow, most=8, queue=3, refusal=0)
        tasks = await started(batcher, slow, [0, 1, 2, 3, 4])
        tasks[2].cancel()
        await asyncio.sleep(0)
        slow.go.release(9)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(batcher.close)
        with pytest.raises(BusyError):
            await batcher.ask(1)
        return answers

    slow = Slow()
    answers = asyncio.run(ask())
    assert (answers[0], answers[1], answers[3]) == (0, 2, 6)
    assert isinstance(answers[2], asyncio.CancelledError)
    assert isinstance(answers[4], BusyError)
    assert slow.batches == [[0], [1, 3]]


@pytest.mark.slow
def test_a_full_queue_refuses_after_a_while() -> None:
    """So that clients that ask again at once leave the event loop to others."""

    async def ask() -> tuple[float, int]:
        batcher = Batcher[int, int](slow, most=8, queue=1)
        tasks = await started(batcher, slow, [0, 1])
        began = time.monotonic()
        with pytest.raises(BusyError):
            await batcher.ask(2)
        waited = time.monotonic() - began
        late = asyncio.create_task(batcher.ask(3))
        await asyncio.sleep(0)
        slow.go.release(9)
        answer = await late  # a place was free when its time was up
        await asyncio.gather(*tasks)
        await asyncio.to_thread(batcher.close)
        return waited, answer

    slow = Slow()
    waited, answer = asyncio.run(ask())
    assert waited >= 0.3
    assert answer == 6


def test_a_batch_that_fails_fails_those_in_it() -> None:
    async def ask() -> list[Any]:
        batcher = Batcher[int, int](slow, most=8, queue=8)
        tasks = await started(batcher, slow, [0, 13, 2])
        slow.go.release(9)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        again = await batcher.ask(5)
        await asyncio.to_thread(batcher.close)
        return [*answers, again]

    slow = Slow()
    answers = asyncio.run(ask())
    assert answers[0] == 0
    assert [type(one) for one in answers[1:3]] == [ValueError, ValueError]
    assert answers[3] == 10


class Panic(BaseException):
    """A panic of a Rust extension, which is no `Exception`."""


def test_a_panic_fails_its_batch_and_the_search_thread_goes_on() -> None:
    def answer(jobs: Sequence[int]) -> list[Any]:
        if 13 in jobs:
            raise Panic("regex")
        return list(jobs)

    async def ask() -> list[Any]:
        batcher = Batcher[int, int](answer, most=8, queue=8)
        answers = [
            (await asyncio.gather(batcher.ask(job, seconds=5), return_exceptions=True))[0] for job in (13, 7)
        ]
        await asyncio.to_thread(batcher.close)
        return answers

    failed, good = asyncio.run(ask())
    assert type(failed) is RuntimeError
    assert good == 7


@pytest.mark.jvm
def test_a_panic_fails_only_its_query_in_every_endpoint(index, open_client, monkeypatch) -> None:
    from sparta.search.searcher import Searcher

    rank = Searcher.rank

    def panicking(self: Searcher, queries: Sequence[str], *args: Any, **more: Any) -> Any:
        if any("panic" in query for query in queries):
            raise Panic(queries)
        return rank(self, queries, *args, **more)

    monkeypatch.setattr(Searcher, "rank", panicking)
    client = open_client(index)
    for path, body in (("/search", {}), ("/search", {"explain": True}), ("/answer", {})):
        assert client.post(path, json={"query": "panic", **body}).status_code == 500
    assert client.post("/search", json={"query": "moon"}).status_code == 200
    assert client.get("/ready").status_code == 200
    with IndexReader(index, channels=None) as live:
        plan = Plan("impact", weights_of("impact"))
        failed, result = BatchSearch(live, 2, IndexMetrics())([Job(["panic"], plan), Job(["moon"], plan)])
    assert type(failed) is RuntimeError
    assert plain(result)["hits"]
