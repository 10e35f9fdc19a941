"""Splitting passages into sentences with the passage as context (SPARTA, §4), or into chunks."""

from __future__ import annotations

import logging
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.data.languages import Language, language_of
from sparta.data.parsing import BadRecordError
from sparta.data.readers.corpus_reader import CorpusReader
from sparta.data.units import CHUNK, FIRST_PAGE, PAGE_STARTS, SPACE_AFTER, UNIT_ID, check_unit

logger = logging.getLogger("sparta.data")
LONGEST_SENTENCE = 128
"""The maximum length of a sentence, in words. The shipped models read about 200 words at once."""
_USUAL_SENTENCE = 64
_WINDOW = 4096
"""The length of the window that sentencex reads at once, in characters."""
_OVERLAP = 1024
"""The characters at the end of a window that the next window reads again."""
_NON_ASCII_SPACE = re.compile(r"[^\S\x00-\x7f]")
Splitter = Callable[[str], list[tuple[int, int]]]
"""A function from a text to the character spans of its sentences or chunks."""


def split_units(passages: Iterable[Passage], unit: str, language: str = "en") -> Iterator[Passage]:
    """Yield the units of retrieval of a corpus: whole passages, their sentences, or their chunks.

    Unit n of passage `p` has the id `p#n`, counted from 0. The context of a sentence is the passage's text.
    The record of a sentence names the passage as `passage_id`, the record of a chunk (`chunk_unit`) as
    `document_id`. A passage that already has a context stays as it is.

    :raises BadRecordError: a passage id ends like a sentence id, or sentencex fails on a text; a reader
        with `skip_invalid` skips the passage instead.
    """
    check_unit(unit)
    chunk = CHUNK.fullmatch(unit)
    if unit == "passage":
        yield from passages
        return

    def count_cut() -> None:
        if isinstance(passages, CorpusReader):
            passages.counts.cut += 1

    spans = _chunker(language, unit) if chunk else sentence_splitter(language, count_cut)
    pieces = _chunks if chunk else _sentences
    for passage in passages:
        try:
            _check_id(passage.passage_id)
            units = [passage] if passage.context else pieces(passage, spans(passage.text))
        except BadRecordError as bad:
            bad.where = passage.where
            if not isinstance(passages, CorpusReader):
                raise
            passages.take_back(passage, bad)
            continue
        yield from units


def _check_id(passage_id: str) -> None:
    """Raise BadRecordError if a passage id ends like a sentence id."""
    if UNIT_ID.search(passage_id):
        raise BadRecordError(
            "invalid id",
            f"{passage_id!r} ends in # and a number, which is reserved for sentences and chunks",
            remedy=remedy(
                "give the record another id, or index whole passages, without {} and {}",
                Option("unit"),
                Option("chunk"),
            ),
        )


def sentence_splitter(
    language: str, on_cut: Callable[[], object] = lambda: None, *, cuts: bool = True
) -> Splitter:
    """Return a function that maps a text to the character spans of its sentences.

    The spans have no surrounding white space. A line that begins with a capital, a digit or a list mark
    begins a sentence. Quotes and brackets keep the text between them in one sentence, up to a usual length:
    otherwise, an unclosed quote or an apostrophe would keep all following text together. A sentence with
    more than `LONGEST_SENTENCE` words (characters, in scripts without spaces) is cut, and `on_cut` is
    called. Without `cuts`, long sentences stay whole.

    The returned function raises BadRecordError if sentencex fails on the text.
    """
    rules = language_of(language)
    quotes, new_line, ends = _characters(rules.quotes), _new_line(rules.marks), _boundaries(rules.splitter)

    def uncut_spans(text: str) -> Iterator[tuple[int, int]]:
        for first, last in ends(text):
            for start, end in _lines(text, first, last, new_line):
                if len(rules.units.findall(text, start, end)) <= _USUAL_SENTENCE:
                    yield start, end
                    continue
                unquoted = quotes.sub(" ", text[start:end])
                for a, b in ends(unquoted):
                    if not cuts:
                        yield start + a, start + b
                        continue
                    cut_spans = list(_cut(text, start + a, start + b, rules))
                    if len(cut_spans) > 1:
                        on_cut()
                    yield from cut_spans

    def spans(text: str) -> list[tuple[int, int]]:
        return [span for start, end in uncut_spans(text) if (span := stripped(text, start, end))]

    return spans


def _boundaries(language: str) -> Callable[[str], Iterator[tuple[int, int]]]:
    """Return a function that maps a text to the spans between sentence ends, as sentencex finds them.

    sentencex takes quadratic time, so it reads a long text in windows. Sentence ends in the last quarter of
    a window are ignored; the next window reads that quarter again with the text after it. sentencex fails on
    non-ASCII white space between a capital letter and a full stop, so it reads spaces instead.
    """
    from sentencex import get_sentence_boundaries

    def ends_in(text: str) -> list[int]:
        try:
            return [boundary["end_index"] for boundary in get_sentence_boundaries(language, text)]
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # a Rust panic is no `Exception`
                raise
            raise BadRecordError(
                "text that cannot be split",
                f"sentencex fails: {error}",
                remedy=remedy(
                    "correct the text, or index whole passages, without {} and {}",
                    Option("unit"),
                    Option("chunk"),
                ),
            ) from error

    def ends(text: str) -> Iterator[tuple[int, int]]:
        text = _NON_ASCII_SPACE.sub(" ", text)
        start = window_start = 0
        while window_start + _WINDOW < len(text):
            sentence_ends = [
                window_start + end
                for end in ends_in(text[window_start : window_start + _WINDOW])
                if end <= _WINDOW - _OVERLAP
            ]
            yield from pairwise([start, *sentence_ends])
            start = sentence_ends[-1] if sentence_ends else start
            window_start = sentence_ends[-1] if sentence_ends else window_start + _WINDOW - _OVERLAP
        sentence_ends = [window_start + end for end in ends_in(text[window_start:])]
        yield from pairwise(dict.fromkeys([start, *sentence_ends, len(text)]))

    return ends


@lru_cache
def _characters(characters: str) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(characters)}]")


@lru_cache
def _new_line(marks: str) -> re.Pattern[str]:
    """Return the pattern of a line start before a letter, a digit or a list mark."""
    return re.compile(rf"\n[ \t]*(?=[^\W_]|[{re.escape(marks)}])")


def _lines(text: str, start: int, end: int, new_line: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Split a span at each new line that does not look like a continuation of the line before."""
    for mark in new_line.finditer(text, start, end):
        if not _is_lower_case(text[mark.end()]):
            yield start, mark.start()
            start = mark.start()
    yield start, end


def _is_lower_case(letter: str) -> bool:
    """Return whether a letter is lower case and has a capital form; Georgian letters never do."""
    return letter.islower() and letter.title() != letter


def _cut(text: str, start: int, end: int, language: Language) -> Iterator[tuple[int, int]]:
    """Split a span into spans of at most `LONGEST_SENTENCE` words."""
    words = list(language.units.finditer(text, start, end))
    for first in range(LONGEST_SENTENCE, len(words), LONGEST_SENTENCE):
        yield start, words[first].start()
        start = words[first].start()
    yield start, end


def stripped(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return a span without white space at its ends; None if the span is blank."""
    piece = text[start:end]
    start, end = start + len(piece) - len(piece.lstrip()), end - (len(piece) - len(piece.rstrip()))
    return (start, end) if start < end else None


def _chunker(language: str, unit: str) -> Splitter:
    """Return a function that maps a text to its chunks' character spans; the last chunk may be shorter.

    A chunk of a `:sentence` unit ends with the last sentence that ends in its second half and beyond the
    overlap. The overlap then begins with a sentence. Without such a sentence, words decide.
    """
    chunk = CHUNK.fullmatch(unit)
    assert chunk is not None
    words, overlap = int(chunk[1]), int(chunk[2])
    rules = language_of(language)
    sentences = sentence_splitter(language, cuts=False) if chunk[3] else None

    def spans(text: str) -> list[tuple[int, int]]:
        word_spans = [m.span() for m in rules.units.finditer(text)]
        starts_of_sentences = {start for start, _ in sentences(text)} if sentences else set()
        sentence_starts = [n for n, (start, _) in enumerate(word_spans) if start in starts_of_sentences]
        pieces = _pieces(len(word_spans), words, overlap, sentence_starts)
        return [(word_spans[first][0], word_spans[last - 1][1]) for first, last in pieces] or [(0, len(text))]

    return spans


def _pieces(n: int, words: int, overlap: int, sentence_starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the chunks of a text of `n` words, as pairs of word numbers: the first, and after the last.

    :param sentence_starts: the numbers of the words that begin a sentence, ascending
    """
    start = 0
    while start + words < n:
        limit, earliest = start + words, start + max(overlap, words // 2)
        place = bisect_right(sentence_starts, limit) - 1
        end = sentence_starts[place] if place >= 0 and sentence_starts[place] > earliest else limit
        yield start, end
        place = bisect_left(sentence_starts, end - overlap)
        start = sentence_starts[place] if place < bisect_left(sentence_starts, end) else end - overlap
    if n:
        yield start, n


def _chunks(passage: Passage, spans: Sequence[tuple[int, int]]) -> Iterator[Passage]:
    next_starts = [*(start for start, _ in spans[1:]), 0]
    page_starts = _page_starts(passage)
    for number, ((start, end), next_start) in enumerate(zip(spans, next_starts, strict=True)):
        place: dict[str, Any] = {"document_id": passage.passage_id, "start": start, "end": end}
        space = passage.text[end:next_start]
        if space.strip(" "):
            place[SPACE_AFTER] = space
        unit_id, record = f"{passage.passage_id}#{number}", _with_place(passage, place, page_starts)
        yield Passage(unit_id, passage.text[start:end], passage.title, record=record, where=passage.where)


def _sentences(passage: Passage, spans: Sequence[tuple[int, int]]) -> Iterator[Passage]:
    page_starts = _page_starts(passage)
    for number, (start, end) in enumerate(spans):
        unit_id, text = f"{passage.passage_id}#{number}", passage.text[start:end]
        place = {"passage_id": passage.passage_id, "start": start, "end": end}
        record = _with_place(passage, place, page_starts)
        yield Passage(unit_id, text, passage.title, passage.text, start, end, record, passage.where)


def _page_starts(passage: Passage) -> list[int]:
    """Return the start of each page in the text of a PDF; an empty list for another passage."""
    starts = passage.record.get(PAGE_STARTS)
    if not isinstance(starts, list) or not all(type(start) is int for start in starts):
        return []
    return starts if starts[:1] == [0] and starts == sorted(starts) else []


def _with_place(passage: Passage, place: dict[str, Any], page_starts: list[int]) -> dict[str, Any]:
    """Return a passage's metadata with the unit's location, and of a PDF the pages of the unit.

    Location fields replace fields of the same name.
    """
    if page_starts:
        first = bisect_right(page_starts, place["start"]) - 1
        starts = page_starts[first : bisect_left(page_starts, place["end"])]
        place = {**place, FIRST_PAGE: first + 1, PAGE_STARTS: starts}
    metadata = {
        name: value
        for name, value in passage.record.items()
        if name not in {"id", "_id", "text", "contents", "title"}
    }
    for name in metadata.keys() & place.keys() - {PAGE_STARTS}:
        _warn_replaced(name)
    return {**metadata, **place}


@lru_cache
def _warn_replaced(name: str) -> None:
    logger.warning(
        "the field %s of the records is overwritten, because sentences and chunks have a field of this name;"
        " to keep the records' field, give the field another name",
        name,
    )
