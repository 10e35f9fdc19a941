"""Searches there are as searches here: channels, fusion, explanations; what fails is never a wrong answer."""

from __future__ import annotations

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from hybrid.opensearch import remote
from hybrid.opensearch.push import PushOptions, push
from hybrid.opensearch.remote import RemoteIndex
from hybrid.opensearch.searcher import OpenSearchSearcher, open_opensearch
from hybrid.opensearch.server import Access, Server
from hybrid.retrieval.searcher import open_retriever
from sparta.base.errors import IndexStateError, InputError, ServerError
from sparta.base.records import Hit
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.models.quantize import QueryQuantizer
from sparta.search.explain import explain
from sparta.search.retriever import Page
from sparta.search.searcher import Searcher
from tests.hybrid.opensearch.conftest import URL

pytestmark = pytest.mark.jvm
TEXTS = ["text a3", "a17 a3 a59 text of", "a1", "nothing of it"]
cluster = pytest.mark.skipif(not URL, reason="$SPARTA_OPENSEARCH_URL is not set")


@pytest.mark.parametrize("kind", ["neural_sparse", "rank_feature"])
def test_both_kinds_of_query_rank_as_here(opened, server, name, questions, kind) -> None:
    push(opened, server, name)
    there = OpenSearchSearcher(server, name, opened=RemoteIndex(server, name, kind))
    ids = [str(i) for i in range(len(questions))]
    for k in (1, 7, 60):
        assert there.run(questions, ids, k) == opened.run(questions, ids, k)


def test_the_plugin_is_looked_for(opened, fake, questions) -> None:
    fake.plugin = False
    with Server(Access(fake.url, environment={})) as server:
        push(opened, server, "wiki")
        there = open_opensearch(server, "wiki")
        assert there.opened.view.kind == "rank_feature"
        assert there.search(questions[0]) == opened.search(questions[0])


def test_weighted_questions(builder, docs, server, name, questions) -> None:
    """Weights up to 200 are scaled on their way, and some terms weigh nothing."""
    weights = (np.arange(builder.side.tokenizer.get_vocab_size()) * 37 % 201).astype(np.int32)
    weights[::5] = 0
    builder.side = replace(builder.side, weights=weights, query_quantizer=QueryQuantizer(4.0, 8))
    builder.write(builder.source(docs("w", 50)))
    ids = [str(i) for i in range(len(questions))]
    with Searcher(builder.folder.path) as here:
        push(here, server, name)
        assert open_opensearch(server, name).run(questions, ids, 20) == here.run(questions, ids, 20)
        hit = here.search(questions[0])[0]
        there = OpenSearchSearcher(server, name)
        assert there.explain(questions[0], hit.passage_id) == explain(here, questions[0], hit.passage_id)


def test_explanations_are_those_of_the_index_here(opened, server, name, questions) -> None:
    push(opened, server, name)
    there = OpenSearchSearcher(server, name)
    for question in questions[:4]:
        for passage_id in ("a0", "a13", "a31", "a59"):
            assert there.explain(question, passage_id) == explain(opened, question, passage_id)
    with pytest.raises(InputError, match="holds no passage with the id 'nope'"):
        there.explain(questions[0], "nope")


def test_chunks_count_for_their_document(builder, docs, server, name, questions) -> None:
    made = [doc._replace(passage_id=f"p{i // 4}#{i % 4}") for i, doc in enumerate(docs("a", 60))]
    builder.write(builder.source(made, unit="chunk:10:0"))
    ids = [str(i) for i in range(len(questions))]
    with Searcher(builder.folder.path) as here:
        push(here, server, name)
        there = OpenSearchSearcher(server, name)
        for k in (1, 3, 15):
            assert there.run(questions, ids, k) == here.run(questions, ids, k)
        for question in questions[:4]:
            for passage_id in ("p1", "p9", "p14"):
                assert there.explain(question, passage_id) == explain(here, question, passage_id)


def test_sentences_are_read_in_their_passages(tmp_path, tiny_model_folder, fake) -> None:
    records = [{"id": f"p{i}", "text": f"The moon is {i}. A sun. The sea."} for i in range(3)]
    options = IndexOptions(model=str(tiny_model_folder), dtype="fp32", unit="sentence")
    build_index(tmp_path / "ix", records, options=options)
    with Server(Access(fake.url, environment={})) as server, Searcher(tmp_path / "ix") as here:
        push(here, server, "wiki")
        hits = here.search("the moon", 4)
        expected = here.in_context(hits)
        assert expected[0].metadata["context"].startswith("The moon is ")
        for channels in ("impact", "bm25=1,impact"):
            there = open_opensearch(server, "wiki", channels)
            assert there.in_context(hits) == expected


def test_a_chunk_below_what_one_search_gives_is_explained(builder, docs, fake, questions) -> None:
    made = [doc._replace(passage_id=f"p{i // 4}#{i % 4}") for i, doc in enumerate(docs("a", 60))]
    builder.write(builder.source(made, unit="chunk:10:0"))
    access = Access(fake.url, most_hits=7, environment={})
    with Server(access) as server, Searcher(builder.folder.path) as here:
        push(here, server, "wiki")
        there = OpenSearchSearcher(server, "wiki")
        expected = [explain(here, questions[1], f"p{i}") for i in range(15)]
        assert max(one.rank for one in expected) > 7
        assert [there.explain(questions[1], f"p{i}") for i in range(15)] == expected


def test_groups_are_looked_for_below_what_one_search_gives(builder, docs, fake, questions) -> None:
    """Ten documents, of which the best chunks of one fill the first pages."""
    made = [doc._replace(passage_id=f"p{i // 6}#{i % 6}") for i, doc in enumerate(docs("a", 60))]
    builder.write(builder.source(made, unit="chunk:10:0"))
    ids = [str(i) for i in range(len(questions))]
    access = Access(fake.url, most_hits=8, environment={})
    with Server(access) as server, Searcher(builder.folder.path) as here:
        push(here, server, "wiki")
        there = OpenSearchSearcher(server, "wiki")
        expected = here.run(questions, ids, 8)
        assert max(map(len, expected.values())) == 8
        assert there.run(questions, ids, 8) == expected
        assert there.search(questions[1], 8) == here.search(questions[1], 8)
        with pytest.raises(InputError, match="k must be from 1 to 8, the maximum of OpenSearch, found 9"):
            there.run(questions, ids, 9)


def test_a_hit_never_gets_the_record_of_a_passage_that_took_its_place(opened, fake, questions) -> None:
    """As an update in place does it: first both are there, then the new one alone."""
    with Server(Access(fake.url, environment={})) as server:
        push(opened, server, "wiki")
        there = OpenSearchSearcher(server, "wiki")
        (ranking,) = there.rank([questions[0]], Page(5))
        ids, docids = ranking.passage_ids, ranking.docids
        documents = fake.indices[there.opened.view.index].documents
        place = {"position": documents[ids[2]]["position"]}
        documents["new"] = {**documents[ids[2]], **place, "record": {"id": "new", "contents": "another"}}
        assert [record["id"] for record in there.records(docids)] == ids
        del documents[ids[2]]
        with pytest.raises(IndexStateError, match="replaced or deleted during the search"):
            there.records(docids)
        assert "new" in [hit.passage_id for hit in there.search(questions[0], 5) if hit.text == "another"]


def test_records_are_of_the_index_that_was_ranked(
    opened, builder, docs, fake, questions, monkeypatch
) -> None:
    """Another thread follows the alias between a ranking and its records."""
    monkeypatch.setattr(remote, "CHECK_SECONDS", 0)
    with Server(Access(fake.url, environment={})) as server:
        push(opened, server, "wiki")
        there = OpenSearchSearcher(server, "wiki")
        (before,) = there.rank([questions[0]], Page(5))
        builder.write(builder.source(docs("a", 60, seed=9), name="b.jsonl"), "overwrite")
        opened.refresh()
        push(opened, server, "wiki", PushOptions(keep_old=True))
        (after,) = there.rank([questions[0]], Page(5))
        assert set(before.docids).isdisjoint(after.docids)
        for ranking in (before, after):
            assert [record["id"] for record in there.records(ranking.docids)] == ranking.passage_ids
        both = [*after.docids, *before.docids]
        ids = [*after.passage_ids, *before.passage_ids]
        assert [record["id"] for record in there.records(both)] == ids


def test_a_single_thread_checks_the_alias(opened, fake, questions, monkeypatch) -> None:
    with Server(Access(fake.url, environment={})) as server:
        push(opened, server, "wiki")
        there = OpenSearchSearcher(server, "wiki")
        expected = there.search(questions[0])
        later = time.monotonic() + 10 * remote.CHECK_SECONDS
        monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: later))
        checks, searched = threading.Event(), threading.Event()

        def fault(_method: str, path: str, _body: bytes) -> None:
            if path.startswith("/_alias/"):
                checks.set()
                searched.wait(20)  # the check ends after the other thread's search

        fake.fault = fault
        fake.requests.clear()
        with ThreadPoolExecutor(1) as pool:
            checking = pool.submit(there.search, questions[0])
            assert checks.wait(20)
            assert there.search(questions[0]) == expected
            searched.set()
            assert checking.result() == expected
        assert fake.requests.count(("GET", "/_alias/wiki")) == 1


def test_whole_passages_with_the_fields_of_a_sentence_have_no_context(opened, fake) -> None:
    place = {"passage_id": "a1", "start": 0, "end": 4}
    hits = [Hit("a0", 1.0, text="text", metadata=place)]
    with Server(Access(fake.url, environment={})) as server:
        push(opened, server, "wiki")
        assert open_opensearch(server, "wiki").in_context(hits) == hits == opened.in_context(hits)


@pytest.mark.cluster
@cluster
@pytest.mark.parametrize("channels", ["bm25", "bm25=1.2,impact", "impact=1,bm25=0.5"])
def test_bm25_and_fusions_rank_as_here(opened, name, questions, channels) -> None:
    """Needs real statistics over several shards, so no fake."""
    with Server(Access(str(URL), environment={})) as server:
        push(opened, server, name)
        asked = [*TEXTS, *questions, *(f"{q} a{i}" for i, q in enumerate(questions))]
        ids = [str(i) for i in range(len(asked))]
        there = open_opensearch(server, name, channels)
        with open_retriever(opened.reader.folder.path, channels) as here:
            assert there.run(asked, ids, 10) == here.run(asked, ids, 10)
            assert there.search(asked[1], 5) == here.search(asked[1], 5)
            assert there.channel == here.channel


def test_fused_hits_have_their_places_and_records(opened, fake) -> None:
    with Server(Access(fake.url, environment={})) as server:
        push(opened, server, "wiki")
        fused = open_opensearch(server, "wiki", "bm25=1.2,impact")
        hits = fused.search("text a3 moon", 5)
        assert hits[0].text == f"text of {hits[0].passage_id}"
        assert fused.batch_search(["text a3 moon"], ["q"], 5)["q"] == hits
        assert [p.passage_id for p in fused.run(["text a3 moon"], ["q"], 5)["q"]] == [
            h.passage_id for h in hits
        ]
        fake.requests.clear()
        fused.search("text a3 moon", 5)
        assert [path.rpartition("/")[2] for _, path in fake.requests].count("_msearch") <= 3


def test_channels_follow_the_alias_until_they_are_closed(opened, builder, docs, fake) -> None:
    with Server(Access(fake.url, environment={})) as server:
        push(opened, server, "wiki")
        fused = open_opensearch(server, "wiki", "bm25=1.2,impact")
        single = open_opensearch(server, "wiki", "bm25")
        assert not fused.refresh()
        assert not single.refresh()
        assert fused.ranking_name == "bm25=1.2,impact"
        with pytest.raises(InputError, match="threads must be"):
            fused.channels.batch_search(["text a3"], 5, 0)
        builder.write(builder.source(docs("b", 9), name="b.jsonl"), "overwrite")
        opened.refresh()
        push(opened, server, "wiki")
        assert fused.refresh()
        assert single.refresh()
        assert fused.num_docs == single.num_docs == 9
        with pytest.raises(TypeError, match="cannot be pickled"):
            copy.copy(fused)
        fused.close()
        with pytest.raises(IndexStateError, match="the channels are closed"):
            fused.channels.search("text a3", 5)


def test_a_missing_shard_is_waited_for(opened, fake, questions) -> None:
    with Server(Access(fake.url, environment={})) as server:
        push(opened, server, "wiki")
        there = open_opensearch(server, "wiki")
        wrong = [
            {"timed_out": False, "_shards": {"failed": 1}, "hits": {"hits": []}, "status": 200},
            {"timed_out": True, "_shards": {"failed": 0}, "hits": {"hits": []}, "status": 200},
            {"error": {"reason": "no copy"}, "status": 503},
        ]

        def fault(method: str, path: str, body: bytes):
            if not path.endswith("_msearch") or not wrong:
                return None
            first = wrong.pop()
            _, others = fake.msearch(body, path.split("/")[1])
            return 200, {"responses": [first, *others["responses"][1:]]}

        fake.fault = fault
        ids = [str(i) for i in range(len(questions))]
        assert there.run(questions, ids) == opened.run(questions, ids)
        assert not wrong


def test_a_failing_search_is_an_error(opened, fake, questions) -> None:
    with Server(Access(fake.url, patience=0.3, environment={})) as server:
        push(opened, server, "wiki")
        there = open_opensearch(server, "wiki")
        for status, patience in ((400, "no sense"), (503, "no copy")):
            answer = {"error": {"reason": patience}, "status": status}
            fake.fault = lambda _m, path, body, a=answer: (
                (200, {"responses": [a] * (len(body.splitlines()) // 2)}) if "_msearch" in path else None
            )
            with pytest.raises(ServerError, match=patience):
                there.search(questions[0])


def test_no_index_there(fake) -> None:
    with Server(Access(fake.url, environment={})) as server:
        with pytest.raises(IndexStateError, match="the alias 'wiki' must point to one index, found none"):
            open_opensearch(server, "wiki")
        with pytest.raises(InputError, match="the index name may contain lower-case letters"):
            open_opensearch(server, "Wiki,*")


def test_a_lost_query_side_is_told(opened, fake) -> None:
    with Server(Access(fake.url, environment={})) as server:
        push(opened, server, "wiki")
        fake.indices["sparta-models"].documents.clear()
        with pytest.raises(IndexStateError, match="the tokenizer of the index is missing"):
            open_opensearch(server, "wiki")
