"""Names of the units of retrieval: passages, the sentences in them, or chunks of long texts."""

from __future__ import annotations

import re

from sparta.base.errors import InputError
from sparta.base.remedies import Option, Remedy, remedy

SENTENCE = "sentence"
UNITS = ("passage", SENTENCE)
UNIT_ID = re.compile(r"#\d+$")
CHUNK = re.compile(r"chunk:(\d+):(\d+)")
CHUNK_EXAMPLE = remedy("{} {}", Option("chunk", 200), Option("overlap", 50))
UNIT = re.compile(r"passage|sentence|chunk:\d{1,9}:\d{1,9}")


def passage_of(unit_id: str) -> str:
    """Return the id of the passage that a sentence or chunk was cut from; another unit's own id."""
    return UNIT_ID.sub("", unit_id)


def is_cut(unit: str) -> bool:
    """Whether a unit is a part of a record, with the id p#n."""
    return unit != "passage"


def chunk_unit(words: int, overlap: int = 0) -> str:
    """The unit of chunks of so many words, of which each has the last `overlap` of the one before.

    :raises InputError: chunks of no words, or that overlap wholly.
    """
    if not 0 <= overlap < words:
        raise InputError(
            f"expected chunks of at least 1 word that overlap by fewer, found {words} and {overlap}",
            remedy=CHUNK_EXAMPLE,
        )
    return f"chunk:{words}:{overlap}"


def is_chunk(unit: str) -> bool:
    """Whether units are chunks, whose hits count for their document."""
    return unit.startswith("chunk:")


def unit_noun(unit: str) -> str:
    """What to call a unit in a message."""
    return unit.partition(":")[0]


def options_of_unit(unit: str) -> Remedy:
    """Return the options that choose a unit, as part of a remedy."""
    if is_chunk(unit):
        _, words, overlap = unit.split(":")
        return remedy("{} {}", Option("chunk", words), Option("overlap", overlap))
    return remedy("{}", Option("unit", unit))
