"""The marks that KILT puts around the mention of an entity in a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparta.base.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

START_MARK, END_MARK = "[START_ENT]", "[END_ENT]"


def names_entity(text: str) -> bool:
    """Return whether a text has a marked entity, which is to be linked."""
    return START_MARK in text


def mention_span(text: str) -> tuple[int, int] | None:
    """Return the span between the marks of a text's mention; None without both marks."""
    _, start_mark, after_start = text.partition(START_MARK)
    inside, end_mark, after = after_start.partition(END_MARK)
    if not start_mark or not end_mark:
        return None
    end = len(text) - len(after) - len(END_MARK)
    return end - len(inside), end


def with_marks(text: str, span: tuple[int, int]) -> str:
    """Return a text with the marks around the mention at `span`."""
    start, end = span
    return f"{text[:start]}{START_MARK} {text[start:end]} {END_MARK}{text[end:]}"


def without_marks(text: str) -> tuple[str, tuple[int, int]]:
    """Return a text without the marks of its mention, and the span of the mention."""
    span = mention_span(text)
    mention = text[slice(*span)].strip() if span else ""
    if not span or not mention:
        raise InputError("the input has no mention between [START_ENT] and [END_ENT]")
    start, end = span[0] - len(START_MARK), span[1] + len(END_MARK)
    return text[:start] + mention + text[end:], (start, start + len(mention))


def around_mention(text: str, tokenizer: Tokenizer, room: int) -> str:
    """Cut a text to at most `room` wordpieces around the mention that `[START_ENT]` marks, between words.

    A third of the wordpieces come before the mark: more if less text follows, fewer if the mention is long. A
    text without a mark is returned unchanged.
    """
    place = text.find(START_MARK)
    if place < 0:
        return text
    encoded = tokenizer.encode(text, add_special_tokens=False)
    if len(encoded.ids) <= room:
        return text
    span = mention_span(text)
    end = span[1] + len(END_MARK) if span else place + len(START_MARK)
    first = next(i for i, (_, token_end) in enumerate(encoded.offsets) if token_end > place)
    last = next((i for i, (start, _) in enumerate(encoded.offsets) if start >= end), len(encoded.ids))
    n_before = min(first, max(room // 3, room - (len(encoded.ids) - first)), max(0, room - (last - first)))
    begin = first - n_before
    while begin < first and begin and encoded.word_ids[begin] == encoded.word_ids[begin - 1]:
        begin += 1
    stop = min(len(encoded.ids), begin + room)
    while stop > last and stop < len(encoded.ids) and encoded.word_ids[stop] == encoded.word_ids[stop - 1]:
        stop -= 1
    return text[encoded.offsets[begin][0] : encoded.offsets[stop - 1][1]]
