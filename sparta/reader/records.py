"""What goes into a reader and what comes out."""

from __future__ import annotations

from typing import NamedTuple


class Text(NamedTuple):
    """A passage to be read; an answer lies in its `text`."""

    text: str
    title: str = ""


class Span(NamedTuple):
    """An answer in a passage: its number, from where to before where (characters), and its score.

    The score is half the sum of start and end score: what the reader gives it above "no answer", which has 0.
    """

    passage: int
    start: int
    end: int
    score: float
