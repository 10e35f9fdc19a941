"""Validation asks no trained question, and right passages are recognized whole and truncated."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.training.known import KnownAnswers, keys_of
from sparta.training.paragraphs import Paragraph, ParagraphSet, open_set
from sparta.training.validation import hold_out

WriteJsonl = Callable[[Path, list[Any]], Path]


def questions(sets: Sequence[ParagraphSet]) -> set[str]:
    return {question.casefold() for data in sets for one in data.paragraphs for question, _ in one.questions}


def test_a_question_with_several_positives_is_on_one_side(write_jsonl: WriteJsonl, tmp_path: Path) -> None:
    lines = [{"question": f"Q{i % 20}", "positive": f"text {i}", "negative": f"wrong {i}"} for i in range(40)]
    other = [{"question": f"q{i}", "positive": f"other {i}"} for i in range(20)]
    sets = [
        open_set(str(write_jsonl(tmp_path / "a.jsonl", lines)), "pairs", 4),
        open_set(str(write_jsonl(tmp_path / "b.jsonl", other)), "pairs", 4),
    ]
    training, validation = hold_out(sets, 100)
    assert questions(validation) == {"q16", "q17", "q18", "q19"}
    assert questions(training) == {f"q{i}" for i in range(16)}
    assert not {"wrong 16", "wrong 39"} & {one.text for data in training for one in data.paragraphs}


def test_a_set_that_would_lose_all_questions_keeps_them(write_jsonl: WriteJsonl, tmp_path: Path) -> None:
    lines = [{"question": "q", "positive": f"text {i}"} for i in range(20)]
    one = open_set(str(write_jsonl(tmp_path / "a.jsonl", lines)), "pairs", 4)
    training, validation = hold_out([one], 100)
    assert questions(training) == {"q"}
    assert validation == []


def test_questions_of_a_dev_set_are_not_trained(write_jsonl: WriteJsonl, tmp_path: Path) -> None:
    lines = [{"question": f"q{i}", "positive": f"text {i}"} for i in range(20)]
    data = open_set(str(write_jsonl(tmp_path / "a.jsonl", lines)), "pairs", 4)
    dev = open_set(str(write_jsonl(tmp_path / "dev.jsonl", lines[:5])), "pairs", 4)
    training, validation = hold_out([data, replace(dev, dev=True)], 100)
    assert questions(training) == {f"q{i}" for i in range(5, 20)}
    assert questions(validation) == {f"q{i}" for i in range(5)}
    with pytest.raises(InputError, match="all questions of this set are also in the dev files"):
        hold_out([data, replace(data, dev=True)], 100)


def test_distractors_come_from_the_set_that_was_split() -> None:
    """Also if another set has the same name, and another set is too small to be split."""
    sets = [
        ParagraphSet("s", tuple(Paragraph(f"{name} {i}", questions=((f"{name}{i}", -1),)) for i in range(n)))
        for name, n in (("a", 5), ("b", 20), ("c", 20))
    ]
    training, validation = hold_out(sets, 2)
    assert [len(data.paragraphs) for data in validation] == [2, 2]
    assert [data.distractors for data in validation] == [data.paragraphs for data in training[1:]]


def test_a_text_is_ranked_once_even_if_many_questions_list_it(
    write_jsonl: WriteJsonl, tmp_path: Path
) -> None:
    numbers = range(40)
    lines = [
        {
            "question": f"q{i}",
            "positive": f"text {i}",
            "negative": [f"text {j}" for j in numbers[max(0, i - 4) : i + 5] if j != i],
        }
        for i in numbers
    ]
    path = write_jsonl(tmp_path / "p.jsonl", lines)
    data = open_set(path, "passages", 40)
    [training], [validation] = hold_out([data], 4)
    columns = [paragraph.text for paragraph in (*validation.paragraphs, *validation.distractors)]
    assert len(columns) == len(set(columns)) == 40
    assert questions([validation]) == {"q36", "q37", "q38", "q39"}
    assert len(training.paragraphs) > 40, "a question keeps its negatives in the training"
    [dev] = hold_out([replace(data, dev=True)], 4)[1]
    assert len(dev.paragraphs) == 40
    with pytest.raises(InputError, match="at least 41 different texts, found 40"):
        open_set(path, "passages", 41)


def test_a_right_passage_is_known_whole_and_truncated() -> None:
    known = KnownAnswers()
    known.add_record({"question": "q", "positive": "a b c d"}, 3)
    assert known.right("q") == {*keys_of(Passage("", "a b c d")), *keys_of(Passage("", "a b"))}
    assert known.answers_all(["q"], Passage("", "a b c d"))
    assert set(known.all_right()) == known.right("q")


@pytest.mark.parametrize("form", ["squad", "pairs"])
def test_a_long_paragraph_of_a_file_is_known_whole(form: str, tmp_path: Path) -> None:
    text = "It began here. " + "word " * 400
    path = tmp_path / f"{form}.json{'l' if form == 'pairs' else ''}"
    answers = [{"text": "It", "answer_start": 0}]
    squad = {"data": [{"title": "t", "paragraphs": [{"context": text, "qas": [
        {"id": str(i), "question": f"q{i}", "answers": answers} for i in range(4)]}]}]}  # fmt: skip
    pairs = "".join(json.dumps({"question": f"q{i}", "positive": text}) + "\n" for i in range(4))
    path.write_text(json.dumps(squad) if form == "squad" else pairs)
    data = open_set(str(path), "passages", 1)
    [paragraph] = data.paragraphs
    assert len(paragraph.text) < len(text.strip())
    assert data.known.answers_all(["q0", "q3"], Passage("", text))
    assert data.known.answers_all(["q0"], paragraph.whole())


def test_a_whole_right_passage_of_a_collection_is_no_negative() -> None:
    from dense.training.stages import _with_collection

    known = KnownAnswers()
    known.add_record({"question": "q", "positive": "a b c d"}, 3)
    data = ParagraphSet("set", (Paragraph("a b", questions=(("q", -1),)),), batch_size=1, known=known)
    collection = [Passage("1", "a b c d"), Passage("2", "other"), Passage("3", "a b")]
    assert [one.text for one in _with_collection(data, collection).paragraphs] == ["other", "a b"]


def test_a_negative_without_a_title_is_no_positive_with_one() -> None:
    from dense.training.skill_examples import SkillExample, is_among, merged

    right = (Passage("", "Text A", "T"), Passage("7", "Text B", "T"))
    wrong = (Passage("", "Text B"), Passage("", "Text C"), Passage("", "Text A", "Another title"))
    [example] = merged([SkillExample("q", right, wrong)])
    assert example.negatives == wrong[1:]
    assert is_among(Passage("", "Text A"), set(example.right()))


def test_passages_that_fit_have_one_key() -> None:
    known = KnownAnswers()
    known.add("q", [Passage("", "short")])
    assert known.right("q") == {*keys_of(Passage("", "short"))}


def test_the_fingerprint_of_earlier_releases() -> None:
    """A training that an earlier release has begun can go on."""
    known, positives = KnownAnswers(), [Passage("7", "Another  text", "Title")]
    known.add_record({"question": "Who?", "positive": "A text", "passage_id": "3"}, 4)
    known.add_record(
        {"question": "who?", "positive": "b", "positive_ctxs": positives, "answers": ["No one"]}, 9
    )
    assert known.fingerprint() == "ec9d0207c9663ddd"
