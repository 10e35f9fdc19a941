"""Filters of LangChain, LlamaIndex and Haystack find what the filter of the retriever finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hybrid.integrations.filters import combined, condition_of
from hybrid.integrations.metadata import filter_on_fields
from sparta.base.errors import InputError
from sparta.base.filters import Filter

pytestmark = pytest.mark.jvm
QUESTION = "who founded google"
TITLES = ("title", "meta_title")
CASES: list[tuple[list[tuple[str, str, Any]], dict[str, Any]]] = [
    ([("lang", "==", "de")], {"lang": "de"}),
    ([("lang", "in", ["de", "fr"])], {"lang": {"in": ["de", "fr"]}}),
    (
        [("year", ">=", 10), ("year", "<", 40), ("lang", "==", "en")],
        {"year": {"gte": 10, "lt": 40}, "lang": "en"},
    ),
    ([("year", ">", 10), ("year", "<=", 40)], {"year": {"gt": 10, "lte": 40}}),
    ([("lang", "!=", "de")], {"lang": {"not": "de"}}),
    ([("lang", "NOT IN", ["de", "fr"])], {"lang": {"not": {"in": ["de", "fr"]}}}),
    ([("lang", "==", "de"), ("year", "!=", 10)], {"lang": "de", "year": {"not": 10}}),
]


@pytest.mark.parametrize(("conditions", "expected"), CASES)
def test_of_every_framework(
    index: Path, retriever: Any, conditions: list[tuple[str, str, Any]], expected: dict[str, Any]
) -> None:
    wanted = [(hit.passage_id, hit.score) for hit in retriever.search(QUESTION, 20, filter=expected)]
    assert wanted
    assert wanted != [(hit.passage_id, hit.score) for hit in retriever.search(QUESTION, 20)]
    pytest.importorskip("langchain_core")
    pytest.importorskip("llama_index.core")
    pytest.importorskip("haystack")
    from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

    from hybrid.integrations import HaystackRetriever, LangChainRetriever, LlamaIndexRetriever

    chain = LangChainRetriever(retriever, k=20, search_kwargs={"filter": expected})
    assert [(d.id, d.metadata["score"]) for d in chain.invoke(QUESTION)] == wanted
    plain = LangChainRetriever(retriever, k=20).invoke(QUESTION, filter=expected)
    assert [(d.id, d.metadata["score"]) for d in plain] == wanted

    own = [
        MetadataFilter(key=key, operator=sign.replace("NOT IN", "nin"), value=value)
        for key, sign, value in conditions
    ]
    nested = MetadataFilters(filters=[own[0], MetadataFilters(filters=own[1:])])
    nodes = LlamaIndexRetriever(retriever, k=20, filters=nested).retrieve(QUESTION)
    assert [(n.node_id, n.score) for n in nodes] == wanted

    given = [
        {"field": f"meta.{key}", "operator": sign.lower(), "value": value} for key, sign, value in conditions
    ]
    filters = given[0] if len(given) == 1 else {"operator": "AND", "conditions": given}
    for component, more in (
        (HaystackRetriever(retriever, None, 20, filters), {}),
        (HaystackRetriever(retriever, top_k=20), {"filters": filters}),
    ):
        found = component.run(QUESTION, **more)["documents"]
        assert [(d.id, d.score) for d in found] == wanted


def test_every_operator() -> None:
    assert condition_of("a", "==", None) == {"a": {"exists": False}}
    assert condition_of("a", "!=", None) == {"a": {"exists": True}}
    assert condition_of("a", "is_empty", None) == {"a": {"exists": False}}
    assert condition_of("a", "any", [1, 2]) == {"a": {"in": [1, 2]}}
    assert condition_of("a", "all", [1, 2]) == {"and": [{"a": 1}, {"a": 2}]}
    assert condition_of("a", "contains", 1) == {"a": 1}
    nothing = {"and": [{"a": {"exists": True}}, {"a": {"exists": False}}]}
    assert condition_of("a", "in", []) == condition_of("a", "any", []) == nothing
    for operator in ("not in", "nin", "all"):
        assert condition_of("a", operator, []) == {"not": nothing}
    assert combined("not", [{"a": 1}, {"b": 2}]) == {"not": {"and": [{"a": 1}, {"b": 2}]}}
    assert combined("or", [{"a": 1}, {"b": 2}]) == {"or": [{"a": 1}, {"b": 2}]}
    assert combined("and", []) == {}
    with pytest.raises(InputError, match=r"the operator 'text_match', but only ==, !=, .* joined by AND, OR"):
        condition_of("a", "text_match", "b")


def test_alternatives_and_negations(retriever: Any) -> None:
    pytest.importorskip("llama_index.core")
    pytest.importorskip("haystack")
    from llama_index.core.vector_stores import FilterCondition, MetadataFilter, MetadataFilters

    from hybrid.integrations import HaystackRetriever, LlamaIndexRetriever

    pairs = [("lang", "de"), ("year", 10)]
    two = [MetadataFilter(key=key, value=value) for key, value in pairs]
    meta = [{"field": f"meta.{key}", "operator": "==", "value": value} for key, value in pairs]
    both = {"and": [{key: value} for key, value in pairs]}
    for condition, expected in (("or", {"or": both["and"]}), ("not", {"not": both})):
        wanted = [hit.passage_id for hit in retriever.search(QUESTION, 20, filter=expected)]
        assert wanted
        filters = MetadataFilters(filters=two, condition=FilterCondition(condition))  # type: ignore[arg-type]
        nodes = LlamaIndexRetriever(retriever, k=20, filters=filters).retrieve(QUESTION)
        assert [node.node_id for node in nodes] == wanted
        given = {"operator": condition.upper(), "conditions": meta}
        documents = HaystackRetriever(retriever, top_k=20).run(QUESTION, filters=given)["documents"]
        assert [document.id for document in documents] == wanted


@pytest.mark.parametrize(
    ("known", "condition", "expected"),
    [
        (TITLES, {"title": 1998}, {"or": [{"title": 1998}, {"meta_title": 1998}]}),
        (TITLES, {"title": ""}, {"or": [{"title": ""}, {"meta_title": ""}]}),
        (TITLES, {"title": {"gte": 1}}, {"or": [{"title": {"gte": 1}}, {"meta_title": {"gte": 1}}]}),
        (TITLES, {"title": "Moon"}, {"title": "Moon"}),
        (
            TITLES,
            {"not": {"title": {"in": ["Moon", 1998]}}},
            {"not": {"or": [{"title": {"in": ["Moon", 1998]}}, {"meta_title": 1998}]}},
        ),
        # Earlier versions of the stores wrote `page_starts` without a prefix.
        (
            ("page_starts", "meta_page_starts"),
            {"page_starts": 7},
            {"or": [{"meta_page_starts": 7}, {"page_starts": 7}]},
        ),
        # A field that the index lacks, or an index whose fields are unknown.
        ((), {"page_starts": 7}, {"page_starts": 7}),
        ((), {"title": 1998}, {"title": 1998}),
    ],
)
def test_fields_of_titles_and_page_starts(
    known: tuple[str, ...], condition: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert filter_on_fields(condition, known, foreign=True) == Filter.of(expected)


def test_unknown_operators_are_refused(retriever: Any) -> None:
    pytest.importorskip("haystack")
    from hybrid.integrations import HaystackRetriever

    with pytest.raises(InputError, match="contains the operator 'XOR'"):
        HaystackRetriever(retriever).run(QUESTION, filters={"operator": "XOR", "conditions": []})
    with pytest.raises(InputError, match="contains the operator 'None'"):
        HaystackRetriever(retriever).run(QUESTION, filters={"field": "meta.lang", "value": "en"})
