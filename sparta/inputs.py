"""Passages become encoder inputs: wordpieces, segments, windows (SPARTA, §3.2 and §4)."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Tokenizer

from sparta.base.errors import ModelError
from sparta.base.records import Passage

CONTEXT, ANSWER = 0, 1


@dataclass(frozen=True, slots=True)
class EncoderInput:
    """One window of one passage: wordpiece ids with [CLS] and [SEP], and a segment for each."""

    ids: list[int]
    segments: list[int]


@dataclass(frozen=True, slots=True)
class InputLayout:
    """What an encoder wants to see; part of its configuration.

    `answer_segment` is the segment of answer tokens (SPARTA: 1; encoders without segments: 0). Answers that
    do not fit in `max_length` wordpieces are cut into windows that overlap by `overlap`.
    """

    use_title: bool = False
    use_context: bool = False
    answer_segment: int = ANSWER
    max_length: int = 512
    overlap: int = 64

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.max_length - 2:
            raise ModelError(
                f"expected overlap below max_length - 2, found {self.overlap} and {self.max_length}",
                remedy="correct the layout in the model's config.json",
            )

    def windows(self, passage: Passage, tokenizer: Tokenizer) -> list[EncoderInput]:
        """Return the inputs for one passage: one, or several when the answer itself is too long."""
        before, answer, after = self._parts(passage, tokenizer)
        first, last = special_frame(tokenizer)
        room = self.max_length - 2
        if len(answer) > room:
            step = room - self.overlap
            starts = range(0, len(answer) - self.overlap, step)
            return [self._frame(first, [], answer[s : s + room], [], last) for s in starts]
        left, right = equal_windows(len(before), len(after), room - len(answer))
        return [self._frame(first, before[len(before) - left :], answer, after[:right], last)]

    def _parts(self, passage: Passage, tokenizer: Tokenizer) -> tuple[list[int], list[int], list[int]]:
        """Wordpieces before, of and after the answer."""
        title = f"{passage.title} " if self.use_title and passage.title else ""
        if not (self.use_context and passage.context):
            return [], tokenizer.encode(title + passage.text, add_special_tokens=False).ids, []
        start, end = len(title) + passage.start, len(title) + passage.end
        encoded = tokenizer.encode(title + passage.context, add_special_tokens=False)
        inside = [i for i, (a, b) in enumerate(encoded.offsets) if a < end and b > start]
        if not inside:
            return [], tokenizer.encode(passage.text, add_special_tokens=False).ids, []
        ids = encoded.ids
        return ids[: inside[0]], ids[inside[0] : inside[-1] + 1], ids[inside[-1] + 1 :]

    def _frame(
        self, first: int, before: list[int], answer: list[int], after: list[int], last: int
    ) -> EncoderInput:
        segments = [CONTEXT] * (1 + len(before)) + [self.answer_segment] * len(answer)
        segments += [CONTEXT] * (len(after) + 1)
        return EncoderInput([first, *before, *answer, *after, last], segments)


def equal_windows(before: int, after: int, room: int) -> tuple[int, int]:
    """How much context fits on either side: equal halves, what one side does not use goes to the other."""
    left = min(before, max(room // 2, room - after))
    return left, min(after, room - left)


def special_frame(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return the ids that open and close an input ([CLS] and [SEP] for BERT)."""
    ids = tokenizer.encode("", add_special_tokens=True).ids
    if len(ids) != 2:
        raise ModelError(
            f"expected a tokenizer that frames a text with two tokens, found {len(ids)}",
            remedy="use a model with a BERT-like WordPiece tokenizer",
        )
    return ids[0], ids[1]
