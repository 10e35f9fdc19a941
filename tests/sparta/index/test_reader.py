"""A reader lends snapshots; one that was replaced is closed once, when nobody uses it."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Thread
from typing import Any

import pytest

from sparta.base.errors import IndexStateError
from sparta.index.reader import IndexReader
from sparta.index.snapshot import IndexSnapshot
from sparta.search.searcher import Searcher
from tests.sparta.index.building import Doc

pytestmark = pytest.mark.jvm


@pytest.fixture
def closed(calls: Any) -> Callable[[], list[IndexSnapshot]]:
    """A function that returns the snapshots that were closed."""
    recorded = calls(IndexSnapshot.close)
    return lambda: [call["self"] for _, call in recorded]


def write(builder: Any, name: str) -> None:
    builder.write(builder.source([Doc(name, {"moon": 1})], name=name), "overwrite")


def test_a_snapshot_outlives_its_replacement_until_its_last_user_lets_go(
    builder: Any, closed: Callable[[], list[IndexSnapshot]]
) -> None:
    write(builder, "a")
    reader = IndexReader(builder.folder.path)
    with reader.snapshot() as first:
        with reader.snapshot() as same:
            write(builder, "b")
            assert reader.refresh()
            assert not reader.refresh()
            assert same is first
        assert not closed()
        with reader.snapshot() as second:
            assert second is not first
    assert closed() == [first]
    with reader.snapshot():
        reader.close()
        assert closed() == [first]
    assert closed() == [first, second]
    reader.close()
    assert closed() == [first, second]
    with pytest.raises(IndexStateError, match="the index is closed") as refused, reader.snapshot():
        pass
    assert refused.value.where == str(builder.folder.path)
    with pytest.raises(IndexStateError, match="the index is closed"):
        reader.refresh()


def test_a_thread_that_holds_a_snapshot_reads_no_other(builder: Any) -> None:
    write(builder, "a")
    with IndexReader(builder.folder.path) as reader:
        generations: list[int] = []

        def look(**held: IndexSnapshot) -> None:
            with reader.holding(**held):
                generations.append(reader.version.generation)

        with reader.holding() as first:
            with reader.holding():
                write(builder, "b")
                reader.refresh()
            look()
            for held in ({}, {"snapshot": first}):
                other = Thread(target=look, kwargs=held)
                other.start()
                other.join()
        look()
        assert generations == [1, 2, 1, 2]


def test_overlapping_tasks_and_generators_release_the_snapshots_that_they_hold(
    builder: Any, closed: Callable[[], list[IndexSnapshot]]
) -> None:
    write(builder, "a")
    with IndexReader(builder.folder.path) as reader:

        async def outer(turns: list[asyncio.Event]) -> None:
            with reader.holding():
                turns[0].set()
                await turns[1].wait()

        async def inner(turns: list[asyncio.Event]) -> asyncio.Task[IndexSnapshot]:
            await turns[0].wait()
            with reader.holding() as snapshot:
                started = asyncio.create_task(later(turns[2]))
                turns[1].set()
                await asyncio.sleep(0)
                with reader.snapshot() as same:
                    assert same is snapshot
            return started

        async def later(turn: asyncio.Event) -> IndexSnapshot:
            """Started in a block that ends before it reads."""
            await turn.wait()
            with reader.snapshot() as current:
                return current

        async def both() -> IndexSnapshot:
            turns = [asyncio.Event() for _ in range(3)]
            _, started = await asyncio.gather(outer(turns), inner(turns))
            refresh()
            turns[2].set()
            return await started

        def hold() -> Iterator[IndexSnapshot]:
            with reader.holding() as snapshot:
                yield snapshot

        def refresh() -> None:
            write(builder, "b")
            assert reader.refresh()

        assert asyncio.run(both()).version == reader.version
        first, second = hold(), hold()
        pinned = [next(first), next(second)]
        first.close()
        refresh()
        assert pinned[0] is pinned[1]
        assert reader.version == pinned[1].version
        second.close()
        assert reader.version != pinned[1].version
        assert closed()[1:] == pinned[1:]


def test_a_block_that_ends_in_another_thread_keeps_no_reader(builder: Any) -> None:
    write(builder, "a")
    reader = IndexReader(builder.folder.path)
    with ExitStack() as block:
        block.enter_context(reader.holding())
        other = Thread(target=block.close)
        other.start()
        other.join()
    reader.close()
    freed = weakref.ref(reader)
    del reader, block, other
    gc.collect()
    assert freed() is None


def test_the_old_names_of_a_reader(builder: Any) -> None:
    write(builder, "a")
    old: dict[str, Any] = {"every": 0.05}
    with pytest.warns(DeprecationWarning, match=r"^IndexReader\(every=…\) is now IndexReader\(refresh_sec"):
        reader: Any = IndexReader(builder.folder.path, **old)
    with (
        reader,
        pytest.warns(DeprecationWarning, match="^IndexReader.every is now IndexReader.refresh_seconds$"),
    ):
        assert reader.every == reader.refresh_seconds == 0.05
    with pytest.warns(DeprecationWarning, match="^IndexReader.reading is now IndexReader.snapshot$"):
        lend = reader.reading
    with pytest.raises(IndexStateError), lend():
        pass


def test_a_reader_that_looks_by_itself(builder: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A commit that cannot be opened is logged, and the last one is searched on."""
    write(builder, "a")
    with Searcher(IndexReader(builder.folder.path, refresh_seconds=0.05)) as searcher:
        write(builder, "b")
        time.sleep(0.06)
        assert [hit.passage_id for hit in searcher.search("moon")] == ["b"]
        manifest = builder.folder.path / "manifest.json"
        whole = manifest.read_bytes()
        manifest.write_bytes(b"{")
        time.sleep(0.06)
        with caplog.at_level(logging.WARNING):
            assert [hit.passage_id for hit in searcher.search("moon")] == ["b"]
        assert "cannot open the newest commit" in caplog.text
        manifest.write_bytes(whole)
        write(builder, "c")
        time.sleep(0.06)
        assert [hit.passage_id for hit in searcher.search("moon")] == ["c"]
