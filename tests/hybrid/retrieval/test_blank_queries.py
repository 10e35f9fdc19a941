"""No retriever has hits for a query without a letter, digit or symbol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.answering.answerer import Answerer
from hybrid.multihop.searcher import ChainSearcher
from hybrid.retrieval.searcher import open_retriever
from sparta.models.query_encoder import is_blank
from sparta.reader.config import ReaderConfig
from sparta.search.retriever import Page

pytestmark = pytest.mark.jvm
BLANK = ["", " ", "\t\n", "\x00\x1f", "\u200b\u2060\ufeff", "?!", "…", "\u0301", "- –"]
CHANNELS = ["impact", "bm25", "dense", "dense,impact", "bm25=1,dense=1,impact=0.5"]


@pytest.mark.parametrize("query", BLANK)
@pytest.mark.parametrize("channels", CHANNELS)
def test_no_hits(channels: str, query: str, built_dense_index: Path) -> None:
    with open_retriever(built_dense_index, channels) as retriever:
        assert list(retriever.search(query)) == []
        found = retriever.run([query, "moon", query], ["a", "b", "c"])
        assert [bool(found[name]) for name in "abc"] == [False, True, False]
        assert {name: len(hits) for name, hits in retriever.batch_search([query], ["a"]).items()} == {"a": 0}


@pytest.mark.parametrize("query", ["☃", "٣", "é", "字", "€", "1", "a?", "@", "C#"])
def test_a_letter_digit_or_symbol_is_a_query(query: str) -> None:
    assert not is_blank(query)


def test_vectors_of_other_queries_stay_at_their_places(built_dense_index: Path) -> None:
    with open_retriever(built_dense_index, "dense") as retriever:
        queries = ["", "moon", " ", "google", ""]
        ranked = retriever.rank(queries, Page(2))
        alone = [retriever.rank([query], Page(2))[0] for query in queries]
        assert [own.passage_ids for own in ranked] == [own.passage_ids for own in alone]
        np.testing.assert_allclose(
            [*ranked[1].scores, *ranked[3].scores], [*alone[1].scores, *alone[3].scores], 1e-5
        )


def test_a_chain_has_no_path(built_dense_index: Path) -> None:
    with ChainSearcher("hop", built_dense_index) as searcher:
        assert searcher.find_paths("who founded google and the moon")[0]
        assert searcher.find_paths("  ")[0] == []


class _NoReader:
    """A reader that must not be given a passage."""

    config = ReaderConfig()

    def read_each(self, query: str, texts: Sequence[Any], n: int) -> Iterator[Any]:
        assert not texts
        yield from ()


@pytest.mark.parametrize("channels", CHANNELS)
def test_no_answer(channels: str, built_dense_index: Path) -> None:
    with Answerer(open_retriever(built_dense_index, channels), _NoReader()) as answerer:  # type: ignore[arg-type]
        assert answerer.answer(" ") == []


def test_missing_queries_of_a_frame(built_dense_index: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyterrier")
    from hybrid.integrations import PyTerrierRetriever

    frame = pd.DataFrame({"qid": ["1", "2", "3", "4"], "query": [np.nan, None, "moon", pd.NA]})
    found = PyTerrierRetriever(built_dense_index, "bm25").transform(frame)
    assert list(found["qid"].unique()) == ["3"]
