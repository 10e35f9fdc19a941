"""LangChain, LlamaIndex, Haystack and PyTerrier are given what the retriever itself finds, in its order."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError
from tests.hybrid.integrations.conftest import QUESTIONS

pytestmark = pytest.mark.jvm
K = 7


def expected(retriever: Any, question: str, k: int = K) -> list[tuple[str, float, str, str]]:
    hits = retriever.search(question, k)
    return [(hit.passage_id, hit.score, hit.title, hit.text) for hit in hits]


@pytest.mark.parametrize("question", QUESTIONS)
def test_langchain(index: Path, channels: str, retriever: Any, question: str) -> None:
    pytest.importorskip("langchain_core")
    from hybrid.integrations import LangChainRetriever

    def told(documents: list[Any]) -> list[tuple[str, float, str, str]]:
        return [(d.id, d.metadata["score"], d.metadata["title"], d.page_content) for d in documents]

    adapter = LangChainRetriever(index, channels, k=K)
    found = adapter.invoke(question)
    assert told(found) == expected(retriever, question)
    assert told(asyncio.run(adapter.ainvoke(question, k=3))) == expected(retriever, question, 3)
    assert told(adapter.batch([question, "moon"])[0]) == told(found)
    assert told(LangChainRetriever(retriever, k=K).invoke(question)) == told(found)
    assert [d.metadata["lang"] for d in found] == [h.metadata["lang"] for h in retriever.search(question, K)]
    assert all(("channels" in d.metadata) == ("," in channels) for d in found)


@pytest.mark.parametrize("search", [{"score_threshold": 2}, {"fetch_k": 20, "top_k": 3}, {"query": "moon"}])
def test_unknown_arguments_of_langchain_are_named(index: Path, search: dict[str, Any]) -> None:
    pytest.importorskip("langchain_core")
    from hybrid.integrations import LangChainRetriever

    retriever = LangChainRetriever(index, "bm25", search_kwargs=search)
    with pytest.raises(InputError, match=f"cannot search with {', '.join(search)}") as caught:
        retriever.invoke("moon")
    assert str(caught.value.remedy) == "it takes k, offset, filter, collapse, hits, join"


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_llamaindex(index: Path, channels: str, retriever: Any, question: str) -> None:
    pytest.importorskip("llama_index.core")
    from hybrid.integrations import LlamaIndexRetriever

    adapter = LlamaIndexRetriever(index, channels, k=K)
    for nodes in (adapter.retrieve(question), asyncio.run(adapter.aretrieve(question))):
        told = [(n.node_id, n.score, n.metadata["title"], n.text) for n in nodes]
        assert told == expected(retriever, question)


@pytest.mark.parametrize("question", QUESTIONS)
def test_haystack_in_a_pipeline_that_was_saved(
    index: Path, channels: str, retriever: Any, question: str
) -> None:
    haystack = pytest.importorskip("haystack")
    from hybrid.integrations import HaystackRetriever

    pipeline = haystack.Pipeline()
    pipeline.add_component("retriever", HaystackRetriever(index, channels, top_k=K))
    # Haystack 3 loads only components of the modules that its caller allows.
    takes = inspect.signature(haystack.Pipeline.loads).parameters
    allowed = {"allowed_modules": ["hybrid.integrations"]} if "allowed_modules" in takes else {}
    again = haystack.Pipeline.loads(pipeline.dumps(), **allowed)
    for given, k in (({}, K), ({"top_k": 2}, 2)):
        found = again.run({"retriever": {"query": question, **given}})["retriever"]["documents"]
        told = [(d.id, d.score, d.meta["title"], d.content) for d in found]
        assert told == expected(retriever, question, k)


def test_haystack_cannot_write_down_an_open_retriever(retriever: Any) -> None:
    pytest.importorskip("haystack")
    from hybrid.integrations import HaystackRetriever

    with pytest.raises(InputError, match="cannot be serialized"):
        HaystackRetriever(retriever).to_dict()


def test_pyterrier(index: Path, channels: str, retriever: Any) -> None:
    pt = pytest.importorskip("pyterrier")
    import pandas as pd

    from hybrid.integrations import PyTerrierRetriever

    queries = pd.DataFrame({"qid": ["7", "b", "c", "d", "e"], "query": QUESTIONS, "kept": range(5)})
    for texts in (False, True):
        adapter = PyTerrierRetriever(index, channels, k=K, texts=texts)
        found = adapter(queries)
        for qid, question, kept in queries.itertuples(index=False):
            own = found[found["qid"] == qid]
            wanted = expected(retriever, question)
            assert list(zip(own["docno"], own["score"], strict=True)) == [hit[:2] for hit in wanted]
            assert list(own["rank"]) == list(range(len(wanted)))
            assert set(own["kept"]) <= {kept}
            if texts:
                assert list(zip(own["title"], own["text"], strict=True)) == [hit[2:] for hit in wanted]
        assert adapter(queries[:0]).empty
        first = (adapter % 1)(queries)
        assert list(first["docno"]) == [expected(retriever, q)[0][0] for q in QUESTIONS[:4]]
    assert pt.inspect.transformer_outputs(adapter, ["qid", "query"])[-2:] == ["title", "text"]


def test_pyterrier_adds_and_measures(index: Path) -> None:
    pt = pytest.importorskip("pyterrier")
    import pandas as pd

    from hybrid.evaluation.measures import evaluate
    from hybrid.integrations import PyTerrierRetriever
    from hybrid.retrieval.searcher import open_retriever

    impact, bm25 = (PyTerrierRetriever(index, name, k=60) for name in ("impact", "bm25"))
    ids = [str(i) for i in range(len(QUESTIONS))]
    queries = pd.DataFrame({"qid": ids, "query": QUESTIONS})
    added = (impact + bm25)(queries)
    with open_retriever(index, "impact") as one, open_retriever(index, "bm25") as other:
        runs = [opened.run(QUESTIONS, ids, 60) for opened in (one, other)]
    sums: dict[tuple[str, str], float] = {}
    for run in runs:
        for qid, hits in run.items():
            for hit in hits:
                sums[qid, hit.passage_id] = sums.get((qid, hit.passage_id), 0.0) + hit.score
    told = {(qid, docno): score for qid, docno, score in added[["qid", "docno", "score"]].values}
    assert told == pytest.approx(sums)
    qrels = {qid: {hit.passage_id: 1 for hit in run[qid][3:4]} for qid in ids[:4] for run in runs[:1]}
    frame = pd.DataFrame([(q, d, r) for q, own in qrels.items() for d, r in own.items()])
    frame.columns = ["qid", "docno", "label"]
    table = pt.Experiment([bm25], queries[:4], frame, ["ndcg_cut_10"])
    by_id = {q: sorted(runs[1][q], key=lambda hit: hit.passage_id, reverse=True) for q in ids[:4]}
    as_there = {q: sorted(hits, key=lambda hit: -hit.score) for q, hits in by_id.items()}  # trec_eval's ties
    ours = evaluate("bm25", as_there, qrels, ["nDCG@10"])
    assert table["ndcg_cut_10"][0] == pytest.approx(ours.mean("nDCG@10"))
    assert ours.mean("nDCG@10") > 0


def test_channels_of_an_open_retriever_are_its_own(retriever: Any) -> None:
    from hybrid.integrations.source import open_source

    assert open_source(retriever) is retriever
    with pytest.raises(InputError, match="cannot be named for the open retriever"):
        open_source(retriever, "bm25")
