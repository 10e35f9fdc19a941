"""--filter, --collapse and --offset of the commands that search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparta import Index
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from tests.programs import Program, hybrid, sparta

pytestmark = pytest.mark.jvm

RECORDS = [
    {
        "id": f"p{i}",
        "title": f"T{i % 4}",
        "text": "moon " * (1 + i % 5) + "sun river",
        "year": 1990 + i,
        "lang": "en" if i % 3 else "de",
    }
    for i in range(12)
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_model_folder: Path) -> Path:
    path = tmp_path_factory.mktemp("filters") / "ix"
    build_index(path, RECORDS, options=IndexOptions(model=str(tiny_model_folder)))
    return path


def lines(program: Program, index: Path, *command: str) -> list[dict[str, Any]]:
    result = program(*command, "--index", index, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("program", "command"),
    [
        (sparta, ["search", "moon"]),
        (sparta, ["search", "moon", "--channel", "bm25"]),
        (sparta, ["search", "moon", "--channel", "bm25=0.5,impact"]),
        (hybrid, ["search", "moon", "--alpha", "1"]),
    ],
)
def test_they_reach_every_search(program: Program, command: list[str], index: Path, tmp_path: Path) -> None:
    kept = ["--filter", "year>=1993", "--filter", '{"lang": "en"}']
    ids = {r["id"] for r in RECORDS if r["year"] >= 1993 and r["lang"] == "en"}
    hits = lines(program, index, *command, *kept)
    assert {hit["id"] for hit in hits} == ids
    page = lines(program, index, *command, *kept, "--offset", "2", "-k", "3")
    assert page == hits[2:5]
    assert [hit["rank"] for hit in page] == [3, 4, 5]
    titles = [hit["title"] for hit in lines(program, index, *command, *kept, "--collapse", "title")]
    assert titles == list(dict.fromkeys(hit["title"] for hit in hits))
    (tmp_path / "queries.tsv").write_text("q1\tmoon\n")
    many = [command[0], *command[2:], "--queries", str(tmp_path / "queries.tsv"), "--output", "-"]
    batch = lines(program, index, *many, *kept, "--offset", "2", "-k", "3")
    assert [(hit["id"], hit["rank"]) for hit in batch] == [(hit["id"], hit["rank"]) for hit in page]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["search", "moon", "--filter", "year"], "expected FIELD=VALUE, found 'year'"),
        (["search", "moon", "--filter", "yaer=3"], "(lang, title, year), found yaer"),
        (["search", "moon", "--collapse", "yaer"], "(lang, title, year), found yaer"),
        (["search", "moon", "--collapse", ""], "name a field, as in --collapse lang"),
        (["search", "moon", "--channel", "bm25,impact", "--offset", "95"], "--candidates 105"),
        (["search", "moon", "--channel", "bm25,impact", "-k", "101"], "--candidates 101"),
        (["explain", "moon", "p0", "--filter", "{"], "is not JSON"),
    ],
)
def test_what_is_wrong_is_told(index: Path, command: list[str], said: str) -> None:
    result = sparta(*command, "--index", index)
    assert result.exit_code == 2
    assert said in result.output


def test_a_remedy_works_and_an_empty_page_says_so(index: Path) -> None:
    fused = ["search", "moon", "--channel", "bm25,impact", "--index", str(index)]
    for options, said in (
        (["--offset", "95", "--candidates", "105"], "no passage after --offset"),
        (["-k", "101", "--candidates", "101"], "moon"),
        (["--filter", "year<1000"], "no passage that passes the filter"),
    ):
        result = sparta(*fused, *options)
        assert result.exit_code == 0
        assert said in result.output


def test_an_explanation_ranks_among_what_is_kept(index: Path) -> None:
    for number, hit in enumerate(lines(sparta, index, "search", "moon", "--filter", "lang=de"), 1):
        [why] = lines(sparta, index, "explain", "moon", hit["id"], "--filter", "lang=de")
        assert why["rank"] == number


def test_facets_and_words_of_bm25(index: Path) -> None:
    arguments = ["search", "moon", "--channel", "bm25", "--facet", "lang", "-k", "1", "--index", str(index)]
    shown = sparta(*arguments)
    with Index(index) as opened:
        expected = opened.facets("moon", ["lang"], channel="bm25")
        hit = opened.search("moon", 1, channel="bm25")[0]
    listed = ", ".join(f"{value} {count}" for value, count in expected["lang"].items())
    assert shown.stdout.splitlines()[-1] == f"lang: {listed}"
    assert lines(sparta, index, *arguments[:-2])[-1]["facets"] == expected
    [why] = lines(sparta, index, "explain", "moon", hit.passage_id, "--channel", "bm25")
    assert why["rank"] == 1
    assert sum(word["share"] for word in why["terms"]) == pytest.approx(hit.score, rel=1e-6)
    table = sparta("explain", "moon", hit.passage_id, "--channel", "bm25", "--index", index)
    assert f"score {hit.score:.4f}: rank 1 of" in table.stdout


def test_contributions_sum_to_the_score(index: Path) -> None:
    for hit in lines(sparta, index, "search", "moon", "--channel", "bm25=0.5,impact"):
        assert list(hit["channels"]) == ["bm25", "impact"]
        parts = [place["contribution"] for place in hit["channels"].values()]
        assert sum(parts) == pytest.approx(hit["score"], abs=1e-12)


def test_a_field_that_no_passage_has_is_told_of_the_index(index: Path) -> None:
    result = sparta("search", "moon", "--filter", "nested=1", "--index", index)
    assert (result.exit_code, f"error: {index}: " in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize(("bound", "told"), [("year>abc", True), ("year>2500", False)])
def test_a_bound_that_is_no_number_is_told(index: Path, bound: str, told: bool) -> None:
    result = sparta("search", "moon", "--filter", bound, "--index", index)
    assert result.stdout.startswith("no passage that passes the filter")
    assert ("the filter compares 'abc' as a string" in result.stdout) == told


NUMBERS = [
    {"id": "one", "text": "moon", "price": 1.0, "code": "007", "a=b": "c", "new!": "en"},
    {"id": "two", "text": "moon", "price": 2.5, "code": "2.50"},
    {"id": "text", "text": "moon", "price": "2.50", "code": 7},
    {"id": "list", "text": "moon", "price": [3, 100]},
]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("numbers") / "ix"
    build_index(path, NUMBERS, options=IndexOptions(channels="bm25"))
    return path


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("price=1.0", ["one"]),
        ("price=1", ["one"]),
        ("price=2.50", ["two", "text"]),
        ("price=2.5", ["two"]),
        ("price in 1.0,2.50", ["one", "two", "text"]),
        ("price=1e2", ["list"]),
        ("code=007", ["one"]),
        ("code=7", ["text"]),
        ("code=2.50", ["two"]),
        ('{"price": 2.50}', ["two"]),
        ('{"price": "2.50"}', ["text"]),
        ('{"a=b": "c"}', ["one"]),
        ('{"new!": "en"}', ["one"]),
        ("price!=2.50", ["one", "list"]),
        ("code not in 007,7", ["two", "list"]),
        ("not code exists", ["list"]),
        ("price>50 or code=7", ["text", "list"]),
    ],
)
def test_a_number_is_found_however_it_is_written(numbers: Path, condition: str, ids: list[str]) -> None:
    assert [hit["id"] for hit in lines(sparta, numbers, "search", "moon", "--filter", condition)] == ids


@pytest.mark.parametrize(
    ("condition", "said", "remedy"),
    [
        ("a=b=c", "(a=b, code, new!, price), found a", 'as JSON, as in --filter \'{"a=b": "en"}\''),
        ("new!=en", "price), found new", "field name with =, <, > or ! as JSON"),
    ],
)
def test_names_that_json_alone_can_say(numbers: Path, condition: str, said: str, remedy: str) -> None:
    result = sparta("search", "moon", "--index", numbers, "--filter", condition)
    assert result.exit_code == 2
    assert said in result.stderr
    assert remedy in result.stderr
