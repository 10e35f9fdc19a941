"""Build a reader's inputs, `[CLS] question [SEP] title [SEP] text [SEP]`, in overlapping windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from sparta.neural.batches import Tokens
from sparta.neural.inputs import character_spans, special_frame
from sparta.reader.config import ReaderLayout
from sparta.reader.records import Text


class Window(NamedTuple):
    """One input of a reader: token `ids` and their `segments`.

    Segments are BERT's token types: 0 up to the first [SEP], 1 after it; `shared_segments` adds 2 and 3. The
    text begins at the position `text_start`, and `offsets` holds the character span of each of its
    wordpieces.
    """

    passage: int
    ids: list[int]
    segments: list[int]
    text_start: int
    offsets: list[tuple[int, int]]

    def answer_positions(self) -> list[int]:
        """Return the positions where an answer may start or end: those of the text, except white space."""
        return [i for i, (start, end) in enumerate(self.offsets, self.text_start) if start < end]


class ReaderInput(Tokens, Protocol):
    """The input of a reader, a `Window`, or of a path reader, a `PathInput`."""

    def answer_positions(self) -> Sequence[int]:
        """Return the positions where an answer may start or end."""
        ...


def windows(
    question: str,
    texts: Sequence[Text],
    tokenizer: Tokenizer,
    layout: ReaderLayout,
    *,
    mark_shared: bool = False,
) -> list[Window]:
    """Return the windows of all texts, in order; a text without wordpieces has no window.

    Only the first `longest_question` wordpieces of a question are read. A title takes at most a quarter of a
    window. With `mark_shared`, the text's wordpieces get the segments of `shared_segments`.
    """
    first, last = special_frame(tokenizer)
    question_ids = tokenizer.encode(question, add_special_tokens=False).ids[: layout.longest_question]
    all_windows: list[Window] = []
    for number, (text, title, _) in enumerate(texts):
        title_ids = tokenizer.encode(title, add_special_tokens=False).ids[: layout.max_length // 4]
        head = [first, *question_ids, last, *([*title_ids, last] if title_ids else [])]
        encoded = tokenizer.encode(text, add_special_tokens=False)
        # Each access to `encoded.offsets` or `encoded.ids` builds a new list.
        offsets, pieces = character_spans(text, encoded.offsets), encoded.ids
        text_segments = shared_segments(question, text, offsets) if mark_shared else [1] * len(offsets)
        head_segments = [0] * (len(question_ids) + 2) + [1] * (len(head) - len(question_ids) - 2)
        room = layout.max_length - len(head) - 1
        for start in window_starts(len(pieces), room, layout.overlap):
            end = start + room
            ids = [*head, *pieces[start:end], last]
            segments = [*head_segments, *text_segments[start:end], 1]
            all_windows.append(Window(number, ids, segments, len(head), offsets[start:end]))
    return all_windows


def shared_segments(question: str, text: str, offsets: Sequence[tuple[int, int]]) -> list[int]:
    """Return each wordpiece's segment: 2 if the question contains it, 3 if with a neighbor, otherwise 1.

    A wordpiece gets 3 if the question contains it together with the next or the previous wordpiece. This is
    the feature "exact match" of DrQA (Chen et al., 2017, §3.2) as token types, for encoders too small to have
    learned the comparison.
    """
    question = question.lower()

    def is_in_question(start: int, end: int) -> bool:
        return start < end and text[start:end].lower() in question

    segments = [2 if is_in_question(start, end) else 1 for start, end in offsets]
    for i in range(len(offsets) - 1):
        if segments[i] > 1 < segments[i + 1] and is_in_question(offsets[i][0], offsets[i + 1][1]):
            segments[i] = segments[i + 1] = 3
    return segments


def window_starts(length: int, room: int, overlap: int) -> range:
    """Return the starts of windows of `room` tokens; neighbors share `overlap` tokens."""
    overlap = min(overlap, room // 2)
    return range(0, max(1, length - overlap) if length > room else min(1, length), room - overlap)


def answer_mask(batch: Sequence[ReaderInput], length: int) -> npt.NDArray[np.bool_]:
    """Return the mask `(n, length)` of the positions where an answer may start or end."""
    mask = np.zeros((len(batch), length), np.bool_)
    for row, reader_input in enumerate(batch):
        mask[row, reader_input.answer_positions()] = True
    return mask
