"""BM25's k1 and b, given when an index is searched, against the formula."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from hybrid.retrieval.fusion import Fusion
from hybrid.retrieval.searcher import HybridSearcher
from sparta.api import Index
from sparta.base.errors import InputError
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.lucene.bridge import Bm25
from tests.programs import hybrid, sparta

pytestmark = pytest.mark.jvm

TEXTS = ["moon moon moon moon", "moon sun star rock dust ice", "moon moon ash", "sun", "ice rock"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bm25") / "ix"
    build_index(path, TEXTS, options=IndexOptions(channels="bm25"))
    return path


def score(text: str, query: str, k1: float, b: float) -> float:
    """Robertson's BM25 with Lucene's idf, ln(1 + (N − n + 0.5) / (n + 0.5)), without the factor k1 + 1."""
    words = text.split()
    mean = sum(len(one.split()) for one in TEXTS) / len(TEXTS)
    total = 0.0
    for term in query.split():
        n = sum(term in one.split() for one in TEXTS)
        idf = math.log(1 + (len(TEXTS) - n + 0.5) / (n + 0.5))
        tf = words.count(term)
        total += tf and idf * tf / (tf + k1 * (1 - b + b * len(words) / mean))
    return total


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 0.75), (2.0, 0.0), (0.0, 1.0)])
def test_scores_are_those_of_the_formula(index: Path, k1: float, b: float) -> None:
    with Index(index, bm25=Bm25(k1, b)) as opened:
        for query in ("moon", "moon ice", "sun rock"):
            expected = {str(i): score(text, query, k1, b) for i, text in enumerate(TEXTS)}
            found = {hit.passage_id: hit.score for hit in opened.search(query)}
            assert found == pytest.approx({i: s for i, s in expected.items() if s}, rel=1e-5)
            assert list(found.values()) == sorted(found.values(), reverse=True)


def test_the_default_is_pyserinis(index: Path) -> None:
    with Index(index) as usual, Index(index, bm25=Bm25(0.9, 0.4)) as named:
        assert usual.search("moon ice") == named.search("moon ice")


def test_impossible_parameters_are_refused(index: Path) -> None:
    for wrong in (Bm25(-1, 0.4), Bm25(1e39, 0.4), Bm25(0.9, 2), Bm25(math.nan, 0.4)):
        with pytest.raises(InputError, match="k1 must be at least 0"):
            Index(index, bm25=wrong)


def test_names_of_fields_are_unicode(index: Path) -> None:
    with Index(index) as opened:
        for attempt in (
            lambda: opened.search("moon", collapse="\ud800"),
            lambda: opened.facets("moon", ["\ud800"]),
        ):
            with pytest.raises(InputError, match="surrogate"):
                attempt()


def test_the_commands_take_them(index: Path) -> None:
    for program in (sparta, hybrid):
        for k1, b in ((0.9, 0.4), (2.0, 0.0)):
            channel = (
                ["--channel", "bm25"]
                if program is sparta
                else ["--weights", "bm25=1", "--normalization", "none"]
            )
            options = ["--index", str(index), "--k1", str(k1), "--b", str(b), "--json", *channel]
            result = program("search", "moon", *options)
            first = json.loads(result.stdout.splitlines()[0])
            assert first["score"] == pytest.approx(max(score(t, "moon", k1, b) for t in TEXTS), rel=1e-5)


def test_one_command_fuses_channels(index: Path) -> None:
    several = ["search", "moon", "--index", str(index), "--json", "--channel", "bm25=2,bm25"]
    assert "bm25 twice" in sparta(*several).stderr
    result = sparta(*several[:-1], "bm25=2")
    with HybridSearcher(index, Fusion({"bm25": 2.0})) as searcher:
        expected = [(hit.passage_id, hit.score) for hit in searcher.search("moon")]
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(one["id"], one["score"]) for one in found] == expected


def test_an_accent_is_found_however_it_was_typed(tmp_path: Path) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    texts = [{"id": "one", "text": f"the {composed}"}, {"id": "two", "text": f"the {decomposed}"}]
    build_index(tmp_path / "ix", texts, options=IndexOptions(channels="bm25"))
    with Index(tmp_path / "ix") as opened:
        for query in (composed, decomposed):
            found = {hit.passage_id: hit.text for hit in opened.search(query)}
            assert found == {one["id"]: one["text"] for one in texts}  # kept as they were given
