"""Finds entity names in texts by the titles of an index's passages, without a model.

Titles are compared as lower-case words, without a parenthesis at the end. If a page has several passages, the
first passage counts. The table stores 64-bit hashes: 12 bytes per title.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
import zlib
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dense.models.mentions import mention_span
from sparta.base.errors import IndexStateError, StorageError
from sparta.base.files import atomic_path
from sparta.data.tables import KIND, ROW
from sparta.lucene.packing import composed
from sparta.search.searcher import Searcher

LONGEST = 10
"""The maximum number of words in a name, as for the spans in Chain-of-Skills."""
_FORMAT = "7"
"""The version of the cached table's format; part of the cache key, so that old tables are not read."""
_BASE = 0x9E3779B97F4A7C15
_LOOK_BACK = 4
"""The number of characters before a word that are searched for the end of a sentence."""
_WORD = re.compile(r"\w+")
_PARENTHESIS = re.compile(r"\([^()]*\)\s*$")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n])[^\w]*$")


class Mention(NamedTuple):
    """A name in a text, `text[start:end]`, and the docids of the passages with this title."""

    start: int
    end: int
    docids: list[int]


class TitleTable:
    """The titles of an index.

    :param hashes: `(n,) uint64`, ascending
    :param docids: `(n,) int32`. For equal hashes, a whole title comes before a title without its parenthesis;
        then corpus order decides
    """

    def __init__(self, hashes: npt.NDArray[np.uint64], docids: npt.NDArray[np.int32]) -> None:
        self.hashes, self.docids = hashes, docids

    @staticmethod
    def of(searcher: Searcher) -> TitleTable:
        """Return the titles of an index, from the cache folder if it has them.

        :raises IndexStateError: the index has no passages with titles.
        """
        path = _cache_path(searcher)
        if path and (cached_table := _load_cached(path)):
            return cached_table
        table = TitleTable(*_read_titles(searcher))
        if not len(table.docids):
            raise IndexStateError(
                "no passage has a title, so a step cannot link by titles",
                where=str(searcher.reader.folder.path),
                remedy='add "title" to the records and index the records again, or remove the step',
            )
        if path:
            table._save(path)
        return table

    def _save(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as temporary, temporary.open("wb") as stream:
                np.savez(stream, hashes=self.hashes, docids=self.docids)
        except (OSError, StorageError):  # the cache is optional
            return

    def named(self, titles: object) -> list[tuple[str, list[int]]]:
        """Return `(title, docids)` for each known title of a list; an empty list if there is no list."""
        titles_with_docids = []
        for title in titles if isinstance(titles, list) else ():
            title_hash = np.uint64(hashed(words_of(str(title))))
            start, end = (np.searchsorted(self.hashes, title_hash, side) for side in ("left", "right"))
            if start < end:
                titles_with_docids.append((str(title), self.docids[start:end].tolist()))
        return titles_with_docids

    def mentions(self, texts: Sequence[str]) -> list[list[Mention]]:
        """Return the names in each text; the texts must be `composed` (Unicode NFC).

        Names do not overlap: the longest name from the earliest word wins. In a text with a name between
        [START_ENT] and [END_ENT] (KILT's marks), only the marked name counts.
        """
        return [list(self._mentions(text)) for text in texts]

    def _mentions(self, text: str) -> Iterator[Mention]:
        """Yield the names in a text, in text order."""
        marked = mention_span(text)
        words = list(_WORD.finditer(text, *(marked or ())))
        spans, word_ranges = _spans(text, words, marked=bool(marked))
        first_row_of_span = np.searchsorted(self.hashes, spans, "left")
        end_row_of_span = np.searchsorted(self.hashes, spans, "right")
        end_word = 0
        for span_number in np.flatnonzero(end_row_of_span > first_row_of_span).tolist():
            begin_word, length = word_ranges[span_number]
            if begin_word >= end_word:
                end_word = begin_word + length
                docids = self.docids[first_row_of_span[span_number] : end_row_of_span[span_number]].tolist()
                yield Mention(words[begin_word].start(), words[end_word - 1].end(), docids)


def bare_title(title: str) -> str:
    """Return a title without the parenthesis at its end: `Mercury (planet)` is `Mercury `."""
    return _PARENTHESIS.sub("", title)


def words_of(title: str) -> list[str]:
    """Return the words of a title as they are compared: lower-case."""
    return [word.lower() for word in _WORD.findall(composed(title))]


@lru_cache(100_000)
def _hashed_word(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def hashed(words: Sequence[str]) -> int:
    """Return a 64-bit hash of words: a polynomial of the words' hashes."""
    value = 0
    for word in words:
        value = (value * _BASE + _hashed_word(word)) % 2**64
    return value


def _spans(
    text: str, words: Sequence[re.Match[str]], *, marked: bool
) -> tuple[npt.NDArray[np.uint64], list[tuple[int, int]]]:
    """Return the word spans that may be names: their hashes, and `(first word, length)` pairs.

    Spans are ordered by first word, longest first. A name contains a capitalized word that does not start a
    sentence: the first word of every sentence has a capital. In a text without capitals, such as a typed
    question, a name has at least two words. Marked words need neither capitals nor a minimum length.

    :param marked: whether the words stand between KILT's marks
    """
    if not words:
        return np.empty(0, np.uint64), []
    is_lower_case = text == text.lower()
    capitals = [
        match.group()[0].isupper()
        and not _SENTENCE_START.search(text, max(0, match.start() - _LOOK_BACK), match.start())
        for match in words
    ]
    capital_counts = np.cumsum([0, *capitals])
    word_hashes = np.array([_hashed_word(match.group().lower()) for match in words], np.uint64)
    hashes = np.zeros((len(words), LONGEST), np.uint64)
    may_be_name = np.zeros(hashes.shape, bool)
    for length in range(1, min(LONGEST, len(words)) + 1):
        start_count = len(words) - length + 1
        prefix_hashes = hashes[:start_count, LONGEST - length + 1] if length > 1 else np.uint64(0)
        hashes[:start_count, LONGEST - length] = prefix_hashes * np.uint64(_BASE) + word_hashes[length - 1 :]
        is_name = (
            (marked or length > 1)
            if is_lower_case or marked
            else capital_counts[length:] > capital_counts[:start_count]
        )
        may_be_name[:start_count, LONGEST - length] = is_name
    return hashes[may_be_name], [
        (first_word, LONGEST - column) for first_word, column in np.argwhere(may_be_name).tolist()
    ]


def _read_titles(searcher: Searcher) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """Read the titles of all passages; needs 21 bytes of memory per name."""
    name_hashes, title_hashes, is_shortened, docids = array("Q"), array("Q"), array("b"), array("i")
    previous_title = None
    with searcher.reader.snapshot() as snapshot:
        in_order = snapshot.lucene.in_corpus_order().tolist()
        for docid, record in zip(in_order, map(json.loads, snapshot.lucene.records(in_order)), strict=True):
            title = record.get("title")
            if not isinstance(title, str) or title == previous_title or record.get(KIND) == ROW:
                continue
            previous_title = title
            title_words, bare_words = words_of(title), words_of(bare_title(title))
            for words in (title_words, bare_words) if title_words != bare_words else (title_words,):
                if 0 < len(words) <= LONGEST:
                    name_hashes.append(hashed(words))
                    title_hashes.append(hashed([title]))
                    is_shortened.append(words != title_words)
                    docids.append(docid)
    hash_pairs = np.stack((np.array(name_hashes, np.uint64), np.array(title_hashes, np.uint64)))
    _, first_rows = np.unique(hash_pairs, axis=1, return_index=True)  # the first passage of each page
    first_rows.sort()
    hashes = hash_pairs[0, first_rows]
    order_by_hash = np.lexsort((first_rows, np.array(is_shortened, np.int8)[first_rows], hashes))
    return hashes[order_by_hash], np.array(docids, np.int32)[first_rows][order_by_hash]


def _load_cached(path: Path) -> TitleTable | None:
    """Return the titles from a cache file; None if the file does not exist or is damaged."""
    try:
        with np.load(path) as stored:
            return TitleTable(stored["hashes"], stored["docids"])
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error):
        return None


def _cache_path(searcher: Searcher) -> Path | None:
    """Return the cache file for an index's current commit; None without a cache folder."""
    with searcher.reader.snapshot() as snapshot:
        header = snapshot.committed.segments
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # no home folder
        return None
    if header is None:
        return None
    key = hashlib.sha256(header + _FORMAT.encode()).hexdigest()[:16]
    return Path(cache) / "sparta" / "titles" / f"{key}.npz"
