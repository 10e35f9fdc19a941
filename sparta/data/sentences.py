"""Cutting a corpus into sentences, each with its passage as context (SPARTA, §4), or into chunks."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.data.corpus import CorpusReader
from sparta.data.languages import Language, language_of
from sparta.data.parsing import BadRecordError
from sparta.data.units import CHUNK, UNIT_ID, UNITS

logger = logging.getLogger("sparta.data")
LONGEST_SENTENCE = 128
"""In words; the models that ship read about 200 at once."""
_USUAL_SENTENCE = 64
_AT_ONCE = 4096
"""Characters that sentencex reads at once."""
_AHEAD = 1024
"""The last of these characters, which it reads again with the next ones."""
Splitter = Callable[[str], list[tuple[int, int]]]
"""From a text to the spans of its parts, in characters."""


def split_units(passages: Iterable[Passage], unit: str, language: str = "en") -> Iterator[Passage]:
    """The candidates that a corpus gives: its records (`passage`), or the sentences or chunks in them.

    Part n of passage `p` is `p#n`, counted from 0. The context of a sentence is the passage's text and its
    record names the passage as `passage_id`; the record of a chunk (`chunk_unit`) names it as `document_id`.
    A record that already is an answer inside a context stays as it is.

    :raises BadRecordError: an id ends like a sentence's; a reader that skips invalid records skips it.
    """
    chunk = CHUNK.fullmatch(unit)
    if unit not in UNITS and not chunk:
        raise InputError(f"expected a unit of {', '.join(UNITS)}, found {unit!r}")
    if unit == "passage":
        yield from passages
        return

    def count_cut() -> None:
        if isinstance(passages, CorpusReader):
            passages.counts.cut += 1

    own = language_of(language)
    spans = _chunker(own, *map(int, chunk.groups())) if chunk else sentence_splitter(language, count_cut)
    for passage in passages:
        if UNIT_ID.search(passage.passage_id):
            bad = BadRecordError(
                "invalid id",
                f"expected one that does not end like a sentence's, found {passage.passage_id!r}",
                where=passage.where,
                remedy="give the record another id, or index passages",
            )
            if not isinstance(passages, CorpusReader):
                raise bad
            passages.take_back(bad)
            continue
        if passage.context:
            yield passage
            continue
        for number, (start, end) in enumerate(spans(passage.text)):
            yield (_chunk if chunk else _sentence)(passage, number, start, end)


def sentence_splitter(language: str, on_cut: Callable[[], object] = lambda: None) -> Splitter:
    """A function from a text to the character spans of its sentences, without surrounding white space.

    A line that begins with a capital, a digit or a mark begins a sentence. Quotes and brackets keep what is
    between them together, as long as that is of usual length: one that is never closed, or an apostrophe,
    would else hold all that follows. No sentence is longer than `LONGEST_SENTENCE` words (of scripts without
    spaces: characters); a longer one is cut, and `on_cut` called.
    """
    own = language_of(language)
    quotes, new_line, ends = _characters(own.quotes), _new_line(own.marks), _boundaries(own.splitter)

    def pieces(text: str) -> Iterator[tuple[int, int]]:
        for first, last in ends(text):
            for start, end in _lines(text, first, last, new_line):
                if len(own.units.findall(text, start, end)) <= _USUAL_SENTENCE:
                    yield start, end
                    continue
                unquoted = quotes.sub(" ", text[start:end])
                for a, b in ends(unquoted):
                    parts = list(_cut(text, start + a, start + b, own))
                    if len(parts) > 1:
                        on_cut()
                    yield from parts

    def spans(text: str) -> list[tuple[int, int]]:
        return [span for start, end in pieces(text) if (span := stripped(text, start, end))]

    return spans


def _boundaries(language: str) -> Callable[[str], Iterator[tuple[int, int]]]:
    """A function from a text to the spans between the ends of sentences that sentencex names.

    The time of sentencex grows with the square of a text's length, so it reads a long text piece by piece.
    Ends in the last quarter of a piece are left to the next piece, which reads it again with what follows.
    """
    from sentencex import get_sentence_boundaries

    def ends(text: str) -> Iterator[tuple[int, int]]:
        start = place = 0
        while place + _AT_ONCE < len(text):
            piece = get_sentence_boundaries(language, text[place : place + _AT_ONCE])
            known = [place + b["end_index"] for b in piece if b["end_index"] <= _AT_ONCE - _AHEAD]
            yield from pairwise([start, *known])
            start = known[-1] if known else start
            place = known[-1] if known else place + _AT_ONCE - _AHEAD
        known = [place + b["end_index"] for b in get_sentence_boundaries(language, text[place:])]
        yield from pairwise(dict.fromkeys([start, *known, len(text)]))

    return ends


@lru_cache
def _characters(some: str) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(some)}]")


@lru_cache
def _new_line(marks: str) -> re.Pattern[str]:
    """Where a line begins with a letter, a digit or a mark of a list."""
    return re.compile(rf"\n[ \t]*(?=[^\W_]|[{re.escape(marks)}])")


def _lines(text: str, start: int, end: int, new_line: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Cut where a line begins that does not look like the rest of the one before."""
    for mark in new_line.finditer(text, start, end):
        if not _is_lower_case(text[mark.end()]):
            yield start, mark.start()
            start = mark.start()
    yield start, end


def _is_lower_case(letter: str) -> bool:
    """Whether a capital would stand in its place at the beginning of a sentence; never so in Georgian."""
    return letter.islower() and letter.title() != letter


def _cut(text: str, start: int, end: int, language: Language) -> Iterator[tuple[int, int]]:
    """Cut into parts of at most `LONGEST_SENTENCE` words."""
    words = list(language.units.finditer(text, start, end))
    for first in range(LONGEST_SENTENCE, len(words), LONGEST_SENTENCE):
        yield start, words[first].start()
        start = words[first].start()
    yield start, end


def stripped(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return a span without the white space at its ends; None if nothing is left."""
    piece = text[start:end]
    start, end = start + len(piece) - len(piece.lstrip()), end - (len(piece) - len(piece.rstrip()))
    return (start, end) if start < end else None


def _chunker(language: Language, words: int, overlap: int) -> Splitter:
    """A function from a text to the character spans of its chunks; the last one may be shorter."""

    def spans(text: str) -> list[tuple[int, int]]:
        found = [m.span() for m in language.units.finditer(text)]
        starts = range(0, max(1, len(found) - overlap), words - overlap)
        chunks = [found[first : first + words] for first in starts]
        return [(chunk[0][0], chunk[-1][1]) for chunk in chunks if chunk] or [(0, len(text))]

    return spans


def _chunk(passage: Passage, number: int, start: int, end: int) -> Passage:
    unit_id, text = f"{passage.passage_id}#{number}", passage.text[start:end]
    record = _with_place(passage, {"document_id": passage.passage_id, "start": start, "end": end})
    return Passage(unit_id, text, passage.title, record=record, where=passage.where)


def _sentence(passage: Passage, number: int, start: int, end: int) -> Passage:
    unit_id, text = f"{passage.passage_id}#{number}", passage.text[start:end]
    record = _with_place(passage, {"passage_id": passage.passage_id, "start": start, "end": end})
    return Passage(unit_id, text, passage.title, passage.text, start, end, record, passage.where)


def _with_place(passage: Passage, place: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a passage, with where a part of it stands; a field of the same name is replaced."""
    kept = {k: v for k, v in passage.record.items() if k not in {"id", "_id", "text", "contents", "title"}}
    for name in kept.keys() & place.keys():
        _tell_replaced(name)
    return {**kept, **place}


@lru_cache
def _tell_replaced(name: str) -> None:
    logger.warning(
        "%s: what the records say is replaced by that of their parts; rename the field to keep it", name
    )
