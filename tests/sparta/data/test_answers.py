"""Whether a text holds an answer, by worked cases."""

from __future__ import annotations

import pytest

from sparta.data.answers import has_answer, tokens


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


def test_regular_expressions() -> None:
    assert has_answer("born in 1867", [r"18\d\d"], match="regex")
    assert has_answer("Marie CURIE", ["marie curie"], match="regex")
    assert not has_answer("born in 1967", [r"18\d\d", "("], match="regex")
