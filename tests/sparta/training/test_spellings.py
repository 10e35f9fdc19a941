"""A question in other case, white space or Unicode normal form is the same question in all trainings."""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta.base.records import Passage
from sparta.training.batches import SampledNegatives, make_batch
from sparta.training.known import KnownAnswers, question_key
from sparta.training.negatives import mine
from sparta.training.paragraphs import Paragraph, ParagraphSet, open_set
from sparta.training.validation import hold_out

QUESTION = "What is Ménière disease?"
SPELLINGS = [QUESTION.upper(), QUESTION.replace(" ", "  ") + "\n", unicodedata.normalize("NFD", QUESTION)]
pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.parametrize("spelling", SPELLINGS)]


def two_spellings(folder: Path, spelling: str) -> ParagraphSet:
    """Text a answers one spelling and b the other, each is the other's hard negative; text c is wrong."""
    records: list[dict[str, Any]] = [
        {"question": question, "positive_ctxs": [{"text": right}], "hard_negative_ctxs": [{"text": wrong}]}
        for question, right, wrong in ((QUESTION, "a", "b"), (spelling, "b", "a"))
    ]
    path = folder / "dpr.json"
    path.write_text(json.dumps([*records, {"question": "other", "positive_ctxs": [{"text": "c"}]}]))
    return open_set(path, "passages", 1)


def test_a_right_passage_is_no_negative_from_the_file_and_is_not_mined(spelling: str, tmp_path: Path) -> None:
    data = two_spellings(tmp_path, spelling)
    assert [paragraph.text for paragraph in data.paragraphs] == ["a", "b", "c"]
    mined = mine(data, lambda questions: np.ones((len(questions), 3), np.float32))
    assert mined.hard_negatives == ((2,), (2,), (0, 1))


def test_an_answer_of_another_spelling_is_not_mined(spelling: str) -> None:
    known = KnownAnswers()
    known.add(QUESTION, [Passage("", "a")])
    known.add(spelling, [Passage("", "a")], ["vertigo"])
    texts = {"a": QUESTION, "it is vertigo": "other", "c": "third"}
    data = ParagraphSet(
        "set", tuple(Paragraph(text, questions=((q, -1),)) for text, q in texts.items()), known=known
    )
    mined = mine(data, lambda questions: np.ones((len(questions), 3), np.float32))
    assert mined.hard_negatives[0] == (2,)


def test_a_right_passage_is_masked_in_a_batch(spelling: str, tmp_path: Path) -> None:
    data = two_spellings(tmp_path, spelling)
    for known in (data.known, None):
        batch = make_batch(data.paragraphs, random.Random(0), 9, known)
        masked = {
            question: {batch.candidates[i].text for i in numbers}
            for question, numbers in zip(batch.questions, batch.masked, strict=True)
        }
        assert masked == {QUESTION: {"a", "b"}, spelling: {"a", "b"}, "other": {"c"}}


def test_a_right_passage_is_no_sampled_negative(spelling: str, tmp_path: Path) -> None:
    sampler = SampledNegatives(two_spellings(tmp_path, spelling), 2)
    sampler.known = KnownAnswers()
    batch = sampler.draw(random.Random(0), 3)
    for row, question in enumerate(batch.questions):
        negatives = {c.text for i, c in enumerate(batch.candidates) if i not in batch.masked[row]}
        gold = batch.candidates[batch.gold_sentence[row]].text
        assert negatives - {gold} == ({"a", "b"} if question == "other" else {"c"})


def test_a_validation_question_is_not_trained(spelling: str) -> None:
    numbered = [f"{i} {QUESTION}" for i in range(40)]
    pairs = [*((q, q) for q in numbered), (f"39 {spelling}", "second text"), (f"0 {spelling}", "last text")]
    data = ParagraphSet("set", tuple(Paragraph(text, questions=((q, -1),)) for q, text in pairs[::-1]))
    sides = hold_out([data], 4)
    trained, validation = (
        {question_key(q) for one in side for paragraph in one.paragraphs for q, _ in paragraph.questions}
        for side in sides
    )
    assert len(trained) + len(validation) == 40
    assert not trained & validation


def test_skills_share_right_passages_and_held_out_questions(spelling: str) -> None:
    from dense.training.skill_examples import SkillExample, SkillSet, merged, right_of
    from dense.training.skill_examples import hold_out as hold_out_skills

    a, b, c = (Passage("", text) for text in "abc")
    examples = [SkillExample(QUESTION, (a,), (b, c)), SkillExample(spelling, (b,), (a, c))]
    assert [example.negatives for example in merged(examples)] == [(c,), (c,)]
    first, second = right_of(["key 1", "key 2"], examples)
    assert first == second == {*examples[0].right(), *examples[1].right()}
    many = tuple(
        SkillExample(f"{i} {question}", (a,)) for i in range(20) for question in (QUESTION, spelling)
    )
    sides = hold_out_skills([SkillSet("set", "single", many)], 5)
    trained, held_out = ({question_key(e.query) for one in side for e in one.examples} for side in sides)
    assert (len(trained), len(held_out)) == (15, 5)
    assert not trained & held_out


def test_judged_passages_of_another_spelling_are_excluded(spelling: str) -> None:
    from dense.training.mining import questions_of_queries
    from sparta.base.records import Query

    queries = [Query("1", QUESTION), Query("2", spelling)]
    questions = questions_of_queries(queries, {"1": {"A": 1}, "2": {"B": 1, "C": 0}})
    assert [question.excluded for question in questions] == [{"A", "B"}, {"A", "B"}]


def test_a_path_readers_gold_passage_is_no_negative(spelling: str, tmp_path: Path) -> None:
    from hybrid.replications.path_examples import read_path_examples
    from hybrid.replications.path_train import split

    def line(question: str, gold: str, other: str) -> dict[str, Any]:
        passages = [
            {"text": gold, "gold": True},
            {"text": other, "gold": False},
            {"text": "c", "gold": False},
        ]
        return {"question": question, "answers": ["a"], "passages": passages}

    path = tmp_path / "paths.jsonl"
    path.write_text("\n".join(map(json.dumps, [line(QUESTION, "a", "b"), line(spelling, "b", "a")])))
    examples = read_path_examples(path)
    assert [[other.text.text for other in example.others] for example in examples] == [["c"], ["c"]]
    trained, held_out = split([*examples, *examples], 1)
    assert (len(trained), len(held_out)) == (0, 4)


def test_a_readers_right_passage_is_no_negative(spelling: str, encoder_folder: Path, tmp_path: Path) -> None:
    """Also with other white space; and a held-out question is not trained in another spelling."""
    from sparta.reader.config import ReaderLayout
    from sparta.reader.examples import ReadingExample
    from sparta.reader.records import Text
    from sparta.reader.train import ReaderRecipe, ReaderTraining, ReadingSet, split

    spans = (((0, 1),), (), ())
    examples = [
        ReadingExample(QUESTION, ("a",), (Text("a is"), Text("b  is"), Text("c c")), spans),
        ReadingExample(spelling, ("b",), (Text("b is"), Text(" a is"), Text("c c")), spans),
        ReadingExample("other", ("c",), (Text("a is near"),), spans[:1]),
    ]
    layout = ReaderLayout(max_length=64, overlap=16, longest_question=24, longest_answer=6)
    recipe = ReaderRecipe(
        encoder=str(encoder_folder), layout=layout, train_length=64, negatives=1.0, unanswered=0.0,
        held_out=0, batch_size=3, passages=4, device="cpu",
    )  # fmt: skip
    training = ReaderTraining(recipe, [ReadingSet("set", examples)], tmp_path / "out")
    negatives: dict[str, set[tuple[int, ...]]] = {}
    for number, windows in training.batch(0):
        ids = {tuple(window.ids) for window in windows if window.passage < 0}
        negatives[training.examples[number].question] = ids
    for question in (QUESTION, spelling):
        [wrong] = training.model.windows(question, [Text("c c")], training.layout)
        assert negatives[question] == {tuple(wrong.ids)}
    trained, held_out = split([ReadingSet("set", examples)], 1)
    assert not {question_key(e.question) for e in trained} & {question_key(e.question) for e in held_out}
