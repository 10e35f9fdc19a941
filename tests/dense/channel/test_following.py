"""The dense retriever of an open index: one for all threads, which follows what is written."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dense.channel.searcher import DenseSearcher
from dense.channel.sync import build_dense
from sparta.api import Index
from sparta.base.errors import IndexStateError
from sparta.index.build import delete_passages
from sparta.index.folder import IndexFolder
from tests.dense.channel.channels import QUESTIONS, N

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread")]


@pytest.fixture
def opened(made: Path, monkeypatch: pytest.MonkeyPatch) -> list[DenseSearcher]:
    """The searchers of the dense channel that were opened, and not closed again."""
    open_: list[DenseSearcher] = []
    make, close = DenseSearcher.__init__, DenseSearcher.close

    def counted(self: DenseSearcher, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        open_.append(self)

    def closed(self: DenseSearcher) -> None:
        close(self)
        open_.remove(self)

    monkeypatch.setattr(DenseSearcher, "__init__", counted)
    monkeypatch.setattr(DenseSearcher, "close", closed)
    return open_


def remove(index: Path, *passage_ids: str) -> None:
    delete_passages(IndexFolder(index), passage_ids)
    build_dense(index)


def test_a_retriever_that_was_handed_out_follows_the_index(made: Path, opened: list[DenseSearcher]) -> None:
    with Index(made) as index:
        retriever = index.retriever("dense")
        best = retriever.search(QUESTIONS[0], N)
        model = opened[0].model
        remove(made, best[0].passage_id)
        assert [hit.passage_id for hit in retriever.search(QUESTIONS[0], N)] == [h.passage_id for h in best]
        assert index.refresh()
        assert [hit.passage_id for hit in retriever.search(QUESTIONS[0], N)] == [
            hit.passage_id for hit in best[1:]
        ]
        assert index.retriever("dense") is retriever
        assert len(opened) == 1
        assert opened[0].model is model
    assert not opened
    with pytest.raises(IndexStateError, match="the index is closed"):
        retriever.search(QUESTIONS[0])


def test_a_search_that_is_running_ends_on_the_commit_that_it_began_with(
    made: Path, opened: list[DenseSearcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Index(made) as index:
        retriever = index.retriever("dense")
        best = retriever.search(QUESTIONS[0], 5)
        read = DenseSearcher.records

        def late(self: DenseSearcher, docids: Any) -> list[dict[str, Any]]:
            monkeypatch.setattr(DenseSearcher, "records", read)
            remove(made, *(f"n{i}" for i in range(N)))
            index.refresh()
            with ThreadPoolExecutor(1) as other:
                assert other.submit(retriever.search, QUESTIONS[0]).result() == []
            return read(self, docids)

        monkeypatch.setattr(DenseSearcher, "records", late)
        assert retriever.search(QUESTIONS[0], 5) == best
        assert len(opened) == 1


def test_a_search_that_is_running_does_not_depend_on_what_came_since(
    made: Path, opened: list[DenseSearcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told of a write between ranking and reading, whose channel cannot be opened."""
    with Index(made) as index:
        retriever = index.retriever("dense")
        best = retriever.search(QUESTIONS[0], 5)
        rank = DenseSearcher.rank

        def then_refresh(self: DenseSearcher, *given: Any, **more: Any) -> Any:
            found = list(rank(self, *given, **more))
            retriever.refresh()
            monkeypatch.setattr("dense.channel.following.DenseSearcher", lambda _: 1 / 0)
            return iter(found)

        monkeypatch.setattr(DenseSearcher, "rank", then_refresh)
        assert retriever.search(QUESTIONS[0], 5) == best
        with pytest.raises(ZeroDivisionError):
            retriever.search(QUESTIONS[0], 5)


def test_threads_that_search_first_at_once_open_it_once(
    made: Path, opened: list[DenseSearcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)
    with Index(made) as index:
        monkeypatch.setattr("sparta.api.other_channels", lambda _: both.wait(30) is not None and ["dense"])
        with ThreadPoolExecutor(2) as threads:
            one, other = threads.map(index.retriever, ["dense", "dense"])
        assert one is other
        assert len(opened) == 1
    assert not opened


def test_a_closed_index_opens_nothing(made: Path, opened: list[DenseSearcher]) -> None:
    index = Index(made)
    index.close()
    with pytest.raises(IndexStateError, match="the index is closed"):
        index.retriever("dense")
    assert not opened
