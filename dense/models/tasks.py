"""The task of a question: what class it is of, and what an encoder is shown of it (Maillard et al., 2021)."""

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
"""The five classes of KILT, and the names of their sets; the last three of QA and `hover` are not in KILT."""
_MARK, _END = "[START_ENT]", "[END_ENT]"


def class_of(name: str) -> str:
    """Return the class of a task by the name of its set or file, as `fever.train.jsonl` or `nq-dev-kilt`.

    :raises InputError: no set of this name is known.
    """
    first = _set_of(name)
    for task, sets in CLASSES.items():
        if first in sets or first == task:
            return task
    known = ", ".join(one for sets in CLASSES.values() for one in sets)
    raise InputError(
        f"expected a file named after a task ({known}), found {name}",
        remedy="name it so, as in fever.train.jsonl, or leave task markers and query experts out",
    )


def checks_facts(name: str) -> bool:
    """Whether a set or file is one of claims to check, by its name."""
    return _set_of(name) in CLASSES["fact checking"]


def _set_of(name: str) -> str:
    """The set that a file is of: what its name begins with."""
    return re.split(r"[.\-]", name, maxsplit=1)[0]


def names_entity(text: str) -> bool:
    """Whether an entity is marked in a text, which is to be linked."""
    return _MARK in text


def marked(text: str, task: str) -> str:
    """Return a question with its task before it (§3.1: one marker for each class)."""
    return f"{task}: {text}"


def around_mention(text: str, tokenizer: Tokenizer, room: int) -> str:
    """Return a text of at most `room` wordpieces: of a longer one, a part with what `[START_ENT]` marks.

    Before the mark stand a third of them, more where less comes after it, less where the mention is long. The
    part begins and ends between words.
    """
    place = text.find(_MARK)
    if place < 0:
        return text
    read = tokenizer.encode(text, add_special_tokens=False)
    if len(read.ids) <= room:
        return text
    end = text.find(_END, place)
    end = end + len(_END) if end >= 0 else place + len(_MARK)
    first = next(i for i, (_, behind) in enumerate(read.offsets) if behind > place)
    last = next((i for i, (start, _) in enumerate(read.offsets) if start >= end), len(read.ids))
    left = min(first, max(room // 3, room - (len(read.ids) - first)), max(0, room - (last - first)))
    begin = first - left
    while begin < first and begin and read.word_ids[begin] == read.word_ids[begin - 1]:
        begin += 1
    stop = min(len(read.ids), begin + room)
    while stop > last and stop < len(read.ids) and read.word_ids[stop] == read.word_ids[stop - 1]:
        stop -= 1
    return text[read.offsets[begin][0] : read.offsets[stop - 1][1]]
