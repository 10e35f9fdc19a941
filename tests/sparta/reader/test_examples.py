"""What a reader is trained on, from each form of file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError
from sparta.base.remedies import Option
from sparta.reader.examples import PASSAGES, ReadingExample, read_examples
from sparta.reader.records import Text
from sparta.reader.train import ReadingSet, fingerprint, split

TEXT = "Google was founded by Larry Page and Sergey Brin. Larry Page left."


def spans_of(example: ReadingExample) -> list[list[str]]:
    return [
        [passage.text[a:b] for a, b in spans]
        for passage, spans in zip(example.passages, example.spans, strict=True)
    ]


def read(path: Path, content: Any) -> list[ReadingExample]:
    lines = content if isinstance(content, list) and path.suffix == ".jsonl" else [content]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return read_examples(path)


def test_squad(tmp_path: Path) -> None:
    place = TEXT.index("Sergey")
    answers = [{"text": "Sergey Brin", "answer_start": place}] * 2
    asked = [{"id": "1", "question": "who?", "answers": answers}, {"id": "2", "question": "?", "answers": []}]
    paragraph = {"context": TEXT, "qas": asked}
    [one] = read(tmp_path / "a.json", {"data": [{"title": "Google", "paragraphs": [paragraph]}]})
    assert one.passages == (Text(TEXT, "Google"),)
    assert spans_of(one) == [["Sergey Brin"]]


def test_mrqa(tmp_path: Path) -> None:
    start = TEXT.index("Larry")
    item = {
        "qid": "1",
        "question": "who?",
        "detected_answers": [{"text": "Larry Page", "char_spans": [[start, start + 9]]}],
    }
    [one] = read(tmp_path / "a.jsonl", [{"header": {}}, {"context": TEXT, "qas": [item]}])
    assert spans_of(one) == [["Larry Page"]]


def test_dpr_keeps_negatives_and_marks_every_mention(tmp_path: Path) -> None:
    record = {
        "question": "who?",
        "answers": ["Larry Page"],
        "positive_ctxs": [{"title": "Google", "text": TEXT}],
        "hard_negative_ctxs": [{"title": "Moon", "text": "The Moon."}] * (PASSAGES + 5),
    }
    [one] = read(tmp_path / "a.json", [record])
    assert spans_of(one)[:2] == [["Larry Page", "Larry Page"], []]
    assert len(one.passages) == PASSAGES
    [regex] = read(tmp_path / "r.json", [{**record, "answers": [r"l[a-z]+ page"], "match": "regex"}])
    assert (spans_of(regex)[:2], regex.answers) == ([["Larry Page", "Larry Page"], []], ("Larry Page",))


def test_a_pair_looks_near_its_sentence_first(tmp_path: Path) -> None:
    start = TEXT.index("Larry Page left")
    pair = {"question": "who left?", "positive": TEXT[start:], "answers": ["Larry Page"]}
    inside, bare = read(
        tmp_path / "a.jsonl", [{**pair, "context": TEXT, "start": start, "end": len(TEXT)}, pair]
    )
    assert inside.spans == (((start, start + 10),),)
    [beside] = read(tmp_path / "a.jsonl", [{**pair, "context": TEXT}])
    assert beside.spans == inside.spans, "the sentence is found where nothing says where it stands"
    assert bare.passages[0].text == TEXT[start:]


def test_what_has_no_answer_in_its_text_is_left_out(tmp_path: Path) -> None:
    pair = {"question": "who?", "positive": TEXT, "answers": ["Larry Page"]}
    assert len(read(tmp_path / "a.jsonl", [pair, {**pair, "answers": ["nobody"]}])) == 1
    with pytest.raises(InputError, match="no question of the file has an answer"):
        read(tmp_path / "b.jsonl", [{**pair, "answers": ["nobody"]}])
    with pytest.raises(InputError, match="no question of the file has an answer") as kilt:
        read(tmp_path / "c.jsonl", [{"id": "1", "input": "who?", "output": [{"answer": "Page"}]}])
    assert "sparta mine-answers" in str(kilt.value.remedy)


def test_mined_passages(tmp_path: Path) -> None:
    passages = [{"title": "Moon", "text": "The Moon."}, {"title": "Google", "text": TEXT}]
    [one] = read(tmp_path / "a.jsonl", [{"question": "who?", "answers": ["brin"], "passages": passages}])
    assert one.positives == [1]
    assert spans_of(one) == [[], ["Brin"]]


def test_spans_that_are_given_are_kept(tmp_path: Path) -> None:
    """As those of a regular expression, which no search for the answer finds again."""
    passage = {"text": "in 1984 it", "spans": [[3, 7]]}
    line = {"question": "when?", "answers": [r"19\\d\\d"], "passages": [passage]}
    [one] = read(tmp_path / "a.jsonl", [line])
    assert spans_of(one) == [["1984"]]
    with pytest.raises(InputError, match="a span is outside its text of 10 characters"):
        read(tmp_path / "b.jsonl", [{**line, "passages": [{**passage, "spans": [[3, 17]]}]}])


def test_passages_with_an_answer_are_kept_before_others(tmp_path: Path) -> None:
    passages = [{"text": f"nothing {i}"} for i in range(PASSAGES + 3)] + [{"text": TEXT}]
    [one] = read(tmp_path / "a.jsonl", [{"question": "who?", "answers": ["Brin"], "passages": passages}])
    assert (one.positives, len(one.passages)) == ([PASSAGES - 1], PASSAGES)
    assert one.passages[0].text == "nothing 0"


def test_a_question_of_two_files_is_held_out_of_both() -> None:
    mined = [
        ReadingExample(e.question, ("a",), (Text("other " + e.question),), e.spans) for e in examples("a", 20)
    ]
    trained, held_out = split([ReadingSet("a", examples("a", 20)), ReadingSet("b", mined)], 6)
    assert not {e.question for e in trained} & {e.question for e in held_out}


def examples(prefix: str, n: int) -> list[ReadingExample]:
    return [
        ReadingExample(f"{prefix}{i}", ("a",), (Text(f"{prefix}{i // 2}"),), (((0, 1),),)) for i in range(n)
    ]


def test_held_out_texts_are_not_trained_on_and_sizes_are_kept() -> None:
    sets = [ReadingSet("a", examples("a", 20), 50), ReadingSet("b", examples("b", 20), 6)]
    trained, held_out = split(sets, 8)
    assert len(held_out) == 8
    assert not {e.passages[0] for e in trained} & {e.passages[0] for e in held_out}
    of_a = [e for e in trained if e.question.startswith("a")]
    assert (len(of_a), len(trained)) == (50, 56)
    assert {of_a.count(e) for e in of_a} == {50 // len(set(of_a)), 50 // len(set(of_a)) + 1}
    assert fingerprint(trained) == fingerprint(split(sets, 8)[0])
    with pytest.raises(InputError) as caught:
        split(sets, 1000)
    assert caught.value.remedy.options == [Option("held_out")]


def test_spans_hold_their_answers_without_white_space(tmp_path: Path) -> None:
    """SQuAD has answers with a space at an end, which no wordpiece has, and files have wrong places."""
    place = TEXT.index("Sergey")
    answers = [
        {"text": " Sergey Brin", "answer_start": place - 1},
        {"text": "Larry Page", "answer_start": 3},
        {"text": "Page", "answer_start": -5},
        {"text": "left.", "answer_start": len(TEXT)},
    ]
    asked = [
        {"id": str(i), "question": "who?", "answers": own} for i, own in enumerate((answers, answers[1:]))
    ]
    [one] = read(tmp_path / "a.json", {"data": [{"paragraphs": [{"context": TEXT, "qas": asked}]}]})
    assert spans_of(one) == [["Sergey Brin"]]
    assert one.answers == ("Sergey Brin",)
    passage = {"text": TEXT, "spans": [[place - 1, place + 11]]}
    [mined] = read(tmp_path / "b.jsonl", [{"question": "?", "answers": ["x"], "passages": [passage]}])
    assert spans_of(mined) == [["Sergey Brin"]]


def test_one_answer_by_itself_is_no_list_of_letters(tmp_path: Path) -> None:
    pair = {"question": "who?", "positive": TEXT, "answers": "Sergey Brin"}
    [one] = read(tmp_path / "a.jsonl", [pair])
    assert (one.answers, spans_of(one)) == (("Sergey Brin",), [["Sergey Brin"]])
    record = {"question": "who?", "answers": "Brin", "positive_ctxs": [{"text": TEXT}]}
    [dpr] = read(tmp_path / "b.json", [record])
    assert spans_of(dpr) == [["Brin"]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"question": None, "positive": TEXT},
        {"question": "who?", "positive": None},
        {"question": "who?", "positive": TEXT, "title": 7},
        {"question": "who?", "passages": [{"text": None}]},
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"must be strings, found (NoneType|int)") as raised:
        read(tmp_path / "a.jsonl", [{"answers": ["Brin", "None"], **wrong}])
    assert raised.value.where.endswith("a.jsonl:1")


@pytest.mark.parametrize("answers", [{"text": ["Brin"], "answer_start": [3]}, [None], [["Brin"]], 7])
def test_answers_are_a_list_of_texts(tmp_path: Path, answers: Any) -> None:
    with pytest.raises(InputError, match="a list of strings, found"):
        read(tmp_path / "a.jsonl", [{"question": "who?", "positive": TEXT, "answers": answers}])


def test_of_few_texts_questions_are_held_out(caplog: pytest.LogCaptureFixture) -> None:
    """A manual has one text and many questions: none of them is lost without a word."""
    manual = [ReadingExample(f"q{i}", ("a",), (Text("a"),), (((0, 1),),)) for i in range(100)]
    trained, held_out = split([ReadingSet("manual", manual)], 30)
    assert (len(trained), len(held_out)) == (70, 30)
    assert "few texts, so training and held-out questions share passages" in caplog.text
    assert not {e.question for e in trained} & {e.question for e in held_out}
    many = [ReadingExample(f"q{i}", ("a",), (Text(f"a{i % 10}"),), (((0, 1),),)) for i in range(100)]
    with caplog.at_level("INFO", "sparta"):
        trained, held_out = split([ReadingSet("many", many)], 15)
    assert (len(trained), len(held_out)) == (80, 15)
    assert "left out 5 examples that share a text or a question" in caplog.text


def test_dprs_positives_without_a_mention_are_no_negatives(tmp_path: Path) -> None:
    """Nor are hard negatives that another record of the question calls positive, by text or id."""

    def context(text: str, **more: str) -> dict[str, str]:
        return {"title": "", "text": text, **more}

    first = {
        "question": "who?",
        "answers": ["Larry Page"],
        "positive_ctxs": [context(TEXT), context("He left.")],
        "hard_negative_ctxs": [context("two"), context("three, otherwise", psg_id="3"), context("no")],
    }
    other = {**first, "positive_ctxs": [context("two"), context("three", passage_id="3")]}
    [one] = read(tmp_path / "a.json", [first, {**other, "hard_negative_ctxs": []}])
    assert [text.text for text in one.passages] == [TEXT, "no"]
