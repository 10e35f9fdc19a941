"""What goes into a reader and what comes out."""

from __future__ import annotations

from typing import NamedTuple

from sparta.base.errors import LackingError
from sparta.base.records import Hit


class Text(NamedTuple):
    """A passage to be read; an answer lies in its `text`."""

    text: str
    title: str = ""


def text_of(hit: Hit) -> Text:
    """What is read of a hit: its context, where the passage is a sentence of one, else its text.

    Metadata of this name that does not hold the text is no context.
    """
    context = hit.metadata.get("context")
    return Text(context if isinstance(context, str) and hit.text in context else hit.text, hit.title)


def no_texts() -> LackingError:
    """The error of an index whose records have no texts."""
    return LackingError(
        "expected passages with texts to read, found an index without them",
        remedy="index the corpus itself, or vectors whose records have `contents`",
    )


class Span(NamedTuple):
    """An answer in a passage: its number, from where to before where (characters), and its score.

    The score is half the sum of start and end score: what the reader gives it above "no answer", which has 0.
    """

    passage: int
    start: int
    end: int
    score: float
