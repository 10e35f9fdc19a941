"""Terms beyond wordpieces: words that a tokenizer splits, and pairs of neighboring words (decision 0043).

A wordpiece model writes a rare name as several common pieces. A lexical term is the name itself. Its weight
needs no network: it is BM25's saturation of the count, times an inverse document frequency from a fixed
table. So the weight of a passage does not depend on the other passages of an index.
"""

from __future__ import annotations

import io
import json
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from sparta.base.errors import ModelError
from sparta.base.files import atomic_write, short_hash
from sparta.base.records import Passage

TERMS_FILE = "lexical_terms.npz"
"""The file of a model folder or an index folder that defines the lexical terms.

The model's hash does not cover this file, so indexes without lexical terms still find their model.
"""
_FORMAT = 1
_LETTERS = r"\w[\w\u0300-\u036f]*+"  # with accents that are characters of their own
_PART = re.compile(_LETTERS)
_TOKEN = re.compile(rf"{_LETTERS}(?:[-.'&/+#@]{_LETTERS})*+[+#]*|[^\w\s]")
_POSSESSIVE = re.compile(r"(?<=\w)'s$")
_APOSTROPHES = str.maketrans("\u2019\u02bc", "''")
STOP_WORDS = (
    "a an and are as at be been but by did do does for from had has have he her his how i in into is it its"
    " many much no not of on or s she such t that the their then there these they this to was were what when"
    " where which who whom whose why will with would you your"
)
"""Lucene's English stop words, auxiliary verbs, pronouns and question words."""
_LONGEST = 64  # characters of a word; longer ones are noise such as hashes and DNA


class Occurrence(NamedTuple):
    """A lexical term in a text, with its character span."""

    term: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TermSettings:
    """The parameters of lexical terms.

    :param kinds: `words` are words that the tokenizer splits or changes; `pairs` are neighboring words
    :param word_gain: the weight of the rarest word, at full saturation
    :param pair_gain: the same for pairs
    :param mean_length: the mean length of passages in words
    :param stop_words: words that are in no pair, separated by spaces
    """

    kinds: tuple[str, ...] = ("words", "pairs")
    word_gain: float = 4.5
    pair_gain: float = 1.8
    k1: float = 0.9
    b: float = 0.4
    mean_length: float = 100.0
    stop_words: str = STOP_WORDS


@dataclass(frozen=True, slots=True, eq=False)
class IdfTable:
    """The inverse document frequency of terms in a fixed collection, from 0 to 1; an unseen term has 1.

    `hashes (n,) uint32` are the sorted CRC-32 of the terms, `codes (n,) uint8` are 255 times the idf.
    """

    hashes: npt.NDArray[np.uint32]
    codes: npt.NDArray[np.uint8]

    def idf(self, terms: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the idf of each term."""
        hashes = hashes_of(terms)
        places = np.searchsorted(self.hashes, hashes)
        known = places < len(self.hashes)
        known[known] = self.hashes[places[known]] == hashes[known]
        idf = np.ones(len(terms), np.float32)
        idf[known] = self.codes[places[known]] / np.float32(255)
        return idf

    @staticmethod
    def of(hashes: npt.NDArray[np.uint32], frequencies: npt.NDArray[np.int64], n_passages: int) -> IdfTable:
        """Return the table of the terms with these hashes and document frequencies."""
        idf = np.log1p((n_passages - frequencies + 0.5) / (frequencies + 0.5))
        codes = np.rint(255 * idf / np.log1p((n_passages + 0.5) / 0.5)).astype(np.uint8)
        order = np.lexsort((codes, hashes))  # of terms with equal hashes, the most frequent one counts
        hashes, first = np.unique(hashes[order], return_index=True)
        return IdfTable(hashes, codes[order][first])


class LexicalTerms:
    """The lexical terms of texts, and their weights.

    A term is a lower-case word (`kerensky`), a compound (`node.js`, `gpt-4`), or a pair of words with a
    space between them. No term equals a wordpiece.

    :param vocabulary: the wordpieces of the model
    """

    def __init__(self, settings: TermSettings, table: IdfTable, tokenizer: Tokenizer) -> None:
        self.settings, self.table = settings, table
        self._vocabulary = tokenizer.get_vocab()
        self._stop_words = frozenset(settings.stop_words.split())

    @property
    def name(self) -> str:
        """The name of this definition for manifests: its kinds, its version and a hash of its content."""
        parts = (self._settings(), self.table.hashes.tobytes(), self.table.codes.tobytes())
        return f"{'+'.join(self.settings.kinds)}-{_FORMAT}-{short_hash(parts)[:8]}"

    def passage_terms(self, passage: Passage) -> dict[str, float]:
        """Return the weight of each lexical term of a passage, in units of the model's weights.

        Title and text count; the context of a sentence does not.
        """
        text = text_of(passage)
        counts = Counter(occurrence.term for occurrence in self.occurrences(text))
        if not counts:
            return {}
        settings, terms = self.settings, list(counts)
        tf = np.fromiter(counts.values(), np.float32, len(counts))
        length = len(_PART.findall(text))
        norm = settings.k1 * (1 - settings.b + settings.b * length / settings.mean_length)
        gains = np.array([settings.pair_gain if " " in t else settings.word_gain for t in terms], np.float32)
        weights = gains * self.table.idf(terms) * (tf / (tf + np.float32(norm)))
        return dict(zip(terms, weights.tolist(), strict=True))

    def query_terms(self, text: str) -> dict[str, int]:
        """Return the lexical terms that a query looks up: the weight of each occurrence is 1."""
        return dict(Counter(occurrence.term for occurrence in self.occurrences(text)))

    def ignored_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the character spans of a query whose wordpieces do not count."""
        return []

    def occurrences(self, text: str) -> Iterator[Occurrence]:
        """Yield each lexical term of a text with its character span."""
        before: tuple[str, int, int] | None = None
        for word, start, end in self._words(text):
            if not word:
                before = None
                continue
            parts = _PART.findall(word)
            if len(parts) > 1 or word not in self._vocabulary:
                yield Occurrence(word, start, end)
            if len(parts) > 1:
                for part in _PART.finditer(text, start, end):
                    spelling = normal_word(part[0])
                    if spelling not in self._vocabulary:
                        yield Occurrence(spelling, *part.span())
            if word in self._stop_words:
                before = None
                continue
            if before:
                yield Occurrence(f"{before[0]} {word}", before[1], end)
            before = (word, start, end)

    def _words(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Yield the normal form of each word with its span; an empty word stands for a punctuation mark."""
        for match in _TOKEN.finditer(text.translate(_APOSTROPHES)):
            word = normal_word(match[0]) if match.end() - match.start() <= _LONGEST else ""
            word = word if word[:1].isalnum() else ""
            shorter = _POSSESSIVE.sub("", word)
            yield shorter, match.start(), match.end() - (len(word) - len(shorter))

    # ------------------------------------------------------------------ files

    def save(self, folder: Path) -> None:
        """Write the definition to `lexical_terms.npz`."""
        atomic_write(folder / TERMS_FILE, self._content())

    @staticmethod
    def load(folder: Path, tokenizer: Tokenizer) -> LexicalTerms | None:
        """Return the definition in a folder; None if the folder has no lexical terms.

        :raises ModelError: the file is damaged or has a newer format.
        """
        path = folder / TERMS_FILE
        if not path.is_file():
            return None
        try:
            with np.load(path) as stored:
                settings: dict[str, Any] = json.loads(str(stored["settings"]))
                version = settings.pop("format_version")
                hashes = np.cumsum(stored["gaps"], dtype=np.uint32)
                table = IdfTable(hashes, stored["codes"])
            if version != _FORMAT:
                raise ValueError(f"format version {version}, expected {_FORMAT}")
            settings["kinds"] = tuple(settings["kinds"])
            return LexicalTerms(TermSettings(**settings), table, tokenizer)
        except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile, zlib.error) as error:
            raise ModelError(
                f"the file of lexical terms cannot be read: {error}",
                where=str(path),
                remedy="restore the file from a copy of the model",
            ) from error

    def _settings(self) -> str:
        return json.dumps({**asdict(self.settings), "format_version": _FORMAT})

    def _content(self) -> bytes:
        stream = io.BytesIO()
        gaps = np.diff(self.table.hashes, prepend=np.uint32(0))
        np.savez_compressed(stream, settings=np.array(self._settings()), gaps=gaps, codes=self.table.codes)
        return stream.getvalue()


def text_of(passage: Passage) -> str:
    """Return the text whose terms a passage has: its title and its text."""
    return f"{passage.title} . {passage.text}" if passage.title else passage.text


def hashes_of(terms: Collection[str]) -> npt.NDArray[np.uint32]:
    """Return the hash of each term in a table: CRC-32 of its UTF-8."""
    return np.fromiter((zlib.crc32(term.encode()) for term in terms), np.uint32, len(terms))


def normal_word(word: str) -> str:
    """Return the form of a word in terms: lower case, composed characters (NFC)."""
    return word.lower() if word.isascii() else unicodedata.normalize("NFC", word.lower())
