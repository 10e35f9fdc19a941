"""The input and output of a reader: texts and answer spans."""

from __future__ import annotations

from typing import NamedTuple

from sparta.base.errors import LackingError
from sparta.base.records import Hit


class Text(NamedTuple):
    """A passage for a reader to read; answers come from its `text`, not from its title.

    `focus` has the `(start, end)` of the characters that a search found. A reader that cannot read the whole
    text reads the part around them; by default, the beginning.
    """

    text: str
    title: str = ""
    focus: tuple[int, int] = (0, 0)


def text_of(hit: Hit) -> Text:
    """Return the text that a reader reads for a hit: a sentence's context, or else the hit's own text.

    A metadata field `context` that does not contain the hit's text does not count as a context.
    """
    context = hit.metadata.get("context")
    return Text(context if isinstance(context, str) and hit.text in context else hit.text, hit.title)


def focused_text(hit: Hit) -> Text:
    """Return the text that a reader reads for a hit, with the place of a sentence in its context as focus."""
    text, start = text_of(hit), hit.metadata.get("start")
    if not isinstance(start, int) or not text.text.startswith(hit.text, start):
        start = text.text.index(hit.text)
    return text._replace(focus=(start, start + len(hit.text)))


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
