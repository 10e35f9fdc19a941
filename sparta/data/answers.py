"""Whether a text holds an answer, as DPR decides it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

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
    found = f" {' '.join(tokens(text))} "
    return any(wanted.strip() and wanted in found for wanted in map(_wanted, answers))


@lru_cache(maxsize=1 << 14)
def _wanted(answer: str) -> str:
    """Return what the text must hold, tokens between spaces: an answer is looked for in many texts."""
    return f" {' '.join(tokens(answer))} "


def _searched(pattern: str, text: str) -> bool:
    try:
        return (
            regex.search(unicodedata.normalize("NFD", pattern), unicodedata.normalize("NFD", text), _FLAGS)
            is not None
        )
    except regex.error:
        return False
