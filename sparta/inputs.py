"""Passages become encoder inputs: wordpieces, segments, windows (SPARTA, §3.2 and §4)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tokenizers import Tokenizer

from sparta.base.errors import ModelError
from sparta.base.records import Passage

CONTEXT, ANSWER = 0, 1


@dataclass(frozen=True, slots=True)
class EncoderInput:
    """One window of one passage: wordpiece ids with [CLS] and [SEP], and a segment for each.

    The positions `start` to `end`, and `lead` positions after [CLS] (a title), take part in the maximum of
    eq. 4.
    """

    ids: list[int]
    segments: list[int]
    start: int
    end: int
    lead: int = 0

    def own(self) -> list[int]:
        """Return the positions of the title and of the answer."""
        return [*range(1, 1 + self.lead), *range(self.start, self.end)]

    def around(self) -> EncoderInput:
        """Return the title and the whole context as if they were the answer; itself where they are."""
        return replace(self, start=1 + self.lead, end=len(self.ids) - 1)

    def shares_tokens(self, other: EncoderInput) -> bool:
        """Whether both are read from the same tokens, and differ at most in the answer's place."""
        return self.ids == other.ids and self.segments == other.segments


@dataclass(frozen=True, slots=True)
class InputLayout:
    """What an encoder wants to see; part of its configuration.

    `answer_segment` is the segment of answer tokens (SPARTA: 1; encoders without segments: 0). Answers that
    do not fit in `max_length` wordpieces are cut into windows that overlap by `overlap`.

    With `share_context` a context is read once for all answers in it: no segment marks the answer, and only
    its own tokens and the title's take part in the maximum. Long contexts are then cut at places that do not
    depend on the answer, each window half of the one before. See decision 0009.

    `separate_title` puts [SEP] between a title and a text that has no context, as DPR's encoders read them.
    """

    use_title: bool = False
    use_context: bool = False
    answer_segment: int = ANSWER
    max_length: int = 512
    overlap: int = 64
    share_context: bool = False
    separate_title: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.max_length - 2:
            raise ModelError(
                f"expected overlap below max_length - 2, found {self.overlap} and {self.max_length}",
                remedy="correct the layout in the model's config.json",
            )

    def windows(self, passage: Passage, tokenizer: Tokenizer) -> list[EncoderInput]:
        """Return the inputs for one passage: one, or several when the answer itself is too long."""
        title = self._title(passage, tokenizer) if self.share_context else []
        before, answer, after = self._parts(passage, tokenizer)
        first, last = special_frame(tokenizer)
        title = title[: self.max_length // 4]
        room = self.max_length - 2 - len(title)
        if len(answer) > room:
            step = max(1, room - self.overlap)
            starts = range(0, len(answer) - self.overlap, step)
            return [self._frame(first, title, [], answer[s : s + room], [], last) for s in starts]
        if self.share_context:
            left, right = fixed_window(len(before), len(answer), len(after), room)
        else:
            left, right = equal_windows(len(before), len(after), room - len(answer))
        return [self._frame(first, title, before[len(before) - left :], answer, after[:right], last)]

    def _title(self, passage: Passage, tokenizer: Tokenizer) -> list[int]:
        if not (self.use_title and passage.title):
            return []
        ids: list[int] = tokenizer.encode(passage.title, add_special_tokens=False).ids
        return ids

    def _parts(self, passage: Passage, tokenizer: Tokenizer) -> tuple[list[int], list[int], list[int]]:
        """Wordpieces before, of and after the answer; a shared context keeps the title apart."""
        title = f"{passage.title} " if self.use_title and passage.title and not self.share_context else ""
        if title and self.separate_title and not (self.use_context and passage.context):
            own = tokenizer.encode(passage.title, add_special_tokens=False).ids
            text = tokenizer.encode(passage.text, add_special_tokens=False).ids
            return [], [*own, special_frame(tokenizer)[1], *text], []
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
        self, first: int, title: list[int], before: list[int], answer: list[int], after: list[int], last: int
    ) -> EncoderInput:
        ids = [first, *title, *before, *answer, *after, last]
        if self.share_context:
            start = 1 + len(title) + len(before)
            return EncoderInput(ids, [CONTEXT] * len(ids), start, start + len(answer), len(title))
        segments = [CONTEXT] * (1 + len(before)) + [self.answer_segment] * len(answer)
        segments += [CONTEXT] * (len(after) + 1)
        return EncoderInput(ids, segments, 1, len(ids) - 1)


def fixed_window(before: int, answer: int, after: int, room: int) -> tuple[int, int]:
    """How much context is seen on either side when a context is cut alike for all answers in it.

    Windows of `room` tokens begin at every half of it; of those that hold the answer, the one in which it
    stands most in the middle is taken. An answer that no such window holds gets one of its own.
    """
    total, step = before + answer + after, max(1, room // 2)
    last = max(0, -(-(total - room) // step))
    windows = [(i * step, min(i * step + room, total)) for i in range(last + 1)]
    held = [(a, b) for a, b in windows if a <= before and before + answer <= b]
    if not held:
        return equal_windows(before, after, room - answer)
    start, end = max(held, key=lambda w: min(before - w[0], w[1] - before - answer))
    return before - start, end - before - answer


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
