"""Converts Wikipedia templates within sentences to text; other templates become empty."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

LONGEST_TEMPLATE = 1000
"""In characters: a longer template shows nothing, so the time of nested ones stays linear."""
_SHOWN = {
    **dict.fromkeys(("nowrap", "nobr", "abbr", "small", "em", "strong", "ill", "interlanguage link"), 0),
    **dict.fromkeys(("lang", "script"), 1),
    **dict.fromkeys(("transl", "transliteration"), -1),
}
"""The place of the shown parameter, by name."""
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
    inside = _LINK.sub(lambda link: link[0].replace("|", "\0"), template[2:-2])
    name, *arguments = (part.replace("\0", "|").strip() for part in inside.split("|"))
    name = name.replace("_", " ").lower()
    values = [value for value in arguments if not _NAMED.match(value)]
    if name in _SIGNS:
        return _SIGNS[name]
    if name in _CIRCA:
        return f"c. {values[0]}" if values else "c."
    if name in _CONVERT:
        return _measured(values)
    place = _SHOWN.get(name)
    if place is None or place >= len(values) or not values:
        return ""
    return values[place]


def _measured(values: Sequence[str]) -> str:
    """Return the measure that {{convert}} is given: its numbers with their units, in order."""
    shown = ""
    for value, following in itertools.zip_longest(values, values[1:], fillvalue=""):
        if _NUMBER.fullmatch(value):
            shown += value
        elif value in _RANGES and _NUMBER.fullmatch(following):
            shown += _RANGES[value]
        else:
            shown += f" {value}"
            if not _NUMBER.fullmatch(following):
                return shown.strip()
            shown += " "
    return shown.strip()
