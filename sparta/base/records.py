"""The records that flow between stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from sparta.base.filters import FilterLike

Advance = Callable[[int], object]
"""Told of progress: how many more passages, vectors or questions are done."""


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


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage that a search returned: a plain value, which needs no open index.

    `score` is what the retriever ranked by; `metadata` holds the other fields of the passage's record.
    """

    passage_id: str
    score: float
    title: str = ""
    text: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "id": self.passage_id,
            "score": self.score,
            "title": self.title,
            "text": self.text,
            "metadata": dict(self.metadata),
        }


class Retriever(Protocol):
    """Whatever ranks the passages of an index for a query: impacts, BM25, vectors, or a fusion of them."""

    @property
    def channel(self) -> str:
        """Its name, as in the tag of a run."""

    @property
    def language(self) -> str:
        """The code of the language that the texts are in."""

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> Sequence[Hit]:
        """The `k` best passages after the first `offset`, best first.

        Only those that the filter keeps and, with `collapse`, the best of each value of a metadata field.
        """

    def batch_search(
        self,
        queries: Sequence[str],
        query_ids: Sequence[str],
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> Mapping[str, Sequence[Hit]]:
        """The same for many queries, by query id."""

    def run(
        self,
        queries: Sequence[str],
        query_ids: Sequence[str],
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> Mapping[str, Sequence[ScoredPassage]]:
        """Passage ids and scores alone, by query id: the rankings of a TREC run."""

    def close(self) -> None:
        """Release the index."""


Ranking = Sequence[ScoredPassage]
"""Passages for one question, best first."""
Run = Mapping[str, Ranking]
"""Rankings by the id of their question."""
