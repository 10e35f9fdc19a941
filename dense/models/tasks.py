"""Tasks of questions: their classes and their markers (Maillard et al., 2021)."""

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
"""The five task classes of KILT, with the names of their data sets. `wq`, `multihop`, `tabletext` and `hover`
are not in KILT."""


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


def with_task(text: str, task: str) -> str:
    """Return a question with its task before it (§3.1: one marker per class)."""
    return f"{task}: {text}"
