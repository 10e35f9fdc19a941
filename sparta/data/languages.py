"""Languages: which texts can be analyzed, and how answers in them are compared."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from sparta.base.errors import InputError

_CODES = "ar bn da de en es fa fi fr ha hi hu id it ja ko nl no pl pt ru so sv sw te th tr uk yo zh"
# What CMRC 2018's evaluation leaves out of answers.
_CMRC = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")


@dataclass(frozen=True, slots=True)
class Language:
    """What is particular about a language when answers are compared; the default suits most.

    :param articles: words that answers do not count
    :param punctuation: whether a character is one that answers do not count
    :param in_order: F1 counts the longest stretch that two answers share, not the tokens they share
    """

    articles: frozenset[str] = frozenset()
    punctuation: Callable[[str], bool] = lambda c: unicodedata.category(c)[0] == "P"
    in_order: bool = False


def _with_articles(articles: str) -> Language:
    return Language(frozenset(articles.split()))


LANGUAGES: dict[str, Language] = {
    **dict.fromkeys(_CODES.split(), Language()),
    "de": _with_articles("der die das den dem des ein eine einen einem einer eines"),  # as MLQA has it
    "en": Language(frozenset(("a", "an", "the")), frozenset(string.punctuation).__contains__),  # SQuAD
    "es": _with_articles("el la los las un una unos unas"),
    "zh": Language(punctuation=_CMRC.__contains__, in_order=True),  # CMRC 2018
}
"""By code, those of the analyzers in sparta.lucene.Analyzers (Java)."""


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
            remedy="give its code, as in --language en",
        )
