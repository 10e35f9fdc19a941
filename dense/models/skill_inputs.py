"""Encoder inputs of the skills: pairs of question and passage, mentions in texts, and texts with spans."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from tokenizers import Tokenizer

from dense.models.config import DenseConfig
from dense.models.span_scores import LONGEST_SPAN
from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.neural.inputs import EncoderInput, InputLayout, character_spans, special_frame

Span = tuple[int, int]
"""Start and end of a span, in characters (the end is exclusive) or in wordpieces (see each function)."""


def pair_input(question: str, passage: Passage, tokenizer: Tokenizer, config: DenseConfig) -> EncoderInput:
    """Return the input `[CLS] question [SEP] passage [SEP]`, for expanded queries and for reranking.

    The question's wordpieces are the input's `lead`, so the first [SEP] is at `1 + lead`. The input has at
    most the layout's `max_length` wordpieces. The question (maybe a paragraph) gets at most half of them, the
    passage gets the remaining ones.
    """
    layout = config.layout
    question_ids = config.question_input(question, tokenizer, length=layout.max_length // 2 + 2).ids[1:-1]
    room = layout.max_length - len(question_ids) - 1
    pair_layout = replace(layout, use_context=False, share_context=False, max_length=room, overlap=0)
    passage_ids = pair_layout.windows(Passage("", passage.text, passage.title), tokenizer)[0].ids[1:]
    first, last = special_frame(tokenizer)
    ids = [first, *question_ids, last, *passage_ids]
    return EncoderInput(ids, [0] * len(ids), len(question_ids) + 2, len(ids) - 1, lead=len(question_ids))


def first_separator(pair: EncoderInput) -> int:
    """Return the position of the first [SEP] of a pair."""
    return 1 + pair.lead


def mention_input(text: str, span: Span, tokenizer: Tokenizer, max_length: int) -> EncoderInput:
    """Return the input of a text with a mention, whose wordpieces are at positions `start` to `end - 1`.

    A text longer than `max_length` wordpieces is cut around the mention.

    :raises InputError: the span is empty, or not inside the text.
    """
    check_span(text, span)
    start, end = span
    layout = InputLayout(
        use_context=True, share_context=True, answer_segment=0, max_length=max_length, overlap=0
    )
    return layout.windows(Passage("", text[start:end], context=text, start=start, end=end), tokenizer)[0]


def check_span(text: str, span: Span) -> None:
    """Raise an InputError if a span is empty, blank or not inside its text."""
    start, end = span
    if not 0 <= start < end <= len(text) or not text[start:end].strip():
        raise InputError(
            f"expected a span inside a text of {len(text)} characters, found {start} to {end}",
            remedy="pass the offsets of the first character and of the character after the last",
        )


@dataclass(frozen=True, slots=True)
class TextWindow:
    """A text, or a window of a long text, as the span skill reads it.

    `offsets[i]` are the first character and the end of the wordpiece at position `1 + i`. `words[i]` is the
    number of its word.
    """

    input: EncoderInput
    offsets: tuple[Span, ...]
    words: tuple[int | None, ...]

    def candidates(self) -> list[Span]:
        """Return the first and last positions of all spans of whole words with at most 10 wordpieces."""
        n = len(self.words)
        begins = [i == 0 or self.words[i] != self.words[i - 1] for i in range(n)]
        ends = [i == n - 1 or self.words[i] != self.words[i + 1] for i in range(n)]
        return [
            (1 + i, 1 + j)
            for i in range(n)
            if begins[i]
            for j in range(i, min(n, i + LONGEST_SPAN))
            if ends[j]
        ]

    def positions(self, span: Span) -> Span | None:
        """Return the first and last positions of the wordpieces of a span of characters.

        Returns None if the window does not contain the whole span, or the span has more than 10 wordpieces.
        """
        inside = [i for i, (a, b) in enumerate(self.offsets) if a < span[1] and b > span[0]]
        if not inside or len(inside) > LONGEST_SPAN:
            return None
        whole = self.offsets[inside[0]][0] <= span[0] and self.offsets[inside[-1]][1] >= span[1]
        return (1 + inside[0], 1 + inside[-1]) if whole else None

    def characters(self, span: Span) -> Span:
        """Return the first character and the end of the wordpieces from the first to the last position."""
        return self.offsets[span[0] - 1][0], self.offsets[span[1] - 1][1]


def text_windows(text: str, tokenizer: Tokenizer, max_length: int) -> list[TextWindow]:
    """Split a text into adjacent windows of at most `max_length` wordpieces, between words.

    A word longer than a window is cut at the window's end.
    """
    encoded = tokenizer.encode(text, add_special_tokens=False)
    first, last = special_frame(tokenizer)
    ids, words, room = encoded.ids, encoded.word_ids, max_length - 2
    bounds = [0]
    while len(ids) - bounds[-1] > room:
        cut = bounds[-1] + room
        while cut > bounds[-1] and words[cut] == words[cut - 1]:
            cut -= 1
        bounds.append(cut if cut > bounds[-1] else cut + room)
    windows, offsets = [], character_spans(text, encoded.offsets)
    for a, b in pairwise([*bounds, len(ids)]):
        window_ids = [first, *ids[a:b], last]
        window_input = EncoderInput(window_ids, [0] * len(window_ids), 1, len(window_ids) - 1)
        windows.append(TextWindow(window_input, tuple(offsets[a:b]), tuple(words[a:b])))
    return windows
