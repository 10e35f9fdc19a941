"""The task of a question: what class it is of, and what an encoder is shown of it (Maillard et al., 2021)."""

from __future__ import annotations

import re

from sparta.base.errors import InputError

CLASSES = {
    "fact checking": ("fever", "hover"),
    "entity linking": ("linking", "aida", "aidayago2", "wned", "cweb"),
    "slot filling": ("trex", "zsre", "structured_zeroshot"),
    "question answering": ("nq", "hotpotqa", "triviaqa", "trivia", "eli5", "wq", "multihop", "tabletext"),
    "dialogue": ("wow",),
}
"""The five classes of KILT, and the names of their sets; the last three of QA and `hover` are not in KILT."""
_MARK = "[START_ENT]"


def class_of(name: str) -> str:
    """Return the class of a task by the name of its set or file, as `fever.train.jsonl` or `nq-dev-kilt`.

    :raises InputError: no set of this name is known.
    """
    first = re.split(r"[.\-]", name, maxsplit=1)[0]
    for task, sets in CLASSES.items():
        if first in sets or first == task:
            return task
    known = ", ".join(one for sets in CLASSES.values() for one in sets)
    raise InputError(
        f"expected a file named after a task ({known}), found {name}",
        remedy="name it so, as in fever.train.jsonl, or leave task markers and query experts out",
    )


def names_entity(text: str) -> bool:
    """Whether an entity is marked in a text, which is to be linked."""
    return _MARK in text


def marked(text: str, task: str) -> str:
    """Return a question with its task before it (§3.1: one marker for each class)."""
    return f"{task}: {text}"


def around_mention(text: str, words: int) -> str:
    """Return a text of at most so many words; a longer one is cut around its `[START_ENT]`, if it has one.

    A third of the words stand before the mark, as far as there are so many; without a mark, the text is as
    it comes. Words are what white space separates.
    """
    place = text.find(_MARK)
    if place < 0 or len(text.split()) <= words:
        return text
    before, after = text[:place].split(), text[place:].split()
    left = min(len(before), max(words // 3, words - len(after)))
    return " ".join([*before[len(before) - left :], *after[: words - left]])
