"""Which passages become positives and negatives, case by case."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dense.training.mining import (
    Miner,
    MiningOptions,
    Question,
    distinct,
    questions_of_dpr,
    questions_of_queries,
)
from dense.training.stages import DEPTH, second_stage_set
from sparta.base.records import Hit, Passage, Query
from sparta.training.formats import dpr_object
from sparta.training.negatives import mine
from sparta.training.paragraphs import Paragraph, ParagraphSet


class Fixed:
    """A searcher that finds the same for every query."""

    def __init__(self, *hits: tuple[str, str]) -> None:
        self.language = "en"
        self.found = [Hit(i, -float(n), "", text) for n, (i, text) in enumerate(hits)]

    def batch_search(self, queries: Sequence[str], names: Sequence[str], k: int, threads: int) -> Any:
        return dict.fromkeys(names, self.found[:k])


def mined(question: Question, *hits: tuple[str, str], most: int = 10) -> tuple[list[str], list[str]]:
    searcher: Any = Fixed(*hits)
    miner = Miner(searcher, searcher, lambda _: None, MiningOptions(negatives=most, threads=1))
    ((_, positives, found),) = miner.ranked([question])
    negatives = miner.negatives(question, positives, found)
    return [p.passage_id for p in positives], [n.passage_id for n in negatives]


def test_the_positive_is_the_first_passage_that_holds_an_answer() -> None:
    hits = ("a", "nothing"), ("b", "the answer"), ("c", "an answer too"), ("d", "nor this")
    assert mined(Question("q", ("answer",)), *hits) == (["b"], ["a", "d"])


def test_a_gold_passage_is_no_negative_whatever_its_text() -> None:
    gold = Passage("g", "as the file has it")
    hits = ("g", "as the index has it"), ("x", "as the file has it"), ("y", "other"), ("z", "other")
    assert mined(Question("q", positives=(gold,)), *hits) == (["g"], ["y"])


def test_gold_passages_of_other_records_are_no_negatives(tmp_path: Path) -> None:
    """Mined ones, by text or id, and those that the file gives."""
    gold = [{"title": "", "text": t, "passage_id": i} for t, i in (("one", "1"), ("two", "2"), ("three", ""))]
    first = {"question": "q", "positive_ctxs": gold[:1], "hard_negative_ctxs": [gold[1], {"text": "x"}]}
    path = tmp_path / "dpr.json"
    path.write_text(json.dumps([first, {"question": "q", "positive_ctxs": gold[1:]}]))
    question = next(iter(questions_of_dpr(path)))
    assert [negative.text for negative in question.negatives] == ["x"]
    hits = ("2", "two in the index"), ("3", "three"), ("4", "four")
    assert mined(question, *hits)[1] == ["4"]


def test_a_passage_of_a_file_is_written_with_its_score(tmp_path: Path) -> None:
    scored = {"title": "T", "text": "a", "psg_id": 5, "score": "2.5", "other": 1}
    path = tmp_path / "dpr.json"
    path.write_text(json.dumps([{"question": "q", "positive_ctxs": [scored, {"text": "b"}]}]))
    [question] = questions_of_dpr(path)
    assert [*map(dpr_object, question.positives)] == [
        {"title": "T", "text": "a", "passage_id": "5", "score": 2.5},
        {"title": "", "text": "b", "passage_id": ""},
    ]


def test_judged_passages_of_the_same_text_count_for_all_its_queries() -> None:
    queries = [Query("1", "q"), Query("2", "q"), Query("3", "other")]
    asked = [*questions_of_queries(queries, {"1": {"a": 1}, "2": {"b": 1}, "3": {"c": 1}})]
    assert [one.judged for one in asked] == [("a",), ("b",), ("c",)]
    assert [one.excluded for one in asked] == [{"a", "b"}, {"a", "b"}, {"c"}]


def test_labels_exclude_no_passage() -> None:
    gold = Passage("g", "gold")
    assert mined(Question("q", ("no",), positives=(gold,)), ("a", "no text"), ("b", "b"))[1] == ["a", "b"]


def test_no_more_negatives_than_wanted() -> None:
    gold = Passage("g", "gold")
    hits = [(str(i), f"text {i}") for i in range(5)]
    assert mined(Question("q", positives=(gold,)), *hits, most=3)[1] == ["0", "1", "2"]


def test_given_negatives_come_before_mined_ones_that_repeat_them() -> None:
    given, again = Passage("given", "same"), Passage("mined", "same")
    assert distinct([given, again]) == [given]


def test_an_unknown_option_of_mining_is_refused() -> None:
    unknown: Any = {"depht": 5}
    with pytest.raises(TypeError, match="'depht'"):
        MiningOptions(**unknown)


def texts_with_questions(*texts: str) -> ParagraphSet:
    return ParagraphSet("s", tuple(Paragraph(t, "", (), ((f"q{i}", -1),)) for i, t in enumerate(texts)))


def test_mined_are_the_highest_scores_that_do_not_answer() -> None:
    """Text 0 stands twice and counts once: the three strongest of the others are kept, in order."""
    one = texts_with_questions("same", "b", "same", "d", "e")
    scores = np.array([9.0, 3.0, 8.0, 1.0, 5.0], np.float32)
    found = mine(one, lambda questions: np.tile(scores, (len(questions), 1)), depth=3)
    assert found.hard_negatives == ((4, 1, 3), (0, 4, 3), (4, 1, 3), (0, 4, 1), (0, 1, 3))


def test_what_scores_nothing_is_not_mined() -> None:
    one = texts_with_questions("a", "b", "c")
    found = mine(one, lambda questions: np.tile(np.float32([0.0, 2.0, 0.0]), (len(questions), 1)), depth=2)
    assert found.hard_negatives == ((1,), (), (1,))


def test_stage_two_keeps_p1_of_a_single_set_and_draws_from_100() -> None:
    assert DEPTH == 100
    first = ParagraphSet("s", texts_with_questions("a", "b", "c").paragraphs, hard_negatives=((1,), (2,), ()))
    assert second_stage_set(first, ((2,), (2, 0), (1,)), with_p1=True).hard_negatives == (
        (1, 2),
        (2, 0),
        (1,),
    )
    alone = second_stage_set(first, ((2,), (2, 0), (1,)), with_p1=False)
    assert (alone.hard_negatives, alone.hard_negative_share) == (((2,), (2, 0), (1,)), 1.0)
