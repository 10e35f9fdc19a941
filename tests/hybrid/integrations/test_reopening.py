"""Indexes and retrievers that are pickled or copied open their index again, also after a change of folder."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybrid.multihop.searcher import ChainSearcher
from hybrid.retrieval.fusion import Fusion
from hybrid.retrieval.searcher import HybridSearcher, open_retriever
from sparta import Index
from sparta.base.errors import IndexStateError, JavaError
from sparta.lucene.bridge import Bm25

pytestmark = pytest.mark.jvm
QUERY = "the moon"


def of_index(path: Path) -> Index:
    return Index(path)


def of_impacts(path: Path) -> Any:
    return Index(path).retriever("impact")


def of_vectors(path: Path) -> Any:
    return Index(path).retriever("dense")


def of_fusion(path: Path) -> HybridSearcher:
    return HybridSearcher(path, Fusion({"bm25": 0.5, "dense": 1.0}))


def langchain(path: Path) -> Any:
    pytest.importorskip("langchain_core")
    from hybrid.integrations import LangChainRetriever

    return LangChainRetriever(path, "bm25=1,dense", k=2)


def llamaindex(path: Path) -> Any:
    pytest.importorskip("llama_index.core")
    from hybrid.integrations import LlamaIndexRetriever

    return LlamaIndexRetriever(path, k=2)


def haystack(path: Path) -> Any:
    pytest.importorskip("haystack")
    from hybrid.integrations import HaystackRetriever

    retriever = HaystackRetriever(path, top_k=2)
    retriever.warm_up()
    return retriever


def pyterrier(path: Path) -> Any:
    pytest.importorskip("pyterrier")
    from hybrid.integrations import PyTerrierRetriever

    return PyTerrierRetriever(path, "dense", k=2)


def ids(retriever: Any) -> list[str]:
    """The passage ids that a retriever of any kind finds for QUERY."""
    kind = type(retriever).__name__
    if kind == "LangChainRetriever":
        return [document.id for document in retriever.invoke(QUERY)]
    if kind == "LlamaIndexRetriever":
        return [node.node_id for node in retriever.retrieve(QUERY)]
    if kind == "HaystackRetriever":
        return [document.id for document in retriever.run(QUERY)["documents"]]
    if kind == "PyTerrierRetriever":
        return list(retriever.search(QUERY)["docno"])
    return [hit.passage_id for hit in retriever.search(QUERY, 2)]


MAKERS = [of_index, of_impacts, of_vectors, of_fusion, langchain, llamaindex, haystack, pyterrier]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_copies_find_the_same(make: Callable[[Path], Any], dense_index: Path, tmp_path: Path) -> None:
    """They are made of a relative path, and used in another folder."""
    before = Path.cwd()
    os.chdir(dense_index.parent)
    try:
        retriever = make(Path(dense_index.name))
        (tmp_path / "elsewhere").mkdir()
        os.chdir(tmp_path / "elsewhere")
        expected = ids(retriever)
        assert expected
        assert ids(pickle.loads(pickle.dumps(retriever))) == expected
        assert ids(copy.deepcopy(retriever)) == expected
    finally:
        os.chdir(before)


@pytest.mark.parametrize("channels", ["impact", "dense", "bm25=1,dense"])
def test_a_copy_looks_for_new_commits_as_often(dense_index: Path, channels: str) -> None:
    with open_retriever(dense_index, channels, bm25=Bm25(1.2, 0.5), refresh_seconds=5) as retriever:
        for copied in (pickle.loads(pickle.dumps(retriever)), copy.deepcopy(retriever)):
            with copied:
                assert (copied.reader.refresh_seconds, copied.reader.bm25) == (5, Bm25(1.2, 0.5))


@pytest.mark.slow
def test_a_process_that_is_spawned_gets_an_index(dense_index: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool, Index(dense_index) as index:
        assert pool.apply(ids, (index,)) == ids(index)


REOPENED = [of_index, of_impacts, of_vectors, of_fusion]


@pytest.mark.parametrize("make", REOPENED, ids=lambda make: make.__name__)
def test_unpickling_does_not_fail_but_the_first_use(make: Callable[[Path], Any], dense_index: Path) -> None:
    with make(dense_index) as retriever:
        pickled = pickle.dumps(retriever)
    shutil.rmtree(dense_index)
    with pickle.loads(pickled) as copied:
        for again in (copied, copy.deepcopy(copied), pickle.loads(pickle.dumps(copied))):
            for use in (ids, len, lambda retriever: retriever.channels):
                with pytest.raises(IndexStateError, match="no index"):
                    use(again)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_is_forked_raises_and_does_not_hang(dense_index: Path) -> None:
    with Index(dense_index) as index, multiprocessing.get_context("fork").Pool(1) as pool:
        assert ids(index)
        with pytest.raises(JavaError, match="fork"):
            pool.apply_async(ids, (index,)).get(60)


def test_what_cannot_be_opened_again_says_so(dense_index: Path) -> None:
    with ChainSearcher("hop", dense_index) as chain, pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(chain)
