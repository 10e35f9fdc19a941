"""The input and output of a reader: texts and answer spans."""

from __future__ import annotations

from typing import NamedTuple

from sparta.base.errors import LackingError
from sparta.base.records import Hit


class Text(NamedTuple):
    """A passage for a reader to read; answers come from its `text`, not from its title."""

    text: str
    title: str = ""


def text_of(hit: Hit) -> Text:
    """Return the text that a reader reads for a hit: a sentence's context, or else the hit's own text.

    A metadata field `context` that does not contain the hit's text does not count as a context.
    """
    context = hit.metadata.get("context")
    return Text(context if isinstance(context, str) and hit.text in context else hit.text, hit.title)


def no_texts() -> LackingError:
    """Return the error for an index whose records have no texts."""
    return LackingError(
        "the index has no passage texts, which a reader needs",
        remedy="index the corpus, or vectors whose records have `contents`",
    )


class Span(NamedTuple):
    """An answer span: the passage's number, the characters from `start` to before `end`, and the score.

    The score is half the sum of the start score and the end score. The score of "no answer" is 0.
    """

    passage: int
    start: int
    end: int
    score: float
