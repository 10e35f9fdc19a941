"""A language that sparta does not know is its entry alone: German, under another code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparta.data.answers import exact_match, has_answer
from sparta.data.languages import LANGUAGES, Language
from tests.cli.commands import done, hits_of, refused, written
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread", "own_logger")]
TEXTS = {
    "rhein": "Der Rhein entspringt u. a. in der Schweiz. Er mündet in die Nordsee.",
    "bach": "Johann Sebastian Bach wurde 1685 in Eisenach geboren. Dort stehen alte Häuser.",
    "mond": "Der Mond umkreist die Erde. Seine Meere sind trocken.",
}


@pytest.fixture(autouse=True)
def german() -> Iterator[None]:
    articles = frozenset(("der", "die", "das", "den", "dem", "des", "ein", "eine", "einen", "einem"))
    LANGUAGES["xx"] = Language(articles, analyzer="de.GermanAnalyzer", splitter="de")
    yield
    del LANGUAGES["xx"]


def test_index_search_and_eval(tmp_path: Path) -> None:
    corpus = written(tmp_path / "c.jsonl", *({"id": i, "text": t} for i, t in TEXTS.items()))
    given = ("--corpus", corpus, "--language", "xx", "--index", tmp_path / "ix")
    told = done(sparta("index", *given, "--unit", "sentence")).stderr
    assert "sparta ships no SPARTA model for the language 'xx'" in told
    assert [hit["id"] for hit in hits_of("altes Haus", "--index", tmp_path / "ix")] == ["bach#1"]  # stems
    assert [hit["id"] for hit in hits_of("der die das", "--index", tmp_path / "ix")] == []  # its stop words
    questions = [
        {"id": "q1", "question": "In welchem Meer mündet der Rhein?", "answer": "Nordsee", "in": "rhein"},
        {"id": "q2", "question": "Wo wurde Bach geboren?", "answer": "Eisenach", "in": "bach"},
    ]
    paragraphs = [
        {
            "context": (text := TEXTS[one["in"]]),
            "qas": [{**one, "answers": [{"text": a, "answer_start": text.index(a)}]}],
        }
        for one in questions
        for a in [one["answer"]]
    ]
    path = tmp_path / "xx.json"
    path.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}))
    measured = done(sparta("eval", path, "--language", "xx", "--quiet", "--format", "csv")).stdout
    assert measured.splitlines()[1].split(",")[:3] == ["xx", "bm25", "100.0"]


def test_answers_are_compared_without_its_articles() -> None:
    assert exact_match("die Nordsee", ["Nordsee"], language="xx")
    assert not exact_match("die Nordsee", ["Nordsee"])
    assert has_answer(TEXTS["rhein"], ["in die Nordsee"], language="xx")


def test_an_index_in_a_language_that_is_gone(tmp_path: Path) -> None:
    corpus = written(tmp_path / "c.jsonl", {"id": "1", "text": "Häuser"})
    done(sparta("index", "--corpus", corpus, "--language", "xx", "--index", tmp_path / "ix"))
    entry = LANGUAGES.pop("xx")
    try:
        refused(sparta("search", "Haus", "--index", tmp_path / "ix"), 2, "unknown language code", "'xx'")
    finally:
        LANGUAGES["xx"] = entry


def test_an_analyzer_that_is_none_is_refused(tmp_path: Path) -> None:
    LANGUAGES["xx"] = Language(analyzer="de.Nothing")
    corpus = written(tmp_path / "c.jsonl", {"id": "1", "text": "Häuser"})
    given = ("--corpus", corpus, "--language", "xx", "--index", tmp_path / "ix")
    result = sparta("index", *given)
    assert result.exit_code == 2
    assert "the analyzer 'de.Nothing' is not here" in result.stderr
    assert "de.GermanAnalyzer" in result.stderr
