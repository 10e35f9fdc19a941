"""Titles, contexts and texts that a training file lacks or spells differently: kept, counted or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError
from sparta.training.paragraphs import open_set

WriteJsonl = Callable[[Path, list[Any]], Path]


@pytest.mark.parametrize("layout", ["pairs", "articles"])
def test_equal_texts_keep_their_titles(layout: str, write_jsonl: WriteJsonl, tmp_path: Path) -> None:
    lines = [
        {"question": f"do you sell shoe {i}?", "positive": "In stock.", "title": f"shoe {i // 2}"}
        for i in range(6)
    ]
    data = open_set(write_jsonl(tmp_path / "p.jsonl", lines), layout, 1)
    assert [(paragraph.title, len(paragraph.questions)) for paragraph in data.paragraphs] == [
        ("shoe 0", 2),
        ("shoe 1", 2),
        ("shoe 2", 2),
    ]


def test_adjacent_texts_of_one_title_are_joined(write_jsonl: WriteJsonl, tmp_path: Path) -> None:
    lines = [
        {"question": f"q{i}", "positive": text, "title": title, "negative": f"wrong {i}"}
        for i, (text, title) in enumerate([("One.", "a"), ("Two.", "a"), ("One.", "b"), ("One.", "a")])
    ]
    data = open_set(write_jsonl(tmp_path / "p.jsonl", lines), "articles", 1)
    texts = [(paragraph.title, paragraph.text) for paragraph in data.paragraphs]
    joined = [
        ("a", "One. Two."),
        ("", "wrong 0"),
        ("", "wrong 3"),
        ("", "wrong 1"),
        ("b", "One."),
        ("", "wrong 2"),
    ]
    assert texts == joined
    assert data.paragraphs[0].questions == (("q0", 0), ("q3", 0), ("q1", 1))


def test_a_place_counts_the_line_ends_of_its_file(write_jsonl: WriteJsonl, tmp_path: Path) -> None:
    context = "A\r\nB first.\r\nA\r\nB second"
    line = {"question": "q", "positive": "A\nB", "context": context, "start": context.rindex("A")}
    [paragraph] = open_set(write_jsonl(tmp_path / "p.jsonl", [line]), "pairs", 1).paragraphs
    [(_, sentence)] = paragraph.questions
    start, end = paragraph.sentences[sentence]
    assert paragraph.text[start:end].startswith("A\nB")
    assert start > 5


def test_line_ends_of_windows_keep_the_context(
    write_jsonl: WriteJsonl, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = "Intro. First\r\nline. Outro."
    lines = [
        {"question": "q", "positive": "First\nline.", "context": context, "answers": ["line"]},
        {"question": "lost", "positive": "Another text.", "context": context, "answers": ["text"]},
    ]
    path = write_jsonl(tmp_path / "p.jsonl", lines)
    first, second = open_set(path, "pairs", 1).paragraphs
    [(question, number)] = first.questions
    assert first.text == "Intro. First\nline. Outro."
    assert (question, first.text[slice(*first.sentences[number])]) == ("q", "First\nline.")
    assert second.text == "Another text."
    assert "p.jsonl: 1 contexts do not contain their positive" in caplog.text
    from sparta.reader.examples import read_examples

    [example] = read_examples(path)
    [(start, end)] = example.spans[0]
    assert example.passages[0].text[start:end] == "line"


def test_triples_of_ids_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "qidpidtriples.train.tsv"
    path.write_text("1185869\t0\t2942565\n1185868\t16\t2942566\n")
    with pytest.raises(InputError, match="the columns hold ids") as caught:
        open_set(path, "pairs", 1)
    assert caught.value.where == f"{path}:1"
    path.write_text("how many days has a year\t365\t12\n911\t112\t999\n")
    assert [paragraph.text for paragraph in open_set(path, "pairs", 1).paragraphs] == [
        "365",
        "12",
        "112",
        "999",
    ]


def test_passages_of_dprs_json_without_text_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def record(question: str, positives: list[str], negatives: list[str]) -> dict[str, Any]:
        positive_ctxs, hard = (
            [{"text": text, "title": "t"} for text in texts] for texts in (positives, negatives)
        )
        return {"question": question, "positive_ctxs": positive_ctxs, "hard_negative_ctxs": hard}

    path = tmp_path / "dpr.json"
    records = [record("q0", [""], ["n0"]), record("q1", [" ", "a"], ["\n", "n1"]), record("q2", ["b"], [])]
    path.write_text(json.dumps(records))
    assert [paragraph.text for paragraph in open_set(path, "passages", 1).paragraphs] == ["a", "n1", "b"]
    assert "dpr.json: left out 3 passages without text" in caplog.text
