"""Units of retrieval: passages as they are, or each sentence with its passage as context (SPARTA, §4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.data.corpus import CorpusReader
from sparta.data.parsing import BadRecordError

_SENTENCE_ID = re.compile(r"#\d+$")
UNITS = ("passage", "sentence")


def passage_of(unit_id: str) -> str:
    """Return the id of the passage that a sentence was cut from; another unit's own id."""
    return _SENTENCE_ID.sub("", unit_id)


def split_units(passages: Iterable[Passage], unit: str, language: str = "en") -> Iterator[Passage]:
    """The candidates that a corpus gives: with `passage` its records, with `sentence` the sentences in them.

    Sentence n of passage `p` is `p#n`, counted from 0; its context is the passage's text and its record names
    the passage. A record that already is an answer inside a context stays as it is.

    :raises BadRecordError: an id ends like a sentence's; a reader that skips invalid records skips it.
    """
    if unit not in UNITS:
        raise InputError(f"expected a unit of {', '.join(UNITS)}, found {unit!r}")
    if unit == "passage":
        yield from passages
        return
    spans = sentence_splitter(language)
    for passage in passages:
        if _SENTENCE_ID.search(passage.passage_id):
            bad = _like_a_sentence(passage)
            if not isinstance(passages, CorpusReader):
                raise bad
            passages.take_back(bad)
            continue
        if passage.context:
            yield passage
            continue
        for number, (start, end) in enumerate(spans(passage.text)):
            yield _sentence(passage, number, start, end)


def _like_a_sentence(passage: Passage) -> BadRecordError:
    return BadRecordError(
        "invalid id",
        f"expected one that does not end like a sentence's, found {passage.passage_id!r}",
        where=passage.where,
        remedy="give the record another id, or index passages",
    )


def sentence_splitter(language: str) -> Callable[[str], list[tuple[int, int]]]:
    """A function from a text to the character spans of its sentences, without surrounding white space."""
    from sentencex import get_sentence_boundaries

    def spans(text: str) -> list[tuple[int, int]]:
        found = []
        for boundary in get_sentence_boundaries(language, text):
            start, end = boundary["start_index"], boundary["end_index"]
            piece = text[start:end]
            start += len(piece) - len(piece.lstrip())
            end -= len(piece) - len(piece.rstrip())
            if start < end:
                found.append((start, end))
        return found

    return spans


def _sentence(passage: Passage, number: int, start: int, end: int) -> Passage:
    text = passage.text[start:end]
    extra = {k: v for k, v in passage.record.items() if k not in {"id", "_id", "text", "contents", "title"}}
    record = {**extra, "passage_id": passage.passage_id, "start": start, "end": end}
    return Passage(
        f"{passage.passage_id}#{number}", text, passage.title, passage.text, start, end, record, passage.where
    )
