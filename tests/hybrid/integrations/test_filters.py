"""Filters of LangChain, LlamaIndex and Haystack find what the filter of the retriever finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hybrid.integrations.filters import filter_of
from sparta.base.errors import InputError

pytestmark = pytest.mark.jvm
QUESTION = "who founded google"
CASES: list[tuple[list[tuple[str, str, Any]], dict[str, Any]]] = [
    ([("lang", "==", "de")], {"lang": "de"}),
    ([("lang", "in", ["de", "fr"])], {"lang": {"in": ["de", "fr"]}}),
    (
        [("year", ">=", 10), ("year", "<", 40), ("lang", "==", "en")],
        {"year": {"gte": 10, "lt": 40}, "lang": "en"},
    ),
    ([("year", ">", 10), ("year", "<=", 40)], {"year": {"gt": 10, "lte": 40}}),
]


@pytest.mark.parametrize(("conditions", "expected"), CASES)
def test_of_every_framework(
    index: Path, retriever: Any, conditions: list[tuple[str, str, Any]], expected: dict[str, Any]
) -> None:
    assert filter_of(conditions) == expected
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

    own = [MetadataFilter(key=key, operator=sign, value=value) for key, sign, value in conditions]
    nested = MetadataFilters(filters=[own[0], MetadataFilters(filters=own[1:])])
    nodes = LlamaIndexRetriever(retriever, k=20, filters=nested).retrieve(QUESTION)
    assert [(n.node_id, n.score) for n in nodes] == wanted

    given = [{"field": f"meta.{key}", "operator": sign, "value": value} for key, sign, value in conditions]
    filters = given[0] if len(given) == 1 else {"operator": "AND", "conditions": given}
    for component, more in (
        (HaystackRetriever(retriever, None, 20, filters), {}),
        (HaystackRetriever(retriever, top_k=20), {"filters": filters}),
    ):
        found = component.run(QUESTION, **more)["documents"]
        assert [(d.id, d.score) for d in found] == wanted


@pytest.mark.parametrize(
    "conditions",
    [
        [("lang", "!=", "de")],
        [("a", "contains", "b")],
        [("lang", "==", "de"), ("lang", "==", "en")],
        [("lang", "in", ["de", "en"]), ("lang", "in", ["de"])],
        [("year", ">=", 2000), ("year", "in", [2001])],
        [("year", ">=", 2000), ("year", ">=", 1990)],
    ],
)
def test_what_no_index_can_apply_is_refused(conditions: list[tuple[str, str, Any]]) -> None:
    wanted = "only ==, in, >, >=, <, <=, joined by AND|conditions on the field '(lang|year)'"
    with pytest.raises(InputError, match=wanted):
        filter_of(conditions)


def test_alternatives_are_refused(retriever: Any) -> None:
    pytest.importorskip("llama_index.core")
    pytest.importorskip("haystack")
    from llama_index.core.vector_stores import FilterCondition, MetadataFilter, MetadataFilters

    from hybrid.integrations import HaystackRetriever, LlamaIndexRetriever

    two = [MetadataFilter(key="lang", value=value) for value in ("de", "en")]
    either = MetadataFilters(filters=two, condition=FilterCondition.OR)
    with pytest.raises(InputError, match="contains the condition 'or'"):
        LlamaIndexRetriever(retriever, filters=either).retrieve(QUESTION)
    with pytest.raises(InputError, match="contains the operator 'OR'"):
        HaystackRetriever(retriever).run(QUESTION, filters={"operator": "OR", "conditions": []})
    with pytest.raises(InputError, match="contains the operator 'None'"):
        HaystackRetriever(retriever).run(QUESTION, filters={"field": "meta.lang", "value": "en"})
