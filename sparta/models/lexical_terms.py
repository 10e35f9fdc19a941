"""Terms beyond wordpieces: words that a tokenizer splits, and pairs of neighboring words (decision 0043).

A wordpiece model writes a rare name as several common pieces. A lexical term is the name itself. Its weight
needs no second network, and does not depend on the other passages of an index.
"""

from __future__ import annotations

import json
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer
from tokenizers.normalizers import BertNormalizer

from sparta.base.checks import vocabulary_size
from sparta.base.errors import InputError, ModelError
from sparta.base.files import atomic_write, raise_if_unreadable, short_hash
from sparta.base.normal_form import normal_form
from sparta.base.records import Passage

TERMS_FILE = "lexical_terms.json"
"""The file of a model folder or an index folder that defines the lexical terms.

The model's hash does not cover this file, so indexes without lexical terms still find their model.
"""
_FORMAT = 1
_LONGEST = 64  # characters of a word; longer ones are noise such as hashes and DNA
_CONTINUES = "##"
_CACHED_WORDS = 1 << 16
_CACHED_TEXTS = 8
_PAIR = re.compile(r"pair [0-9a-f]{1,8}")
_SPACE = re.compile(r"\s")
_CLEANER = BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
"""Drops what the tokenizer drops. Its Unicode tables do not depend on the version of Python."""
_JOINER = re.compile("([\u200c\u200d])")
"""Invisible characters that shape letters, for example of Persian and Hindi. The tokenizer drops them."""
JOINED_COUNT = 2
"""How often a query counts a pair that is written as one word."""
STOP_WORDS = (
    "a an and are as at be been but by did do does for from had has have he her his how i in into is it its"
    " many much no not of on or s she such that the their then there these they this to was were what when"
    " where which who whom whose why will with would you your"
)
"""Lucene's English stop words, auxiliary verbs, pronouns, question words, and the end of `it's`."""


class Occurrence(NamedTuple):
    """A lexical term in a text, with its character span."""

    term: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TermSettings:
    """The parameters of lexical terms.

    :param word_gain: the weight that a word has beside the weights of its pieces, at full saturation
    :param pair_gain: the weight of a pair, at full saturation
    :param word_count: how often a query counts a word; a passage's weight is divided by this number
    :param pair_bits: the bits of a pair's hash, which is its term, so that an index has at most `2^bits` of
        them; 0 means that the term of a pair is the two words
    :param context_share: the share of the gains that a sentence has from the terms of its context
    :param mean_length: the mean length of passages in wordpieces
    :param window: the length in wordpieces from which on the norm of longer texts stays the same
    :param stop_words: words that are in no pair, separated by spaces
    """

    word_gain: float = 2.0
    pair_gain: float = 2.0
    word_count: int = 3
    pair_bits: int = 18
    context_share: float = 0.5
    k1: float = 0.9
    b: float = 0.4
    mean_length: float = 118.6
    window: int = 256
    stop_words: str = STOP_WORDS


class _Word(NamedTuple):
    """A word of a text, as the tokenizer normalizes it, with its span and its wordpieces.

    `first_end` is the end of the first piece. `spelling` has the accents that
    `form` lacks; it is empty if there are none.
    """

    form: str
    start: int
    end: int
    first_end: int
    pieces: Sequence[str]
    spelling: str

    @property
    def is_mark(self) -> bool:
        """Whether this is a mark. A mark between two words prevents a pair, unless there is no space."""
        return not self.form or (len(self.pieces) == 1 and not self.form[0].isalnum())


class LexicalTerms:
    """The lexical terms of texts, and their weights.

    - A *word* is a word that the tokenizer splits, without accents and without its plural's s (`kerensky`).
      A query looks up the word in place of its pieces. So the pieces count only in passages with the word.
    - A word with accents is a term in this spelling, too (`résumé`).
    - A *pair* is two words in a row, of which neither is a stop word. Stop words between them do not count,
      marks between them do, except within a word (`gpt-4`). The term of a pair is a hash, `pair 3f2a`.

    No term equals a wordpiece. A passage's weight of a word includes the network's weights of the word's
    pieces.
    """

    def __init__(self, settings: TermSettings, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        self._stop_words = frozenset(settings.stop_words.split())
        self._special = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        self._counted = lru_cache(_CACHED_TEXTS)(self._counts)  # neighboring sentences share a context
        self._pieces_of = lru_cache(_CACHED_WORDS)(self._ids)
        self._is_piece = lru_cache(_CACHED_WORDS)(lambda word: tokenizer.token_to_id(word) is not None)
        self._read = lru_cache(_CACHED_TEXTS)(lambda text: tuple(self._words(text)))  # a query is read twice
        self.encoded = lru_cache(_CACHED_TEXTS)(partial(encoded, tokenizer))

    def __reduce__(self) -> tuple[type[LexicalTerms], tuple[TermSettings, Tokenizer]]:
        """Workers of a cluster get the definition without its caches, which cannot be pickled."""
        return LexicalTerms, (self.settings, self.tokenizer)

    @property
    def name(self) -> str:
        """The name of this definition for manifests: its version and a hash of its content."""
        return f"words+pairs-{_FORMAT}-{short_hash([self.settings])[:8]}"

    @cached_property
    def unsearched(self) -> npt.NDArray[np.bool_]:
        """For each wordpiece, whether no query looks it up because it continues a word, `(vocabulary,)`."""
        unsearched = np.zeros(vocabulary_size(self.tokenizer), np.bool_)
        vocabulary = self.tokenizer.get_vocab()
        unsearched[[i for token, i in vocabulary.items() if token.startswith(_CONTINUES)]] = True
        return unsearched

    def passage_terms(
        self,
        passage: Passage,
        term_ids: npt.NDArray[np.integer[Any]] | None = None,
        weights: npt.NDArray[np.floating[Any]] | None = None,
    ) -> dict[str, float]:
        """Return the weight of each lexical term of a passage, in units of the model's weights.

        The title and the text count; for a sentence in a context, the context in place of the text.

        :param term_ids: the ascending ids of the passage's wordpieces, `(m,)`, and the network's `weights`
        """
        settings = self.settings
        counts, length = self._counted(passage.title, passage.context or passage.text)
        norm = settings.k1 * (
            1 - settings.b + settings.b * min(length, settings.window) / settings.mean_length
        )
        share = settings.context_share if passage.context else 1.0
        weights_of_terms: dict[str, float] = {}
        for term, tf in counts.items():
            saturated = share * tf / (tf + norm)
            if " " in term:
                weights_of_terms[term] = settings.pair_gain * saturated
                continue
            weight = settings.word_gain * saturated
            if term_ids is not None and weights is not None and len(term_ids):
                weight += self._network(term, term_ids, weights)
            weights_of_terms[term] = weight / settings.word_count
        return weights_of_terms

    def _counts(self, title: str, text: str) -> tuple[Counter[str], int]:
        """Return how often each term occurs in a title and a text, and the number of their wordpieces."""
        words = list(self._words(f"{title} . {text}" if title else text))
        counts = Counter(term for term, _, _ in self._occurrences(words))
        return counts, sum(len(word.pieces) for word in words)

    def query_terms(self, text: str) -> dict[str, int]:
        """Return the lexical terms that a query looks up, and how much each counts.

        A pair that is written as one word (`node.js`) counts `JOINED_COUNT` times.
        """
        counts: dict[str, int] = {}
        for term, start, end in self.occurrences(text):
            if " " not in term:
                count = self.settings.word_count
            else:
                count = 1 if _SPACE.search(text, start, end) else JOINED_COUNT
            counts[term] = counts.get(term, 0) + count
        return counts

    def ignored_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the character spans of a query whose wordpieces do not count: the split words.

        Of a wordpiece with a plural's s, only the s is ignored.
        """
        return [
            (word.first_end if word.pieces[0] == singular(word.form) else word.start, word.end)
            for word in self._read(text)
            if len(word.pieces) > 1
        ]

    def is_term(self, term: str) -> bool:
        """Return whether a text can have this lexical term."""
        return bool(self.settings.pair_bits and _PAIR.fullmatch(term)) or term in self.query_terms(term)

    def occurrences(self, text: str) -> Iterator[Occurrence]:
        """Yield each lexical term of a text with its character span."""
        return self._occurrences(self._read(text))

    def _occurrences(self, words: Sequence[_Word]) -> Iterator[Occurrence]:
        """Yield the lexical terms of a text's words, in order."""
        before: tuple[str, int] | None = None  # the last word that can be in a pair, and its start
        for i, word in enumerate(words):
            if word.is_mark:
                if not (
                    0 < i < len(words) - 1
                    and words[i - 1].end == word.start
                    and words[i + 1].start == word.end
                ):
                    before = None
                continue
            if word.form != word.pieces[0] and (term := self._term(word)):
                yield Occurrence(term, word.start, word.end)
            if word.spelling:
                yield Occurrence(word.spelling, word.start, word.end)
            if word.form in self._stop_words:
                continue
            form = singular(word.form)
            if before:
                yield Occurrence(self._pair(before[0], form), before[1], word.end)
            before = form, word.start

    def _pair(self, first: str, second: str) -> str:
        pair, bits = f"{first} {second}", self.settings.pair_bits
        return f"pair {zlib.crc32(pair.encode()) >> (32 - bits):x}" if bits else pair

    def _term(self, word: _Word) -> str:
        """Return the term of a split or unknown word; empty for a wordpiece, also with a plural's s."""
        if self._is_piece(word.form):
            return ""
        form = singular(word.form)
        if not self._is_piece(form):
            return form
        return "" if word.pieces[0] == form else word.form

    def _words(self, text: str) -> Iterator[_Word]:
        """Yield the words and marks of a text, as the tokenizer separates them."""
        encoding, is_ascii = self.encoded(text), text.isascii()
        tokens, offsets, numbers = encoding.tokens, encoding.offsets, encoding.word_ids
        numbers.append(-1)  # ends the last word
        i = 0
        while i < len(tokens):
            after = i + 1
            while numbers[after] == numbers[i]:
                after += 1
            pieces = tokens[i:after]
            start, end = offsets[i][0], offsets[after - 1][1]
            form = _joined(pieces) if len(pieces) > 1 else pieces[0]
            spelling = "" if is_ascii else _spelling(text, start, end)
            if form in self._special:
                form, spelling = spelling or text[start:end].lower(), ""
            if end - start > _LONGEST:
                form = spelling = ""
            if form in (spelling, _JOINER.sub("", spelling)):
                spelling = ""
            yield _Word(form, start, end, offsets[i][1], pieces, spelling)
            i = after

    def _ids(self, term: str) -> tuple[int, ...]:
        """Return the ids of a word's pieces; none for a spelling with accents."""
        encoding = encoded(self.tokenizer, term)
        if _joined(encoding.tokens) != term:
            return ()
        return tuple(encoding.ids)

    def _network(
        self, term: str, term_ids: npt.NDArray[np.integer[Any]], weights: npt.NDArray[np.floating[Any]]
    ) -> float:
        """Return the sum of the weights of a word's pieces in a passage."""
        ids = self._pieces_of(term)
        places = np.searchsorted(term_ids[:-1], ids)
        return float(weights[places][term_ids[places] == ids].sum())

    # ------------------------------------------------------------------ files

    def save(self, folder: Path) -> None:
        """Write the definition to `lexical_terms.json`."""
        content = {**asdict(self.settings), "format_version": _FORMAT}
        atomic_write(folder / TERMS_FILE, (json.dumps(content, indent=2) + "\n").encode())

    @staticmethod
    def load(folder: Path, tokenizer: Tokenizer) -> LexicalTerms | None:
        """Return the definition in a folder; None if the folder has no lexical terms.

        :raises ModelError: the file is damaged or has a newer format.
        """
        path = folder / TERMS_FILE
        if not path.is_file():
            return None
        try:
            settings = json.loads(path.read_text("utf-8"))
            version = settings.pop("format_version")
            if version != _FORMAT:
                raise ValueError(f"format version {version}, expected {_FORMAT}")
            return LexicalTerms(TermSettings(**settings), tokenizer)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise_if_unreadable(path, error)
            raise ModelError(
                f"the file of lexical terms cannot be read: {type(error).__name__}: {error}",
                where=str(path),
                remedy="restore the file from a copy of the model",
            ) from error


def encoded(tokenizer: Tokenizer, text: str) -> Encoding:
    """Return the wordpieces of a text, without special tokens around them.

    :raises InputError: the text is not valid Unicode.
    """
    try:
        return tokenizer.encode(text, add_special_tokens=False)
    except TypeError:
        raise InputError(
            f"the text is not valid Unicode: {ascii(text)[:80]}",
            remedy="repair the encoding of the input",
        ) from None


@lru_cache(_CACHED_WORDS)
def singular(word: str) -> str:
    """Return a word without its plural's s (Harman, 1991: How effective is suffixing?)."""
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    return word if word.endswith(("aes", "ees", "oes")) else word[:-1]


def _joined(pieces: Sequence[str]) -> str:
    return pieces[0] + "".join(piece.removeprefix(_CONTINUES) for piece in pieces[1:])


def _spelling(text: str, start: int, end: int) -> str:
    """Return a word with its accents and joiners, in lower case and composed (NFC).

    All other characters that the tokenizer drops are no part of a word: control characters, soft hyphens and
    other format characters, characters for private use, and the replacement character U+FFFD.
    """
    while end < len(text) and end - start <= _LONGEST and unicodedata.combining(text[end]):
        end += 1
    word = text[start:end]
    if not word.isprintable() or "\ufffd" in word:  # else the tokenizer drops nothing
        word = "".join(
            part if _JOINER.match(part) else _CLEANER.normalize_str(part) for part in _JOINER.split(word)
        )
    return word.lower() if word.isascii() else normal_form("NFC", word.lower())
