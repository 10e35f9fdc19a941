"""Converts Wikipedia templates within sentences to text; other templates become empty."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

LONGEST_TEMPLATE = 1000
"""Maximum length in characters; a longer template becomes "", so that nested templates take linear time."""
_SHOWN = {
    **dict.fromkeys(("nowrap", "nobr", "abbr", "small", "em", "strong", "ill", "interlanguage link"), 0),
    **dict.fromkeys(("lang", "script"), 1),
    **dict.fromkeys(("transl", "transliteration"), -1),
}
"""Index of the parameter that a template shows, by the template's name."""
_SIGNS = {"ndash": "–", "mdash": "—", "snd": " – ", "spaced ndash": " – ", "nbsp": " ", "sp": " "}
_CIRCA = ("circa", "c.", "ca.")
_CONVERT = ("convert", "cvt")
_RANGES = {
    "-": "–",
    "–": "–",
    "to": " to ",
    "and": " and ",
    "or": " or ",
    "by": " by ",
    "x": " × ",
    "+/-": " ± ",
}
_NUMBER = re.compile(r"[-+−]?\d[\d.,/⁄+]*")
_LINK = re.compile(r"\[\[[^\[\]]*\]\]")
_NAMED = re.compile(r"\s*[\w \-]+=")


def template_text(template: str) -> str:
    """Return the text that a template `{{…}}` shows in a sentence; "" for an unknown template."""
    if len(template) > LONGEST_TEMPLATE:
        return ""
    content = _LINK.sub(lambda link: link[0].replace("|", "\0"), template[2:-2])
    name, *arguments = (parameter.replace("\0", "|").strip() for parameter in content.split("|"))
    name = name.replace("_", " ").lower()
    values = [value for value in arguments if not _NAMED.match(value)]
    if name in _SIGNS:
        return _SIGNS[name]
    if name in _CIRCA:
        return f"c. {values[0]}" if values else "c."
    if name in _CONVERT:
        return _measured(values)
    position = _SHOWN.get(name)
    if position is None or position >= len(values) or not values:
        return ""
    return values[position]


def _measured(values: Sequence[str]) -> str:
    """Return the unconverted measure of a template {{convert}}: its numbers with their units, in order."""
    measure = ""
    for value, following in itertools.zip_longest(values, values[1:], fillvalue=""):
        if _NUMBER.fullmatch(value):
            measure += value
        elif value in _RANGES and _NUMBER.fullmatch(following):
            measure += _RANGES[value]
        else:
            measure += f" {value}"
            if not _NUMBER.fullmatch(following):
                return measure.strip()
            measure += " "
    return measure.strip()
