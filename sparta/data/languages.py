"""Languages: how texts are analyzed, cut, counted and marked, and how answers in them are compared.

All that is particular about a language is its entry in `LANGUAGES`; another one is added by an entry alone.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from sparta.base.errors import InputError
from sparta.base.extras import optional_packages
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy

# What CMRC 2018's evaluation leaves out of answers.
_CMRC = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_HAN_AND_KANA = "\u3005\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_QUOTES = "\"'()[]{}<>«»“”„‘’‚‹›「」『』（）"
_THAI = "\u0e01-\u0e4e"
_HANGUL = "\uac00-\ud7af"


def _as_it_is(text: str) -> str:
    return text


@lru_cache(1)
def _opencc() -> Callable[[str], str]:
    with optional_packages():
        from opencc import OpenCC
    return OpenCC("t2s").convert


def simplified(text: str) -> str:
    """Chinese in simplified characters (OpenCC's t2s), each in its place: the text keeps its length.

    :raises MissingPackageError: opencc is not installed.
    """
    if text.isascii():
        return text
    convert = _opencc()
    try:
        whole = convert(text)
    except UnicodeEncodeError:
        return text  # half of a character: what writes or searches it says so
    if len(whole) == len(text):
        return whole
    return "".join(one if len(one := convert(c)) == 1 else c for c in text)


@dataclass(frozen=True, slots=True)
class Language:
    """What is particular about a language; the defaults suit most.

    :param articles: words that answers do not count
    :param punctuation: whether a character is one that answers do not count
    :param in_order: F1 counts the longest stretch that two answers share, not the tokens they share
    :param analyzer: what BM25 reads, by the name that sparta.lucene.Analyzers (Java) has for it: one of its
        own, or a class of Lucene's from its package on
    :param splitter: the language whose rules sentencex cuts sentences by
    :param quotes: characters that keep together what is between them
    :param marks: characters that begin an item of a list
    :param alone: characters that are words by themselves (a class of regular expressions)
    :param unspaced: more such characters where answers are looked for: of scripts whose words are longer, and
        have no space between them
    :param spaced: whether there are spaces between words; if not, they are what a tokenizer takes them for
    :param snippet: how many words or such characters a snippet shows
    :param fold: scripts of one language made one, each character in its place: what analyzers and encoders
        read of texts and questions, and what is compared of answers
    :param former: the analyzer of indexes whose manifest names none, where that was another; their texts are
        not folded
    :param model: the SPARTA model that ships for it, `dense` the bi-encoder, `reader` the reader,
        `path_reader` that of paths, `multi_task` the bi-encoder for many tasks, if any
    """

    articles: frozenset[str] = frozenset()
    punctuation: Callable[[str], bool] = lambda c: unicodedata.category(c)[0] == "P"
    in_order: bool = False
    analyzer: str = "standard.StandardAnalyzer"
    splitter: str = "en"
    quotes: str = _QUOTES
    marks: str = "-*•–—#>|"
    alone: str = _HAN_AND_KANA
    unspaced: str = ""
    spaced: bool = True
    snippet: int = 40
    fold: Callable[[str], str] = _as_it_is
    former: str | None = None
    model: str | None = None
    dense: str | None = None
    reader: str | None = None
    path_reader: str | None = None
    multi_task: str | None = None

    @property
    def units(self) -> re.Pattern[str]:
        """What lengths are counted in: words, and characters that are words by themselves or syllables."""
        return _units(self.alone + _HANGUL)

    @property
    def words(self) -> re.Pattern[str]:
        """What a snippet shows and marks: words, characters that are words by themselves, other marks."""
        return _words(self.alone)

    def length(self, text: str) -> int:
        """The length of a text in its own units."""
        return len(self.units.findall(text))


@lru_cache
def _units(alone: str) -> re.Pattern[str]:
    return re.compile(rf"[{alone}]|[^\s{alone}]+")


@lru_cache
def _words(alone: str) -> re.Pattern[str]:
    return re.compile(rf"[{alone}]|(?![{alone}])\w(?:(?![{alone}])[\w{_marks()}])*+|[^\w\s]")


_WITH_MARKS = (
    *((0x300, 0x1E00), (0x20D0, 0x2100), (0x2CEF, 0x2E00), (0x302A, 0x30A0)),
    *((0xA66F, 0xABEE), (0xFB1E, 0xFB1F), (0xFE00, 0xFE30)),
)
"""Where the first plane has marks: looking at all of it would take 7 ms of each command."""


@lru_cache(1)
def _marks() -> str:
    """The marks of the first plane that belong to the letter before them: vowels of Hindi, accents alone."""
    near = (c for first, end in _WITH_MARKS for c in map(chr, range(first, end)))
    return "".join(c for c in near if unicodedata.category(c)[0] == "M")


def _articles(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CJK = "cjk.CJKAnalyzer"
_WHITESPACE = "core.WhitespaceAnalyzer"
LANGUAGES: dict[str, Language] = {
    "ar": Language(analyzer="ar.ArabicAnalyzer", splitter="ar"),
    "bn": Language(analyzer="bn.BengaliAnalyzer", splitter="bn"),
    "da": Language(analyzer="da.DanishAnalyzer", splitter="da"),
    "de": Language(
        _articles("der die das den dem des ein eine einen einem einer eines"),  # as MLQA has it
        analyzer="de.GermanAnalyzer",
        splitter="de",
    ),
    "en": Language(
        _articles("a an the"),  # with the punctuation, SQuAD's
        frozenset(string.punctuation).__contains__,
        analyzer="english",
        model="sparta-bge-small-en",
        dense="taser-det-en",
        reader="reader-bge-small-en",
        path_reader="path-reader-bge-small-en",
        multi_task="multi-task-bge-small-en",
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
        punctuation=_CMRC.__contains__,  # with the order, CMRC 2018's
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
"""By code. The analyzers are those that Pyserini's searchers have for these languages, but of `zh`."""


DEFAULT_LANGUAGE = "en"


def folded(passage: Passage, language: Language) -> Passage:
    """A passage as encoders read it; a sentence still stands in its context."""
    text, title, context = map(language.fold, (passage.text, passage.title, passage.context))
    text = context[passage.start : passage.end] if context else text
    return replace(passage, text=text, title=title, context=context)


def language_of(code: str) -> Language:
    """Return a language.

    :raises InputError: it is none of `LANGUAGES`.
    """
    check_language(code)
    return LANGUAGES[code]


def check_language(language: str) -> None:
    """Refuse another language, before anything is encoded or written in it.

    :raises InputError: it is none of `LANGUAGES`.
    """
    if language not in LANGUAGES:
        raise InputError(
            f"expected the code of a language, one of {', '.join(LANGUAGES)}; found {language!r}",
            remedy=remedy("give its code, as in {}", Option("language", "en")),
        )
