"""What a reader sees: `[CLS] question [SEP] title [SEP] text [SEP]`, a long text in overlapping windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from tokenizers import Tokenizer

from sparta.neural.inputs import special_frame, with_accents
from sparta.neural.pooling import pad_inputs
from sparta.reader.config import ReaderLayout
from sparta.reader.records import Text


class Window(NamedTuple):
    """One input: `ids` and their `segments` (BERT's token types: 0 up to the first [SEP], 1 behind it; for 2
    and 3 see `shared_segments`). The text begins at `text_start`; its wordpieces have these `offsets`.
    """

    passage: int
    ids: list[int]
    segments: list[int]
    text_start: int
    offsets: list[tuple[int, int]]


def windows(
    question: str,
    texts: Sequence[Text],
    tokenizer: Tokenizer,
    layout: ReaderLayout,
    *,
    mark_shared: bool = False,
) -> list[Window]:
    """Return the windows of all texts, in order; a text without a wordpiece has none.

    Of a question that is longer than `longest_question` the beginning is read; a title takes at most a
    quarter of a window. With `mark_shared`, the text's wordpieces have the segments of `shared_segments`.
    """
    first, last = special_frame(tokenizer)
    asked = tokenizer.encode(question, add_special_tokens=False).ids[: layout.longest_question]
    made: list[Window] = []
    for number, (text, title) in enumerate(texts):
        named = tokenizer.encode(title, add_special_tokens=False).ids[: layout.max_length // 4]
        head = [first, *asked, last, *([*named, last] if named else [])]
        encoded = tokenizer.encode(text, add_special_tokens=False)
        # `encoded` makes a new list of each at every access.
        offsets, pieces = with_accents(text, encoded.offsets), encoded.ids
        of_text = shared_segments(question, text, offsets) if mark_shared else [1] * len(offsets)
        of_head = [0] * (len(asked) + 2) + [1] * (len(head) - len(asked) - 2)
        room = layout.max_length - len(head) - 1
        for start in window_starts(len(pieces), room, layout.overlap):
            end = start + room
            ids = [*head, *pieces[start:end], last]
            segments = [*of_head, *of_text[start:end], 1]
            made.append(Window(number, ids, segments, len(head), offsets[start:end]))
    return made


def shared_segments(question: str, text: str, offsets: Sequence[tuple[int, int]]) -> list[int]:
    """The segment of each wordpiece of a text: 2 where the question has its characters too, 3 where it has
    them together with the next wordpiece's or the one's before, otherwise 1.

    The feature "exact match" of DrQA (Chen et al., 2017, §3.2) as token types, for encoders too small to
    have learned to compare.
    """
    question = question.lower()

    def asked(start: int, end: int) -> bool:
        return start < end and text[start:end].lower() in question

    segments = [2 if asked(a, b) else 1 for a, b in offsets]
    for i in range(len(offsets) - 1):
        if segments[i] > 1 < segments[i + 1] and asked(offsets[i][0], offsets[i + 1][1]):
            segments[i] = segments[i + 1] = 3
    return segments


def window_starts(length: int, room: int, overlap: int) -> range:
    """Where windows of `room` begin, so that neighbours share `overlap` and the last one reaches the end."""
    overlap = min(overlap, room // 2)
    return range(0, max(1, length - overlap) if length > room else min(1, length), room - overlap)


def padded(batch: Sequence[Window]) -> tuple[torch.Tensor, ...]:
    """Ids, attention mask, segments and the mask of what may be an answer, each `(n, length)`."""
    ids, mask, segments = pad_inputs(batch)
    readable = torch.zeros(ids.shape, dtype=torch.bool)
    for row, window in enumerate(batch):
        readable[row, window.text_start : len(window.ids) - 1] = True
    return ids, mask, segments, readable
