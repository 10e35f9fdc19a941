"""Entities by their titles: which passages of an index the names in a text stand for, without a model.

A title is compared by its words in lower case, without what it has in parentheses at its end; of a page that
is several passages, the first counts. A table of 64-bit hashes is what is kept: 12 bytes per title.
"""

from __future__ import annotations

import hashlib
import itertools
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

from sparta.base.errors import IndexStateError, StorageError
from sparta.base.files import atomic_path
from sparta.data.tables import KIND, ROW
from sparta.lucene.packing import composed
from sparta.search.searcher import Searcher

LONGEST = 10
"""Words of a name at most, as the paper's spans."""
_FORM = "7"  # of the table: tables of another are not read
_AT_ONCE = 20_000
_BASE = 0x9E3779B97F4A7C15
_BEFORE = 4  # characters in which the end of a sentence is looked for
_WORD = re.compile(r"\w+")
_ADDED = re.compile(r"\([^()]*\)\s*$")
_MARK_BEFORE, _MARK_BEHIND = "[START_ENT]", "[END_ENT]"
_BEGINS = re.compile(r"(?:^|[.!?:;\n])[^\w]*$")


class Mention(NamedTuple):
    """A name in a text, `text[start:end]`, and the docids of the passages that it may stand for."""

    start: int
    end: int
    docids: list[int]


class TitleTable:
    """The titles of an index.

    :param hashes: `(n,) uint64`, ascending
    :param docids: `(n,) int32`; of equal hashes the whole title comes before one with parentheses, then the
        first in the corpus
    """

    def __init__(self, hashes: npt.NDArray[np.uint64], docids: npt.NDArray[np.int32]) -> None:
        self.hashes, self.docids = hashes, docids

    @staticmethod
    def of(searcher: Searcher) -> TitleTable:
        """Return the titles of an index, from the cache folder if they were read before.

        :raises IndexStateError: its passages have no titles.
        """
        path = _cached(searcher)
        if path and (kept := _kept(path)):
            return kept
        table = TitleTable(*_read(searcher))
        if not len(table.docids):
            raise IndexStateError(
                "expected passages with titles for a step that links by titles, found none",
                where=str(searcher.reader.folder.path),
                remedy='give the records "title" and index them anew, or leave the step out',
            )
        if path:
            table._keep(path)
        return table

    def _keep(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as temporary, temporary.open("wb") as stream:
                np.savez(stream, hashes=self.hashes, docids=self.docids)
        except (OSError, StorageError):  # a cache that cannot be written is none
            return

    def named(self, titles: object) -> list[tuple[str, list[int]]]:
        """Return each of some titles with its docids; nothing for what is no list of titles."""
        found = []
        for title in titles if isinstance(titles, list) else ():
            wanted = np.uint64(hashed(words_of(str(title))))
            first, last = (np.searchsorted(self.hashes, wanted, side) for side in ("left", "right"))
            if first < last:
                found.append((str(title), self.docids[first:last].tolist()))
        return found

    def mentions(self, texts: Sequence[str]) -> list[list[Mention]]:
        """Return the names in each text, which is `composed`, the longest where several begin at a word, none
        within another.

        Of a text with a name between [START_ENT] and [END_ENT], as KILT marks it, that name.
        """
        return [list(self._mentions(text)) for text in texts]

    def _mentions(self, text: str) -> Iterator[Mention]:
        begin = text.find(_MARK_BEFORE) + len(_MARK_BEFORE)
        end = text.find(_MARK_BEHIND, begin)
        marked = (begin, end) if begin >= len(_MARK_BEFORE) and end >= 0 else None
        words = list(_WORD.finditer(text, *(marked or ())))
        spans, rows = _spans(text, words, marked=bool(marked))
        first = np.searchsorted(self.hashes, spans, "left")
        last = np.searchsorted(self.hashes, spans, "right")
        taken = 0
        for place in np.flatnonzero(last > first).tolist():
            begin, n = rows[place]
            if begin >= taken:
                taken = begin + n
                docids = self.docids[first[place] : last[place]].tolist()
                yield Mention(words[begin].start(), words[taken - 1].end(), docids)


def words_of(title: str) -> list[str]:
    """What of a title is compared."""
    return [word.lower() for word in _WORD.findall(composed(title))]


@lru_cache(100_000)
def _hashed_word(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def hashed(words: Sequence[str]) -> int:
    """64 bits of some words: a polynomial of their own hashes."""
    value = 0
    for word in words:
        value = (value * _BASE + _hashed_word(word)) % 2**64
    return value


def _spans(
    text: str, words: Sequence[re.Match[str]], *, marked: bool
) -> tuple[npt.NDArray[np.uint64], list[tuple[int, int]]]:
    """What may be names, by the word that they begin with, the longest first: hashes; first word, length.

    A name has a word that begins with a capital other than the first of a sentence, whose capital says
    nothing; in a text without any capital, as questions may be typed, a name has two words or more. Words
    that are marked as a name need none of it.
    """
    if not words:
        return np.empty(0, np.uint64), []
    small = text == text.lower()
    capitals = [
        m.group()[0].isupper() and not _BEGINS.search(text, max(0, m.start() - _BEFORE), m.start())
        for m in words
    ]
    until = np.cumsum([0, *capitals])
    own = np.array([_hashed_word(m.group().lower()) for m in words], np.uint64)
    hashes = np.zeros((len(words), LONGEST), np.uint64)
    possible = np.zeros(hashes.shape, bool)
    for n in range(1, min(LONGEST, len(words)) + 1):
        begins = len(words) - n + 1
        before = hashes[:begins, LONGEST - n + 1] if n > 1 else np.uint64(0)
        hashes[:begins, LONGEST - n] = before * np.uint64(_BASE) + own[n - 1 :]
        named = (marked or n > 1) if small or marked else until[n:] > until[:begins]
        possible[:begins, LONGEST - n] = named
    return hashes[possible], [(i, LONGEST - column) for i, column in np.argwhere(possible).tolist()]


def _read(searcher: Searcher) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """Read the titles of all passages; 21 bytes per name in memory."""
    names, titles, added, docids = array("Q"), array("Q"), array("b"), array("i")
    last = None
    with searcher.reader.reading() as snapshot:
        live = snapshot.lucene.live()
        order = np.argsort(snapshot.lucene.positions(live), kind="stable")
        for some in itertools.batched(live[order].tolist(), _AT_ONCE):
            for docid, raw in zip(some, snapshot.lucene.raws(some), strict=True):
                record = json.loads(raw)
                title = record.get("title")
                if not isinstance(title, str) or title == last or record.get(KIND) == ROW:
                    continue
                last, whole, bare = title, words_of(title), words_of(_ADDED.sub("", title))
                for words in (whole, bare) if whole != bare else (whole,):
                    if 0 < len(words) <= LONGEST:
                        names.append(hashed(words))
                        titles.append(hashed([title]))
                        added.append(words != whole)
                        docids.append(docid)
    own = np.stack((np.array(names, np.uint64), np.array(titles, np.uint64)))
    _, first = np.unique(own, axis=1, return_index=True)  # of each page its first passage
    first.sort()
    hashes = own[0, first]
    best = np.lexsort((first, np.array(added, np.int8)[first], hashes))
    return hashes[best], np.array(docids, np.int32)[first][best]


def _kept(path: Path) -> TitleTable | None:
    """Return the titles of a file of the cache; None where there is none, or a damaged one."""
    try:
        with np.load(path) as stored:
            return TitleTable(stored["hashes"], stored["docids"])
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error):
        return None


def _cached(searcher: Searcher) -> Path | None:
    """Where the titles of this commit of an index are kept, None without a cache folder."""
    with searcher.reader.reading() as snapshot:
        header = snapshot.committed.segments
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # no home folder
        return None
    if header is None:
        return None
    key = hashlib.sha256(header + _FORM.encode()).hexdigest()[:16]
    return Path(cache) / "sparta" / "titles" / f"{key}.npz"
