"""Whether a text holds an answer, as DPR decides it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import regex

_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
_FLAGS = regex.IGNORECASE | regex.UNICODE | regex.MULTILINE


def tokens(text: str) -> list[str]:
    """Letters, digits and marks together, other visible characters alone; decomposed and lower-cased."""
    return [t.lower() for t in _TOKEN.findall(unicodedata.normalize("NFD", text))]


def has_answer(text: str, answers: Sequence[str], *, match: str = "string") -> bool:
    """Whether the text holds one of the answers.

    :param match: `string`: the tokens of an answer stand side by side in the text; `regex`: an answer is a
        regular expression (CuratedTREC), searched without regard to case; one that is broken matches nothing.
    """
    if match == "regex":
        return any(_searched(answer, text) for answer in answers)
    found = tokens(text)
    return any(_stands_in(tokens(answer), found) for answer in answers)


def _searched(pattern: str, text: str) -> bool:
    try:
        return (
            regex.search(unicodedata.normalize("NFD", pattern), unicodedata.normalize("NFD", text), _FLAGS)
            is not None
        )
    except regex.error:
        return False


def _stands_in(answer: Sequence[str], text: Sequence[str]) -> bool:
    n = len(answer)
    return n > 0 and any(list(text[i : i + n]) == list(answer) for i in range(len(text) - n + 1))
