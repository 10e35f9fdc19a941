"""What each term of a query adds to a passage's score: their sum is what a search gives it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta.base.errors import NoPassageError
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.search.searcher import LUCENE_CHANNELS, Searcher

pytestmark = pytest.mark.jvm
QUERY = "the moon of the old city, the earth"


@pytest.mark.parametrize("channel", LUCENE_CHANNELS)
def test_terms_sum_to_the_score(
    channel: str, make_records: Callable[..., Any], tiny_model_folder: Path, tmp_path: Path
) -> None:
    options = IndexOptions(model=str(tiny_model_folder))
    build_index(tmp_path / "ix", make_records(40, seed=1), options=options)
    build_index(tmp_path / "ix", make_records(30, seed=2, prefix="q"), "append", options)  # another segment
    with Searcher(tmp_path / "ix", channel=channel) as searcher:
        hits = searcher.search(QUERY, 100)
        ids = [hit.passage_id for hit in hits][::-1]
        rows = searcher.term_scores(QUERY, ids)
        np.testing.assert_allclose(rows.sum(1), [hit.score for hit in hits][::-1], rtol=1e-5)
        one = searcher.term_scores("moon", ids)
        assert one.shape == (len(ids), 1)
        assert searcher.term_scores("moon", [ids[0], ids[0]]).tolist() == [one[0].tolist()] * 2
        assert searcher.term_scores(QUERY, []).size == 0
        with pytest.raises(NoPassageError, match="nowhere"):
            searcher.term_scores(QUERY, ["nowhere"])


def test_of_a_passage_that_was_cut_each_term_counts_where_it_is_highest(tmp_path: Path) -> None:
    text = "moon " * 30 + "sun " * 30
    options = IndexOptions(channels="bm25", unit="chunk:20:0")
    build_index(tmp_path / "ix", [{"id": "d", "text": text}, {"id": "e", "text": "stars"}], options=options)
    with Searcher(tmp_path / "ix", channel="bm25") as searcher:
        parts = searcher.term_scores("moon sun", ["d#0", "d#1", "d#2"])
        assert searcher.term_scores("moon sun", ["d", "e"]).tolist() == [parts.max(0).tolist(), [0, 0]]
        [hit] = searcher.hits_of(searcher.docids(["d#1"]))
        assert (hit.passage_id, hit.score) == ("d", 1.0)


def test_words_are_folded_as_a_search_folds_them(tmp_path: Path) -> None:
    """Texts in simplified characters, a question in traditional ones."""
    records = [{"id": "moon", "text": "月亮绕着地球转"}, {"id": "google", "text": "谁创立了谷歌"}]
    build_index(tmp_path / "ix", records, options=IndexOptions(channels="bm25", language="zh"))
    with Searcher(tmp_path / "ix", channel="bm25") as searcher:
        [hit] = searcher.search("地球轉", 1)
        assert hit.passage_id == "moon"
        scores = searcher.term_scores("地球轉", ["moon"])
        assert scores.sum() == pytest.approx(hit.score)
        assert (scores > 0).all()
