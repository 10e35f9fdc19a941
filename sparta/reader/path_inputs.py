"""The inputs of path readers: `[CLS] question [SEP] yes no [P] title [SEP] text … [SEP]`. Without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from sparta.base.errors import InputError, ModelError
from sparta.base.remedies import Option, remedy
from sparta.neural.inputs import character_spans, special_frame
from sparta.reader.records import Text
from sparta.reader.windows import Window

CHOICES = ("yes", "no")
"""Answers that come from no passage; each is a wordpiece of the input."""
_MARKS = ("[unused0]", "[unused1]")
_SHORTEST_PASSAGE = 8
"""The smallest number of wordpieces for a passage."""
Sentences = Sequence[Sequence[tuple[int, int]]]
"""The sentences of each passage, `(start, end)` in characters."""


@dataclass(frozen=True, slots=True)
class PathLayout:
    """A path reader's lengths in wordpieces: input, longest question and longest answer.

    `sentences` tells whether the reader was trained to find, and returns, the sentences that support an
    answer.
    """

    max_length: int = 320
    longest_question: int = 64
    longest_answer: int = 30
    sentences: bool = False

    def __post_init__(self) -> None:
        lengths = (self.max_length, self.longest_question, self.longest_answer)
        are_valid = all(type(length) is int and length > 0 for length in lengths)
        are_valid = are_valid and isinstance(self.sentences, bool)
        if not are_valid or self.max_length < self.longest_question + 4 * _SHORTEST_PASSAGE:
            raise InputError(
                f"the lengths must be whole numbers that leave room for passages, found {self}",
                remedy=remedy("set a larger {}, or a shorter question length", Option("max_length")),
            )

    @staticmethod
    def from_config(raw: Mapping[str, Any], where: str) -> PathLayout:
        """Return the layout in a config.json.

        :raises ModelError: the file has no valid `path_reader` object.
        """
        try:
            return PathLayout(**raw["path_reader"])
        except (KeyError, TypeError, InputError) as error:
            raise ModelError(
                f"the configuration of the path reader is not valid ({error})",
                where=where,
                remedy="copy the whole model folder again",
            ) from error


class InputPassage(NamedTuple):
    """A passage in an input: the position of its mark, the start of its text, and its wordpieces' offsets."""

    mark: int
    text_start: int
    offsets: list[tuple[int, int]]


class PathInput(NamedTuple):
    """One input: `[CLS] question [SEP] yes no [P] title [SEP] text [P] title [SEP] text [SEP]`.

    `choices` holds the positions of yes and no. `sentences` holds each sentence's passage number, its number
    within the passage, its first position, and the position after its last.
    """

    ids: list[int]
    segments: list[int]
    choices: tuple[int, int]
    parts: list[InputPassage]
    sentences: list[tuple[int, int, int, int]]

    def window(self, number: int) -> Window:
        """Return the text of one passage as a window of this input."""
        part = self.parts[number]
        return Window(number, self.ids, self.segments, part.text_start, part.offsets)

    def answer_positions(self) -> list[int]:
        """Return the positions where an answer may start or end."""
        texts = (self.window(number).answer_positions() for number in range(len(self.parts)))
        return [*self.choices, *chain.from_iterable(texts)]

    def passage_spans(self) -> list[tuple[int, int]]:
        """Return the positions that score passages: first the threshold's ([CLS]), then each passage's."""
        return [(0, 1), *((part.mark, part.mark + 1) for part in self.parts)]

    def sentence_spans(self) -> list[tuple[int, int]]:
        """Return the positions that score sentences: first the threshold's ([CLS]), then each sentence's."""
        return [(0, 1), *((start, end) for _, _, start, end in self.sentences)]


class PathInputs:
    """Builds the inputs of a path reader.

    :raises ModelError: the vocabulary lacks a wordpiece that inputs need.
    """

    def __init__(self, tokenizer: Tokenizer, layout: PathLayout) -> None:
        self._tokenizer, self._layout = tokenizer, layout
        self.mark, self._choices = _mark(tokenizer), _choices(tokenizer)

    def make(self, question: str, texts: Sequence[Text], sentences: Sentences = ()) -> PathInput:
        """Return the input for a path. A long question is truncated to its beginning.

        Of a long passage, the input has the part around the passage's `focus`, or else the beginning.

        :param sentences: each passage's sentences; empty if the sentences need no scores
        :raises InputError: there is no passage, or more passages than fit into an input.
        """
        first, last = special_frame(self._tokenizer)
        question_ids = self._ids(question)[: self._layout.longest_question]
        ids = [first, *question_ids, last, *self._choices]
        segments = [0] * (len(question_ids) + 2)
        room = self._layout.max_length - len(ids) - 1
        if not 1 <= len(texts) <= room // _SHORTEST_PASSAGE:
            raise InputError(
                f"a path must have 1 to {room // _SHORTEST_PASSAGE} passages here, found {len(texts)}",
                remedy=remedy("read shorter paths, or train with a larger {}", Option("max_length")),
            )
        titles = [self._ids(text.title)[: room // len(texts) // 4] for text in texts]
        heads = [[self.mark, *title, *([last] if title else [])] for title in titles]
        encoded = [self._tokenizer.encode(text.text, add_special_tokens=False) for text in texts]
        lengths = length_limits([len(encoding.ids) for encoding in encoded], room - sum(map(len, heads)))
        parts: list[InputPassage] = []
        for text, head, encoding, length in zip(texts, heads, encoded, lengths, strict=True):
            offsets = encoding.offsets
            start = window_start(offsets, length, text.focus)
            offsets = character_spans(text.text, offsets[start : start + length])
            parts.append(InputPassage(len(ids), len(ids) + len(head), offsets))
            ids += [*head, *encoding.ids[start : start + length]]
        ids.append(last)
        segments += [1] * (len(ids) - len(segments))
        sentence_places = [
            (passage, number, *inside)
            for passage, (part, passage_sentences) in enumerate(zip(parts, sentences, strict=False))
            for number, span in enumerate(passage_sentences)
            if (inside := _places(part, *span)) is not None
        ]
        choices = len(question_ids) + 2
        return PathInput(ids, segments, (choices, choices + 1), parts, sentence_places)

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def length_limits(lengths: Sequence[int], room: int) -> list[int]:
    """Return each passage's length limit: short passages fit whole, and the others share the rest equally."""
    limits: dict[int, int] = {}
    for passages_left, i in zip(
        range(len(lengths), 0, -1), sorted(range(len(lengths)), key=lambda i: lengths[i]), strict=True
    ):
        limits[i] = min(lengths[i], (room - sum(limits.values())) // passages_left)
    return [limits[i] for i in range(len(lengths))]


def window_start(offsets: Sequence[tuple[int, int]], length: int, focus: tuple[int, int]) -> int:
    """Return the first wordpiece of a window of `length` wordpieces that contains the focus.

    The window is at the beginning of the text if it then contains the focus; else the focus is in its middle.
    If the focus is longer than the window, the window begins with the focus.

    :param offsets: the characters `(start, end)` of the text's wordpieces
    :param focus: characters `(start, end)` of the text
    """
    inside = [i for i, (start, end) in enumerate(offsets) if start < focus[1] and end > focus[0]]
    if not inside or inside[-1] < length:
        return 0
    middle = (inside[0] + inside[-1] + 1 - length) // 2
    return min(inside[0], middle, len(offsets) - length)


def _places(part: InputPassage, start: int, end: int) -> tuple[int, int] | None:
    """Return the input positions of a character span, the end exclusive; None if the input lacks the span."""
    inside = [i for i, (a, b) in enumerate(part.offsets) if a < end and b > start]
    return (part.text_start + inside[0], part.text_start + inside[-1] + 1) if inside else None


def _mark(tokenizer: Tokenizer) -> int:
    """Return the id of the wordpiece that marks a passage's beginning; no text contains this wordpiece."""
    for name in _MARKS:
        token_id: Any = tokenizer.token_to_id(name)
        if token_id is not None:
            return int(token_id)
    raise ModelError(
        f"the vocabulary lacks {' and '.join(_MARKS)}, one of which must mark passages",
        remedy="use an encoder with BERT's vocabulary, which has such a token",
    )


def _choices(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the wordpieces yes and no."""
    ids = [tokenizer.encode(choice, add_special_tokens=False).ids for choice in CHOICES]
    words = [[tokenizer.id_to_token(i) for i in choice_ids] for choice_ids in ids]
    if words != [[choice] for choice in CHOICES]:
        raise ModelError(
            f"the vocabulary must contain the words {' and '.join(CHOICES)}, found {words}",
            remedy="use an English encoder: a path reader reads English",
        )
    return [choice_ids[0] for choice_ids in ids]
