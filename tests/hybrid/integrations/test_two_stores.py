"""Several stores on one folder: each sees what the others wrote."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from hybrid.integrations.store import IndexStore
from sparta import Index, IndexOptions
from sparta.base.errors import InputError

pytestmark = pytest.mark.jvm
BM25 = IndexOptions(channels="bm25")


def texts(store: IndexStore) -> dict[str, str]:
    return {hit.passage_id: hit.text for hit in store.matching()}


def test_a_store_that_opened_first_sees_the_index_of_another(tmp_path: Path) -> None:
    with (
        IndexStore(tmp_path / "ix", options=BM25) as late,
        IndexStore(tmp_path / "ix", options=BM25) as first,
    ):
        assert (len(late), late.search("moon", 3), late.get(["a"]), late.delete(["a"])) == (0, [], [], 0)
        first.write([("a", "the moon", {})])
        assert len(late) == 1
        assert [hit.passage_id for hit in late.search("moon", 3)] == ["a"]
        late.write([("b", "the sun", {"kind": "star"})])
        assert texts(first) == {"a": "the moon", "b": "the sun"}
        assert [hit.text for hit in first.get(["b"])] == ["the sun"]
        assert first.delete_matching({"kind": "star"}) == 1
        assert texts(late) == {"a": "the moon"}
        assert late.delete_matching({}) == 1
        assert len(first) == 0


def test_searches_do_not_wait_for_a_write(tmp_path: Path) -> None:
    with IndexStore(tmp_path / "ix", options=BM25) as store, ThreadPoolExecutor(1) as other:
        store.write([("a", "the moon", {})])
        with store.writing():
            assert len(other.submit(store.search, "moon", 3).result(timeout=20)) == 1
            late = other.submit(store.delete, ["a"])
            assert wait([late], timeout=0.3).not_done
            store.write([("b", "the sun", {})])
        assert late.result(timeout=20) == 1
        assert texts(store) == {"b": "the sun"}


def test_an_index_of_parts_that_comes_later_is_refused(tmp_path: Path) -> None:
    with IndexStore(tmp_path / "ix") as store:
        record = {"id": "a", "text": "One sentence. And another."}
        Index.create(
            tmp_path / "ix", [record], options=IndexOptions(channels="bm25", unit="sentence")
        ).close()
        with pytest.raises(InputError, match="must be the passage, found 'sentence'"):
            store.write([("b", "the sun", {})])


def test_more_hits_than_a_fusion_has_candidates(tmp_path: Path) -> None:
    records = [{"id": str(number), "text": f"moon {number}"} for number in range(130)]
    with Index.create(tmp_path / "ix", records, options=BM25) as index:
        fused = index.search("moon", 120, channel="bm25=1")
        assert len(fused) == 120
        assert index.run(["moon"], k=120, channel="bm25=1")["0"].passage_ids == [h.passage_id for h in fused]
        assert len(index.search("moon", 10, channel="bm25=1", offset=110, candidates=120)) == 10
        with pytest.raises(InputError, match="ranks 111 to 120 need more than the 100"):
            index.search("moon", 10, channel="bm25=1", offset=110)
    with IndexStore(tmp_path / "ix", "bm25=1") as store:
        assert len(store.search("moon", 120)) == 120


def test_haystack_refuses_what_another_store_wrote(tmp_path: Path) -> None:
    pytest.importorskip("haystack")
    from haystack import Document
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy

    from hybrid.integrations import HaystackDocumentStore

    first, second = (HaystackDocumentStore(tmp_path / "ix", options=BM25) for _ in range(2))
    first.write_documents([Document(id="a", content="the moon")])
    assert second.count_documents() == 1
    first.write_documents([Document(id="x", content="first version")])
    again = [Document(id="x", content="second version"), Document(id="y", content="the sun")]
    with pytest.raises(DuplicateDocumentError, match="'x'"):
        second.write_documents(again, policy=DuplicatePolicy.FAIL)
    assert second.write_documents(again, policy=DuplicatePolicy.SKIP) == 1
    assert texts(first.store) == {"a": "the moon", "x": "first version", "y": "the sun"}
    with pytest.raises(DuplicateDocumentError, match="two of the documents have the id 'z'"):
        second.write_documents([Document(id="w", content="w"), *[Document(id="z", content="z")] * 2])
    for store in (first, second):
        store.store.close()
