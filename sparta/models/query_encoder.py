"""Encoding queries by tokenization and table lookup, without a network (SPARTA, eq. 2, 8, 9)."""

from __future__ import annotations

import hashlib
import itertools
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from tokenizers import Encoding, Tokenizer
from tokenizers.models import WordLevel

from sparta.base.checks import vocabulary_size
from sparta.base.errors import IndexStateError, InputError, ModelError
from sparta.base.files import atomic_write, is_file, storage_errors
from sparta.data.languages import Language, spans_without_space
from sparta.models.folders.tokenizer import shared_tokenizer
from sparta.models.lexical_terms import TERMS_FILE, LexicalTerms, encoded
from sparta.models.quantize import Quantizer, QueryQuantizer

_QUANTIZER = {"bits": range(1, 17), "max_weight": (int, float)}
MODEL_FIELDS: dict[str, Any] = {
    "name": str,
    "sha256": str,
    "tokenizer_sha256?": str,
    "weighted_queries": bool,
    "quantizer": _QUANTIZER,
    "query_quantizer?": _QUANTIZER,
    "query_network?": bool,
    "lexical_terms?": str,
}
"""The fields of a model's query side in a manifest."""
WEIGHTS_FILE = "query_weights.safetensors"
_PREFIX = re.compile(r"^(?:##|\u2581|\u0120)(?=.)")  # marks of WordPiece, SentencePiece, byte-level BPE
_MEANINGFUL = frozenset("#%&@/*")  # C#, 5 %, R&D, @name, TCP/IP: these marks are parts of names


_MOST_OF_SYMBOL = 2
"""How often a wordpiece without letter or digit counts in a query; twice, because of "C++"."""


def without_mark(token: str) -> str:
    """Return a vocabulary entry without the mark of a word's start or continuation: `##`, `▁` or `Ġ`."""
    return _PREFIX.sub("", token)


@lru_cache(1 << 17)  # enough for a whole vocabulary
def is_punctuation(token: str) -> bool:
    """Return whether a vocabulary entry is punctuation, which gets no impacts and is dropped from queries.

    Punctuation means Unicode's categories P*, also within wordpieces, except dashes and `# % & @ / *`,
    which join words. Symbols of mathematics, currencies and units (c++, $, 20°) carry meaning and are kept
    (decision 0020).
    """
    if token.isalnum():  # most entries
        return False
    piece = without_mark(token)
    return bool(piece) and all(
        unicodedata.category(c)[0] == "P" and unicodedata.category(c) != "Pd" and c not in _MEANINGFUL
        for c in piece
    )


def is_blank(query: str) -> bool:
    """Return whether a query has no letter, digit or symbol: no channel returns hits for it.

    Symbols are Unicode's categories S* and the marks `# % & @ / *`.
    """
    return not any(unicodedata.category(c)[0] in "LNS" or c in _MEANINGFUL for c in query)


@lru_cache(2)
def _vocabulary(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.id_to_token(i) or f"[{i}]" for i in range(vocabulary_size(tokenizer))]


@lru_cache(4)
def _tokenizer_hash(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


def _weights_hash(weights: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(weights, "<i4").tobytes()).hexdigest()


class QueryTokenizer:
    """Converts queries to bags of terms with integer weights.

    Without `weights`, each token counts 1 at every occurrence (SPARTA, eq. 6). With `weights (vocabulary,)
    int32`, each distinct token counts its weight once per query, as inference-free models define it. One
    unit is a weight of `step` (decision 0020). Queries are folded by the rules of `language`, like the
    indexed texts. With `lexical`, queries also look up its words and pairs
    (decision 0044).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        weights: np.ndarray | None = None,
        step: float = 1.0,
        language: Language | None = None,
        lexical: LexicalTerms | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.language = language or Language()
        self.lexical = lexical
        self.weights = weights
        self.step = step
        added = tokenizer.get_added_tokens_decoder()
        self._special = frozenset(i for i, token in added.items() if token.special)

    def open_network(self) -> None:
        """Open the network that encodes queries, if there is one."""

    def tokens(self, text: str) -> list[int]:
        """Return a text's wordpiece ids in order, without special tokens (unknown words) and punctuation.

        A text without a letter, digit or symbol has no wordpieces.
        """
        return [i for i, _, _ in self._counted(text)]

    def _counted(self, text: str) -> list[tuple[int, int, int]]:
        """Return the wordpieces that count in a query, `(id, start, end)`, in order."""
        folded = self.language.fold(text)
        encoding = self._encoded(folded)
        if is_blank(text):
            return []
        spans = spans_without_space(folded, encoding.offsets)
        pieces = [
            (i, start, end)
            for i, token, (start, end) in zip(encoding.ids, encoding.tokens, spans, strict=True)
            if i not in self._special and not is_punctuation(token)
        ]
        ignored = self.lexical.ignored_spans(folded) if self.lexical else []
        if not ignored:
            return pieces
        starts, ends = [start for start, _ in ignored], [end for _, end in ignored]  # both ascend

        def is_ignored(start: int, end: int) -> bool:
            place = bisect_right(starts, start)
            return place > 0 and end <= ends[place - 1]

        return [piece for piece in pieces if not is_ignored(piece[1], piece[2])]

    def _encoded(self, folded: str) -> Encoding:
        return self.lexical.encoded(folded) if self.lexical else encoded(self.tokenizer, folded)

    def counts(self, text: str) -> dict[int, int]:
        """Return the number of occurrences by term id, without weights."""
        return dict(Counter(self.tokens(text)))

    def bag(self, text: str) -> dict[int, int]:
        """Return the weight of each term by term id; terms of weight 0 are omitted.

        A symbol such as "*" or "=" counts twice at most: a row of them would outweigh all words.
        """
        counts = {i: n if n <= _MOST_OF_SYMBOL else self._most(i, n) for i, n in self.counts(text).items()}
        if self.weights is None:
            return counts
        weights = {i: int(self.weights[i]) for i in counts if i < len(self.weights)}
        return {i: weight for i, weight in weights.items() if weight}

    def _most(self, term: int, count: int) -> int:
        """Return the number of times that a term counts in a query."""
        token = self.tokenizer.id_to_token(term) or ""
        return count if any(map(str.isalnum, token)) else _MOST_OF_SYMBOL

    def bags(self, texts: Sequence[str]) -> list[dict[int, int]]:
        """Return the `bag` of each text."""
        return [self.bag(text) for text in texts]

    def terms(self, text: str) -> dict[str, int]:
        """Return the weight of each term: wordpieces, then lexical terms. Terms of weight 0 are omitted."""
        return self.all_terms([text])[0]

    def all_terms(self, texts: Sequence[str]) -> list[dict[str, int]]:
        """Return the `terms` of each text."""
        name = self.tokenizer.id_to_token
        # With lexical terms one text after the other, so that its wordpieces are computed once for both.
        bags = map(self.bag, texts) if self.lexical else self.bags(texts)
        return [
            {name(i) or "": weight for i, weight in bag.items()} | self._lexical_terms(text)
            for text, bag in zip(texts, bags, strict=True)
        ]

    def _lexical_terms(self, text: str) -> dict[str, int]:
        if self.lexical is None or is_blank(text):
            return {}
        unit = max(1, round(1 / self.step))
        terms = self.lexical.query_terms(self.language.fold(text))
        return {term: unit * count for term, count in terms.items()}

    def has_piece(self, term: str) -> bool:
        """Return whether a term is a wordpiece."""
        return self.tokenizer.token_to_id(term) is not None

    def words_of_terms(self, text: str) -> dict[str, str]:
        """Return the word of each term of a query, as the query spells it; the first one of several words.

        The wordpieces of a word, and the lexical term of the whole word, have the same word. The word of a
        pair is the pair.
        """
        folded = self.language.fold(text)
        occurrences = list(self.lexical.occurrences(folded)) if self.lexical else []
        terms = [(self.tokenizer.id_to_token(i) or "", start, end) for i, start, end in self._counted(text)]
        pairs = {term: " ".join(folded[start:end].split()) for term, start, end in occurrences if " " in term}
        terms += [occurrence for occurrence in occurrences if occurrence.term not in pairs]
        spans = [word.span() for word in self.language.words.finditer(folded)]
        spans += [(start, end) for term, start, end in occurrences if term not in pairs]
        starts, ends = _widest(spans)
        words: dict[str, str] = {}
        for term, start, end in terms:
            if term not in words:
                around = range(bisect_left(ends, end), bisect_right(starts, start))
                longest = max(around, key=lambda i: ends[i] - starts[i], default=None)
                words[term] = (
                    folded[start:end] if longest is None else folded[starts[longest] : ends[longest]]
                )
        return {**words, **pairs}

    def pieces(self, text: str) -> list[tuple[str, int, int]]:
        """Return all tokens of a text with their character spans: `(token, start, end)`."""
        folded = self.language.fold(text)
        encoding = self._encoded(folded)
        spans = spans_without_space(folded, encoding.offsets)
        return [(token, *span) for token, span in zip(encoding.tokens, spans, strict=True)]


def _widest(spans: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the starts and the ends of the spans that lie in no other span; both ascend."""
    starts: list[int] = []
    ends: list[int] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not ends or end > ends[-1]:
            starts.append(start)
            ends.append(end)
    return starts, ends


class WordTokenizer(QueryTokenizer):
    """Converts queries to bags of words, for indexes without a model: to mark the matches of BM25 hits.

    A term is a word in lower case. Of neighboring characters that are words by themselves, each pair is a
    term.
    """

    def __init__(self, language: Language) -> None:
        super().__init__(no_tokenizer(), language=language)

    def pieces(self, text: str) -> list[tuple[str, int, int]]:
        """Return the words of a text and its pairs of single-word characters, with character spans."""
        folded = self.language.fold(text)
        word_spans = [match.span() for match in self.language.words.finditer(folded) if match[0][0].isalnum()]
        is_single = re.compile(f"[{self.language.single_characters}]").match
        pairs = [
            (a, d)
            for (a, b), (c, d) in itertools.pairwise(word_spans)
            if b == c and is_single(folded, a) and is_single(folded, c)
        ]
        paired_spans = {span for a, d in pairs for span in ((a, a + 1), (d - 1, d))}
        spans = [span for span in word_spans if span not in paired_spans] + pairs
        return [(folded[a:b].lower(), a, b) for a, b in sorted(spans)]

    def all_terms(self, texts: Sequence[str]) -> list[dict[str, int]]:
        """Return the number of occurrences of each term, for each text."""
        return [dict(Counter(term for term, _, _ in self.pieces(text))) for text in texts]


def no_tokenizer() -> Tokenizer:
    """Return a tokenizer with an empty vocabulary."""
    return Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))


def _missing_file(path: Path) -> IndexStateError:
    return IndexStateError(
        "the file is missing",
        where=str(path),
        remedy="build the folder again, or restore it from a copy",
    )


@dataclass(frozen=True, slots=True)
class QuerySide:
    """The parts of a model that searching needs: tokenizer, quantizer, and query-term weights, if any.

    `weights (vocabulary,) int32` count steps of `query_quantizer`; without a query quantizer, a step is 1.
    With `has_network`, the model's network encodes queries, so its folder must still exist. The query side is
    saved with encoded shards and in the index. The manifests hold its identity. `lexical`
    defines the terms beyond wordpieces; None means that passages and queries have wordpieces only.
    """

    tokenizer: Tokenizer
    weights: np.ndarray | None
    model: str
    model_hash: str
    quantizer: Quantizer
    query_quantizer: QueryQuantizer | None = None
    has_network: bool = False
    lexical: LexicalTerms | None = None

    @staticmethod
    def none() -> QuerySide:
        """Return the query side of an index without a model (only BM25); its model name is empty."""
        return QuerySide(no_tokenizer(), None, "", "", Quantizer(1.0, 8))

    def identity(self) -> dict[str, Any]:
        """Return the identity for a manifest. Vectors with equal identities may share an index."""
        return {
            "name": self.model,
            "sha256": self.model_hash,
            "tokenizer_sha256": _tokenizer_hash(self.tokenizer),
            "quantizer": self.quantizer.as_dict(),
            "weighted_queries": self.weights is not None,
            **({"query_quantizer": self.query_quantizer.as_dict()} if self.query_quantizer else {}),
            **({"query_network": True} if self.has_network else {}),
            **({"lexical_terms": self.lexical.name} if self.lexical else {}),
        }

    def save(self, folder: Path) -> None:
        """Write tokenizer.json, and the query-term weights and lexical terms, if there are any."""
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / "tokenizer.json", self.tokenizer.to_str(pretty=True).encode())
        if self.weights is not None:
            # Earlier versions stored no hash.
            content = save({"weights": self.weights}, {"sha256": _weights_hash(self.weights)})
            atomic_write(folder / WEIGHTS_FILE, content)
        if self.lexical:
            self.lexical.save(folder)

    @staticmethod
    def load(folder: Path, identity: dict[str, Any]) -> QuerySide:
        """Load a query side that `save` wrote; `identity` comes from the manifest.

        :raises IndexStateError: a file is missing or damaged.
        :raises StorageError: a file cannot be read, whatever its content.
        """
        try:
            with storage_errors(folder, reading=True):
                return QuerySide._load(folder, identity)
        except (KeyError, TypeError, ValueError, SafetensorError, InputError, ModelError) as error:
            raise IndexStateError(
                f"the folder with tokenizer and query weights is damaged ({type(error).__name__}: {error})",
                where=str(folder),
                remedy="build the folder again, or restore it from a copy",
            ) from error

    @staticmethod
    def _load(folder: Path, identity: dict[str, Any]) -> QuerySide:
        weights = None
        weight_files = [WEIGHTS_FILE] if identity["weighted_queries"] else []
        term_files = [TERMS_FILE] if "lexical_terms" in identity else []
        for name in ["tokenizer.json", *weight_files, *term_files]:
            if not is_file(folder / name):
                raise _missing_file(folder / name)
        if identity["weighted_queries"]:
            with safe_open(folder / WEIGHTS_FILE, framework="numpy") as stored:
                weights, metadata = stored.get_tensor("weights"), stored.metadata() or {}
            if weights.dtype != np.int32:
                raise ValueError(f"query-term weights are {weights.dtype}, not int32")
            if metadata.get("sha256") not in (None, _weights_hash(weights)):
                raise ValueError("the hash of the query weights differs from the stored hash")
        tokenizer = shared_tokenizer(folder)
        if _tokenizer_hash(tokenizer) != identity.get("tokenizer_sha256"):
            raise ValueError("the tokenizer's hash differs from the manifest's")
        lexical = LexicalTerms.load(folder, tokenizer) if term_files else None
        if term_files and lexical is None:  # another process has removed the file just now
            raise _missing_file(folder / TERMS_FILE)
        if lexical and lexical.name != identity["lexical_terms"]:
            raise ValueError(f"{TERMS_FILE} is {lexical.name}, not {identity['lexical_terms']}")
        grid = identity.get("query_quantizer")
        return QuerySide(
            tokenizer,
            weights,
            identity["name"],
            identity["sha256"],
            Quantizer(**identity["quantizer"]),
            QueryQuantizer(**grid) if grid else None,
            bool(identity.get("query_network")),
            lexical,
        )

    def query_tokenizer(self, language: Language | None = None) -> QueryTokenizer:
        """Return the tokenizer that converts queries in a language to bags of terms."""
        if not self.model:
            return WordTokenizer(language or Language())
        grid = self.query_quantizer
        if self.has_network and grid:
            from sparta.models.network_queries import NetworkQueryTokenizer

            return NetworkQueryTokenizer(self.tokenizer, self.model, self.model_hash, grid, language)
        step = grid.step if grid else 1.0
        return QueryTokenizer(self.tokenizer, self.weights, step, language, self.lexical)

    def has_term(self, term: str) -> bool:
        """Return whether a query can have a term: a wordpiece, or a lexical term."""
        if self.tokenizer.token_to_id(term) is not None:
            return True
        return self.lexical is not None and self.lexical.is_term(term)

    def vocabulary(self) -> list[str]:
        """Return the wordpieces by term id; an id without a wordpiece is named `[id]`."""
        return list(_vocabulary(self.tokenizer))
