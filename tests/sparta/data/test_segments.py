"""Chinese answers are cut and compared as CMRC 2018's evaluation does, by NLTK's words."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest

from sparta.data.answers import exact_match, segments, token_f1

LEFT_OUT = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
PARTS = (
    *("中国", "北京", "公里", "年", "的", "。", "，", "《", "》", "（", "）", "·", "-", " "),
    *(
        "364.6",
        "364",
        "6,300",
        "3.0cm",
        "42%",
        "nt$25,000",
        "39 m³",
        "2.7868 å",
        "15.",
        "…",
        "……",
        "...",
        "──",
    ),
    *(
        "U.S.",
        "Google",
        "café",
        "don't",
        "it's",
        "O'Neil",
        '"hotshot"',
        "(canopy),",
        "[jnu]",
        "HBO & co",
        "１９",
    ),
    *("ア", "〇", "㭴", "〈", "〉", "cannot", ",", ".", "?", "!", ";", "—", "°f"),
)


@cache
def _nltk() -> Any:
    return pytest.importorskip("nltk.tokenize.destructive").NLTKWordTokenizer()


def _oracle(text: str) -> list[str]:
    """The evaluation's segments, from its definition: one character after the other, words by NLTK."""
    tokenizer = _nltk()
    found: list[str] = []
    word = ""
    for character in text.lower().strip():
        if character in LEFT_OUT:
            continue
        if "\u4e00" <= character <= "\u9fa5":
            found += [*tokenizer.tokenize(word), character]
            word = ""
        else:
            word += character
    return [*found, *tokenizer.tokenize(word)]


def _oracle_f1(answer: str, expected: list[str]) -> float:
    read, best = _oracle(answer), 0.0
    for right in map(_oracle, expected):
        lengths = [[0] * (len(right) + 1) for _ in range(len(read) + 1)]
        for i, one in enumerate(read):
            for j, other in enumerate(right):
                lengths[i + 1][j + 1] = lengths[i][j] + 1 if one == other else 0
        if shared := max(map(max, lengths)):
            precision, recall = shared / len(read), shared / len(right)
            best = max(best, 2 * precision * recall / (precision + recall))
    return best


@pytest.mark.parametrize(
    ("answer", "expected", "f1"),
    [
        ("364", "364.6公里", 0.0),
        ("364.6", "364.6公里", 2 * 1 / (1 + 3)),
        ("6,300人", "6300人", 2 * 1 / (2 + 2)),
        ("42%", "42", 2 * 1 / (2 + 1)),
        ("1998年……", "1998年…", 2 * 2 / (3 + 3)),
        ("アメリカ", "アメリカ人", 2 * 1 / (1 + 2)),
    ],
)
def test_numbers_and_runs_are_single_words(answer: str, expected: str, f1: float) -> None:
    assert token_f1(answer, [expected], language="zh") == pytest.approx(f1)


@pytest.mark.slow
def test_segments_are_those_of_the_evaluation() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        text = "".join(rng.choices(PARTS, k=rng.randint(1, 8)))
        if ",," in text:  # NLTK reads the second comma with what follows
            continue
        bare = "".join(c for c in text.lower().strip() if c not in LEFT_OUT)
        assert segments(bare) == _oracle(text), text


@pytest.mark.slow
def test_f1_is_that_of_the_evaluation() -> None:
    rng = random.Random(2)
    for _ in range(1000):
        answer, *expected = ("".join(rng.choices(PARTS[:30], k=rng.randint(1, 6))) for _ in range(3))
        if _oracle(answer):
            assert token_f1(answer, expected, language="zh") == pytest.approx(_oracle_f1(answer, expected)), (
                answer
            )


def test_the_same_answer_is_that_of_the_evaluation() -> None:
    """Space around an answer does not count; in it, or before its full stop, it does."""
    assert exact_match(" 北京。", ["北京"], language="zh")
    assert not exact_match("北京 。", ["北京"], language="zh")
    assert not exact_match("HBO  台", ["HBO 台"], language="zh")
