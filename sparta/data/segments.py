"""What CMRC 2018's evaluation counts in an answer: Chinese characters, and words between them."""

from __future__ import annotations

import re
from itertools import chain

_HAN = re.compile("([\u4e00-\u9fa5])")
_QUOTE = re.compile(r"\"|''")
_OPENING_QUOTES = re.compile(r"(?:^\"|(?<=[ (\[{<«“‘„])(?:\"|''))(?:\"|'')*")
_FULL_STOP = re.compile(r"(?<=[^.])\.(?=[\])}>\"'»”’\s]*$)")
_SINGLE_QUOTE = re.compile(r"(?<!\w)'(?!(?:re|ve|ll|[mtsdn])\b)(?=\w)|(?<=[^'\s])'(?!\S)")
_SHORTENED = re.compile(r"(?<=[^'\s])(?:'(?:ll|re|ve|[msd])|n't)(?!\S)")
_CONTRACTED = re.compile(
    r"\b(can(?=not\b)|d(?='ye\b)|gim(?=me\b)|gon(?=na\b)|got(?=ta\b)|lem(?=me\b)|wan(?=na\s))"
    r"(not|'ye|me|na|ta)"
)
_MARK = re.compile(r"\.{2,}|``|''|[;@#$%&?!*()\[\]{}<>«»“”‘’„\u2012-\u2015]|[,:](?!\d)")


def segments(text: str) -> list[str]:
    """Return the Chinese characters of a text, and the words and marks between them, in order.

    Words are those of NLTK's tokenizer, which the evaluation uses: `364.6` and `6,300` are one word each.
    The text is in lower case, without the punctuation that the evaluation leaves out.
    """
    parts = _HAN.split(text)
    between = (part if at % 2 else _words(part) for at, part in enumerate(parts))
    return list(chain.from_iterable(between))


def _words(text: str) -> list[str]:
    """The words of a text without Chinese characters; marks are words, opening and closing quotes two."""
    text = _OPENING_QUOTES.sub(lambda quotes: " `` " * len(_QUOTE.findall(quotes[0])), text)
    text = _QUOTE.sub(" '' ", text)
    for pattern in (_FULL_STOP, _MARK, _SINGLE_QUOTE, _SHORTENED):
        text = pattern.sub(r" \g<0> ", text)
    return _CONTRACTED.sub(r" \1 \2 ", text).split()
