"""Language settings: analysis, sentence splitting, length units, snippets and answer comparison.

All rules of a language are in its entry of `LANGUAGES`. A new language needs only a new entry.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from sparta.base.errors import InputError
from sparta.base.extras import optional_packages
from sparta.base.records import Passage

# Punctuation that CMRC 2018's evaluation ignores in answers.
_CMRC = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_HAN_AND_KANA = "\u3005\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_QUOTES = "\"'()[]{}<>«»“”„‘’‚‹›「」『』（）"
_THAI = "\u0e01-\u0e4e"
_HANGUL = "\uac00-\ud7af"


def _unchanged(text: str) -> str:
    return text


@lru_cache(1)
def _opencc() -> Callable[[str], str]:
    with optional_packages():
        from opencc import OpenCC
    return OpenCC("t2s").convert


def simplified(text: str) -> str:
    """Convert Chinese text to simplified characters (OpenCC's t2s), without changing its length.

    :raises MissingPackageError: opencc is not installed.
    """
    if text.isascii():
        return text
    convert = _opencc()
    try:
        converted = convert(text)
    except UnicodeEncodeError:
        return text  # a lone surrogate: writing or searching the text raises the error
    if len(converted) == len(text):
        return converted
    return "".join(simple if len(simple := convert(character)) == 1 else character for character in text)


@dataclass(frozen=True, slots=True)
class Language:
    """The rules of a language; the defaults suit most languages.

    :param articles: words that answer comparison ignores
    :param punctuation: returns whether answer comparison ignores a character
    :param in_order: F1 counts the longest common stretch of two answers, not their common tokens
    :param analyzer: the analyzer for BM25, as sparta.lucene.Analyzers (Java) names it: one of sparta's
        analyzers, or a Lucene class with its package below org.apache.lucene.analysis
    :param splitter: the sentencex language for sentence splitting
    :param quotes: quotation marks and brackets, which keep the text between them in one sentence
    :param marks: characters that begin a list item
    :param single_characters: characters that are words by themselves, as a regular expression class
    :param unspaced: further single-token characters for answer search: scripts without spaces between words
    :param spaced: whether spaces separate words; if not, the tokenizer decides how spaces are read
    :param snippet: the length of a snippet, in words or single-word characters
    :param fold: maps variants of a script to one form, character by character, before texts and queries are
        analyzed or encoded and before answers are compared
    :param former: the analyzer of older indexes whose manifest names none, if it differs; their texts are
        not folded
    :param model: the default SPARTA model, if any
    :param dense: the default bi-encoder, if any
    :param reader: the default reader, if any
    :param path_reader: the default reader for paths of passages, if any
    :param multi_task: the default bi-encoder for many tasks, if any
    :param reranker: the default cross-encoder, if any
    """

    articles: frozenset[str] = frozenset()
    punctuation: Callable[[str], bool] = lambda c: unicodedata.category(c)[0] == "P"
    in_order: bool = False
    analyzer: str = "standard.StandardAnalyzer"
    splitter: str = "en"
    quotes: str = _QUOTES
    marks: str = "-*•–—#>|"
    single_characters: str = _HAN_AND_KANA
    unspaced: str = ""
    spaced: bool = True
    snippet: int = 40
    fold: Callable[[str], str] = _unchanged
    former: str | None = None
    model: str | None = None
    dense: str | None = None
    reader: str | None = None
    path_reader: str | None = None
    multi_task: str | None = None
    reranker: str | None = None

    @property
    def units(self) -> re.Pattern[str]:
        """The pattern of length units: words, single-word characters and Hangul syllables."""
        return _units(self.single_characters + _HANGUL)

    @property
    def words(self) -> re.Pattern[str]:
        """The pattern of the units in a snippet: words, single-word characters and other visible marks."""
        return _words(self.single_characters)

    @property
    def joined_words(self) -> re.Pattern[str]:
        """The pattern of `words`, except that soft hyphens and joiners may stand in a word.

        Models ignore these characters. Some analyzers of BM25 split words there, as in Persian.
        """
        return _words(self.single_characters, "\u00ad\u200c\u200d")

    def is_unspaced(self, word: str) -> bool:
        """Return whether a word has characters of a script without spaces between words."""
        return bool(self.unspaced and re.search(f"[{self.unspaced}]", word))

    def length(self, text: str) -> int:
        """Return the length of a text in the language's units."""
        return len(self.units.findall(text))


@lru_cache
def _units(single_characters: str) -> re.Pattern[str]:
    return re.compile(rf"[{single_characters}]|[^\s{single_characters}]+")


@lru_cache
def _words(single_characters: str, joiners: str = "") -> re.Pattern[str]:
    inner = rf"(?![{single_characters}])[\w{_marks()}{joiners}]"
    return re.compile(rf"[{single_characters}]|(?![{single_characters}])\w(?:{inner})*+|[^\w\s]")


_WITH_MARKS = (
    *((0x300, 0x1E00), (0x20D0, 0x2100), (0x2CEF, 0x2E00), (0x302A, 0x30A0)),
    *((0xA66F, 0xABEE), (0xFB1E, 0xFB1F), (0xFE00, 0xFE30)),
)
"""The ranges with marks in Unicode's first plane. Scanning the whole plane would cost 7 ms per command."""


@lru_cache(1)
def _marks() -> str:
    """Return the combining marks of Unicode's first plane, such as Hindi vowels and accents."""
    candidates = (c for first, end in _WITH_MARKS for c in map(chr, range(first, end)))
    return "".join(c for c in candidates if unicodedata.category(c)[0] == "M")


def _articles(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CJK = "cjk.CJKAnalyzer"
_WHITESPACE = "core.WhitespaceAnalyzer"
LANGUAGES: dict[str, Language] = {
    "ar": Language(analyzer="ar.ArabicAnalyzer", splitter="ar"),
    "bn": Language(analyzer="bn.BengaliAnalyzer", splitter="bn"),
    "da": Language(analyzer="da.DanishAnalyzer", splitter="da"),
    "de": Language(
        _articles("der die das den dem des ein eine einen einem einer eines"),  # as in MLQA
        analyzer="de.GermanAnalyzer",
        splitter="de",
    ),
    "en": Language(
        _articles("a an the"),  # as in SQuAD, also the punctuation
        frozenset(string.punctuation).__contains__,
        analyzer="english",
        model="sparta-small-en",
        dense="taser-det-en",
        reader="reader-bge-small-en",
        path_reader="path-reader-bge-small-en",
        multi_task="multi-task-bge-small-en",
        reranker="reranker-minilm-en",
    ),
    "es": Language(_articles("el la los las un una unos unas"), analyzer="es.SpanishAnalyzer", splitter="es"),
    "fa": Language(analyzer="fa.PersianAnalyzer", splitter="fa"),
    "fi": Language(analyzer="fi.FinnishAnalyzer", splitter="fi"),
    "fr": Language(analyzer="fr.FrenchAnalyzer", splitter="fr"),
    "ha": Language(analyzer=_WHITESPACE, splitter="ha"),
    "hi": Language(analyzer="hi.HindiAnalyzer", splitter="hi"),
    "hu": Language(analyzer="hu.HungarianAnalyzer", splitter="hu"),
    "id": Language(analyzer="id.IndonesianAnalyzer", splitter="id"),
    "it": Language(analyzer="it.ItalianAnalyzer", splitter="it"),
    "ja": Language(analyzer="ja.JapaneseAnalyzer", splitter="ja", spaced=False, snippet=80),
    "ko": Language(analyzer=_CJK, splitter="ko"),
    "nl": Language(analyzer="nl.DutchAnalyzer", splitter="nl"),
    "no": Language(analyzer="no.NorwegianAnalyzer", splitter="no"),
    "pl": Language(analyzer="morfologik.MorfologikAnalyzer", splitter="pl"),
    "pt": Language(analyzer="pt.PortugueseAnalyzer", splitter="pt"),
    "ru": Language(analyzer="ru.RussianAnalyzer", splitter="ru"),
    "so": Language(analyzer=_WHITESPACE, splitter="so"),
    "sv": Language(analyzer="sv.SwedishAnalyzer", splitter="sv"),
    "sw": Language(analyzer=_WHITESPACE, splitter="sw"),
    "te": Language(analyzer="te.TeluguAnalyzer", splitter="te"),
    "th": Language(analyzer="th.ThaiAnalyzer", splitter="th", unspaced=_THAI),
    "tr": Language(analyzer="tr.TurkishAnalyzer", splitter="tr"),
    "uk": Language(analyzer="uk.UkrainianMorfologikAnalyzer", splitter="uk"),
    "yo": Language(analyzer=_WHITESPACE, splitter="yo"),
    "zh": Language(
        punctuation=_CMRC.__contains__,  # as in CMRC 2018, also `in_order`
        in_order=True,
        analyzer="cjk-bigrams-and-unigrams",
        splitter="zh",
        quotes=_QUOTES + "《》〈〉【】〔〕",
        spaced=False,
        snippet=80,
        fold=simplified,
        former=_CJK,
        model="sparta-small-zh",
        reader="reader-small-zh",
    ),
}
"""The rules of each language, by code. Except for `zh`, the analyzers are the same as in Pyserini."""


DEFAULT_LANGUAGE = "en"


def folded(passage: Passage, language: Language) -> Passage:
    """Return a passage with all texts folded, as encoders read it.

    A sentence keeps its position in the context.
    """
    text, title, context = map(language.fold, (passage.text, passage.title, passage.context))
    text = context[passage.start : passage.end] if context else text
    return replace(passage, text=text, title=title, context=context)


def spans_without_space(text: str, offsets: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans of wordpieces without the white space at the start of each.

    Byte-level and SentencePiece tokenizers count the space before a word to its first wordpiece.
    """
    for start, end in offsets:
        while start < end and text[start].isspace():
            start += 1
        yield start, end


def language_of(code: str) -> Language:
    """Return the rules of a language by its code.

    :raises InputError: the code is not in `LANGUAGES`.
    """
    check_language(code)
    return LANGUAGES[code]


def is_folded_alike(first: str, second: str) -> bool:
    """Return whether two languages fold texts in the same way. An empty code, of older files, fits any."""
    return not (first and second) or language_of(first).fold == language_of(second).fold


def check_language(language: str) -> None:
    """Check a language code before any passage is encoded or written.

    :raises InputError: the code is not in `LANGUAGES`.
    """
    if language not in LANGUAGES:
        raise InputError(
            f"unknown language code {language!r}; known codes: {', '.join(LANGUAGES)}",
            remedy="choose one of these codes",
        )
