"""What a reader sees: `[CLS] question [SEP] title [SEP] text [SEP]`, a long text in overlapping windows."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import torch
from tokenizers import Tokenizer

from sparta.neural.inputs import special_frame
from sparta.reader.config import ReaderLayout
from sparta.reader.records import Text


class Window(NamedTuple):
    """One input: what follows the question begins at `question_end` of `ids`, the text at `text_start`; its
    wordpieces have these `offsets`.
    """

    passage: int
    ids: list[int]
    question_end: int
    text_start: int
    offsets: list[tuple[int, int]]


def windows(question: str, texts: Sequence[Text], tokenizer: Tokenizer, layout: ReaderLayout) -> list[Window]:
    """Return the windows of all texts, in order; a text without a wordpiece has none.

    Of a question that is longer than `longest_question` the beginning is read; a title takes at most a
    quarter of a window.
    """
    first, last = special_frame(tokenizer)
    asked = tokenizer.encode(question, add_special_tokens=False).ids[: layout.longest_question]
    made: list[Window] = []
    for number, (text, title) in enumerate(texts):
        named = tokenizer.encode(title, add_special_tokens=False).ids[: layout.max_length // 4]
        head = [first, *asked, last, *([*named, last] if named else [])]
        encoded = tokenizer.encode(text, add_special_tokens=False)
        offsets = [(a, _with_accents(text, b)) for a, b in encoded.offsets]
        room = layout.max_length - len(head) - 1
        for start in window_starts(len(encoded.ids), room, layout.overlap):
            ids = [*head, *encoded.ids[start : start + room], last]
            window = Window(number, ids, len(asked) + 2, len(head), offsets[start : start + room])
            made.append(window)
    return made


def _with_accents(text: str, end: int) -> int:
    """Where a wordpiece ends with the combining marks behind it, which a tokenizer may leave out."""
    while end < len(text) and unicodedata.combining(text[end]):
        end += 1
    return end


def window_starts(length: int, room: int, overlap: int) -> range:
    """Where windows of `room` begin, so that neighbours share `overlap` and the last one reaches the end."""
    overlap = min(overlap, room // 2)
    return range(0, max(1, length - overlap) if length > room else min(1, length), room - overlap)


def padded(batch: Sequence[Window]) -> tuple[torch.Tensor, ...]:
    """Ids, attention mask, segments and the mask of what may be an answer, each `(n, length)`."""
    n, length = len(batch), max(len(w.ids) for w in batch)
    ids, mask, segments = (torch.zeros((n, length), dtype=torch.long) for _ in range(3))
    readable = torch.zeros((n, length), dtype=torch.bool)
    for row, window in enumerate(batch):
        size = len(window.ids)
        ids[row, :size] = torch.tensor(window.ids)
        mask[row, :size] = 1
        segments[row, window.question_end : size] = 1
        readable[row, window.text_start : size - 1] = True
    return ids, mask, segments, readable
