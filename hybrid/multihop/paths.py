"""Evidence paths: sequences of passages with the scores of a chain's steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sparta.base.records import Hit
from sparta.reader.records import text_of


@dataclass(frozen=True, slots=True)
class PathAnswer:
    """An answer by the path reader; `score` is the reader's probability, which is not calibrated.

    The answer spans `start` to before `end` in the text of a passage of the path (for a sentence, in the
    sentence's context). The answers yes and no have no span and an empty passage id.
    """

    answer: str
    score: float
    passage_id: str = ""
    start: int = 0
    end: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the answer's fields as a dictionary for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One passage of a path.

    `scores` maps step names to the step's score of the passage: for links the score before scaling
    (Chain-of-Skills, Eq. 6), for reranking the score before its weight. `span` is the name of the entity that
    links to the passage, if any. `score` is the combined score (Chain-of-Skills, Eq. 8). If `counts` is
    false, the passage only leads to evidence, as a table row does. `supporting` has the `(start, end)` of the
    sentences that support the answer, in the passage's text or the sentence's context; None if the reader
    marks no sentences.
    """

    hit: Hit
    scores: dict[str, float]
    score: float
    span: str = ""
    counts: bool = True
    supporting: tuple[tuple[int, int], ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the passage, its scores and its supporting sentences as a dictionary for JSON.

        `context` is the text that a reader reads, if it is not `text`: the passage of a sentence that was
        read, or the context in the record. The reader's places count in it.
        """
        passage = {"id": self.hit.passage_id, "title": self.hit.title, "text": self.hit.text}
        context = text_of(self.hit).text
        if context != self.hit.text:
            passage["context"] = context
        reading = {} if self.supporting is None else {"supporting": [list(span) for span in self.supporting]}
        return {**passage, "score": self.score, "steps": dict(self.scores), "span": self.span, **reading}


@dataclass(frozen=True, slots=True)
class EvidencePath:
    """A sequence of passages; each passage was found from the passages before it.

    The score is the sum of the passages' scores. A path that the path reader did not read has a lowered
    score, so that unread paths rank behind read paths. `answer` is the reader's answer.
    """

    passages: tuple[Evidence, ...] = ()
    score: float = 0.0
    answer: PathAnswer | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """The passage ids of the path, in path order."""
        return tuple(evidence.hit.passage_id for evidence in self.passages)

    @property
    def evidence_ids(self) -> tuple[str, ...]:
        """The ids of the passages that count as evidence, in path order."""
        return tuple(evidence.hit.passage_id for evidence in self.passages if evidence.counts)

    def then(self, evidence: Evidence) -> EvidencePath:
        """Return the path extended by a passage."""
        return EvidencePath((*self.passages, evidence), self.score + evidence.score)

    def as_dict(self) -> dict[str, Any]:
        """Return the path's score, answer and passages as a dictionary for JSON."""
        answer = {"answer": self.answer.as_dict()} if self.answer else {}
        return {"score": self.score, **answer, "passages": [evidence.as_dict() for evidence in self.passages]}


def distinct_evidence(paths: Sequence[EvidencePath], k: int) -> list[Hit]:
    """Return the first `k` distinct evidence passages, best path first, each with its path's score."""
    hits: dict[str, Hit] = {}
    for path in paths:
        for evidence in path.passages:
            if evidence.counts and evidence.hit.passage_id not in hits:
                # a step may search a fusion, whose ranks and scores are not those of the path
                hits[evidence.hit.passage_id] = replace(evidence.hit, score=path.score, channels={})
    return list(hits.values())[:k]
