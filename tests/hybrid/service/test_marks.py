import random

import pytest

from hybrid.service.marks import MARKED_FROM, Mark, marked_snippet, marks
from sparta.models.query_encoder import QueryTokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer) -> QueryTokenizer:
    return QueryTokenizer(tiny_tokenizer)


def test_a_worked_example(tokenizer):
    shares = {"moon": 60.0, "earth": 30.0, "the": 5.0, "##s": 5.0}
    text = "The moons of the Earth: one moon."
    found = marks(tokenizer, text, shares)
    assert found == [Mark(4, 9, 0.65), Mark(17, 22, 0.3), Mark(28, 32, 0.6)]
    assert [text[m.start : m.end] for m in found] == ["moons", "Earth", "moon"]


def test_a_word_that_stands_everywhere_is_marked_where_it_is_all_there_is(tokenizer):
    assert marks(tokenizer, "the moon", {"the": 9.0, "moon": 100.0}) == [Mark(4, 8, round(100 / 109, 4))]
    assert marks(tokenizer, "the moon", {"the": 9.0, "earth": 0.0}) == [Mark(0, 3, 1.0)]


@pytest.mark.parametrize("shares", [{}, {"moon": 0.0}])
def test_no_shares_no_marks(tokenizer, shares):
    assert marks(tokenizer, "the moon", shares) == []


def test_each_character_of_chinese_is_a_word(tokenizer):
    assert marks(tokenizer, "北京是城市", {"京": 3.0, "城": 1.0}) == [Mark(1, 2, 0.75), Mark(3, 4, 0.25)]


def test_against_brute_force(tokenizer):
    """Every space-separated word is tokenized by itself, and its distinct terms' shares are added."""
    rng, words = random.Random(7), ["moon", "moons", "towns", "river", "the", "zebra", "queen", "roads"]
    terms = ["moon", "town", "the", "##s", "queen", "z"]
    for _ in range(50):
        shares = {term: float(rng.randint(1, 200)) for term in rng.sample(terms, rng.randint(1, 6))}
        expected, chosen, at = [], rng.choices(words, k=30), 0
        for word in chosen:
            pieces = set(tokenizer.tokenizer.encode(word, add_special_tokens=False).tokens)
            own = sum(shares.get(piece, 0.0) for piece in pieces)
            if own >= MARKED_FROM * max(shares.values()):
                expected.append((at, at + len(word), pytest.approx(own / sum(shares.values()), abs=1e-4)))
            at += len(word) + 1
        assert marks(tokenizer, " ".join(chosen), shares) == expected


def test_marks_of_a_snippet_lie_in_the_snippet(tokenizer):
    text = "\n".join(["road " * 50, "the *moon*   of the earth", "town " * 50])
    shown, found = marked_snippet(tokenizer, text, {"moon": 2.0, "earth": 1.0})
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert "*moon* of the earth" in shown
    assert [shown[m.start : m.end] for m in found] == ["moon", "earth"]
