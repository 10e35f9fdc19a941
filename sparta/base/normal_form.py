"""Unicode's normal forms, in time that grows with the length of a text.

`unicodedata.normalize` sorts combining marks by insertion: its time grows with the square of their number.
A long run of marks is sorted before. A stable sort by combining class is the canonical order of the standard
(Unicode, D109), so the result is the same, and no character is cut or inserted.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

Form = Literal["NFC", "NFD", "NFKC"]
_LONG_RUN = re.compile(r"[^\w\s\x00-\u02ff]{31,}")
"""What may be more marks than the 30 that Unicode's Stream-Safe Text Format allows: marks are no letters."""


def normal_form(form: Form, text: str) -> str:
    """Return a text in a normal form; the only place that calls `unicodedata.normalize`."""
    if text.isascii():
        return text
    return unicodedata.normalize(form, _LONG_RUN.sub(_in_order, text))


def _in_order(run: re.Match[str]) -> str:
    """Decompose some characters, and put the marks behind each into their canonical order."""
    keys, starters = [], 0
    decomposed = "".join(unicodedata.normalize("NFD", character) for character in run[0])
    for character in decomposed:
        combining_class = unicodedata.combining(character)
        starters += combining_class == 0
        keys.append((starters, combining_class))
    return "".join(decomposed[i] for i in sorted(range(len(keys)), key=keys.__getitem__))
