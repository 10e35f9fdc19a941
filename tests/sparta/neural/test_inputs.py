"""Inputs are those that a plain reading of the layout gives, and a long context is tokenized once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from sparta.base.records import Passage
from sparta.neural.inputs import CONTEXT, EncoderInput, InputLayout, equal_windows, fixed_window

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

LAYOUTS = [
    InputLayout(max_length=20, overlap=3),
    InputLayout(use_title=True, max_length=17, overlap=0, separate_title=True),
    InputLayout(use_title=True, use_context=True, max_length=24, overlap=5),
    InputLayout(use_context=True, answer_segment=CONTEXT, max_length=9, overlap=4),
    InputLayout(use_title=True, use_context=True, share_context=True, max_length=16, overlap=2),
    InputLayout(use_title=True, use_context=True, share_context=True, max_length=5, overlap=1),
    InputLayout(use_context=True, share_context=True, max_length=64, overlap=8),
]
PIECES = ["moon", "the", "München", "月亮", "e\u0301cole", "\u200b", "xyzzyq", ".", "[SEP]", "\0", "\u0130"]


def windows_by_definition(total: int, room: int) -> list[tuple[int, int]]:
    """All windows of a context: they begin at every half of the room."""
    step = max(1, room // 2)
    last = max(0, -(-(total - room) // step))
    return [(i * step, min(i * step + room, total)) for i in range(last + 1)]


def fixed_window_by_definition(before: int, answer: int, after: int, room: int) -> tuple[int, int]:
    windows = windows_by_definition(before + answer + after, room)
    held = [(a, b) for a, b in windows if a <= before and before + answer <= b]
    if not held:
        return equal_windows(before, after, room - answer)
    start, end = max(held, key=lambda w: min(before - w[0], w[1] - before - answer))
    return before - start, end - before - answer


def parts_by_definition(
    layout: InputLayout, passage: Passage, tokenizer: Tokenizer
) -> tuple[list[int], list[int], list[int]]:
    """Wordpieces before, of and after the answer: those whose characters overlap with its own."""

    def read(text: str) -> Encoding:
        return tokenizer.encode(text, add_special_tokens=False)

    in_context = layout.use_context and passage.context
    title = f"{passage.title} " if layout.use_title and passage.title and not layout.share_context else ""
    if title and layout.separate_title and not in_context:
        separator = tokenizer.encode("").ids[1]
        return [], [*read(passage.title).ids, separator, *read(passage.text).ids], []
    if not in_context:
        return [], read(title + passage.text).ids, []
    whole = read(title + passage.context)
    start, end = len(title) + passage.start, len(title) + passage.end
    inside = [i for i, (a, b) in enumerate(whole.offsets) if a < end and b > start]
    if not inside:
        return [], read(passage.text).ids, []
    return whole.ids[: inside[0]], whole.ids[inside[0] : inside[-1] + 1], whole.ids[inside[-1] + 1 :]


def inputs_by_definition(layout: InputLayout, passage: Passage, tokenizer: Tokenizer) -> list[EncoderInput]:
    title: list[int] = []
    if layout.share_context and layout.use_title and passage.title:
        title = tokenizer.encode(passage.title, add_special_tokens=False).ids[: layout.max_length // 4]
    before, answer, after = parts_by_definition(layout, passage, tokenizer)
    room = layout.max_length - 2 - len(title)
    if len(answer) > room:
        step = max(1, room - layout.overlap)
        cuts = range(0, len(answer) - layout.overlap, step)
        shown = [([], answer[at : at + room], []) for at in cuts]
    else:
        sizes = len(before), len(answer), len(after)
        left, right = (
            fixed_window_by_definition(*sizes, room)
            if layout.share_context
            else equal_windows(sizes[0], sizes[2], room - sizes[1])
        )
        shown = [(before[len(before) - left :], answer, after[:right])]
    first, last = tokenizer.encode("").ids
    found = []
    for left_of, own, right_of in shown:
        ids = [first, *title, *left_of, *own, *right_of, last]
        if layout.share_context:
            at = 1 + len(title) + len(left_of)
            found.append(EncoderInput(ids, [CONTEXT] * len(ids), at, at + len(own), len(title)))
            continue
        segments = [CONTEXT] * (1 + len(left_of)) + [layout.answer_segment] * len(own)
        segments += [CONTEXT] * (len(right_of) + 1)
        found.append(EncoderInput(ids, segments, 1, len(ids) - 1))
    return found


def random_passages(rng: random.Random, n: int) -> list[Passage]:
    """Answers in contexts: several in one, spans that cut words or hold only white space, and none."""
    passages = []
    while len(passages) < n:
        words = rng.choices(PIECES, k=rng.randint(1, rng.choice([3, 40, 120])))
        context = rng.choice([" ", "  ", ""]).join(words)
        title = rng.choice(["", "Moon", "the moon of München " * rng.randint(1, 4)])
        for _ in range(rng.randint(1, 4)):
            start, end = sorted((rng.randint(0, len(context)), rng.randint(0, len(context))))
            passages.append(Passage("", context[start:end], title, context, start, end))
        passages.append(Passage("", context, title))
    return passages[:n]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_are_those_of_a_plain_reading(layout: InputLayout, tiny_tokenizer: Tokenizer) -> None:
    rng = random.Random(7)
    for passage in random_passages(rng, 150):
        expected = inputs_by_definition(layout, passage, tiny_tokenizer)
        assert layout.windows(passage, tiny_tokenizer) == expected, passage


@pytest.mark.parametrize("layout", LAYOUTS)
def test_passages_read_together_are_as_each_alone(layout: InputLayout, tiny_tokenizer: Tokenizer) -> None:
    """Neighbours in one context, texts that stand twice, special tokens in a text, and none at all."""
    passages = random_passages(random.Random(5), 40)
    passages += [Passage("", "the [SEP] moon [CLS]", "[MASK]"), Passage("", "", ""), passages[0]]
    expected = [layout.windows(passage, tiny_tokenizer) for passage in passages]
    assert list(layout.windows_of(passages, tiny_tokenizer, (7, 900))) == expected
    assert list(layout.windows_of([], tiny_tokenizer)) == []
    read: list[Passage] = []

    class Read(list[Passage]):
        def __iter__(self) -> Iterator[Passage]:
            for passage in super().__iter__():
                read.append(passage)
                yield passage

    next(layout.windows_of(Read(passages), tiny_tokenizer, (7, 900)))
    assert len(read) <= 7, "the windows of all passages may not fit in memory"


def test_the_window_is_the_best_of_all_windows() -> None:
    rng = random.Random(3)
    for _ in range(3_000):
        room = rng.randint(1, 12)
        sizes = rng.randint(0, 40), rng.randint(0, room), rng.randint(0, 40)
        assert fixed_window(*sizes, room) == fixed_window_by_definition(*sizes, room), (sizes, room)


class Scripted:
    """A tokenizer whose characters are its wordpieces, in an order of its own; counts what it reads."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.read: list[str] = []

    def encode(self, text: str, add_special_tokens: bool = True) -> Any:
        self.read.append(text)
        order = [i * self.step % len(text) for i in range(len(text))]
        ids = [ord(text[i]) for i in order]
        offsets = [(i, i + 1) for i in order]
        frame = [1, 2] if add_special_tokens else []
        return type("Encoded", (), {"ids": frame or ids, "offsets": offsets})


@pytest.mark.parametrize("step", [1, 2])
def test_wordpieces_that_stand_out_of_order_are_found_too(step: int) -> None:
    """No tokenizer in use does this; what an answer covers does not hang on it."""
    tokenizer: Any = Scripted(step)
    layout = InputLayout(use_context=True, max_length=40, overlap=2)
    for start in range(11):
        for end in range(start, 12):
            passage = Passage("", "abcdefghijk"[start:end], "", "abcdefghijk", start, end)
            expected = inputs_by_definition(layout, passage, tokenizer)
            assert layout.windows(passage, tokenizer) == expected


def test_a_context_and_a_title_are_read_once_for_all_answers_in_them() -> None:
    """A long passage cut into sentences would otherwise cost its length for each of them."""
    tokenizer: Any = Scripted(1)
    context = "the moon . " * 50
    layout = InputLayout(use_title=True, use_context=True, share_context=True, max_length=40, overlap=2)
    for start in range(0, len(context), 11):
        passage = Passage("", context[start : start + 10], "Moon", context, start, start + 10)
        layout.windows(passage, tokenizer)
    assert sorted(tokenizer.read) == ["", "Moon", context]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("title", ["", "Moon", "the moon of the sea " * 4])
def test_the_first_window_shows_so_many_characters(
    layout: InputLayout, title: str, tiny_tokenizer: Tokenizer
) -> None:
    """The wordpieces of these characters end the window, and those of one word more do not fit."""
    words = ["one", "two", "three", "four", "five", "king"]
    for n in (1, 3, 14, 15, 40, 90):
        text = " ".join(words[i % 6] for i in range(n))
        [window, *others] = layout.windows(Passage("", text, title), tiny_tokenizer)
        shown = layout.first_window_holds(Passage("", text, title), tiny_tokenizer)
        ids = tiny_tokenizer.encode(text[:shown], add_special_tokens=False).ids
        assert window.ids[len(window.ids) - 1 - len(ids) : -1] == ids
        assert (shown == len(text)) == (not others)
        assert not others or len(window.ids) == layout.max_length


@pytest.mark.parametrize("title", ["", "moon", "moon " * 20, "moon " * 200])
def test_windows_cover_a_long_text(title: str, tiny_tokenizer: Tokenizer) -> None:
    """Also where the title leaves a window that is shorter than the overlap."""
    layout = InputLayout(use_title=True, share_context=True, answer_segment=0, max_length=40, overlap=32)
    text = " ".join(["one", "two", "three", "four", "king"] * 40)
    ids = tiny_tokenizer.encode(text, add_special_tokens=False).ids
    windows = layout.windows(Passage("", text, title), tiny_tokenizer)
    position = 0
    for window in windows:
        part = window.ids[window.start : window.end]
        at = next(i for i in range(position, -1, -1) if ids[i : i + len(part)] == part)
        position = max(position, at + len(part))
    assert position == len(ids)
    assert len(windows) < 40
