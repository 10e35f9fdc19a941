"""Entities by their titles: which passages of an index the names in a text stand for, without a model.

A title is compared by its words in lower case, without what it has in parentheses at its end; of a page that
is several passages, the first counts. A table of 64-bit hashes is what is kept: 12 bytes a title.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparta.base.errors import IndexStateError, StorageError
from sparta.base.files import atomic_path
from sparta.search.searcher import Searcher

LONGEST = 10
"""Words of a name at most, as the paper's spans."""
_AT_ONCE = 20_000
_WORD = re.compile(r"\w+")
_ADDED = re.compile(r"\s*\([^()]*\)\s*$")
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
        if path and path.is_file():
            with np.load(path) as stored:
                return TitleTable(stored["hashes"], stored["docids"])
        table = TitleTable(*_read(searcher))
        if not len(table.docids):
            raise IndexStateError(
                "expected passages with titles for a step that links by titles, found none",
                where=str(searcher.index.folder.path),
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

    def mentions(self, texts: Sequence[str]) -> list[list[Mention]]:
        """Return the names in each text, the longest where several begin at a word, none within another."""
        spans = [list(_spans(text)) for text in texts]
        wanted = np.array([hashed(words) for own in spans for _, _, words in own], np.uint64)
        first = np.searchsorted(self.hashes, wanted, "left").tolist()
        last = np.searchsorted(self.hashes, wanted, "right").tolist()
        places = iter(zip(first, last, strict=True))
        found: list[list[Mention]] = []
        for own in spans:
            mentions, taken = list[Mention](), 0
            for (start, end, _), (low, high) in zip(own, places, strict=False):
                if start >= taken and low < high:
                    mentions.append(Mention(start, end, self.docids[low:high].tolist()))
                    taken = end
            found.append(mentions)
        return found


def hashed(words: str) -> int:
    """64 bits of a title's words."""
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little")


def words_of(title: str) -> str:
    """What of a title is compared."""
    return " ".join(_WORD.findall(title.lower()))


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield what may be names, the longest first at each word: start, end, words.

    A name has a word that begins with a capital other than the first of a sentence, whose capital says
    nothing; in a text without any capital, as questions may be typed, a name has two words or more.
    """
    words = list(_WORD.finditer(text))
    typed_small = text.islower()
    proper = [
        m.group()[0].isupper() and not _BEGINS.search(text, max(0, m.start() - 4), m.start()) for m in words
    ]
    lower = [m.group().lower() for m in words]
    for i, first in enumerate(words):
        for n in range(min(LONGEST, len(words) - i), 0, -1):
            if (typed_small and n > 1) or any(proper[i : i + n]):
                yield first.start(), words[i + n - 1].end(), " ".join(lower[i : i + n])


def _read(searcher: Searcher) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """Read the titles of all passages."""
    rows: list[tuple[int, bool, int, int]] = []
    seen: set[str] = set()
    with searcher.index.reading() as view:
        live = view.lucene.live()
        order = np.argsort(view.lucene.positions(live), kind="stable")
        for some in itertools.batched(live[order].tolist(), _AT_ONCE):
            for docid, raw in zip(some, view.lucene.raws(some), strict=True):
                title = json.loads(raw).get("title")
                if not isinstance(title, str) or title in seen:
                    continue
                seen.add(title)
                bare = words_of(_ADDED.sub("", title))
                whole = words_of(title)
                for words in {bare, whole} - {""}:
                    if words.count(" ") < LONGEST:
                        rows.append((hashed(words), words != whole, len(seen), docid))
    rows.sort()
    hashes = np.array([row[0] for row in rows], np.uint64)
    return hashes, np.array([row[3] for row in rows], np.int32)


def _cached(searcher: Searcher) -> Path | None:
    """Where the titles of this commit of an index are kept, None without a cache folder."""
    with searcher.index.reading() as view:
        folder, version = view.lucene.path.resolve(), view.version
        facts = [str(folder), *map(str, version)]
    try:
        facts += [f"{p.name} {p.stat().st_mtime_ns}" for p in sorted(folder.glob("segments_*"))]
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except (OSError, RuntimeError):
        return None
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    return Path(cache) / "sparta" / "titles" / f"{key}.npz"
