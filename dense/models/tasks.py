"""Tasks of questions: their classes, their markers and the text around a mention (Maillard et al., 2021)."""

from __future__ import annotations

import re

from tokenizers import Tokenizer

from sparta.base.errors import InputError

CLASSES = {
    "fact checking": ("fever", "hover"),
    "entity linking": ("linking", "aida", "aidayago2", "wned", "cweb"),
    "slot filling": ("trex", "zsre", "structured_zeroshot"),
    "question answering": ("nq", "hotpotqa", "triviaqa", "trivia", "eli5", "wq", "multihop", "tabletext"),
    "dialogue": ("wow",),
}
"""The five task classes of KILT, with the names of their data sets. `wq`, `multihop`, `tabletext` and `hover`
are not in KILT."""
_MARK, _END = "[START_ENT]", "[END_ENT]"


def class_of(name: str) -> str:
    """Return the task class of a data set or file name, such as `fever.train.jsonl` or `nq-dev-kilt`.

    :raises InputError: the name begins with no known data set.
    """
    first = _set_name(name)
    for task, sets in CLASSES.items():
        if first in sets or first == task:
            return task
    known = ", ".join(name for sets in CLASSES.values() for name in sets)
    raise InputError(
        f"expected a file named after a task ({known}), found {name}",
        remedy="rename the file, for example to fever.train.jsonl, or omit task markers and query experts",
    )


def checks_facts(name: str) -> bool:
    """Return whether a data set or file holds claims to check, by its name."""
    return _set_name(name) in CLASSES["fact checking"]


def _set_name(name: str) -> str:
    """Return the name of a file's data set: the part before the first dot or hyphen."""
    return re.split(r"[.\-]", name, maxsplit=1)[0]


def names_entity(text: str) -> bool:
    """Return whether a text has a marked entity, which is to be linked."""
    return _MARK in text


def marked(text: str, task: str) -> str:
    """Return a question with its task before it (§3.1: one marker per class)."""
    return f"{task}: {text}"


def around_mention(text: str, tokenizer: Tokenizer, room: int) -> str:
    """Cut a text to at most `room` wordpieces around the mention that `[START_ENT]` marks, between words.

    A third of the wordpieces come before the mark: more if less text follows, fewer if the mention is long. A
    text without a mark is returned unchanged.
    """
    place = text.find(_MARK)
    if place < 0:
        return text
    encoded = tokenizer.encode(text, add_special_tokens=False)
    if len(encoded.ids) <= room:
        return text
    end = text.find(_END, place)
    end = end + len(_END) if end >= 0 else place + len(_MARK)
    first = next(i for i, (_, token_end) in enumerate(encoded.offsets) if token_end > place)
    last = next((i for i, (start, _) in enumerate(encoded.offsets) if start >= end), len(encoded.ids))
    n_before = min(first, max(room // 3, room - (len(encoded.ids) - first)), max(0, room - (last - first)))
    begin = first - n_before
    while begin < first and begin and encoded.word_ids[begin] == encoded.word_ids[begin - 1]:
        begin += 1
    stop = min(len(encoded.ids), begin + room)
    while stop > last and stop < len(encoded.ids) and encoded.word_ids[stop] == encoded.word_ids[stop - 1]:
        stop -= 1
    return text[encoded.offsets[begin][0] : encoded.offsets[stop - 1][1]]
