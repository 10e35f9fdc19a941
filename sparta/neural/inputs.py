"""Passages become encoder inputs: wordpieces, segments, windows (SPARTA, §3.2 and §4)."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from sparta.base.errors import ModelError
from sparta.base.records import Passage

CONTEXT, ANSWER = 0, 1
READ_AT_ONCE = 8
"""How many contexts and titles stay tokenized: a few, as those that share one come in a row."""
TOGETHER = 512, 2_000_000
"""How many passages, and characters of them, are tokenized together: enough for all processors."""


@dataclass(frozen=True, slots=True)
class Lexical:
    """How much a term counts because it stands in the answer itself: BM25's saturation of its occurrences.

    `mean_length` is that of the answers in wordpieces, of the training's texts: the same in every index.
    """

    mean_length: float
    k1: float = 0.9
    b: float = 0.4

    def saturated(
        self, occurrences: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Between 0 and 1: occurrences in answers of so many wordpieces."""
        return occurrences / (occurrences + self.k1 * (1 - self.b + self.b * length / self.mean_length))


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
        return self._windows(passage, _Reading(tokenizer))

    def windows_of(self, passages: Sequence[Passage], tokenizer: Tokenizer) -> list[list[EncoderInput]]:
        """Return the `windows` of each passage; all processors tokenize."""
        found: list[list[EncoderInput]] = []
        texts: dict[str, None] = {}
        waiting, characters = [], 0
        for number, passage in enumerate(passages, 1):
            waiting.append(passage)
            for text in self._texts(passage):
                characters += len(text) if text not in texts else 0
                texts[text] = None
            if len(waiting) == TOGETHER[0] or characters >= TOGETHER[1] or number == len(passages):
                reading = _Reading(tokenizer, list(texts))
                found += [self._windows(one, reading) for one in waiting]
                texts, waiting, characters = {}, [], 0
        return found

    def first_windows(self, passages: Sequence[Passage], tokenizer: Tokenizer) -> list[EncoderInput]:
        """Return the first of the `windows` of each passage."""
        return [own[0] for own in self.windows_of(passages, tokenizer)]

    def _texts(self, passage: Passage) -> Iterator[str]:
        """Yield what `windows` tokenizes, except an answer that covers no wordpiece of its context."""
        title = passage.title if self.use_title else ""
        in_context = self.use_context and passage.context
        apart = self.share_context or (self.separate_title and not in_context)
        if title and apart:
            yield title
        before = f"{title} " if title and not apart else ""
        yield before + (passage.context if in_context else passage.text)

    def _windows(self, passage: Passage, reading: _Reading) -> list[EncoderInput]:
        title = self._title(passage, reading) if self.share_context else []
        ids, start, end = self._parts(passage, reading)
        first, last = special_frame(reading.tokenizer)
        title = title[: self.max_length // 4]
        room = self.max_length - 2 - len(title)
        answer, after = ids[start:end], len(ids) - end
        if len(answer) > room:
            step = max(1, room - self.overlap)
            starts = range(0, max(1, len(answer) - self.overlap), step)
            return [self._frame(first, title, [], answer[s : s + room], [], last) for s in starts]
        if self.share_context:
            left, right = fixed_window(start, len(answer), after, room)
        else:
            left, right = equal_windows(start, after, room - len(answer))
        return [self._frame(first, title, ids[start - left : start], answer, ids[end : end + right], last)]

    def first_window_holds(self, passage: Passage, tokenizer: Tokenizer) -> int:
        """Return how many characters of a text without context its first window shows."""
        title, before, room = passage.title if self.use_title else "", "", self.max_length - 2
        if title and self.share_context:
            room -= len(self._title(passage, _Reading(tokenizer))[: self.max_length // 4])
        elif title and self.separate_title:
            room -= len(_Reading(tokenizer).pieces(title).ids) + 1
        elif title:
            before = f"{title} "
        offsets = tokenizer.encode(before + passage.text, add_special_tokens=False).offsets
        if len(offsets) <= room:
            return len(passage.text)
        return max(0, offsets[room - 1][1] - len(before)) if room > 0 else 0

    def _title(self, passage: Passage, reading: _Reading) -> list[int]:
        return reading.pieces(passage.title).ids if self.use_title and passage.title else []

    def _parts(self, passage: Passage, reading: _Reading) -> tuple[list[int], int, int]:
        """Wordpieces, and from where to where the answer's stand; a shared context keeps the title apart."""
        title = f"{passage.title} " if self.use_title and passage.title and not self.share_context else ""
        if title and self.separate_title and not (self.use_context and passage.context):
            own = reading.pieces(passage.title).ids
            ids = [*own, special_frame(reading.tokenizer)[1], *reading.ids(passage.text)]
            return ids, 0, len(ids)
        if self.use_context and passage.context:
            pieces = reading.pieces(title + passage.context)
            begin, end = pieces.between(len(title) + passage.start, len(title) + passage.end)
            if begin < end:
                return pieces.ids, begin, end
            title = ""
        ids = reading.ids(title + passage.text)
        return ids, 0, len(ids)

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


@dataclass(frozen=True, slots=True)
class _Wordpieces:
    """A text as wordpieces, with the characters at which each begins and ends; shared, so never changed.

    `ordered` says that neither goes back from one wordpiece to the next, as it is of every usual tokenizer.
    """

    ids: list[int]
    starts: list[int]
    ends: list[int]
    ordered: bool

    def between(self, start: int, end: int) -> tuple[int, int]:
        """Return from where to where the wordpieces stand that reach into these characters; (0, 0): none."""
        if self.ordered:
            first, after = bisect_right(self.ends, start), bisect_left(self.starts, end)
            return (first, after) if first < after else (0, 0)
        places = enumerate(zip(self.starts, self.ends, strict=True))
        inside = [i for i, (a, b) in places if a < end and b > start]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)


def _wordpieces(encoded: Encoding) -> _Wordpieces:
    starts, ends = [a for a, _ in encoded.offsets], [b for _, b in encoded.offsets]
    ordered = all(a <= b for places in (starts, ends) for a, b in pairwise(places))
    return _Wordpieces(encoded.ids, starts, ends, ordered)


@lru_cache(maxsize=READ_AT_ONCE)
def _read_once(tokenizer: Tokenizer, text: str) -> _Wordpieces:
    """Tokenize what neighbours share; else each sentence of a long passage would cost the whole passage."""
    return _wordpieces(tokenizer.encode(text, add_special_tokens=False))


class _Reading:
    """Texts as wordpieces; those that are given are tokenized together, by all processors."""

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str] = ()) -> None:
        self.tokenizer = tokenizer
        read = tokenizer.encode_batch(list(texts), add_special_tokens=False) if texts else []
        self._encoded: dict[str, Encoding] = dict(zip(texts, read, strict=True))
        self._pieces: dict[str, _Wordpieces] = {}

    def ids(self, text: str) -> list[int]:
        """Wordpieces of a text."""
        if text in self._encoded:
            known: list[int] = self._encoded[text].ids
            return known
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def pieces(self, text: str) -> _Wordpieces:
        """Wordpieces of a text that others may share."""
        if text not in self._encoded:
            return _read_once(self.tokenizer, text)
        if text not in self._pieces:
            self._pieces[text] = _wordpieces(self._encoded[text])
        return self._pieces[text]


def fixed_window(before: int, answer: int, after: int, room: int) -> tuple[int, int]:
    """How much context is seen on either side when a context is cut alike for all answers in it.

    Windows of `room` tokens begin at every half of it; of those that hold the answer, the one in which it
    stands most in the middle is taken. An answer that no such window holds gets one of its own.
    """
    total, step = before + answer + after, max(1, room // 2)
    last = max(0, -(-(total - room) // step))
    lowest, highest = max(0, -(-(before + answer - room) // step)), min(last, before // step)
    if lowest > highest:
        return equal_windows(before, after, room - answer)
    held = [(i * step, min(i * step + room, total)) for i in range(lowest, highest + 1)]
    start, end = max(held, key=lambda w: min(before - w[0], w[1] - before - answer))
    return before - start, end - before - answer


def equal_windows(before: int, after: int, room: int) -> tuple[int, int]:
    """How much context fits on either side: equal halves, what one side does not use goes to the other."""
    left = min(before, max(room // 2, room - after))
    return left, min(after, room - left)


@lru_cache(maxsize=READ_AT_ONCE)
def special_frame(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return the ids that open and close an input ([CLS] and [SEP] for BERT)."""
    ids = tokenizer.encode("", add_special_tokens=True).ids
    if len(ids) != 2:
        raise ModelError(
            f"expected a tokenizer that frames a text with two tokens, found {len(ids)}",
            remedy="use a model with a BERT-like WordPiece tokenizer",
        )
    return ids[0], ids[1]


def with_accents(text: str, offsets: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Extend wordpieces over the combining marks behind each, which a tokenizer may leave out."""
    extended, first, after = [], 0, -1
    for start, end in offsets:
        if not first <= end <= after:  # else it ends among the marks that were read last
            first = after = end
            while after < len(text) and unicodedata.category(text[after]) == "Mn":
                after += 1
        extended.append((start, after))
    return extended
