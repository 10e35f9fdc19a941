"""What a person expects of a query with names, numbers and marks, by the default model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparta.index.folder import IndexFolder
from sparta.index.pipeline import build_index
from sparta.search.explain import explain
from sparta.search.searcher import Searcher

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

SPELLINGS = {
    "C++": ("C++ is a language for programs that run fast.", "C is a language for programs that run fast."),
    "node.js": ("A server in node.js reads many files.", "A server reads each node, and a file with js."),
    "GPT-4": ("GPT-4 is a model that writes text.", "The fourth model, after GPT, had 4 authors."),
    "COVID-19": ("COVID-19 spread over the world.", "In 19 countries, COVID spread late."),
    "3.5 mm": ("The plug has a diameter of 3.5 mm.", "The plug has a diameter of 5.3 mm."),
    "AT&T": ("AT&T sold telephones in America.", "The shop at T street sold telephones in America."),
    "r\u00e9sum\u00e9": ("She sent her r\u00e9sum\u00e9 by mail.", "We resume the work by mail."),
    "don't": ("I don't know this song.", "The don knew this song."),
}
OTHERS = [
    "Alexander Kerensky led the government of Russia in 1917.",
    "The sky over Rennes is blue.",
    "A vacuum cleaner removes dust from the carpet.",
    "A pump makes a vacuum.",
    "OpenSearch runs on Kubernetes clusters.",
    "An open net holds the ears of corn.",
    "A quiz about jazz, wax and buzzing bees.",
]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searcher]:
    path: Path = tmp_path_factory.mktemp("expected") / "ix"
    build_index(path, [*(text for pair in SPELLINGS.values() for text in pair), *OTHERS])
    assert "lexical_terms" in IndexFolder(path).require_live().model
    with Searcher(path) as searcher:
        yield searcher


def texts(searcher: Searcher, query: str) -> list[str]:
    return [hit.text for hit in searcher.search(query, 100)]


@pytest.mark.parametrize("query", SPELLINGS)
def test_the_same_spelling_comes_first(searcher: Searcher, query: str) -> None:
    right, wrong = SPELLINGS[query]
    assert next(text for text in texts(searcher, query) if text in (right, wrong)) == right


def test_a_word_that_no_passage_has_finds_nothing(searcher: Searcher) -> None:
    assert texts(searcher, "zzzxqw") == []


def test_a_misspelled_word_adds_nothing(searcher: Searcher) -> None:
    hits = searcher.search("vacum cleaner", 100)
    assert hits[0].text == OTHERS[2]
    assert hits == searcher.search("cleaner", 100)
    for hit in hits:
        why = explain(searcher, "vacum cleaner", hit.passage_id)
        assert [word.word for word in why.words if word.contribution] == ["cleaner"]


def test_names_are_explained_by_words(searcher: Searcher) -> None:
    query = "OpenSearch kubernetes"
    best = searcher.search(query)[0]
    assert best.text == OTHERS[4]
    why = explain(searcher, query, best.passage_id)
    assert {word.word for word in why.words} == {"OpenSearch", "kubernetes"}
    assert sum(word.contribution for word in why.words) == best.score


def test_an_inflected_name_finds_the_name(searcher: Searcher) -> None:
    assert texts(searcher, "Kerenskys") == [OTHERS[0]]
