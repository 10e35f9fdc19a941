"""Converting passages to encoder inputs: wordpieces, segments and windows (SPARTA, §3.2 and §4)."""

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
from sparta.data.languages import spans_without_space

CONTEXT, ANSWER = 0, 1
TOKENIZER_CACHE = 8
"""The number of cached contexts and titles: a few suffice, since passages that share a context are
neighbors.
"""
TOGETHER = 512, 2_000_000
"""The maximum numbers of passages and characters that are tokenized together: enough for all processors."""


@dataclass(frozen=True, slots=True)
class Lexical:
    """Parameters for the weight of term occurrences in the answer: BM25's saturation.

    `mean_length` is the mean answer length in wordpieces over the training texts; it is the same for every
    index.
    """

    mean_length: float
    k1: float = 0.9
    b: float = 0.4

    def saturated(
        self, occurrences: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Return saturated counts between 0 and 1.

        :param occurrences: how often each term occurs in its answer
        :param length: the length of each answer in wordpieces
        """
        return occurrences / (occurrences + self.k1 * (1 - self.b + self.b * length / self.mean_length))


@dataclass(frozen=True, slots=True)
class EncoderInput:
    """One window of one passage: wordpiece ids with [CLS] and [SEP], and a segment id for each wordpiece.

    The maximum of eq. 4 covers the positions from `start` to `end` and the `lead` positions after [CLS] (a
    title).
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
        """Return the input with the whole context as answer.

        The input is unchanged if the answer is its whole context.
        """
        return replace(self, start=1 + self.lead, end=len(self.ids) - 1)

    def shares_tokens(self, other: EncoderInput) -> bool:
        """Return whether two inputs have the same tokens and segments; answer positions may differ."""
        return self.ids == other.ids and self.segments == other.segments


@dataclass(frozen=True, slots=True)
class InputLayout:
    """The layout of an encoder's inputs; a part of the model's configuration.

    `answer_segment` is the segment id of answer tokens (SPARTA: 1; encoders without segments: 0). Answers
    longer than `max_length` wordpieces are cut into windows that overlap by `overlap` wordpieces.

    With `share_context`, a context is read once for all its answers: no segment marks the answer, and the
    maximum covers only the tokens of the answer and the title. Long contexts are then cut into windows at
    positions that do not depend on the answer; neighboring windows overlap by half. See decision 0009.

    `separate_title` puts [SEP] between a title and a text without context, as DPR's encoders do.
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

    @property
    def marks_answers(self) -> bool:
        """Whether a segment marks the answer in an input."""
        return bool(self.answer_segment) and not self.share_context

    def overlap_of(self, length: int) -> int:
        """Return the overlap of windows of `length` wordpieces, which a long title leaves."""
        return self.overlap if self.overlap < length else length // 2

    def windows(self, passage: Passage, tokenizer: Tokenizer) -> list[EncoderInput]:
        """Return the inputs of a passage: one, or several if the answer is too long for one window."""
        return self._windows(passage, _Reading(tokenizer))

    def windows_of(
        self, passages: Sequence[Passage], tokenizer: Tokenizer, at_once: tuple[int, int] = TOGETHER
    ) -> Iterator[list[EncoderInput]]:
        """Yield the `windows` of each passage; texts are tokenized on all processors.

        :param at_once: the maximum numbers of passages and characters that are tokenized together
        """
        texts: dict[str, None] = {}
        pending, characters = [], 0
        for number, passage in enumerate(passages, 1):
            pending.append(passage)
            for text in self._texts(passage):
                characters += len(text) if text not in texts else 0
                texts[text] = None
            if len(pending) == at_once[0] or characters >= at_once[1] or number == len(passages):
                reading = _Reading(tokenizer, list(texts))
                yield from (self._windows(passage, reading) for passage in pending)
                texts, pending, characters = {}, [], 0

    def first_windows(self, passages: Sequence[Passage], tokenizer: Tokenizer) -> list[EncoderInput]:
        """Return the first window of each passage."""
        return [windows[0] for windows in self.windows_of(passages, tokenizer)]

    def _texts(self, passage: Passage) -> Iterator[str]:
        """Yield the texts of a passage that `windows` tokenizes.

        An answer that covers no wordpiece of its context is tokenized later.
        """
        title = passage.title if self.use_title else ""
        in_context = self.use_context and passage.context
        is_separate = self.share_context or (self.separate_title and not in_context)
        if title and is_separate:
            yield title
        prefix = f"{title} " if title and not is_separate else ""
        yield prefix + (passage.context if in_context else passage.text)

    def _windows(self, passage: Passage, reading: _Reading) -> list[EncoderInput]:
        title = self._title(passage, reading) if self.share_context else []
        ids, start, end = self._parts(passage, reading)
        cls_id, sep_id = special_frame(reading.tokenizer)
        title = title[: self.max_length // 4]
        window_length = self.max_length - 2 - len(title)
        answer, length_after = ids[start:end], len(ids) - end
        if len(answer) > window_length:
            overlap = self.overlap_of(window_length)
            starts = range(0, max(1, len(answer) - overlap), max(1, window_length - overlap))
            return [self._frame(cls_id, title, [], answer[s : s + window_length], [], sep_id) for s in starts]
        if self.share_context:
            left_context, right_context = fixed_window(start, len(answer), length_after, window_length)
        else:
            left_context, right_context = equal_windows(start, length_after, window_length - len(answer))
        return [
            self._frame(
                cls_id,
                title,
                ids[start - left_context : start],
                answer,
                ids[end : end + right_context],
                sep_id,
            )
        ]

    def first_window_holds(self, passage: Passage, tokenizer: Tokenizer) -> int:
        """Return how many characters of a text without context the first window covers."""
        title, prefix, window_length = passage.title if self.use_title else "", "", self.max_length - 2
        if title and self.share_context:
            window_length -= len(self._title(passage, _Reading(tokenizer))[: self.max_length // 4])
        elif title and self.separate_title:
            window_length -= len(_Reading(tokenizer).pieces(title).ids) + 1
        elif title:
            prefix = f"{title} "
        offsets = tokenizer.encode(prefix + passage.text, add_special_tokens=False).offsets
        if len(offsets) <= window_length:
            return len(passage.text)
        return max(0, offsets[window_length - 1][1] - len(prefix)) if window_length > 0 else 0

    def _title(self, passage: Passage, reading: _Reading) -> list[int]:
        return reading.pieces(passage.title).ids if self.use_title and passage.title else []

    def _parts(self, passage: Passage, reading: _Reading) -> tuple[list[int], int, int]:
        """Return the wordpieces of a passage, and the start and end of its answer.

        A shared context excludes the title.
        """
        title = f"{passage.title} " if self.use_title and passage.title and not self.share_context else ""
        if title and self.separate_title and not (self.use_context and passage.context):
            title_ids = reading.pieces(passage.title).ids
            ids = [*title_ids, special_frame(reading.tokenizer)[1], *reading.ids(passage.text)]
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
        self,
        cls_id: int,
        title: list[int],
        before: list[int],
        answer: list[int],
        after: list[int],
        sep_id: int,
    ) -> EncoderInput:
        ids = [cls_id, *title, *before, *answer, *after, sep_id]
        if self.share_context:
            start = 1 + len(title) + len(before)
            return EncoderInput(ids, [CONTEXT] * len(ids), start, start + len(answer), len(title))
        segments = [CONTEXT] * (1 + len(before)) + [self.answer_segment] * len(answer)
        segments += [CONTEXT] * (len(after) + 1)
        return EncoderInput(ids, segments, 1, len(ids) - 1)


@dataclass(frozen=True, slots=True)
class _Wordpieces:
    """The wordpieces of a text, with the start and end character of each.

    Instances are shared, so they must not change. `ordered` says that starts and ends never decrease, as
    with all usual tokenizers.
    """

    ids: list[int]
    starts: list[int]
    ends: list[int]
    ordered: bool

    def between(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of wordpieces that overlap the characters `start` to `end`; (0, 0) if none do."""
        if self.ordered:
            first, after = bisect_right(self.ends, start), bisect_left(self.starts, end)
            return (first, after) if first < after else (0, 0)
        spans = enumerate(zip(self.starts, self.ends, strict=True))
        inside = [i for i, (a, b) in spans if a < end and b > start]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)


def _wordpieces(encoded: Encoding) -> _Wordpieces:
    starts, ends = [a for a, _ in encoded.offsets], [b for _, b in encoded.offsets]
    ordered = all(a <= b for places in (starts, ends) for a, b in pairwise(places))
    return _Wordpieces(encoded.ids, starts, ends, ordered)


@lru_cache(maxsize=TOKENIZER_CACHE)
def _tokenized(tokenizer: Tokenizer, text: str) -> _Wordpieces:
    """Tokenize a text, with a cache: neighboring passages, such as sentences, share long contexts."""
    return _wordpieces(tokenizer.encode(text, add_special_tokens=False))


class _Reading:
    """Tokenized texts.

    Texts that are passed to the constructor are tokenized together, on all processors.
    """

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str] = ()) -> None:
        self.tokenizer = tokenizer
        encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False) if texts else []
        self._encoded: dict[str, Encoding] = dict(zip(texts, encodings, strict=True))
        self._pieces: dict[str, _Wordpieces] = {}

    def ids(self, text: str) -> list[int]:
        """Return the wordpiece ids of a text."""
        if text in self._encoded:
            encoded_ids: list[int] = self._encoded[text].ids
            return encoded_ids
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def pieces(self, text: str) -> _Wordpieces:
        """Return the wordpieces of a text that several passages may share."""
        if text not in self._encoded:
            return _tokenized(self.tokenizer, text)
        if text not in self._pieces:
            self._pieces[text] = _wordpieces(self._encoded[text])
        return self._pieces[text]


def fixed_window(before: int, answer: int, after: int, room: int) -> tuple[int, int]:
    """Return how much context to show left and right of an answer, if all answers share the same windows.

    Windows of `room` tokens begin at every multiple of half of `room`. Of all windows that contain the
    answer, the one with the most central answer is chosen. If no window contains the answer, the window is
    centered on the answer.

    :param before: the number of context tokens before the answer
    :param answer: the number of answer tokens
    :param after: the number of context tokens after the answer
    """
    total, step = before + answer + after, max(1, room // 2)
    last = max(0, -(-(total - room) // step))
    lowest, highest = max(0, -(-(before + answer - room) // step)), min(last, before // step)
    if lowest > highest:
        return equal_windows(before, after, room - answer)
    windows = [(i * step, min(i * step + room, total)) for i in range(lowest, highest + 1)]
    start, end = max(windows, key=lambda w: min(before - w[0], w[1] - before - answer))
    return before - start, end - before - answer


def equal_windows(before: int, after: int, room: int) -> tuple[int, int]:
    """Return how many context tokens fit left and right of an answer: half of `room` each.

    Tokens that one side leaves free go to the opposite side.
    """
    left = min(before, max(room // 2, room - after))
    return left, min(after, room - left)


@lru_cache(maxsize=TOKENIZER_CACHE)
def special_frame(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return the ids that open and close an input ([CLS] and [SEP] in BERT).

    :raises ModelError: the tokenizer does not add exactly two tokens.
    """
    ids = tokenizer.encode("", add_special_tokens=True).ids
    if len(ids) != 2:
        raise ModelError(
            f"expected a tokenizer that adds two tokens to a text, found {len(ids)}",
            remedy="use a model with a WordPiece tokenizer like BERT's",
        )
    return ids[0], ids[1]


def character_spans(text: str, offsets: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return `spans_without_space`, each extended over the combining marks and tag characters after it.

    A tokenizer may drop these characters, or make them wordpieces of their own.
    """
    extended, first, after = [], 0, -1
    for start, end in spans_without_space(text, offsets):
        if not first <= end <= after:  # otherwise the wordpiece ends within the same marks
            first = after = end
            while after < len(text) and _is_mark(text[after]):
                after += 1
        extended.append((start, after))
    return extended


def _is_mark(character: str) -> bool:
    """Return whether a character belongs to the one before: a combining mark, or a tag of a flag."""
    return unicodedata.category(character)[0] == "M" or "\U000e0020" <= character <= "\U000e007f"
