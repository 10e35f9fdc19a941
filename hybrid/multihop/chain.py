"""A chain of steps at work: from a question to paths of evidence (Chain-of-Skills, §3.3 and Appendix A)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from hybrid.multihop.paths import Evidence, EvidencePath, PathAnswer
from hybrid.multihop.scores import Cover, merged
from hybrid.multihop.steps import (
    EXPAND,
    LINK,
    READ,
    READ_PATHS,
    RERANK,
    RETRIEVE,
    TERMS,
    Step,
    ordered,
    read_chain,
)
from sparta.base.checks import query_of, whole
from sparta.base.records import Hit

if TYPE_CHECKING:
    from sparta.reader.path_reader import PathReading


class Linked(NamedTuple):
    """A passage that describes an entity, with the entity's text where it was found."""

    hit: Hit
    span: str


class ChainTools(Protocol):
    """What the steps of a chain call; `hybrid.multihop.tools.IndexTools` does it over an index."""

    def check(self, steps: Sequence[Step]) -> None:
        """Refuse steps that cannot be done, before any is."""

    def retrieve(self, step: Step, question: str) -> Sequence[Hit]:
        """The best passages for a question."""

    def expand(self, step: Step, question: str, passages: Sequence[Hit]) -> Sequence[Sequence[Hit]]:
        """For each passage the best ones for the question with it."""

    def link(self, step: Step, passages: Sequence[Hit]) -> Sequence[Sequence[Linked]]:
        """For each passage, or the question as one, the best descriptions of each entity in its text."""

    def rerank(self, step: Step, question: str, passages: Sequence[Hit]) -> Sequence[float]:
        """How well each passage supports the question."""

    def terms(self, step: Step, question: str, passages: Sequence[Hit]) -> npt.NDArray[np.float32]:
        """How well each passage covers each term of the question, `(n_passages, n_terms)`."""

    def in_context(self, hits: Sequence[Hit]) -> Sequence[Hit]:
        """Hits as a reader reads them: sentences with the text of their passage."""

    def read(self, question: str, paths: Sequence[Sequence[Hit]]) -> Sequence[PathReading]:
        """What a reader of paths makes of the passages of each path."""


class ChainResult(NamedTuple):
    """The paths, best first, and the seconds that each step took."""

    paths: list[EvidencePath]
    seconds: dict[str, float]


Found = Sequence[Sequence[Linked]]
"""What a step found from each path of the rerank before it; of the first hop, for the question."""


class Chain:
    """A chain of steps.

    Order: path score descending, then as found (the better path of the hop before, then retrieved before
    linked passages).

    :param steps: steps in any order; `read_chain` reads them from a file
    :raises InputError: what `ordered` refuses.
    :raises ModelError: the tools lack what a step needs.
    """

    def __init__(self, steps: Sequence[Step], tools: ChainTools) -> None:
        self.steps, self.tools = ordered(steps), tools
        self._named = {step.name: step for step in self.steps}
        tools.check(self.steps)

    @staticmethod
    def open(name: str | Path, tools: ChainTools) -> Chain:
        """Return the chain of a file, or one that ships."""
        return Chain(read_chain(name), tools)

    def search(self, question: str, k: int = 10) -> ChainResult:
        """The `k` best paths for a question; of several of the same passages, the best."""
        question, k = query_of(question), whole("k", k)
        paths: dict[str, list[EvidencePath]] = {"": [EvidencePath()]}
        found: dict[str, Found] = {}
        seconds: dict[str, float] = {}
        known = _Known()
        for step in self.steps:
            began = time.perf_counter()
            if step.skill == READ:
                paths[step.name] = self._read(question, step, paths[step.after[0]])
            elif step.skill == RERANK:
                sources = [source for name in step.after for source in self._named[name].after]
                before = paths[sources[0] if sources else ""]
                paths[step.name] = self._rerank(question, step, before, found, known)
            else:
                found[step.name] = self._find(question, step, paths[step.after[0] if step.after else ""])
            seconds[step.name] = time.perf_counter() - began
        return ChainResult(paths[self.steps[-1].name][:k], seconds)

    def _find(self, question: str, step: Step, paths: Sequence[EvidencePath]) -> Found:
        """What a step finds from each path."""
        last = [path.passages[-1].hit for path in paths if path.passages]
        found: Found = []
        if step.skill == RETRIEVE:
            found = [[Linked(h, "") for h in self.tools.retrieve(step, question)]]
        elif step.skill == EXPAND and last:
            expanded = self.tools.expand(step, question, last)
            found = [[Linked(hit, "") for hit in own] for own in expanded]
        elif paths:
            found = self.tools.link(step, last if step.after else [Hit("", 0.0, text=question)])
        return found

    def _rerank(
        self,
        question: str,
        step: Step,
        paths: Sequence[EvidencePath],
        found: Mapping[str, Found],
        known: _Known,
    ) -> list[EvidencePath]:
        """Eq. 6 to 8 for what was found from each path, and the best of all paths that this makes."""
        candidates: list[_Candidate] = []
        for number, path in enumerate(paths):
            own = {name: _best(found[name][number if self._named[name].after else 0]) for name in step.after}
            # A passage names itself: such a link leads nowhere, and scales no others.
            for name in step.after:
                if self._named[name].skill == LINK:
                    own[name] = {i: one for i, one in own[name].items() if i not in path.ids}
            scores = merged(self._scores(own, link=False), self._scores(own, link=True), step.promote)
            new = ((i, score) for i, score in scores.items() if i not in path.ids)
            candidates += [_Candidate(path, i, score, 0.0, own) for i, score in new]
        if step.candidates is not None:
            candidates.sort(key=lambda one: -one.total(0))
            del candidates[step.candidates :]
        if step.weight:
            candidates = self._with_reranking(question, step, candidates, known)
        best: dict[frozenset[str], _Candidate] = {}
        for one in sorted(candidates, key=lambda one: -one.total(step.weight)):
            best.setdefault(frozenset((*one.path.ids, one.passage_id)), one)
            if len(best) == step.keep:
                break
        return [one.path.then(self._evidence(step, one)) for one in best.values()]

    def _read(self, question: str, step: Step, paths: Sequence[EvidencePath]) -> list[EvidencePath]:
        """The best paths in the order that reading gives them (Appendix C), then the others as they were.

        What leads to evidence is not read. A path of nothing else comes behind, as one that was not read.
        """
        most = step.candidates or READ_PATHS
        first = [one for one in paths[:most] if one.evidence_ids]
        others = [*(one for one in paths[:most] if not one.evidence_ids), *paths[most:]]
        hits = [self.tools.in_context([one.hit for one in path.passages if one.counts]) for path in first]
        readings = self.tools.read(question, hits) if first else []
        read = [_as_read(step, *one) for one in zip(first, hits, readings, strict=True)]
        read.sort(key=lambda one: -one.score)
        if read and others:
            last = read[-1].score
            behind = max(0.0, max(one.score for one in others) - last)
            others = [replace(one, score=min(last, one.score - behind)) for one in others]
        return [*read, *others]

    def _evidence(self, step: Step, one: _Candidate) -> Evidence:
        given = {name: best[one.passage_id] for name, best in one.found.items() if one.passage_id in best}
        scores = {name: linked.hit.score for name, linked in given.items()}
        if step.weight:
            scores[step.name] = one.rerank
        span = next((linked.span for linked in reversed(given.values()) if linked.span), "")
        counts = any(self._named[name].evidence for name in given)
        return Evidence(one.hit, scores, one.score + step.weight * one.rerank, span, counts)

    def _scores(self, own: _Own, *, link: bool) -> dict[str, float]:
        """The scores of what links found, or of what other steps did, times their weights; the highest."""
        scores: dict[str, float] = {}
        for name, best in own.items():
            step = self._named[name]
            if (step.skill == LINK) == link:
                for passage_id, one in best.items():
                    score = step.weight * one.hit.score
                    scores[passage_id] = max(score, scores.get(passage_id, score))
        return scores

    def _with_reranking(
        self, question: str, step: Step, candidates: Sequence[_Candidate], known: _Known
    ) -> list[_Candidate]:
        """Eq. 8; a passage is reranked once, in whatever paths it stands, but by what it adds to its path."""
        hits = {one.passage_id: one.hit for one in candidates}
        if step.by == TERMS:
            cover = known.cover.setdefault(step.channel, Cover())
            before = {e.hit.passage_id: e.hit for one in candidates for e in one.path.passages}
            if new := [hit for i, hit in {**hits, **before}.items() if i not in cover.rows]:
                cover.add([hit.passage_id for hit in new], self.tools.terms(step, question, new))
            pairs = itertools.groupby(candidates, key=lambda one: one.path.ids)
            scores = [s for ids, own in pairs for s in cover.gains(ids, [one.passage_id for one in own])]
        else:
            if new := [hit for i, hit in hits.items() if i not in known.reranks]:
                reranked = self.tools.rerank(step, question, new)
                known.reranks.update(zip([hit.passage_id for hit in new], reranked, strict=True))
            scores = [known.reranks[one.passage_id] for one in candidates]
        return [one._replace(rerank=s) for one, s in zip(candidates, scores, strict=True)]


def _as_read(step: Step, path: EvidencePath, hits: Sequence[Hit], reading: PathReading) -> EvidencePath:
    """A path with what reading says of it: `weight` times the score of each passage is added to its own.

    :param hits: its evidence as it was read
    """
    scores, as_read = iter(reading.scores), iter(hits)
    sentences = iter(reading.sentences or ())
    passages = []
    for one in path.passages:
        if one.counts:
            score = next(scores)
            given = {**one.scores, step.name: score}
            supporting = None if reading.sentences is None else tuple(next(sentences))
            total = one.score + step.weight * score
            one = replace(one, hit=next(as_read), scores=given, score=total, supporting=supporting)
        passages.append(one)
    own = reading.answer
    place = path.evidence_ids[own.passage] if own.passage >= 0 else ""
    answer = PathAnswer(own.text, own.score, place, own.start, own.end)
    return EvidencePath(tuple(passages), sum(one.score for one in passages), answer)


_Own = Mapping[str, Mapping[str, Linked]]
"""What each step found from one path, by passage id."""


class _Candidate(NamedTuple):
    """A passage that may go on from a path: its score by eq. 7, and that of reranking."""

    path: EvidencePath
    passage_id: str
    score: float
    rerank: float
    found: _Own

    @property
    def hit(self) -> Hit:
        return next(best[self.passage_id].hit for best in self.found.values() if self.passage_id in best)

    def total(self, weight: float) -> float:
        """The score of the path with this passage, added up as `EvidencePath.then` does."""
        return self.path.score + (self.score + weight * self.rerank)


class _Known:
    """What reranking said of passages of one question: by the model, and of terms by the channel."""

    def __init__(self) -> None:
        self.reranks: dict[str, float] = {}
        self.cover: dict[str, Cover] = {}


def _best(found: Sequence[Linked]) -> dict[str, Linked]:
    """Of each passage its highest score, as several entities may mean the same."""
    best: dict[str, Linked] = {}
    for one in found:
        known = best.get(one.hit.passage_id)
        if known is None or one.hit.score > known.hit.score:
            best[one.hit.passage_id] = one
    return best
