"""Filters, collapsing and pages beside brute force over the whole ranking."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparta import Index, IndexOptions
from sparta.base.errors import IndexStateError, InputError, LackingError
from sparta.base.filters import Filter
from sparta.base.records import Hit
from sparta.index.build import delete_passages, write_index
from sparta.index.folder import IndexFolder
from sparta.index.inputs.sources import vectors_source
from sparta.index.jobs import WriteOptions
from sparta.search.retriever import Page
from sparta.search.searcher import LUCENE_CHANNELS, Searcher
from tests.sparta.search.filtering import WORDS, group_of, keeps, random_filter, random_record, record_of

pytestmark = pytest.mark.jvm

N = 400
QUERIES = ["moon", "sun earth", "river river old", " ".join(WORDS)]
FORMATS = Path(__file__).parents[2] / "formats"


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module", params=["lucene", "fast"])
def index(request: Any, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written, appended to, updated with other metadata, deleted from; in several segments."""
    folder = IndexFolder(tmp_path_factory.mktemp(request.param) / "index")
    rng = random.Random(1)

    def write(ids: Sequence[int], mode: str) -> None:
        vectors = folder.path.parent / f"{mode}.jsonl"
        lines = [json.dumps(random_record(rng, f"p{i}")) + "\n" for i in ids]
        vectors.write_text("".join(lines), encoding="utf-8")
        options = WriteOptions(mode=mode, codec=request.param if mode == "create" else None, threads=1)
        write_index(folder, vectors_source([vectors], tokenizer), options)

    write(range(N), "create")
    write(range(N, N + 100), "append")
    write(rng.sample(range(N), 80), "update")
    delete_passages(folder, [f"p{i}" for i in rng.sample(range(N), 60)])
    return folder.path


def firsts(hits: Sequence[Hit], field: str) -> list[Hit]:
    seen: set[Any] = set()
    return [h for h in hits if not (group_of(h, field) in seen or seen.add(group_of(h, field)))]


@pytest.mark.slow
@pytest.mark.parametrize("channel", LUCENE_CHANNELS)
def test_filters_and_collapsing_equal_brute_force(index: Path, channel: str) -> None:
    rng = random.Random(2)
    kept = 0
    with Searcher(index, channel=channel) as searcher:
        whole = {query: searcher.search(query, 10 * N) for query in QUERIES}
        for _ in range(60):
            conditions, query = random_filter(rng), rng.choice(QUERIES)
            expected = [hit for hit in whole[query] if keeps(record_of(hit), conditions)]
            k, offset = rng.choice([1, 3, 10, 1000]), rng.choice([0, 0, 2, 17])
            page = slice(offset, offset + k)
            assert searcher.search(query, k, offset=offset, filter=conditions) == expected[page], conditions
            field = rng.choice(["title", "lang", "year", "tags", "flag", "odd"])
            found = searcher.search(query, k, offset=offset, filter=conditions, collapse=field)
            assert found == firsts(expected, field)[page], (conditions, field)
            kept += len(expected)
        assert kept > 500
        for field in ("title", "lang", "flag"):
            for query, hits in whole.items():
                assert searcher.search(query, 5, collapse=field) == firsts(hits, field)[:5]


def test_a_filter_may_have_more_conditions_than_lucene_counts_clauses(
    tmp_path: Path, tokenizer: Path
) -> None:
    """Lucene's limit is 1024, also for the values of all conditions together."""
    fields = {f"f{i}": i for i in range(1100)}
    lines = [
        {"id": "a", "contents": "moon", "vector": {"moon": 2}, **fields},
        {"id": "b", "contents": "moon", "vector": {"moon": 1}, **fields, "f1099": 0},
    ]
    vectors = tmp_path / "vectors.jsonl"
    vectors.write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_index(IndexFolder(tmp_path / "index"), vectors_source([vectors], tokenizer), WriteOptions())
    with Searcher(tmp_path / "index") as searcher:
        many = {name: {"in": [value, *range(2000, 2050)]} for name, value in list(fields.items())[:40]}
        assert [hit.passage_id for hit in searcher.search("moon", filter=many)] == ["a", "b"]
        assert [hit.passage_id for hit in searcher.search("moon", filter=fields)] == ["a"]


def test_both_channels_in_one_call(index: Path) -> None:
    rng = random.Random(3)
    with Searcher(index) as searcher:
        beside = searcher.beside("bm25")
        for options in (
            {"filter": random_filter(rng)},
            {"collapse": "title"},
            {"filter": {"flag": True}, "collapse": "lang"},
        ):
            page = Page(7, **options)
            impact, bm25 = searcher.rank_both(QUERIES, page)
            assert impact == searcher.rank(QUERIES, page)
            assert bm25 == beside.rank(QUERIES, page)
            run = searcher.run(QUERIES, QUERIES, 5, offset=2, **options)
            hits = searcher.batch_search(QUERIES, QUERIES, 5, 2, offset=2, **options)
            for query, own in zip(QUERIES, impact, strict=True):
                assert run[query] == own[2:7]
                assert [h.passage_id for h in hits[query]] == own.passage_ids[2:7]


def test_the_rank_of_an_explanation_is_that_among_what_is_kept(index: Path) -> None:
    with Index(index) as opened:
        conditions = {"flag": True}
        hits = opened.search(QUERIES[1], 50, filter=conditions)
        ranks = [opened.explain(QUERIES[1], h.passage_id, filter=conditions).rank for h in hits]
        assert ranks == list(range(1, 1 + len(hits)))
        other = next(h for h in opened.search(QUERIES[1], 50) if h not in hits)
        assert opened.explain(QUERIES[1], other.passage_id, filter=conditions).rank == 0
        nested = ["author", "author.born", "author.name", "odd", "odd.x"]
        assert opened.fields == sorted([*nested, "flag", "lang", "price", "tags", "title", "year"])


def test_an_index_takes_what_its_retrievers_take(index: Path) -> None:
    options: dict[str, Any] = {"offset": 1, "filter": {"flag": True}, "collapse": "lang"}
    with Index(index) as opened:
        for channel in ("impact", "bm25"):
            own, given = opened.retriever(channel), (QUERIES, QUERIES, 5, 2)
            assert opened.run(*given, channel=channel, **options) == own.run(*given, **options)
            assert opened.batch_search(*given, channel=channel, **options) == own.batch_search(
                *given, **options
            )
        assert list(opened.run(QUERIES)) == [str(i) for i in range(len(QUERIES))]


@pytest.mark.parametrize(
    "options",
    [
        {"filter": {"yaer": 1990}},
        {"filter": {"yaer": {"lt": 3}}},
        {"filter": {"yaer": {"not": 1990}}},
        {"filter": {"yaer": {"exists": False}}},
        {"filter": {"or": [{"flag": True}, {"yaer": 1990}]}},
        {"collapse": "yaer"},
    ],
)
def test_an_unknown_field_is_told_with_those_there_are(index: Path, options: dict[str, Any]) -> None:
    with (
        Searcher(index) as searcher,
        pytest.raises(InputError, match=r"\(author, .*, flag, .*, year\), found yaer"),
    ):
        searcher.search("moon", **options)


@pytest.mark.parametrize("unit", ["chunk:2:1", "sentence"])
def test_parts_of_passages_have_the_metadata_of_the_whole(
    tiny_model_folder: Path, tmp_path: Path, unit: str
) -> None:
    rng = random.Random(4)
    records = [
        {
            "id": f"p{i}",
            "text": ". ".join(" ".join(rng.choices(WORDS, k=3)).capitalize() for _ in range(4)) + ".",
            "title": f"T{i % 7}",
            "year": 1990 + i % 10,
        }
        for i in range(60)
    ]
    options = IndexOptions(channels="bm25", unit=unit, model=str(tiny_model_folder))
    with Index.create(tmp_path / "index", records, options=options) as index:
        for query in QUERIES[:2]:
            whole = index.search(query, 1000)
            expected = [h for h in whole if 1992 <= h.metadata["year"] < 1995]
            conditions = {"year": {"gte": 1992, "lt": 1995}}
            assert 0 < len(expected) < len(whole)
            assert index.search(query, 1000, filter=conditions) == expected
            assert (
                index.search(query, 4, offset=1, filter=conditions, collapse="title")
                == firsts(expected, "title")[1:5]
            )
            assert index.search(query, 5, collapse="title") == firsts(whole, "title")[:5]
        assert index.fields == (["passage_id", "title", "year"] if unit == "sentence" else index.fields)


@pytest.mark.parametrize("codec", ["lucene", "sparta"])
def test_an_older_index_says_that_it_must_be_built_again(tmp_path: Path, codec: str, tokenizer: Path) -> None:
    path = tmp_path / "index"
    shutil.copytree(FORMATS / f"index-1-{codec}", path)
    vectors = tmp_path / "more.jsonl"
    vectors.write_text(
        json.dumps({"id": "z", "contents": "moon", "lang": "en", "vector": {"moon": 9}}) + "\n"
    )

    def refused() -> None:
        with Searcher(path) as searcher:
            assert searcher.search("moon", 2, offset=1)
            for options in ({"filter": {"title": "odd"}}, {"collapse": "title"}):
                with pytest.raises(IndexStateError, match=r"older sparta.*\n.*rebuild the index"):
                    searcher.search("moon", **options)

    refused()
    write_index(IndexFolder(path), vectors_source([vectors], tokenizer), WriteOptions(mode="append"))
    refused()


def test_a_field_that_only_deleted_passages_have_is_none(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [{"id": i, "text": "moon", "lang": "en"} for i in "abcdefghi"]
    records.append({"id": "z", "text": "moon", "langs": ["de", "fr"]})
    with Index.create(tmp_path / "ix", records, options=IndexOptions(channels="bm25")) as index:
        assert index.fields == ["lang", "langs"]
        index.delete(["a", "z"])  # so few deletions make no merge
        assert index.fields == ["lang"]
        for options in ({"filter": {"langs": "de"}}, {"collapse": "langs"}):
            with pytest.raises(InputError, match=r"of the passages \(lang\), found langs"):
                index.search("moon", **options)
        assert len(index.search("moon", filter={"lang": "en"})) == 8


def test_pages_begin_at_0(index: Path) -> None:
    with Searcher(index) as searcher:
        for given, match in (
            ({"offset": -1}, "offset must be at least 0"),
            ({"k": 0}, "k must be at least 1"),
        ):
            with pytest.raises(InputError, match=match):
                searcher.search("moon", **given)
        assert searcher.search("moon", 3, offset=10_000) == []
        assert searcher.search("moon", 3, filter={}) == searcher.search("moon", 3, filter=Filter.of(None))


@pytest.mark.slow
def test_an_older_index_refuses_nested_fields_also_after_an_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = {"id": "a", "text": "moon", "author": {"name": "Ada"}, "lang": "en"}
    options = IndexOptions(channels="bm25")
    with monkeypatch.context() as older:
        older.setattr("sparta.index.folder.NESTED", "all")
        index = Index.create(tmp_path / "index", [record], options=options)
    with index:
        index.append([{**record, "id": "b"}])
        assert index.fields == ["lang"]
        for refused in ({"filter": {"author.name": "Ada"}}, {"collapse": "author.name"}):
            with pytest.raises(LackingError, match="without nested fields") as told:
                index.search("moon", **refused)  # type: ignore[arg-type]
            assert "sparta index --corpus FILE --overwrite" in str(told.value)
        assert len(index.search("moon", filter={"lang": "en"})) == 2
    with Index.create(tmp_path / "index", [record], options=options, overwrite=True) as index:
        assert index.search("moon", filter={"author.name": "Ada"})


def test_fields_that_cannot_be_filtered_by_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = [
        {"id": f"p{i}", "text": "moon", "nested": [[i]], "none": None, "empty": {}, "n": i} for i in range(3)
    ]
    records[0]["page_starts"] = list(range(300))  # no warning, because PDFs have this field
    Index.create(tmp_path / "ix", records, options=IndexOptions(channels="bm25")).close()
    [told] = [r.getMessage() for r in caplog.records]
    assert told.startswith("the metadata field nested is stored with the passages, but is not filterable")


def test_offsets_of_a_corpus_of_its_own_are_metadata(tmp_path: Path) -> None:
    """Only of a sentence that was cut, or of what stands in a context, they are none."""
    cut = {"id": "p#1", "text": "moon", "passage_id": "p", "start": 1, "end": 5}
    own = [
        {"id": "a", "text": "moon", "passage_id": "p7", "start": 1, "end": 5},
        {"id": "p#2", "text": "moon", "passage_id": "q", "start": 1, "end": 5},
    ]
    placed = {"id": "c", "text": "moon", "context": "a moon", "start": 2, "end": 6}
    with Index.create(tmp_path / "ix", [cut, *own, placed], options=IndexOptions(channels="bm25")) as index:
        assert [hit.passage_id for hit in index.search("moon", filter={"end": 5})] == ["a", "p#2"]
        assert [hit.passage_id for hit in index.search("moon", filter={"passage_id": "p"})] == ["p#1"]
