"""Names in texts that are titles of an index, against a dictionary of all titles."""

from __future__ import annotations

import random
import re
import shutil
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.multihop.searcher import ChainSearcher
from hybrid.multihop.steps import Step
from hybrid.multihop.titles import LONGEST, TitleTable
from hybrid.multihop.tools import IndexTools
from sparta.base.errors import IndexStateError
from sparta.base.records import Hit
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.search.searcher import BM25, Searcher

pytestmark = pytest.mark.jvm
ALONE = IndexOptions(channels=BM25)
TITLES = {
    "a-1": "Alba Longa",
    "a-2": "Alba Longa",
    "l": "Longa",
    "p-film": "Prometheus (2012 film)",
    "p": "Prometheus",
    "e": "E.T. the Extra-Terrestrial",
    "t": "The",
    "rome": "Rome",
    "i": "İstanbul",
    "zoe": "Cafe\u0301 Zoe\u0308",
    "ROME": "ROME",
    "none": "",
    "long": " ".join(["Very"] * (LONGEST + 1)),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of TITLES, which no test changes."""
    records = [{"id": i, "title": title, "text": f"text of {i}"} for i, title in TITLES.items()]
    rows = [{"page_title": "Row", "header": ["Name"], "cells": ["Ocnus"], "links": []}]
    folder = tmp_path_factory.mktemp("titles") / "ix"
    build_index(folder, [*records, *rows], options=ALONE)
    return folder


@pytest.fixture
def searcher(built: Path, tmp_path: Path) -> Iterator[Searcher]:
    """Searches a copy of the index, so that each test has an index that no cache knows."""
    shutil.copytree(built, tmp_path / "ix")
    with Searcher(tmp_path / "ix", channel=BM25) as opened:
        yield opened


def found(searcher: Searcher, text: str) -> list[tuple[str, list[str]]]:
    [mentions] = TitleTable.of(searcher).mentions([text])
    with searcher.reader.snapshot() as view:
        return [(text[m.start : m.end], view.lucene.ids(m.docids)) for m in mentions]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_are_compared_however_they_were_typed(searcher: Searcher, tmp_path: Path, form: Any) -> None:
    with ChainSearcher("named", tmp_path / "ix") as chain:
        paths = chain.find_paths(unicodedata.normalize(form, "Where is Café Zoë?")).paths
    assert [(one.hit.passage_id, one.span) for one in paths[0].passages] == [("zoe", "Café Zoë")]


def test_a_damaged_cache_is_read_anew(searcher: Searcher, own_cache: Path) -> None:
    before = found(searcher, "the film Prometheus")
    [kept] = own_cache.rglob("*.npz")
    whole = kept.read_bytes()
    for damaged in (b"", b"no table", whole[: len(whole) // 2], whole[:-1]):
        kept.write_bytes(damaged)
        assert found(searcher, "the film Prometheus") == before
        assert kept.read_bytes() == whole, "and written again"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the king of Alba Longa, not Longa", [("Alba Longa", ["a-1"]), ("Longa", ["l"])]),
        ("she moved to İstanbul", [("İstanbul", ["i"])]),  # its lower case is i and a combining dot
        ("the film Prometheus", [("Prometheus", ["p", "p-film"])]),  # the whole title comes first
        ("I saw prometheus (2012 Film)", [("prometheus (2012 Film", ["p-film"])]),
        ("I saw Prometheus 2012 film", [("Prometheus 2012 film", ["p-film"])]),
        ("who made e.t. the extra-terrestrial", [("e.t. the extra-terrestrial", ["e"])]),
        ("who made prometheus", []),  # without capitals, one word is no name
        ("Prometheus fell. The rest. Alba Longa too", [("Alba Longa", ["a-1"])]),  # begins a sentence
        ("Prometheus and [START_ENT] longa [END_ENT] of Alba Longa", [("longa", ["l"])]),  # KILT's marks
        ("in Rome", [("Rome", ["rome", "ROME"])]),  # two pages
        ("a Row is no page", []),
        ("Very " * (LONGEST + 1), []),
        ("", []),
        ("?!", []),
    ],
)
def test_names_by_hand(searcher: Searcher, text: str, expected: list[tuple[str, list[str]]]) -> None:
    assert found(searcher, text) == expected


def test_names_against_a_dictionary(tmp_path: Path) -> None:
    """Every longest run of capital words that is a title, from left to right."""
    draw = random.Random(5)
    letters = ["Ash", "Bay", "Cod", "Dew", "Elm"]
    titles = dict.fromkeys(" ".join(draw.choices(letters, k=draw.randint(1, 4))) for _ in range(60))
    records = [{"id": str(i), "title": title, "text": "x"} for i, title in enumerate(titles)]
    build_index(tmp_path / "ix", records, options=ALONE)
    texts = ["so " + " ".join(draw.choices([*letters, "and"], k=60)) for _ in range(20)]
    with Searcher(tmp_path / "ix", channel=BM25) as searcher:
        mentions = TitleTable.of(searcher).mentions(texts)
    for text, own in zip(texts, mentions, strict=True):
        expected, at = [], 0
        words = list(re.finditer(r"\w+", text))
        while at < len(words):
            left = [m.group() for m in words[at : at + 4]]
            longest = next((n for n in range(len(left), 0, -1) if " ".join(left[:n]) in titles), 0)
            if longest:
                expected.append((words[at].start(), words[at + longest - 1].end()))
            at += longest or 1
        assert [(one.start, one.end) for one in own] == expected


def test_titles_in_metadata(searcher: Searcher) -> None:
    table = TitleTable.of(searcher)
    [(name, docids)] = table.named(["Alba  longa", "Paris"])
    assert name == "Alba  longa"
    assert searcher.hits_of(docids)[0].passage_id == "a-1"
    assert table.named(None) == table.named("Alba Longa") == []


@pytest.mark.slow
def test_titles_are_read_once_for_each_commit(searcher: Searcher, tmp_path: Path, own_cache: Path) -> None:
    first = TitleTable.of(searcher)
    assert TitleTable.of(searcher).docids.tolist() == first.docids.tolist()
    [cached] = own_cache.glob("sparta/titles/*.npz")
    np.savez(cached, hashes=first.hashes[:1], docids=first.docids[:1])
    assert TitleTable.of(searcher).docids.tolist() == first.docids[:1].tolist(), "from the cache, not anew"
    build_index(tmp_path / "ix", [{"id": "n", "title": "Remus", "text": "new"}], "append", ALONE)
    searcher.refresh()
    assert found(searcher, "the twin Remus") == [("Remus", ["n"])]
    own_cache.joinpath("sparta", "titles").rename(tmp_path / "away")
    own_cache.joinpath("sparta", "titles").write_text("a file in its place")
    assert found(searcher, "the twin Remus") == [("Remus", ["n"])], "a cache is not needed"


def test_an_index_without_titles(tmp_path: Path) -> None:
    build_index(tmp_path / "bare", [{"id": "1", "text": "no title"}], options=ALONE)
    with (
        Searcher(tmp_path / "bare", channel=BM25) as searcher,
        pytest.raises(IndexStateError, match="title"),
    ):
        TitleTable.of(searcher)


def test_a_search_that_began_earlier_leaves_no_old_titles(tmp_path: Path) -> None:
    """A thread that still holds the old commit reads its titles after another thread has refreshed."""
    records = [
        {"id": f"p{i}", "title": f"Town {name}", "text": "x"} for i, name in enumerate(("Alba", "Beta"))
    ]
    build_index(tmp_path / "ix", records, options=ALONE)
    step, hit = Step("l", "link", ("f",), by="titles"), Hit("x", 0.0, text="in Town Gamma")

    def linked() -> list[str]:
        [found] = tools.link(step, [hit])
        return [each.hit.passage_id for each in found]

    with IndexTools(tmp_path / "ix") as tools:
        assert linked() == []
        with tools.holding():
            new = [{"id": "p2", "title": "Town Gamma", "text": "x"}]
            build_index(tmp_path / "ix", new, "append", options=ALONE)
            with ThreadPoolExecutor(1) as other:
                assert other.submit(tools.refresh).result()
            assert linked() == []
        assert linked() == ["p2"]
