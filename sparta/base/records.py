"""The records that flow between stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, overload

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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ranking(Sequence[ScoredPassage]):
    """The passages of one query, best first, in columns; read as a sequence, they are `ScoredPassage`s.

    `docids` are Lucene's numbers of the passages, of the snapshot that was searched; a ranking that was not
    searched may have none. Rankings of the same passages with the same scores are equal.
    """

    passage_ids: Sequence[str] = ()
    docids: Sequence[int] = ()
    scores: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.passage_ids)

    @overload
    def __getitem__(self, place: int) -> ScoredPassage: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | slice) -> ScoredPassage | Self:
        if isinstance(place, slice):
            return replace(
                self,
                passage_ids=self.passage_ids[place],
                docids=self.docids[place],
                scores=self.scores[place],
            )
        return ScoredPassage(self.passage_ids[place], self.scores[place])

    def __iter__(self) -> Iterator[ScoredPassage]:
        return map(ScoredPassage, self.passage_ids, self.scores)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranking({list(self)!r})"

    def at(self, places: Sequence[int]) -> Self:
        """Return the passages at some places, counted from 0."""
        ids, docids, scores = self.passage_ids, self.docids, self.scores
        return replace(
            self,
            passage_ids=[ids[i] for i in places],
            docids=[docids[i] for i in places],
            scores=[scores[i] for i in places],
        )


class ChannelPlace(NamedTuple):
    """What one channel gave a passage of a fused ranking: rank there, from 1, score there, what that added.

    Rank and score are None where the passage is not among the channel's candidates. The contributions of all
    channels, normalized and weighted as the fusion does it, sum to the fused score.
    """

    rank: int | None
    score: float | None
    contribution: float


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage that a search returned: a plain value, which needs no open index.

    `score` is what the retriever ranked by; `metadata` holds the other fields of the passage's record. Of a
    fused ranking, `channels` has the passage's place in each channel.
    """

    passage_id: str
    score: float
    title: str = ""
    text: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    channels: Mapping[str, ChannelPlace] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the hit for JSON; `channels` only of a fused ranking."""
        hit = {
            "id": self.passage_id,
            "score": self.score,
            "title": self.title,
            "text": self.text,
            "metadata": dict(self.metadata),
        }
        if self.channels:
            hit["channels"] = {name: place._asdict() for name, place in self.channels.items()}
        return hit


Run = Mapping[str, Sequence[ScoredPassage]]
"""Rankings by the id of their query."""
