"""Languages whose texts can be analyzed."""

from __future__ import annotations

from sparta.base.errors import InputError

_CODES = "ar bn da de en es fa fi fr ha hi hu id it ja ko nl no pl pt ru so sv sw te th tr uk yo zh"
LANGUAGES = tuple(_CODES.split())
"""Their codes, those of the analyzers in sparta.lucene.Analyzers (Java)."""


def check_language(language: str) -> None:
    """Refuse another language, before anything is encoded or written in it.

    :raises InputError: it is none of `LANGUAGES`.
    """
    if language not in LANGUAGES:
        raise InputError(
            f"expected the code of a language, one of {', '.join(LANGUAGES)}; found {language!r}",
            remedy="give its code, as in --language en",
        )
