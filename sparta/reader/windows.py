"""What a reader sees: `[CLS] question [SEP] title [SEP] text [SEP]`, a long text in overlapping windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from tokenizers import Tokenizer

from sparta.neural.inputs import special_frame
from sparta.reader.config import ReaderLayout
from sparta.reader.records import Text


class Window(NamedTuple):
    """One input: the text begins at `text_start` of `ids`, its wordpieces have these `offsets`."""

    passage: int
    ids: list[int]
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
        room = layout.max_length - len(head) - 1
        for start in window_starts(len(encoded.ids), room, layout.overlap):
            ids = [*head, *encoded.ids[start : start + room], last]
            made.append(Window(number, ids, len(head), encoded.offsets[start : start + room]))
    return made


def window_starts(length: int, room: int, overlap: int) -> range:
    """Where windows of `room` begin, so that neighbours share `overlap` and the last one reaches the end."""
    step = max(1, room - overlap)
    return range(0, max(1, length - overlap) if length > room else min(1, length), step)


def padded(batch: Sequence[Window]) -> tuple[torch.Tensor, ...]:
    """Ids, attention mask, segments and the mask of what may be an answer, each `(n, length)`."""
    n, length = len(batch), max(len(w.ids) for w in batch)
    ids, mask, segments = (torch.zeros((n, length), dtype=torch.long) for _ in range(3))
    readable = torch.zeros((n, length), dtype=torch.bool)
    for row, window in enumerate(batch):
        size = len(window.ids)
        ids[row, :size] = torch.tensor(window.ids)
        mask[row, :size] = 1
        segments[row, window.ids.index(window.ids[-1]) + 1 : size] = 1  # what follows the question
        readable[row, window.text_start : size - 1] = True
    return ids, mask, segments, readable
