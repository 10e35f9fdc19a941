"""What the skills read: pairs of question and passage, mentions in their text, texts with candidate spans."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from tokenizers import Tokenizer

from dense.models.config import DenseConfig
from dense.models.span_head import LONGEST_SPAN
from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.neural.inputs import EncoderInput, InputLayout, special_frame, with_accents

Span = tuple[int, int]
"""From the first to behind the last character, or wordpiece."""


def pair_input(question: str, passage: Passage, tokenizer: Tokenizer, config: DenseConfig) -> EncoderInput:
    """Return `[CLS] question [SEP] passage [SEP]`: an expanded query, or what is reranked.

    The question's part is the input's `lead`, so that the first [SEP] stands at `1 + lead`; of both together
    at most the layout's `max_length` wordpieces are read: of the question, which may be a paragraph, half of
    them, of the passage what the question leaves.
    """
    layout = config.layout
    asked = config.question_input(question, tokenizer, length=layout.max_length // 2 + 2).ids[1:-1]
    room = layout.max_length - len(asked) - 1
    own = replace(layout, use_context=False, share_context=False, max_length=room, overlap=0)
    text = own.windows(Passage("", passage.text, passage.title), tokenizer)[0].ids[1:]
    first, last = special_frame(tokenizer)
    ids = [first, *asked, last, *text]
    return EncoderInput(ids, [0] * len(ids), len(asked) + 2, len(ids) - 1, lead=len(asked))


def first_separator(pair: EncoderInput) -> int:
    """Return where the first [SEP] of a pair stands."""
    return 1 + pair.lead


def mention_input(text: str, span: Span, tokenizer: Tokenizer, max_length: int) -> EncoderInput:
    """Return a text with a mention, whose wordpieces are from `start` to behind `end - 1`.

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
    """Refuse a span that is empty, blank or reaches out of its text."""
    start, end = span
    if not 0 <= start < end <= len(text) or not text[start:end].strip():
        raise InputError(
            f"expected a span of characters inside a text of {len(text)}, found {start} to {end}",
            remedy="give start and end as offsets of characters, the end behind the last one",
        )


@dataclass(frozen=True, slots=True)
class TextWindow:
    """A text as the span skill reads it, or a part of it, with the characters of each wordpiece.

    `offsets[i]` are those of the wordpiece at position `1 + i`; `words[i]` is the number of its word.
    """

    input: EncoderInput
    offsets: tuple[Span, ...]
    words: tuple[int | None, ...]

    def candidates(self) -> list[Span]:
        """Return all spans of whole words of at most 10 wordpieces: first and last position."""
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
        """Return first and last position of the wordpieces of a span of characters.

        None: it does not lie in this window as a whole, or is longer than 10 wordpieces.
        """
        inside = [i for i, (a, b) in enumerate(self.offsets) if a < span[1] and b > span[0]]
        if not inside or len(inside) > LONGEST_SPAN:
            return None
        whole = self.offsets[inside[0]][0] <= span[0] and self.offsets[inside[-1]][1] >= span[1]
        return (1 + inside[0], 1 + inside[-1]) if whole else None

    def characters(self, span: Span) -> Span:
        """Return the characters from the first to the last position."""
        return self.offsets[span[0] - 1][0], self.offsets[span[1] - 1][1]


def text_windows(text: str, tokenizer: Tokenizer, max_length: int) -> list[TextWindow]:
    """Return a text in windows of at most `max_length` wordpieces, side by side and cut between words.

    A word that is longer than a window is cut where this ends.
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
    windows, offsets = [], with_accents(text, encoded.offsets)
    for a, b in pairwise([*bounds, len(ids)]):
        own = [first, *ids[a:b], last]
        read = EncoderInput(own, [0] * len(own), 1, len(own) - 1)
        windows.append(TextWindow(read, tuple(offsets[a:b]), tuple(words[a:b])))
    return windows
