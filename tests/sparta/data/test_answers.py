"""Whether a text holds an answer, by worked cases."""

from __future__ import annotations

import random
import re
import string
import time
from difflib import SequenceMatcher

import pytest

from sparta.data.answers import (
    answer_spans,
    has_answer,
    longest_stretch,
    normalized,
    token_f1,
    tokens,
    without_labels,
)


@pytest.mark.parametrize(
    ("text", "answers", "holds"),
    [
        ("Larry Page founded it", ["larry page"], True),
        ("Larry Page founded it", ["Larry  PAGE "], True),
        ("Larry J. Page founded it", ["Larry Page"], False),
        ("pages of Larry", ["page"], False),
        ("it was sold", ["bought", "sold"], True),
        ("U.S. troops", ["U.S."], True),
        ("in 1998.", ["1998"], True),
        ("Beyonc\u00e9 sang", ["Beyonce\u0301"], True),
        ("Beyonc\u00e9 sang", ["Beyonce"], False),
        ("", [""], False),
        ("text", ["", " "], False),
        ("text", [], False),
    ],
)
def test_answers_are_tokens_side_by_side(text: str, answers: list[str], holds: bool) -> None:
    assert has_answer(text, answers) is holds


def test_tokens_are_decomposed_and_lower_case() -> None:
    assert tokens("\u00c9t\u00e9, 2x!") == ["e\u0301te\u0301", ",", "2x", "!"]


def test_labels_of_claims_are_no_answers() -> None:
    """Those of FEVER and of HoVer."""
    labels = ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO", "SUPPORTED", "NOT_SUPPORTED", " yes ", "No"]
    assert without_labels([*labels, "not supported", "not", "Paris"]) == ["not", "Paris"]


def test_regular_expressions() -> None:
    assert has_answer("born in 1867", [r"18\d\d"], match="regex")
    assert has_answer("Marie CURIE", ["marie curie"], match="regex")
    assert not has_answer("born in 1967", [r"18\d\d", "("], match="regex")


def squad_normalized(text: str) -> str:
    """The steps of SQuAD's evaluation, in their order."""
    bare = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def test_articles_are_left_out_as_squad_does_also_beside_marks_that_are_not_ascii() -> None:
    rng = random.Random(1)
    parts = [
        "a",
        "The",
        "an.",
        "“the",
        "the’s",
        "a–b",
        "the-a",
        "…",
        "U.S.",
        "café",
        "$5",
        "\u200ba",
        "theory",
    ]
    for _ in range(2000):
        text = rng.choice((" ", "", "-")).join(rng.choices(parts, k=rng.randint(0, 4)))
        assert normalized(text) == squad_normalized(text), text


def test_thai_has_no_spaces_between_words():
    text = "เมืองหลวงของไทยคือกรุงเทพมหานครซึ่งเป็นเมืองใหญ่"
    answer = "กรุงเทพมหานคร"
    assert has_answer(text, [answer], language="th")
    [(start, end)] = answer_spans(text, [answer], language="th")
    assert text[start:end] == answer
    assert not has_answer(text, ["เชียงใหม่"], language="th")


def test_the_longest_stretch_is_that_of_difflib() -> None:
    draw = random.Random(0)
    for letters in ("a", "ab", "abcdefgh"):
        for _ in range(500):
            first, second = (draw.choices(letters, k=draw.randrange(25)) for _ in range(2))
            matcher = SequenceMatcher(None, first, second, autojunk=False)
            assert longest_stretch(first, second) == matcher.find_longest_match().size


def test_spans_that_overlap_are_all_there() -> None:
    draw = random.Random(0)
    for letters in ("a", "ab"):
        for _ in range(500):
            text, answer = ("".join(draw.choices(letters, k=n)) for n in (30, draw.randrange(1, 7)))
            expected = [(2 * i, 2 * (i + len(answer)) - 1) for i in range(30) if text[i:].startswith(answer)]
            assert answer_spans(" ".join(text), [" ".join(answer)], language="fi") == expected


def test_long_answers_take_linear_time() -> None:
    started = time.thread_time()
    assert token_f1("好" * 40_000, ["好" * 40_000], language="zh") == 1
    assert len(answer_spans("b " * 40_000, ["b " * 20_000])) == 20_001
    assert time.thread_time() - started < 5  # quadratic: minutes
