"""Unicode normal forms, in time proportional to the length of the text.

`unicodedata.normalize` sorts combining marks by insertion, in quadratic time. Therefore long runs of marks
are sorted first. A stable sort by combining class is Unicode's canonical order (D109), so the result is the
same. No character is removed or inserted.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

Form = Literal["NFC", "NFD", "NFKC"]
_LONG_RUN = re.compile(r"[^\w\s\x00-\u02ff]{31,}")
"""Runs that may hold more than 30 marks, the limit of Unicode's Stream-Safe Text Format.

Letters end a run.
"""


def normal_form(form: Form, text: str) -> str:
    """Return `text` in a Unicode normal form.

    This function is the only caller of `unicodedata.normalize`.
    """
    if text.isascii():
        return text
    return unicodedata.normalize(form, _LONG_RUN.sub(_in_order, text))


def _in_order(run: re.Match[str]) -> str:
    """Decompose a run of characters, and sort the marks after each base character into canonical order."""
    sort_keys, starters = [], 0
    decomposed = "".join(unicodedata.normalize("NFD", character) for character in run[0])
    for character in decomposed:
        combining_class = unicodedata.combining(character)
        starters += combining_class == 0
        sort_keys.append((starters, combining_class))
    return "".join(decomposed[i] for i in sorted(range(len(sort_keys)), key=sort_keys.__getitem__))
