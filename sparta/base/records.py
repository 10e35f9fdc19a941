"""The records that flow between stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Passage:
    """One candidate answer (a, c) of SPARTA, §3.1: `text` is a, `context` (possibly empty) is c.

    When `context` is not empty, `context[start:end] == text`. `record` is what the corpus held, kept for the
    reader of the index; `where` is `path:line`, for messages.
    """

    passage_id: str
    text: str
    title: str = ""
    context: str = ""
    start: int = 0
    end: int = 0
    record: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""


class Skip(NamedTuple):
    """A record that was read and not used, and why."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Query:
    """A question, with the answers that are known to it, if any."""

    query_id: str
    text: str
    answers: tuple[str, ...] = ()


class ScoredPassage(NamedTuple):
    """One line of a run: a passage and the score it was given."""

    passage_id: str
    score: float


Ranking = Sequence[ScoredPassage]
"""Passages for one question, best first."""
Run = Mapping[str, Ranking]
"""Rankings by the id of their question."""
