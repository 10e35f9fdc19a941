"""The data classes that the stages of a search exchange: passages, queries, rankings and hits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self, overload

from sparta.base.renames import RenamedKeys

Advance = Callable[[int], object]
"""A function that is called with the number of newly finished passages, vectors or questions."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage, the unit of retrieval: candidate answer (a, c) in the SPARTA paper (§3.1).

    `text` is the answer a; `context`, which may be empty, is its context c. If `context` is not empty,
    `context[start:end] == text`. `record` holds the fields of the corpus record, which the index stores.
    `where` is `path:line` or `path: row N`, for messages.
    """

    passage_id: str
    text: str
    title: str = ""
    context: str = ""
    start: int = 0
    end: int = 0
    record: Mapping[str, Any] = field(default_factory=dict, hash=False)
    where: str = ""

    @property
    def titled_text(self) -> str:
        """The title, if there is one, and the text, joined by a space."""
        return f"{self.title} {self.text}".strip()


class PassageRecord(RenamedKeys):
    """The record of a passage: `id`, `title`, `text`, and the metadata.

    The index stores the text as `contents`, where Pyserini's tools expect it.
    """

    new_keys: ClassVar[Mapping[str, str]] = {"contents": "text"}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Return the record of a passage as stored in the index."""
        return cls({cls.new_keys.get(name, name): value for name, value in stored.items()})


class Skip(NamedTuple):
    """A record that was read but not used, and the reason."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Query:
    """A query, with its known answers, if any."""

    query_id: str
    text: str
    answers: tuple[str, ...] = ()


class ScoredPassage(NamedTuple):
    """A passage id and its score: one line of a run."""

    passage_id: str
    score: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ranking(Sequence[ScoredPassage]):
    """The passages of one query, best first.

    The fields are columns; as a sequence, a ranking holds `ScoredPassage`s. `docids` are Lucene's numbers
    of the passages in the searched snapshot. A ranking that no search made may have none. Two rankings are
    equal if they have the same passages with the same scores.
    """

    passage_ids: Sequence[str] = ()
    docids: Sequence[int] = ()
    scores: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.passage_ids)

    @overload
    def __getitem__(self, position: int) -> ScoredPassage: ...
    @overload
    def __getitem__(self, position: slice) -> Self: ...
    def __getitem__(self, position: int | slice) -> ScoredPassage | Self:
        if isinstance(position, slice):
            return replace(
                self,
                passage_ids=self.passage_ids[position],
                docids=self.docids[position],
                scores=self.scores[position],
            )
        return ScoredPassage(self.passage_ids[position], self.scores[position])

    def __iter__(self) -> Iterator[ScoredPassage]:
        return map(ScoredPassage, self.passage_ids, self.scores)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranking({list(self)!r})"

    def at(self, positions: Sequence[int]) -> Self:
        """Return a ranking of the passages at the given positions, counted from 0."""
        passage_ids, docids, scores = self.passage_ids, self.docids, self.scores
        return replace(
            self,
            passage_ids=[passage_ids[i] for i in positions],
            docids=[docids[i] for i in positions],
            scores=[scores[i] for i in positions],
        )


class ChannelPlace(NamedTuple):
    """A passage's rank, score and contribution in one channel of a fused ranking.

    `rank` counts from 1. `rank` and `score` are None if the passage is not among the channel's candidates.
    `contribution` is the score as normalized and weighted by the fusion. The contributions of all channels
    sum to the fused score.
    """

    rank: int | None
    score: float | None
    contribution: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that a search returned: a plain value, which needs no open index.

    `score` is the retriever's score. `metadata` holds the other fields of the passage's record. In a fused
    ranking, `channels` maps each channel to the passage's rank and score in that channel. In an index of
    chunks, `text` is a chunk: the characters from `start` to before `end` of the document `document_id`.
    A sentence that `in_context` returned has these fields too; its document is its passage.
    """

    passage_id: str
    score: float
    title: str = ""
    text: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    channels: Mapping[str, ChannelPlace] = field(default_factory=dict, hash=False)
    document_id: str = ""
    start: int = 0
    end: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the hit as a JSON object.

        Only hits of a fused ranking have `channels`; only chunks, and sentences from `in_context`,
        have `document_id`, `start` and `end`.
        """
        hit = {
            "id": self.passage_id,
            "score": self.score,
            "title": self.title,
            "text": self.text,
            "metadata": dict(self.metadata),
        }
        if self.document_id:
            hit |= {"document_id": self.document_id, "start": self.start, "end": self.end}
        if self.channels:
            hit["channels"] = {name: place._asdict() for name, place in self.channels.items()}
        return hit


Run = Mapping[str, Sequence[ScoredPassage]]
"""The rankings of many queries, by query id."""
