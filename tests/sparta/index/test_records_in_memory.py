"""`Index` over records in memory, as programs have them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hybrid.retrieval.searcher import open_retriever
from sparta.api import Index
from sparta.index.inputs.options import IndexOptions

pytestmark = pytest.mark.jvm

BM25 = IndexOptions(channels="bm25")


@pytest.mark.slow
def test_an_index_stays_the_same_when_the_program_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Index.create("ix", [{"id": "1", "text": f"moon of {name}"}], options=BM25).close()
    monkeypatch.chdir(tmp_path / "one")
    with Index("ix") as index, open_retriever("ix", "bm25") as retriever:
        monkeypatch.chdir(tmp_path / "two")
        assert index.delete(["1"]) == 1
        index.append([{"id": "2", "text": "moon of one again"}])
        assert [hit.passage_id for hit in index.search("moon")] == ["2"]
        retriever.refresh()
        assert [hit.text for hit in retriever.search("moon", 5)] == ["moon of one again"]
    with Index("ix") as other:
        assert [hit.text for hit in other.search("moon")] == ["moon of two"]


def test_windows_of_ones_own_are_no_sentences(tmp_path: Path) -> None:
    """Records that say what they were cut from, at other places or in other terms than sentences do."""
    windows = [
        {"id": "d#0", "passage_id": "d", "start": 0, "end": 9, "text": "Karl Benz"},
        {"id": "d#1", "passage_id": "d", "start": 5, "end": 16, "text": "Benz engine"},
        {"id": "v#0", "passage_id": "v", "start": "00:01:02", "end": "00:01:09", "text": "engine noise"},
        {"id": "w#0", "passage_id": ["w"], "start": 1, "end": 2, "text": "engine oil"},
    ]
    with Index.create(tmp_path / "ix", windows, options=BM25) as index:
        retriever: Any = index.retriever()
        hits = retriever.in_context(index.search("engine"))
        assert {hit.passage_id for hit in hits} == {"d#1", "v#0", "w#0"}
        assert not any("context" in hit.metadata for hit in hits)
        assert [hit.passage_id for hit in index.search("engine", filter={"start": "00:01:02"})] == ["v#0"]


def test_the_live_passages_of_a_searcher(tmp_path: Path) -> None:
    """They come in corpus order, without deleted passages and former texts."""
    records = [{"id": f"p{i}", "text": f"text {i}", "title": f"title {i}"} for i in range(4)]
    with Index.create(tmp_path / "ix", records, options=BM25) as index:
        index.update([{"id": "p0", "text": "another text"}])
        index.delete(["p2"])
        live = list(index.searcher.live_passages())
    expected = [("p0", "another text", ""), ("p1", "text 1", "title 1"), ("p3", "text 3", "title 3")]
    assert [(passage.passage_id, passage.text, passage.title) for passage in live] == expected


def test_errors_of_the_callers_records_pass_unchanged(tmp_path: Path) -> None:
    """No error of the network, or of a file that a generator opens, is taken for an error of the index."""

    def records(error: Exception, name: str) -> Iterator[dict[str, str]]:
        yield {"id": name, "text": "the moon"}
        raise error

    with Index.create(tmp_path / "ix", ["the fox"], options=BM25) as index:
        for number, error in enumerate(
            [
                socket.gaierror(-2, "Name or service not known"),
                TimeoutError(errno.ETIMEDOUT, "Connection timed out"),
                OSError(errno.ENETUNREACH, "Network is unreachable"),
                PermissionError(errno.EACCES, "Permission denied", "notes/7.txt"),
                FileNotFoundError(errno.ENOENT, "No such file or directory", "notes/8.txt"),
                ValueError("no error of the operating system"),
            ]
        ):
            with pytest.raises(type(error)) as raised:
                Index.create(tmp_path / f"ix{number}", records(error, "new"), options=BM25)
            assert raised.value is error
            with pytest.raises(type(error)) as raised:
                index.append(records(error, f"new{number}"))
            assert raised.value is error
        assert index.append([{"id": "sun", "text": "the sun"}]).documents == 2
