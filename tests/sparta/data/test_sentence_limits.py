"""Sentences end: at line breaks, in spite of quotes that are never closed, and at a longest length."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sparta.data.corpus import open_corpus
from sparta.data.sentences import LONGEST_SENTENCE, sentence_splitter, split_units


def sentences(text: str, language: str = "en") -> list[str]:
    return [text[start:end] for start, end in sentence_splitter(language)(text)]


@pytest.mark.parametrize(
    "opened", ["He saw the '90s.", 'She said "no.', "He (and she left.", "A “quote never ends."]
)
def test_a_quote_that_is_never_closed_holds_no_more_than_its_sentence(opened: str) -> None:
    middle = [f"The moon number {i} is far from the earth." for i in range(50)]
    text = " ".join([opened, *middle, "The dogs' house is big."])
    found = sentences(text)
    assert found[1:-1] == middle
    assert found[-1] == "The dogs' house is big."


def test_quotes_of_usual_length_stay_together() -> None:
    text = 'He said: "I came. I saw. I won." Then he left.'
    assert sentences(text) == ['He said: "I came. I saw. I won."', "Then he left."]


def test_a_line_that_looks_like_a_beginning_is_one() -> None:
    text = "The Moon\nIt orbits the\nearth every month\n- a list\n2 of it\nThe end"
    assert sentences(text) == [
        "The Moon",
        "It orbits the\nearth every month",
        "- a list",
        "2 of it",
        "The end",
    ]


@pytest.mark.parametrize(("word", "language"), [("word ", "en"), ("字", "zh")])
def test_no_sentence_is_longer_than_the_longest(word: str, language: str, tmp_path: Path) -> None:
    text = word * 1000
    found = sentences(text, language)
    assert [len(s.split()) if language == "en" else len(s) for s in found] == [LONGEST_SENTENCE] * 7 + [104]
    assert "".join(found) == text.replace(" ", "") if language == "zh" else " ".join(found) == text.strip()
    (tmp_path / "c.tsv").write_text(f"id\ttext\na\t{text}\nb\tShort.\n")
    reader = open_corpus(tmp_path / "c.tsv")
    assert len(list(split_units(reader, "sentence", language))) == 9
    assert reader.counts.cut == 1
    assert reader.counts.as_dict()["cut"] == 1


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", 'Dr. Smith said "Hello there. How are you?" He (or she) left.'),
        ("zh", "他说：“你好。我很好。”他走了。"),
    ],
)
def test_a_long_text_has_the_sentences_of_its_parts(language: str, sentence: str) -> None:
    split = sentence_splitter(language)
    expected = [sentence[a:b] for a, b in split(sentence)]
    text = "\n".join([sentence] * 3000)
    assert [text[a:b] for a, b in split(text)] == expected * 3000


@pytest.mark.slow
def test_sentences_of_a_long_text_take_linear_time() -> None:
    split = sentence_splitter("en")
    started = time.thread_time()
    assert len(split("Ab?" * 80_000)) > 1000
    assert len(split("word " * 80_000)) == 80_000 // LONGEST_SENTENCE
    assert time.thread_time() - started < 10  # read at once: more than 20 s
