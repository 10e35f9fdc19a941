"""Which words of a text to mark, and how strongly: those that gave much of a passage's score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sparta.models.query_encoder import QueryTokenizer
from sparta.search.explain import snippet, word_shares

MARKED_FROM = 0.1
"""Words are left out whose share is less than this part of the highest: "the" stands everywhere."""
_DIGITS = 4


class Mark(NamedTuple):
    """A word to mark: its place in the text, in characters, and its share of the score, 0 to 1."""

    start: int
    end: int
    share: float


def marks(tokenizer: QueryTokenizer, text: str, shares: Mapping[str, float]) -> list[Mark]:
    """Return the words to mark in a text, in its order; the pieces of a word count together.

    :param shares: what each query term adds to the score of the passage
    """
    total, least = sum(shares.values()), MARKED_FROM * max(shares.values(), default=0.0)
    if total <= 0:
        return []
    words = word_shares(tokenizer, text, {term: share for term, share in shares.items() if share > 0})
    return [Mark(start, end, round(own / total, _DIGITS)) for start, end, own in words if own >= least]


def marked_snippet(
    tokenizer: QueryTokenizer, text: str, shares: Mapping[str, float]
) -> tuple[str, list[Mark]]:
    """Return the part of a text that shows why it was found, with no signs in it, and the words to mark."""
    part = snippet(tokenizer, text, shares, str)
    return part, marks(tokenizer, part, shares)
