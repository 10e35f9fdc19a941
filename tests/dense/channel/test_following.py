"""The dense retriever of an open index: one for all threads, which follows what is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dense.channel.searcher import DenseSearcher
from dense.channel.sync import build_dense
from hybrid.retrieval.searcher import HybridSearcher
from sparta.api import Index
from sparta.base.errors import IndexStateError, SpartaError
from sparta.index.build import delete_passages
from sparta.index.folder import IndexFolder
from sparta.index.reader import IndexReader
from tests.dense.channel.channels import QUESTIONS, N
from tests.moments import counted

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread")]


@pytest.fixture
def opened(made: Path) -> Iterator[list[Path]]:
    """The files of rows that were read, which every channel does that is opened."""
    with counted("read", "rows-*.npy") as files:
        yield files


class Between(DenseSearcher):
    """Does something between the first ranking and the reading of its records."""

    def __init__(self, reader: IndexReader, do: Callable[[], object]) -> None:
        super().__init__(reader)
        self.do: Callable[[], object] | None = do

    def records(self, docids: Any) -> list[dict[str, Any]]:
        do, self.do = self.do, None
        if do:
            do()
        return super().records(docids)


def remove(index: Path, *passage_ids: str) -> None:
    delete_passages(IndexFolder(index), passage_ids)
    build_dense(index)


def test_a_retriever_that_was_handed_out_follows_the_index(made: Path, opened: list[Path]) -> None:
    with Index(made) as index:
        retriever = index.retriever("dense")
        best = retriever.search(QUESTIONS[0], N)
        model = retriever.model
        remove(made, best[0].passage_id)
        assert [hit.passage_id for hit in retriever.search(QUESTIONS[0], N)] == [h.passage_id for h in best]
        assert index.refresh()
        assert [hit.passage_id for hit in retriever.search(QUESTIONS[0], N)] == [
            hit.passage_id for hit in best[1:]
        ]
        opened.clear()
        assert index.retriever("dense").search(QUESTIONS[0], N) == retriever.search(QUESTIONS[0], N)
        assert not opened
        assert retriever.model is model
    with pytest.raises(IndexStateError, match="the index is closed"):
        retriever.search(QUESTIONS[0])


def test_a_search_that_is_running_ends_on_the_commit_that_it_began_with(made: Path) -> None:
    with Index(made) as index:
        best = index.retriever("dense").search(QUESTIONS[0], 5)

        def empty() -> None:
            remove(made, *(f"n{i}" for i in range(N)))
            index.refresh()
            with ThreadPoolExecutor(1) as other:
                assert other.submit(retriever.search, QUESTIONS[0]).result() == []

        retriever = Between(index.reader, empty)
        assert retriever.search(QUESTIONS[0], 5) == best
        assert retriever.do is None
        assert retriever.search(QUESTIONS[0], 5) == []


def test_a_search_that_is_running_does_not_depend_on_what_came_since(made: Path) -> None:
    """The index is written between ranking and reading, and its channel cannot be opened."""
    with Index(made) as index:
        best = index.retriever("dense").search(QUESTIONS[0], 5)

        def refresh() -> None:
            remove(made, best[-1].passage_id)
            index.refresh()
            next(made.glob("dense-*/rows-*.npy")).unlink()

        retriever = Between(index.reader, refresh)
        assert retriever.search(QUESTIONS[0], 5) == best
        with pytest.raises(SpartaError, match="rows-000002"):
            retriever.search(QUESTIONS[0], 5)


def test_threads_that_search_first_at_once_open_it_once(made: Path, opened: list[Path]) -> None:
    opened.clear()
    with Index(made) as index:
        expected = index.search(QUESTIONS[0], channel="dense")
    reads = len(opened)
    both = threading.Barrier(2)
    with Index(made) as index:

        def search(_: int) -> Any:
            both.wait(30)
            return index.search(QUESTIONS[0], channel="dense")

        with ThreadPoolExecutor(2) as threads:
            first, second = threads.map(search, range(2))
        assert first == second == expected
        assert len(opened) == 2 * reads > 0


def test_a_closed_index_opens_nothing(made: Path, opened: list[Path]) -> None:
    index = Index(made)
    opened.clear()
    index.close()
    with pytest.raises(IndexStateError, match="the index is closed"):
        index.retriever("dense")
    assert not opened


def test_all_channels_of_a_reader_are_of_one_commit(made: Path) -> None:
    """A reader that opens channels at once has the vectors of its own commit, also after later writes."""
    with IndexReader(made, channels=None) as reader:
        dense, fusion = DenseSearcher(reader), HybridSearcher(reader, {"dense": 1.0, "impact": 1.0})
        best, fused = dense.search(QUESTIONS[0], N), fusion.search(QUESTIONS[0], N)
        remove(made, best[0].passage_id, best[1].passage_id)
        assert dense.search(QUESTIONS[0], N) == best
        assert fusion.search(QUESTIONS[0], N) == fused
        assert fusion.refresh()
        left = [hit.passage_id for hit in best[2:]]
        assert [hit.passage_id for hit in dense.search(QUESTIONS[0], N)] == left
        assert sorted(hit.passage_id for hit in fusion.search(QUESTIONS[0], N)) == sorted(left)


def test_a_fusion_of_an_index_follows_it(made: Path) -> None:
    with Index(made) as index:
        retriever = index.retriever("dense,impact")
        first = retriever.search(QUESTIONS[0], 1)[0].passage_id
        assert set(retriever.search(QUESTIONS[0], 1)[0].channels) == {"dense", "impact"}
        remove(made, first)
        index.refresh()
        assert first not in [hit.passage_id for hit in retriever.search(QUESTIONS[0], N)]
