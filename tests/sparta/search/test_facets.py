"""Counts of values over all hits, beside brute force; explanations of BM25 beside Lucene's scores."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparta import Index, IndexOptions
from sparta.base.errors import InputError
from tests.sparta.search.filtering import WORDS, keeps, random_filter, random_record, record_of, texts_of

pytestmark = pytest.mark.jvm
QUERIES = ["moon", "sun earth", "river river old", " ".join(WORDS)]
FIELDS = ["lang", "year", "tags", "flag", "author.name", "title"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """BM25 alone, in several segments, with deletions."""
    rng = random.Random(11)
    options = IndexOptions(channels="bm25", threads=1)
    made = [random_record(rng, f"p{i}") for i in range(300)]
    records = [
        {**{k: v for k, v in r.items() if k not in ("vector", "contents")}, "text": r["contents"]}
        for r in made
    ]
    with Index.create(tmp_path_factory.mktemp("facets") / "ix", records[:200], options=options) as index:
        index.append(records[200:])
        index.delete([f"p{i}" for i in rng.sample(range(300), 40)])
        yield index


@pytest.mark.slow
def test_counts_equal_those_over_the_whole_ranking(index: Index) -> None:
    rng = random.Random(12)
    for query in QUERIES:
        hits = index.search(query, 10_000)
        assert len(hits) > 20
        for conditions in ({}, {"flag": True}, random_filter(rng), random_filter(rng)):
            kept = [record_of(hit) for hit in hits if keeps(record_of(hit), conditions)]
            found = index.facets(query, FIELDS, filter=conditions)
            for field in FIELDS:
                expected = Counter(value for record in kept for value in set(texts_of(record, field)))
                short = {value: n for value, n in expected.items() if len(value.encode()) <= 256}
                assert {value: n for value, n in found[field].items() if value in short} == short
                assert sum(found[field].values()) == expected.total()
                assert list(found[field].values()) == sorted(found[field].values(), reverse=True)


def test_fields_that_no_passage_has_are_refused(index: Index) -> None:
    with pytest.raises(InputError, match="found yaer"):
        index.facets("moon", ["yaer"])
    assert index.facets("unknownword", ["lang"]) == {"lang": {}}


def test_chunks_count_as_their_documents(tmp_path: Path) -> None:
    records = [{"id": f"p{i}", "text": "moon sun " * 20, "lang": "ab"[i % 2]} for i in range(7)]
    options = IndexOptions(channels="bm25", unit="chunk:10:2")
    with Index.create(tmp_path / "ix", records, options=options) as index:
        assert index.facets("moon", "lang") == {"lang": {"a": 4, "b": 3}}
        chunks = Counter(hit.metadata["lang"] for hit in index.search("moon", 100, hits="chunks"))
        assert index.facets("moon", "lang", hits="chunks") == {"lang": chunks}
        assert chunks.total() > 7


def test_the_rank_of_a_chunk_counts_chunks(tmp_path: Path) -> None:
    records = [{"id": f"p{i}", "text": " ".join(["moon"] * (9 - i) + ["sun"] * (20 + i))} for i in range(5)]
    options = IndexOptions(channels="bm25", unit="chunk:10:2")
    with Index.create(tmp_path / "ix", records, options=options) as index:
        for kind in ("chunks", "documents"):
            hits = index.search("moon sun", 100, channel="bm25", hits=kind)
            assert len(hits) == (5 if kind == "documents" else len({hit.passage_id for hit in hits}))
            for rank, hit in enumerate(hits, 1):
                assert index.explain("moon sun", hit.passage_id, channel="bm25").rank == rank


def test_a_fusion_counts_its_candidates(index: Index) -> None:
    hits = index.search("moon", 100, channel="bm25=2")
    expected = Counter(value for hit in hits for value in texts_of(record_of(hit), "title"))
    assert index.facets("moon", ["title"], channel="bm25=2") == {"title": expected}


@pytest.mark.parametrize("conditions", [{}, {"flag": True}])
def test_words_sum_to_the_score_of_bm25(index: Index, conditions: dict[str, Any]) -> None:
    for query in [*QUERIES[:3], " ".join(word for word in WORDS if word != "city")]:
        hits = index.search(query, 10_000, filter=conditions)
        for rank, hit in list(enumerate(hits, 1))[::17]:
            why = index.explain(query, hit.passage_id, channel="bm25", filter=conditions)
            assert (why.rank, why.passage_id) == (rank, hit.passage_id)
            assert sum(word.contribution for word in why.terms) == pytest.approx(hit.score, rel=1e-6)
            assert why.score == pytest.approx(hit.score, rel=1e-6)
            assert {word.term: word.count for word in why.terms} == Counter(query.split())
            text = hit.text.split() + hit.title.lower().split()
            assert {word.term for word in why.terms if word.contribution} == set(query.split()) & set(text)


def test_a_passage_that_is_no_hit_has_rank_0(index: Index) -> None:
    other = next(hit for hit in index.search("sun", 1000) if "moon" not in f"{hit.text} {hit.title}".lower())
    why = index.explain("moon", other.passage_id, channel="bm25")
    assert (why.rank, why.score) == (0, 0.0)
    with pytest.raises(InputError, match="no passage with the id 'nobody'"):
        index.explain("moon", "nobody", channel="bm25")
    with pytest.raises(InputError, match="unknown channel 'dense'"):
        index.explain("moon", other.passage_id, channel="dense")
