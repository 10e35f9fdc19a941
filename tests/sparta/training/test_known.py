"""Right passages of a question are no negatives of it: in files, in mining, in the loss, in validation."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta.training.batches import SampledNegatives, make_batch
from sparta.training.formats import read_records
from sparta.training.negatives import mine
from sparta.training.paragraphs import ParagraphSet, open_set, read_paragraphs

pytestmark = pytest.mark.usefixtures("one_thread")


def passage(text: str, passage_id: str = "", title: str = "") -> dict[str, str]:
    return {"title": title, "text": text, "passage_id": passage_id}


def dpr_set(folder: Path, *records: dict[str, Any], layout: str = "passages") -> ParagraphSet:
    path = folder / "dpr.json"
    path.write_text(json.dumps(records))
    return open_set(path, layout, 1)


def record(question: str, *positives: dict[str, str], **others: Any) -> dict[str, Any]:
    return {"question": question, "positive_ctxs": list(positives), **others}


@pytest.fixture
def multi_hop(tmp_path: Path) -> ParagraphSet:
    """Texts a and b answer q1; another record adds c by its id; d holds the answer of q1, e is a negative."""
    return dpr_set(
        tmp_path,
        record("q1", passage("a"), passage("b", "B"), answers=["Paris"]),
        record("q1", passage("c", "C")),
        record("q2", passage("b  ", "other")),
        record("q3", passage("c otherwise", "C")),
        record("q4", passage("d is in paris")),
        record("q5", passage("e")),
    )


def negatives_of(one: ParagraphSet, number: int) -> set[str]:
    return {one.paragraphs[i].text for i in one.hard_negatives[number]}


def test_mining_prefers_the_copy_with_questions(tmp_path: Path) -> None:
    """Its questions join the batch with it; a copy brings only its text."""
    data = dpr_set(
        tmp_path,
        record("q1", passage("a"), hard_negative_ctxs=[passage("b")]),
        record("q2", passage("b")),
        record("q3", passage("c"), hard_negative_ctxs=[passage("b")]),
    )
    assert [p.text for p in data.paragraphs] == ["a", "b", "b", "c", "b"]
    mined = mine(data, lambda questions: np.ones((len(questions), 5), np.float32))
    assert mined.hard_negatives[0] == (2, 3)


def test_mined_negatives_are_no_gold_passages_and_hold_no_answer(multi_hop: ParagraphSet) -> None:
    n = len(multi_hop.paragraphs)
    mined = mine(multi_hop, lambda questions: np.tile(np.arange(n, 0, -1, np.float32), (len(questions), 1)))
    assert [p.text for p in mined.paragraphs] == ["a", "c", "b", "c otherwise", "d is in paris", "e"]
    assert negatives_of(mined, 0) == {"e"}
    assert negatives_of(mined, 4) == {"a", "b", "c", "e"}, "of two texts of one id, the first"


def test_a_label_is_no_answer_that_a_text_holds(tmp_path: Path) -> None:
    made = dpr_set(tmp_path, record("q1", passage("a"), answers=["No"]), record("q2", passage("no b")))
    mined = mine(made, lambda questions: np.ones((len(questions), 2), np.float32))
    assert negatives_of(mined, 0) == {"no b"}


def test_a_pattern_matches_texts_as_a_regular_expression(tmp_path: Path) -> None:
    """The pattern of another question is a string without `match`, so that its dots match nothing."""
    patterns = {"answers": ["par.s"], "match": "regex"}
    made = dpr_set(
        tmp_path,
        record("q1", passage("a"), **patterns),
        record("q2", passage("in Paris"), answers=["par.s"]),
        record("q3", passage("b")),
    )
    mined = mine(made, lambda questions: np.ones((len(questions), 3), np.float32))
    assert [negatives_of(mined, i) for i in range(2)] == [{"b"}, {"a", "b"}]
    strings = dpr_set(tmp_path, record("q1", passage("a"), answers=["par.s"]), record("q3", passage("b")))
    assert made.known.fingerprint() != strings.known.fingerprint()


def test_more_is_ranked_where_the_best_hold_the_answer(tmp_path: Path) -> None:
    held = [record(f"h{i}", passage(f"text {i} has paris")) for i in range(40)]
    free = [record(f"f{i}", passage(f"free {i}")) for i in range(9)]
    made = dpr_set(tmp_path, record("q", passage("a"), answers=["Paris"]), *held, *free)
    scores = np.arange(50, 0, -1, np.float32)
    mined = mine(made, lambda questions: np.tile(scores, (len(questions), 1)), depth=3)
    assert mined.hard_negatives[0] == (41, 42, 43)


def test_gold_passages_are_masked_in_a_batch(multi_hop: ParagraphSet, training: Any) -> None:
    batch = make_batch(multi_hop.paragraphs, random.Random(0), 9, multi_hop.known)
    texts = [c.text for c in batch.candidates]
    first = batch.questions.index("q1")
    assert {texts[i] for i in batch.masked[first]} == {"a", "b", "c", "c otherwise"}
    made = training(data=multi_hop, held_out=0, mined=False)
    for step in range(20):
        batch = made.batch(step)
        for row, question in enumerate(batch.questions):
            if question == "q1":
                counted = {c.text for i, c in enumerate(batch.candidates) if i not in batch.masked[row]}
                assert counted <= {"d is in paris", "e"}


def test_sampled_negatives_are_no_gold_passages(multi_hop: ParagraphSet) -> None:
    """The paper's recipe draws negatives for each question."""
    sampler = SampledNegatives(multi_hop, 4)
    for seed in range(10):
        batch = sampler.draw(random.Random(seed), 9)
        for row, question in enumerate(batch.questions):
            gold = batch.gold_sentence[row]
            counted = {c.text for i, c in enumerate(batch.candidates) if i not in {*batch.masked[row], gold}}
            if question == "q1":
                assert counted <= {"d is in paris", "e"}


def test_validation_does_not_rank_against_gold_passages(training: Any, tmp_path: Path) -> None:
    """Text b answers q too, and is among the training texts that are ranked with the held-out ones.

    Texts that a training set gets later, such as those of a collection, are not ranked.
    """
    first = [record(f"q{i}", passage(f"moon {i}")) for i in range(11)]
    made = dpr_set(
        tmp_path, record("b", passage("city b")), *first, record("q", passage("a"), passage("city b"))
    )
    run = training(data=made, held_out=1, mined=False)
    seen: list[Any] = []

    def measure(scores: Any, gold: list[int], right: list[frozenset[int]]) -> float:
        seen.append((scores.shape[1], gold, right))
        return 0.0

    run.measure = measure
    run.sets = [replace(data, paragraphs=(*made.paragraphs, *data.paragraphs)) for data in run.sets]
    run.validate()
    [(columns, gold, right)] = seen
    assert columns == 13
    assert (gold, right) == ([0], [frozenset({0, 1})])


@pytest.mark.parametrize("layout", ["pairs", "articles", "passages"])
def test_given_negatives_that_are_right_are_left_out(layout: str, write_jsonl: Any, tmp_path: Path) -> None:
    lines = [
        {"question": "q", "positive": "p", "negative": ["p ", "r", "n"]},
        {"question": "q", "positive": "r"},
        {"question": "q", "positive": "s", "context": "s in t", "negative": ["s in t", "s", "m"]},
    ]
    found = list(read_paragraphs(write_jsonl(tmp_path / "p.jsonl", lines), layout))
    assert sorted(p.text for p in found if not p.questions) == ["m", "n"]


def test_hard_negatives_of_dprs_json_that_are_positives(tmp_path: Path) -> None:
    long = "word " * 600
    hard = [passage("a"), passage("b2", "B"), passage("c"), passage(long + "b"), passage("d")]
    one = record("q", passage("a"), passage("b", "B"), passage(long + "a"), hard_negative_ctxs=hard)
    made = dpr_set(tmp_path, one, record("q", passage("c")))
    assert [p.text for p in made.paragraphs] == ["a", "d", "c"]
    [first, _] = read_records(tmp_path / "dpr.json", "dpr")
    texts = [c.text for c in first["negative_ctxs"]]
    assert texts == ["c", long + "b", "d"], "texts that differ in their ends are different"


def test_a_hard_negative_answers_another_question(tmp_path: Path) -> None:
    """Each text is the hard negative of the other's question, and masked for the question it answers."""
    made = dpr_set(
        tmp_path,
        record("q1", passage("a"), hard_negative_ctxs=[passage("b")]),
        record("q2", passage("b"), hard_negative_ctxs=[passage("a")]),
    )
    assert [p.text for p in made.paragraphs] == ["a", "b", "b", "a"]
    batch = make_batch(made.paragraphs, random.Random(0), 9, made.known)
    masked = [{batch.candidates[i].text for i in numbers} for numbers in batch.masked]
    assert (batch.questions, masked) == (["q1", "q2"], [{"a"}, {"b"}])


def test_squads_answers_are_known(tmp_path: Path) -> None:
    asked = [{"id": "1", "question": "where?", "answers": [{"text": "Stanford", "answer_start": 10}]}]
    texts = ["They were Stanford people.", "In Stanford it rains.", "It grew."]
    data = [{"title": "T", "paragraphs": [{"context": texts[0], "qas": asked}]}]
    for i, text in enumerate(texts[1:]):
        qas = [{"id": f"x{i}", "question": f"x{i}", "answers": [{"text": text[:2], "answer_start": 0}]}]
        data.append({"title": "T", "paragraphs": [{"context": text, "qas": qas}]})
    (tmp_path / "squad.json").write_text(json.dumps({"data": data}))
    made = open_set(tmp_path / "squad.json", "passages", 1)
    mined = mine(made, lambda questions: np.ones((len(questions), 3), np.float32))
    assert negatives_of(mined, 0) == {"It grew."}


def test_answers_of_other_forms_are_none(write_jsonl: Any, tmp_path: Path) -> None:
    lines = [
        {"question": f"q{i}", "positive": "p", "answers": a}
        for i, a in enumerate(("x", ["y", 3], {"text": 1}))
    ]
    made = open_set(write_jsonl(tmp_path / "p.jsonl", lines), "pairs", 1)
    assert [[*made.known.answers(f"q{i}")] for i in range(3)] == [["x"], ["y", "3"], []]


def mrqa_of_paris(tmp_path: Path) -> Path:
    """A text whose first and third sentence hold the answer, and another text."""
    text = "Paris is the capital of France. Many people go there. They say that Paris has a river. It rains."

    def asked(question: str, answer: str, *begins: int) -> dict[str, Any]:
        spans = [[begin, begin + len(answer) - 1] for begin in begins]
        return {
            "qid": question,
            "question": question,
            "detected_answers": [{"text": answer, "char_spans": spans}],
        }

    qas = [
        asked("which city", "Paris", 0, text.rindex("Paris")),
        asked("the weather", "rains", text.index("rains")),
    ]
    lines = [{"header": {"dataset": "x"}}, {"context": text, "qas": qas}]
    path = tmp_path / "mrqa.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_every_sentence_with_an_answer_is_right(tmp_path: Path) -> None:
    """The first one is the positive, the others are no negatives: as `sparta eval` counts them."""
    made = open_set(mrqa_of_paris(tmp_path), "pairs", 1)
    batch = make_batch(made.paragraphs, random.Random(0), 9, made.known)
    row = batch.questions.index("which city")
    masked = [batch.candidates[i].text for i in sorted(batch.masked[row]) if i < batch.n_sentences]
    assert masked == ["Paris is the capital of France.", "They say that Paris has a river."]
    assert batch.candidates[batch.gold_sentence[row]].text == masked[0]
    sampled = SampledNegatives(made, 2)
    for seed in range(8):
        batch = sampled.draw(random.Random(seed), 2)
        row = batch.questions.index("which city")
        negatives = {c.text for i, c in enumerate(batch.candidates) if i not in batch.masked[row]}
        assert negatives == {"Many people go there.", "It rains."}


def test_a_later_piece_with_an_answer_is_right(tmp_path: Path) -> None:
    path = mrqa_of_paris(tmp_path)
    made = [*read_paragraphs(path, "pairs", longest=11)]
    assert [p.text[:5] for p in made] == ["Paris", "They "]
    made_set = open_set(path, "pairs", 1, longest=11)
    assert made_set.known.answers_all(["which city"], made[1].whole())
    assert not made_set.known.answers_all(["the weather"], made[0].whole())
