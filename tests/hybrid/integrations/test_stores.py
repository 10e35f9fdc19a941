"""The vector stores, by the test suites of their frameworks and beside the index itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta import Index, IndexOptions
from sparta.base.errors import InputError

pytestmark = pytest.mark.jvm
BM25 = IndexOptions(channels="bm25")
TEXTS = ["Bill Gates founded Microsoft.", "The Moon is far.", "Google was founded in 1998."]
METADATA: list[dict[str, Any]] = [
    {"lang": "en", "id": 1},
    {"lang": "de", "text": "x"},
    {"author": {"name": "A"}},
]


@pytest.fixture(scope="module")
def tiny_dense(make_tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense model that opens at once."""
    from dense.models.bi_encoder import DenseConfig, DenseModel
    from sparta.neural.inputs import InputLayout

    tiny, folder = make_tiny_model(), tmp_path_factory.mktemp("dense") / "model"
    layout = InputLayout(max_length=64, overlap=8)
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout)).save_pretrained(folder)
    return folder


def langchain_suite() -> Any:
    suites = pytest.importorskip("langchain_tests.integration_tests.vectorstores")

    @pytest.mark.slow
    @pytest.mark.asyncio
    class TestLangChain(suites.VectorStoreIntegrationTests):  # type: ignore[name-defined]
        """LangChain's suite expects k hits, so it searches the dense channel, which ranks all passages."""

        @pytest.fixture
        def vectorstore(self, tmp_path: Path, tiny_dense: Path) -> Iterator[Any]:
            from hybrid.integrations import LangChainVectorStore

            store = LangChainVectorStore(tmp_path / "ix", "dense", options=BM25, dense_model=str(tiny_dense))
            yield store
            store.store.close()

    return TestLangChain


def haystack_suite() -> Any:
    pytest.importorskip("haystack")
    from haystack import Document
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.testing.document_store import DeleteByFilterTest, DocumentStoreBaseTests

    class TestHaystack(DocumentStoreBaseTests, DeleteByFilterTest):
        """Haystack's suite; the store keeps no embeddings."""

        @pytest.fixture
        def document_store(self, tmp_path: Path, tiny_model_folder: Path) -> Iterator[Any]:
            from hybrid.integrations import HaystackDocumentStore

            options = replace(BM25, model=str(tiny_model_folder))
            store = HaystackDocumentStore(tmp_path / "ix", options=options)
            yield store
            store.store.close()

        @staticmethod
        def assert_documents_are_equal(received: list[Document], expected: list[Document]) -> None:
            assert received == [replace(document, embedding=None) for document in expected]

        def test_write_documents(self, document_store: Any) -> None:
            document = Document(content="test doc")
            assert document_store.write_documents([document]) == 1
            with pytest.raises(DuplicateDocumentError):
                document_store.write_documents([document])

    return TestHaystack


TestLangChain = langchain_suite()
TestHaystack = haystack_suite()


@pytest.mark.slow
def test_langchain_finds_what_the_index_finds(tmp_path: Path) -> None:
    from hybrid.integrations import LangChainVectorStore

    store = LangChainVectorStore.from_texts(
        TEXTS, None, METADATA, ids=["a", "b", "c"], index=tmp_path / "ix", options=BM25
    )
    [(document, score)] = store.similarity_search_with_score("who founded it", filter={"lang": "en"})
    assert (document.id, document.metadata) == ("a", METADATA[0])
    with Index(tmp_path / "ix") as index:
        assert [
            (hit.passage_id, hit.score) for hit in index.search("who founded it", filter={"lang": "en"})
        ] == [("a", score)]
    for filter, ids in (
        ({"id": 1}, ["a"]),
        ({"text": "x"}, []),
        ({"author.name": "A"}, ["c"]),
        ({"lang": {"not": "de"}}, ["c", "a"]),
        ({"or": [{"id": 1}, {"author.name": {"exists": True}}]}, ["c", "a"]),
        ({"unknown": 1}, []),
        ({"not": {"unknown": 1}}, ["c", "a"]),
    ):
        assert [found.id for found in store.similarity_search("founded", filter=filter)] == ids, filter
    assert store.as_retriever(search_kwargs={"k": 1}).invoke("moon")[0].id == "b"
    best = store.as_retriever(search_kwargs={"filter": {"lang": {"exists": True}}, "collapse": "lang"})
    store.add_texts(["Who founded it?"], [{"lang": "en"}], ids=["d"])
    assert [document.id for document in best.invoke("founded the moon")] == ["b", "d"]
    with pytest.raises(InputError, match="no search by maximal marginal relevance"):
        store.as_retriever(search_type="mmr").invoke("moon")
    with pytest.raises(InputError, match="no relevance scores"):
        store.similarity_search_with_relevance_scores("moon")
    with pytest.raises(InputError, match="expected an object of fields, found 'lang=en'"):
        store.similarity_search("moon", filter="lang=en")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cannot search with fetch_k"):
        store.as_retriever(search_kwargs={"fetch_k": 5}).invoke("moon")
    with pytest.raises(InputError, match="has no text"):
        store.add_texts([" "])
    with pytest.raises(InputError, match="not JSON-serializable"):
        store.add_texts(["x"], [{"when": object()}])
    assert store.delete()
    assert len(store.store) == 0


def test_every_write_takes_the_options_of_writing(tmp_path: Path, calls: Any) -> None:
    """Other options are those of a new index: the index may be another program's."""
    from hybrid.integrations.store import IndexStore

    recorded = calls(Index.update)
    options = replace(BM25, device="cpu", dtype="fp32", threads=3, commit_seconds=7)
    Index.create(tmp_path / "ix", [{"id": "a", "text": "moon"}], options=BM25).close()
    with IndexStore(tmp_path / "ix", options=replace(options, codec="lucene", resume=True)) as store:
        store.write([("b", "sun", {})])
        assert len(store) == 2
    [(_, arguments)] = recorded
    assert arguments["options"] == replace(options, channels=None)


def test_no_document_is_skipped(tmp_path: Path) -> None:
    from hybrid.integrations.store import IndexStore

    with pytest.raises(InputError, match="cannot skip documents") as refused:
        IndexStore(tmp_path / "ix", options=replace(BM25, skip_invalid=True))
    assert str(refused.value.remedy) == "omit skip_invalid"


def test_metadata_may_be_what_a_record_may_be() -> None:
    from hybrid.integrations.metadata import plain

    metadata = {"day": date(2020, 1, 2), "pages": np.int64(3), "depth": np.array(5), "of": {1: [Decimal(2)]}}
    assert plain(metadata) == {"day": "2020-01-02", "pages": 3, "depth": 5, "of": {"1": [2]}}


@pytest.mark.slow
def test_llamaindex_adds_queries_and_deletes(tmp_path: Path) -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
    from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
    from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

    from hybrid.integrations import LlamaIndexVectorStore

    store = LlamaIndexVectorStore(tmp_path / "ix", options=BM25)
    assert store.query(VectorStoreQuery(query_str="moon")).ids == []
    nodes = [
        TextNode(
            id_=name,
            text=text,
            metadata=own,
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc-{name}")},
        )
        for name, text, own in zip("abc", TEXTS, METADATA, strict=True)
    ]
    assert store.add(nodes) == ["a", "b", "c"]
    found = store.query(VectorStoreQuery(query_str="who founded it", similarity_top_k=5))
    with Index(tmp_path / "ix") as index:
        hits = index.search("who founded it")
    assert (found.ids, found.similarities) == ([h.passage_id for h in hits], [h.score for h in hits])
    assert found.nodes is not None
    for node in found.nodes:
        original = nodes["abc".index(node.node_id)]
        assert (node.get_content(), node.metadata, node.ref_doc_id) == (
            original.text,
            original.metadata,
            original.ref_doc_id,
        )
    filters = MetadataFilters(filters=[MetadataFilter(key="id", value=1)])
    assert store.query(VectorStoreQuery(query_str="founded", similarity_top_k=5, filters=filters)).ids == [
        "a"
    ]
    assert store.query(VectorStoreQuery(query_str="founded", similarity_top_k=5, doc_ids=["doc-c"])).ids == [
        "c"
    ]
    by_ids = VectorStoreQuery(query_str="founded", similarity_top_k=1, node_ids=["a", "b"])
    assert found.ids[0] == "c"
    assert (store.query(by_ids).ids, store.query(by_ids).similarities) == (["a"], [found.similarities[1]])
    assert store.query(replace(by_ids, node_ids=[])).ids == ["c"]
    assert store.query(VectorStoreQuery(query_str="founded", doc_ids=[])).ids == []
    with pytest.raises(InputError, match="no query mode 'mmr'"):
        store.query(VectorStoreQuery(query_str="founded", mode=VectorStoreQueryMode.MMR))
    hybrid: Any = "hybrid"  # LlamaIndex does not check the type
    with pytest.raises(InputError, match="no query mode 'hybrid'"):
        store.query(VectorStoreQuery(query_str="founded", mode=hybrid))
    by_text = VectorStoreQuery(query_str="founded", mode=VectorStoreQueryMode.TEXT_SEARCH)
    assert store.query(by_text).ids == ["c"]
    with pytest.raises(InputError, match="query_str"):
        store.query(VectorStoreQuery(query_embedding=[0.1]))
    assert [node.node_id for node in store.get_nodes(filters=filters)] == ["a"]
    store.delete("doc-c")
    store.delete_nodes(filters=filters)
    assert [node.node_id for node in store.get_nodes(["a", "b", "c"])] == ["b"]
    store.clear()
    assert store.get_nodes(["b"]) == []


def test_an_index_of_llamaindex_searches_the_store(tmp_path: Path) -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core import MockEmbedding, VectorStoreIndex
    from llama_index.core.schema import TextNode

    from hybrid.integrations import LlamaIndexVectorStore

    store = LlamaIndexVectorStore(tmp_path / "ix", options=BM25)
    store.add([TextNode(id_=name, text=text) for name, text in zip("abc", TEXTS, strict=True)])
    retriever = VectorStoreIndex.from_vector_store(store, MockEmbedding(4)).as_retriever()
    assert [hit.node.node_id for hit in retriever.retrieve("who founded microsoft")] == ["a", "c"]


@pytest.mark.slow
def test_haystack_searches_and_is_saved(tmp_path: Path) -> None:
    pytest.importorskip("haystack")
    from haystack import Document

    from hybrid.integrations import HaystackDocumentStore

    store = HaystackDocumentStore(tmp_path / "ix", options=BM25)
    assert store.search("moon") == []
    store.write_documents(
        [
            Document(id=name, content=text, meta=own)
            for name, text, own in zip("abc", TEXTS, METADATA, strict=True)
        ]
    )
    filters = {"field": "meta.lang", "operator": "!=", "value": "de"}
    assert [document.id for document in store.search("founded", filters=filters)] == ["c", "a"]
    again = HaystackDocumentStore.from_dict(json.loads(json.dumps(store.to_dict())))
    assert again.store.options == BM25
    assert again.count_documents() == 3
    assert again.search("moon")[0].meta == METADATA[1]


@pytest.mark.parametrize(("policy", "first"), [("SKIP", "first"), ("OVERWRITE", "second")])
def test_haystack_writes_like_its_own_store(tmp_path: Path, policy: str, first: str) -> None:
    pytest.importorskip("haystack")
    from haystack import Document
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from haystack.document_stores.types import DuplicatePolicy

    from hybrid.integrations import HaystackDocumentStore

    store, usual = HaystackDocumentStore(tmp_path / "ix", "bm25", options=BM25), InMemoryDocumentStore()
    documents = [
        Document(id="a", content="first", meta={"n": 1}),
        Document(id="a", content="second", meta={"n": 1}),
    ]
    written = usual.write_documents(documents, DuplicatePolicy[policy])
    assert store.write_documents(documents, DuplicatePolicy[policy]) == written
    assert [document.content for document in store.filter_documents()] == [first]
    for operator in ("in", "not in"):
        filters = {"field": "meta.n", "operator": operator, "value": []}
        assert store.filter_documents(filters) == usual.filter_documents(filters)


def test_retrievers_and_stores_name_metadata_alike(tmp_path: Path) -> None:
    pytest.importorskip("haystack")
    from haystack import Document

    from hybrid.integrations import HaystackDocumentStore, HaystackRetriever

    store = HaystackDocumentStore(tmp_path / "ix", options=BM25)
    metadata = {"id": 1, "text": "x", "title": "T", "meta_title": "M"}
    store.write_documents([Document(id="a", content="The Moon is far.", meta=metadata)])
    retriever = HaystackRetriever(tmp_path / "ix", "bm25")
    filters = {"field": "meta.id", "operator": "==", "value": 1}
    [document] = retriever.run("moon", filters=filters)["documents"]
    assert document.meta == metadata == store.search("moon", filters=filters)[0].meta


def test_retrievers_keep_fields_of_other_programs(tmp_path: Path) -> None:
    pytest.importorskip("haystack")
    from hybrid.integrations import HaystackRetriever

    records = [
        {"id": "a", "title": "Moon", "text": "The Moon is far.", "meta_title": "Moon | Home"},
        {"id": "b", "text": "The moon.", "meta_title": "Moon", "meta_id": "7"},
    ]
    Index.create(tmp_path / "ix", records, options=BM25).close()
    retriever = HaystackRetriever(tmp_path / "ix", "bm25")
    metas = {document.id: document.meta for document in retriever.run("moon")["documents"]}
    assert metas == {
        "a": {"title": "Moon", "meta_title": "Moon | Home"},
        "b": {"title": "", "meta_title": "Moon", "id": "7"},
    }
    for field, value in (("meta_title", "Moon"), ("meta_id", "7"), ("id", "7")):
        filters = {"field": f"meta.{field}", "operator": "==", "value": value}
        [document] = retriever.run("moon", filters=filters)["documents"]
        assert document.id == "b"
    for operator, names in (("==", "a"), ("!=", "b")):
        filters = {"field": "meta.title", "operator": operator, "value": "Moon"}
        assert [document.id for document in retriever.run("moon", filters=filters)["documents"]] == [names]


def test_a_title_that_is_no_text_is_metadata(tmp_path: Path) -> None:
    from hybrid.integrations import LangChainVectorStore
    from hybrid.integrations.source import filter_on_index, open_source

    store = LangChainVectorStore(tmp_path / "ix", options=BM25)
    titles = [1998, None, ["a"], "A title", ""]
    store.add_texts(["moon"] * 5, [{"title": title} for title in titles], ids=list("abcde"))
    assert [document.metadata["title"] for document in store.get_by_ids(list("abcde"))] == titles
    conditions: list[tuple[Any, str]] = [
        (1998, "a"),
        ("a", "c"),
        ("A title", "d"),
        ("", "e"),
        ({"in": [1998, "A title"]}, "ad"),
        ({"gte": 1990}, "a"),
        ({"not": 1998}, "bcde"),
        ({"not": {"in": ["", "A title"]}}, "abc"),
        ({"exists": True}, "acde"),
        ({"exists": False}, "b"),
    ]
    for condition, names in conditions:
        documents = store.similarity_search("moon", k=5, filter={"title": condition})
        assert "".join(sorted(document.id for document in documents)) == names, condition
    retriever = open_source(tmp_path / "ix", "bm25")
    for condition, names in [*conditions[2:8], ({"exists": True}, "ade"), ("a", "")]:
        hits = retriever.search("moon", filter=filter_on_index(retriever, {"title": condition}))
        assert "".join(sorted(hit.passage_id for hit in hits)) == names, condition


def test_a_retriever_of_langchain_filters_and_collapses_by_metadata_keys(tmp_path: Path) -> None:
    from hybrid.integrations import LangChainRetriever, LangChainVectorStore

    store = LangChainVectorStore(tmp_path / "ix", options=BM25)
    store.add_texts(["moon"] * 3, [{"start": 5, "title": 7}, {"start": 5}, {"start": 9}], ids=list("abc"))
    retriever = LangChainRetriever(tmp_path / "ix", "bm25", search_kwargs={"filter": {"start": 5}})
    for search, names in (
        ({}, "ab"),
        ({"filter": {"title": 7}}, "a"),
        ({"filter": {"meta_start": 9}}, "c"),
        ({"filter": None, "collapse": "start"}, "ac"),
    ):
        documents = retriever.invoke("moon", **search)
        assert "".join(document.id or "" for document in documents) == names


def test_a_filter_of_a_store_reads_no_field_of_another_key(tmp_path: Path) -> None:
    """A filter on `meta_id` would reach the field of `id`, and delete its documents."""
    from hybrid.integrations.store import IndexStore

    store = IndexStore(tmp_path / "ix", options=BM25)
    store.write([("a", "moon", {"id": "x1"}), ("b", "moon", {"title": 1998}), ("c", "moon", {"meta_n": 1})])
    for key, value in (("meta_id", "x1"), ("meta_title", 1998)):
        assert store.delete_matching({key: value}) == 0
    for key, value, name in (("id", "x1", "a"), ("title", 1998, "b"), ("meta_n", 1, "c")):
        assert [hit.passage_id for hit in store.matching({key: value})] == [name]
    store.write([("d", "moon", {"meta_id": "x2"})])
    assert [hit.passage_id for hit in store.matching({"meta_id": "x2"})] == ["d"]


def test_filters_reach_into_reserved_keys(tmp_path: Path) -> None:
    """If such a key were unknown, `!=` would match every document, and delete it."""
    pytest.importorskip("haystack")
    from haystack import Document

    from hybrid.integrations import HaystackDocumentStore, HaystackRetriever, LangChainVectorStore

    store = HaystackDocumentStore(tmp_path / "ix", "bm25", options=BM25)
    metas: list[dict[str, Any]] = [
        {"context": {"lang": "en"}, "page_starts": [0, 7], "start.line": 2},
        {"context": {"lang": "de"}, "title": {"short": "M"}},
    ]
    store.write_documents(
        [Document(id=name, content="moon", meta=own) for name, own in zip("ab", metas, strict=True)]
    )
    retriever = HaystackRetriever(tmp_path / "ix", "bm25")
    for key, value, name in (
        ("context.lang", "en", "a"),
        ("page_starts", 7, "a"),
        ("start.line", 2, "a"),
        ("title.short", "M", "b"),
    ):
        filters = {"field": f"meta.{key}", "operator": "==", "value": value}
        assert [document.id for document in store.filter_documents(filters)] == [name]
        assert [document.id for document in retriever.run("moon", filters=filters)["documents"]] == [name]
    has_title = {"field": "meta.title", "operator": "!=", "value": None}
    assert [document.id for document in retriever.run("moon", filters=has_title)["documents"]] == ["b"]
    chain = LangChainVectorStore(tmp_path / "ix", "bm25")
    assert len(chain.similarity_search("moon", collapse="context.lang")) == 2
    assert store.delete_by_filter({"field": "meta.context.lang", "operator": "!=", "value": "en"}) == 1
    assert [document.id for document in store.filter_documents()] == ["a"]


@pytest.mark.parametrize("unit", ["sentence", "chunk:5:0:sentence"])
def test_an_index_of_parts_is_no_vector_store(tmp_path: Path, unit: str) -> None:
    from hybrid.integrations import LangChainVectorStore

    options = replace(BM25, unit=unit)
    with pytest.raises(InputError, match=f"must be the passage, found '{unit}'"):
        LangChainVectorStore(tmp_path / "ix", options=options)
    Index.create(tmp_path / "ix", [{"id": "a", "text": "The moon."}], options=options).close()
    with pytest.raises(InputError, match=f"must be the passage, found '{unit}'"):
        LangChainVectorStore(tmp_path / "ix")


def test_deleting_by_filter_reads_no_records(tmp_path: Path, calls: Callable[..., list[Any]]) -> None:
    from hybrid.integrations.store import IndexStore
    from sparta.search.searcher import Searcher

    store = IndexStore(tmp_path / "ix", options=BM25)
    store.write([(name, "moon", {"lang": name}) for name in "abc"])
    read = calls(Searcher.records)
    assert store.delete_matching({"lang": "a"}) == 1
    assert store.delete_matching({"unknown": "a"}) == 0
    assert store.delete_matching({}) == 2
    assert read == []


@pytest.mark.parametrize("field", ["id", "content", "score"])
def test_haystack_filters_by_metadata_only(tmp_path: Path, field: str) -> None:
    """As unknown metadata, `!=` would match every document, and delete it."""
    haystack = pytest.importorskip("haystack")
    from haystack.errors import FilterError

    from hybrid.integrations import HaystackDocumentStore

    store = HaystackDocumentStore(tmp_path / "ix", "bm25", options=IndexOptions(channels="bm25"))
    store.write_documents([haystack.Document(id=i, content="x", meta={"author": {"name": i}}) for i in "ab"])
    with pytest.raises(FilterError, match="metadata"):
        store.delete_by_filter({"field": field, "operator": "!=", "value": "a"})
    with pytest.raises(FilterError, match="NOT"):
        store.filter_documents({"operator": "NOT", "conditions": []})
    with pytest.raises(FilterError):
        store.filter_documents({"field": "meta.n", "operator": "==", "value": [1]})
    has_author = {"field": "meta.author", "operator": "!=", "value": None}
    assert [document.id for document in store.filter_documents(has_author)] == ["a", "b"]
    assert store.filter_documents({**has_author, "operator": "=="}) == []
    assert store.count_documents() == 2


def test_llamaindex_gets_whole_nodes_back(tmp_path: Path) -> None:
    """Its retrievers follow relationships, and hide some keys from a language model."""
    pytest.importorskip("llama_index.core")
    from llama_index.core.schema import IndexNode, NodeRelationship, RelatedNodeInfo, TextNode

    from hybrid.integrations import LlamaIndexVectorStore

    related = {
        NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc", metadata={"a": 1}),
        NodeRelationship.PARENT: RelatedNodeInfo(node_id="p"),
        NodeRelationship.CHILD: [RelatedNodeInfo(node_id="c")],
    }
    child = TextNode(
        id_="a",
        text="the moon",
        metadata={"path": "/x"},
        relationships=related,
        excluded_llm_metadata_keys=["path"],
        start_char_idx=10,
    )
    nodes = [child, IndexNode(id_="b", text="the sun", index_id="other"), TextNode(id_="c", text="a star")]
    store = LlamaIndexVectorStore(tmp_path / "ix", options=BM25)
    store.add(nodes)
    assert [node.to_dict() for node in store.get_nodes(["a", "b", "c"])] == [node.to_dict() for node in nodes]
    with Index(tmp_path / "ix") as index:
        assert "llama_index_node" not in index.passage("c")
