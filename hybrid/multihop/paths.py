"""What a chain finds: passages one after the other, with what each step made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sparta.base.records import Hit


@dataclass(frozen=True, slots=True)
class PathAnswer:
    """The answer that a reader of paths gives, and its probability by the reader, which is not calibrated.

    It stands in the text of a passage of the path from `start` to before `end`, or in the context of a
    sentence; yes and no stand nowhere (the passage's id is empty).
    """

    answer: str
    score: float
    passage_id: str = ""
    start: int = 0
    end: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One passage of a path.

    `scores` has what each step gave it, by the step's name: of linking before eq. 6, of reranking before its
    weight. `span` is the text of the entity that was linked to it, if any; `score` is that of eq. 8. What
    does not `count` only leads to evidence, as a table row does. `supporting` has the sentences of its text,
    or of the context of a sentence, that support the answer, `(start, end)`, where a reader tells them.
    """

    hit: Hit
    scores: dict[str, float]
    score: float
    span: str = ""
    counts: bool = True
    supporting: tuple[tuple[int, int], ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        own = {"id": self.hit.passage_id, "title": self.hit.title, "text": self.hit.text}
        read = {} if self.supporting is None else {"supporting": [list(one) for one in self.supporting]}
        return {**own, "score": self.score, "steps": dict(self.scores), "span": self.span, **read}


@dataclass(frozen=True, slots=True)
class EvidencePath:
    """Passages that were found one from the other.

    The score is the sum of theirs; that of a path which a reader of paths did not read is lowered, so that it
    comes behind those that were. `answer` is the reader's.
    """

    passages: tuple[Evidence, ...] = ()
    score: float = 0.0
    answer: PathAnswer | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """The passages' ids, in their order."""
        return tuple(one.hit.passage_id for one in self.passages)

    @property
    def evidence_ids(self) -> tuple[str, ...]:
        """The same without those that only lead to evidence."""
        return tuple(one.hit.passage_id for one in self.passages if one.counts)

    def then(self, evidence: Evidence) -> EvidencePath:
        """Return the path with one more passage."""
        return EvidencePath((*self.passages, evidence), self.score + evidence.score)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        read = {"answer": self.answer.as_dict()} if self.answer else {}
        return {"score": self.score, **read, "passages": [one.as_dict() for one in self.passages]}


def passages_of(paths: Sequence[EvidencePath], k: int) -> list[Hit]:
    """The first `k` different passages that are evidence, best path first, each with its path's score."""
    found: dict[str, Hit] = {}
    for path in paths:
        for one in path.passages:
            hit = one.hit
            if not one.counts:
                continue
            found.setdefault(
                hit.passage_id, Hit(hit.passage_id, path.score, hit.title, hit.text, hit.metadata)
            )
    return list(found.values())[:k]
