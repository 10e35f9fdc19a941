"""Filters, collapsing and pages there are those of the index here, on random metadata."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from hybrid.integrations.source import filter_on_index
from hybrid.opensearch.push import push
from hybrid.opensearch.searcher import OpenSearchSearcher, open_opensearch
from hybrid.retrieval.searcher import open_retriever
from sparta.base.errors import InputError
from sparta.search.explain import explain
from sparta.search.searcher import Searcher

pytestmark = pytest.mark.jvm
FILTERS: list[dict[str, Any]] = [
    {"lang": "en"},
    {"lang": {"in": ["en", "日"]}},
    {"year": {"gte": 1990, "lt": 2000}},
    {"year": 1995},
    {"price": {"lte": -0.5}},
    {"price": {"gt": -1e3, "lte": 1e3}},
    {"lang": {"gte": "d", "lt": "f"}},
    {"tags": "t1", "year": {"gt": 1980}},
    {"tags": {"gte": "t2"}},
    {"flag": True},
    {"long": "x" * 300},
    {"year": {"gt": 3000}},
    {"lang": {"not": "en"}},
    {"author.name": {"exists": True}, "price": {"exists": False}},
    {"or": [{"author.name": "Ada"}, {"year": {"gte": 1990}, "flag": True}]},
    {"not": [{"tags": "t1"}, {"lang": {"in": ["en", "de"]}}]},
]


@dataclass
class Described:
    """A passage with metadata, as `Doc` is one without."""

    passage_id: str
    vector: dict[str, int]
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def record(self) -> dict[str, Any]:
        return {"id": self.passage_id, "contents": f"text of {self.passage_id}", **self.more}


def metadata(rng: random.Random) -> dict[str, Any]:
    every = {
        "lang": rng.choice(["en", "de", "日", "e"]),
        "year": rng.choice([1979, 1990, 1995.0, "1995", "1999", 2000, "unknown"]),
        "price": rng.choice([-1e-3, -0.5, -700, 0.0, -0.0, 1e20, 12]),
        "tags": rng.sample(["t1", "t2", "t3"], rng.randint(0, 3)),
        "flag": rng.random() < 0.5,
        "long": "x" * rng.choice([300, 10, 301]),
        "author": {"name": rng.choice(["Ada", "Bob"])},
    }
    return {name: value for name, value in every.items() if rng.random() < 0.8}


@pytest.fixture
def described(builder, docs) -> Iterator[Searcher]:
    rng = random.Random(6)
    made = [Described(doc.passage_id, doc.vector, metadata(rng)) for doc in docs("a", 120)]
    builder.write(builder.source(made))
    with Searcher(builder.folder.path) as searcher:
        yield searcher


@pytest.mark.slow
def test_filters_and_collapsing_are_those_of_the_index_here(described, server, name, questions) -> None:
    push(described, server, name)
    there = open_opensearch(server, name)
    ids = [str(i) for i in range(len(questions))]
    found = 0
    for kept in FILTERS:
        expected = described.run(questions, ids, 15, filter=kept)
        assert there.run(questions, ids, 15, filter=kept) == expected, kept
        found += any(expected.values())
    assert found > 8
    for collapse in ("lang", "tags", "price"):
        for offset in (0, 3):
            options: dict[str, Any] = {"collapse": collapse, "offset": offset}
            expected = described.run(questions, ids, 4, **options)
            assert there.run(questions, ids, 4, **options) == expected, options
    both: dict[str, Any] = {"filter": {"year": {"gte": 1990}}, "collapse": "lang", "offset": 1}
    assert there.search(questions[0], 5, **both) == described.search(questions[0], 5, **both)


def test_pages_are_parts_of_one_ranking(described, server, name, questions) -> None:
    push(described, server, name)
    there = open_opensearch(server, name)
    whole = described.search(questions[0], 40)
    pages = [hit for offset in range(0, 40, 7) for hit in there.search(questions[0], 7, offset=offset)]
    assert pages[:40] == whole


def test_a_field_that_no_passage_has(described, server, name, questions) -> None:
    push(described, server, name)
    there = open_opensearch(server, name)
    for options in ({"filter": {"nope": 1}}, {"collapse": "nope"}):
        with pytest.raises(InputError, match="nope"):
            described.search(questions[0], **options)
        with pytest.raises(InputError, match="no passage has the field 'nope'"):
            there.search(questions[0], **options)


def test_metadata_keys_of_frameworks_are_fields_of_the_index(builder, server, name, words) -> None:
    """The index has `title` and `end`, and no `meta_title` and `meta_end`, but `meta_start`."""
    made = [
        Described("d", {words[0]: 1}, {"title": "1984", "end": 3}),
        Described("e", {words[0]: 1}, {"title": "Moon", "meta_start": 5}),
    ]
    builder.write(builder.source(made))
    with Searcher(builder.folder.path) as here:
        push(here, server, name)
        for there in (open_opensearch(server, name), open_opensearch(server, name, "impact=1,bm25=0.0")):
            for key, condition, ids in (
                ("title", "1984", "d"),
                ("title", {"exists": True}, "de"),
                ("end", 3, "d"),
                ("start", 5, "e"),
            ):
                on_fields = filter_on_index(there, {key: condition})
                assert on_fields == filter_on_index(here, {key: condition})
                hits = there.search(words[0], filter=on_fields)
                assert "".join(hit.passage_id for hit in hits) == ids
        with pytest.raises(InputError, match="no passage has the field 'text'"):
            there.search(words[0], filter=filter_on_index(there, {"text": 1}))


@pytest.mark.slow
@pytest.mark.parametrize("kept", [{"lang": "en"}, {"year": {"gte": 1990}, "lang": {"in": ["de", "en"]}}])
def test_explanations_rank_among_what_a_filter_keeps(described, server, name, questions, kept) -> None:
    push(described, server, name)
    there, ranks = OpenSearchSearcher(server, name), []
    for question in questions[:4]:
        for hit in described.search(question, 60)[::5]:
            expected = explain(described, question, hit.passage_id, kept)
            assert there.explain(question, hit.passage_id, filter=kept) == expected
            ranks.append(expected.rank)
    assert 0 in ranks
    assert max(ranks) > 1
    with pytest.raises(InputError, match="no passage has the field 'nope'"):
        there.explain(questions[0], "a0", filter={"nope": 1})


def test_a_document_is_explained_by_its_best_chunk_that_a_filter_keeps(builder, server, name, words) -> None:
    """The best chunk is not kept; of d2, none is kept; and of d3, the kept one has no term of the query."""
    made = [
        Described(f"{document}#{number}", {words[term]: impact}, {"n": number})
        for number, impact in enumerate((9, 4))
        for document, term in (("d", 0), ("e", 0), ("d3", number))
    ]
    made.append(Described("d2#0", {words[0]: 7}, {"n": 0}))
    builder.write(builder.source(made, unit="chunk:10:0"))
    with Searcher(builder.folder.path) as here:
        push(here, server, name)
        there = OpenSearchSearcher(server, name)
        for document, score, rank in (("d", 4, 1), ("e", 4, 2), ("d2", 7, 0), ("d3", 0, 0)):
            expected = explain(here, words[0], document, {"n": 1})
            assert (expected.score, expected.rank) == (score, rank)
            assert there.explain(words[0], document, filter={"n": 1}) == expected


def test_fused_rankings_are_filtered(described, server, name, questions) -> None:
    push(described, server, name)
    options: dict[str, Any] = {"filter": {"lang": "en"}, "collapse": "year"}
    asked = f"{questions[0]} text a3 a17"
    there = open_opensearch(server, name, "impact=1,bm25=0.0")
    with open_retriever(described.reader.folder.path, "impact=1,bm25=0.0") as here:
        expected = here.search(asked, 6, **options)
    found = there.search(asked, 6, **options)
    assert len(found) == len(expected)
    assert all(hit.metadata["lang"] == "en" for hit in found)
