"""The JSON of queries, and what OpenSearch would not answer, or not rightly."""

from __future__ import annotations

import pytest

from hybrid.opensearch.queries import check_most, impacts_query, search_body, text_query, within
from sparta.base.errors import InputError


def test_a_bag_is_one_query_by_terms() -> None:
    assert impacts_query({"a": 2, "##b": 1}) == (
        {"neural_sparse": {"impacts": {"query_tokens": {"a": 2.0, "##b": 1.0}}}},
        1,
    )
    assert impacts_query({}) == ({"match_none": {}}, 1)


def test_weights_above_64_are_scaled_by_a_power_of_two() -> None:
    query, scale = impacts_query({"a": 255, "b": 3})
    tokens = query["neural_sparse"]["impacts"]["query_tokens"]
    assert scale == 4
    assert {term: weight * scale for term, weight in tokens.items()} == {"a": 255, "b": 3}


def test_without_the_plugin_each_term_is_a_clause() -> None:
    query, _ = impacts_query({"a": 2, "##b": 1}, "rank_feature")
    assert query["bool"]["should"] == [
        {"rank_feature": {"field": "impacts.a", "boost": 2.0, "linear": {}}},
        {"rank_feature": {"field": "impacts.##b", "boost": 1.0, "linear": {}}},
    ]
    with pytest.raises(InputError, match="contains a dot"):
        impacts_query({"e.g": 1}, "rank_feature")
    assert impacts_query({"e.g": 1})[0]["neural_sparse"]["impacts"]["query_tokens"] == {"e.g": 1.0}


@pytest.mark.parametrize("kind", ["neural_sparse", "rank_feature"])
def test_too_many_terms_are_an_error(kind: str) -> None:
    bag = {f"t{i}": 1 for i in range(1024)}
    impacts_query(bag, kind)
    with pytest.raises(InputError, match=r"accepts at most 1,024"):
        impacts_query({**bag, "one more": 1}, kind)


def test_a_text_is_composed_as_the_documents_are() -> None:
    assert text_query("cafe\u0301") == text_query("caf\u00e9")
    assert text_query("cafe\u0301")["match"]["text"]["query"] == "caf\u00e9"


def test_ties_are_ordered_by_position() -> None:
    body = search_body({"match_all": {}}, 10)
    assert body["sort"] == [{"_score": "desc"}, {"position": "asc"}]
    assert body["size"] == 10
    for k in (0, 10_001):
        with pytest.raises(InputError, match="k must be from 1 to 10,000"):
            check_most(k, 10_000)


def test_a_filter_does_not_score() -> None:
    assert within({"match_all": {}}, {"ids": {"values": ["a"]}}) == {
        "bool": {"must": [{"match_all": {}}], "filter": [{"ids": {"values": ["a"]}}]}
    }
