"""A chain of steps at work: from a question to paths of evidence (Chain-of-Skills, §3.3 and Appendix A)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from hybrid.multihop.paths import Evidence, EvidencePath
from hybrid.multihop.scores import Cover, merged
from hybrid.multihop.steps import EXPAND, LINK, RERANK, RETRIEVE, TERMS, Step, ordered, read_chain
from sparta.base.errors import InputError
from sparta.base.records import Hit


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

    def link(self, step: Step, texts: Sequence[str]) -> Sequence[Sequence[Linked]]:
        """For each text the best descriptions of each entity in it."""

    def rerank(self, step: Step, question: str, passages: Sequence[Hit]) -> Sequence[float]:
        """How well each passage supports the question."""

    def terms(self, step: Step, question: str, passages: Sequence[Hit]) -> npt.NDArray[np.float32]:
        """How well each passage covers each term of the question, `(n_passages, n_terms)`."""


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
        if k < 1:
            raise InputError(f"k must be at least 1, found {k}")
        paths: dict[str, list[EvidencePath]] = {"": [EvidencePath()]}
        found: dict[str, Found] = {}
        seconds: dict[str, float] = {}
        known = _Known()
        for step in self.steps:
            began = time.perf_counter()
            if step.skill == RERANK:
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
            found = self.tools.link(step, [hit.text for hit in last] if step.after else [question])
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
        candidates: list[tuple[EvidencePath, Evidence]] = []
        for number, path in enumerate(paths):
            own = {
                name: _best(found[name][number if self._named[name].after else 0], path.ids)
                for name in step.after
            }
            scores = merged(self._scores(own, link=False), self._scores(own, link=True), step.promote)
            for passage_id, score in scores.items():
                given = {name: best[passage_id] for name, best in own.items() if passage_id in best}
                hit = next(iter(given.values())).hit
                steps = {name: one.hit.score for name, one in given.items()}
                span = next((one.span for one in reversed(given.values()) if one.span), "")
                candidates.append((path, Evidence(hit, steps, score, span)))
        if step.candidates is not None:
            candidates.sort(key=lambda one: -(one[0].score + one[1].score))
            del candidates[step.candidates :]
        if step.weight:
            candidates = self._with_reranking(question, step, candidates, known)
        made = [path.then(evidence) for path, evidence in candidates]
        best: dict[frozenset[str], EvidencePath] = {}
        for path in sorted(made, key=lambda path: -path.score):
            best.setdefault(frozenset(path.ids), path)
        return list(best.values())[: step.keep]

    def _scores(self, own: Mapping[str, Mapping[str, Linked]], *, link: bool) -> dict[str, float]:
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
        self,
        question: str,
        step: Step,
        candidates: Sequence[tuple[EvidencePath, Evidence]],
        known: _Known,
    ) -> list[tuple[EvidencePath, Evidence]]:
        """Eq. 8; a passage is reranked once, in whatever paths it stands, but by what it adds to its path."""
        hits = {e.hit.passage_id: e.hit for _, e in candidates}
        if step.by == TERMS:
            cover = known.cover.setdefault(step.channel, Cover())
            if new := [hit for i, hit in hits.items() if i not in cover.rows]:
                cover.add([hit.passage_id for hit in new], self.tools.terms(step, question, new))
            pairs = itertools.groupby(candidates, key=lambda one: one[0])
            scores = [s for path, own in pairs for s in cover.gains(path.ids, [e.hit.passage_id for _, e in own])]
        else:
            if new := [hit for i, hit in hits.items() if i not in known.reranks]:
                own = self.tools.rerank(step, question, new)
                known.reranks.update(zip([hit.passage_id for hit in new], own, strict=True))
            scores = [known.reranks[e.hit.passage_id] for _, e in candidates]
        return [
            (path, Evidence(e.hit, {**e.scores, step.name: s}, e.score + step.weight * s, e.span))
            for (path, e), s in zip(candidates, scores, strict=True)
        ]


class _Known:
    """What reranking said of passages of one question: by the model, and of terms by the channel."""

    def __init__(self) -> None:
        self.reranks: dict[str, float] = {}
        self.cover: dict[str, Cover] = {}


def _best(found: Sequence[Linked], without: Collection[str]) -> dict[str, Linked]:
    """Of each passage its highest score, as several entities may mean the same; none that a path has."""
    best: dict[str, Linked] = {}
    for one in found:
        known = best.get(one.hit.passage_id)
        if one.hit.passage_id not in without and (known is None or one.hit.score > known.hit.score):
            best[one.hit.passage_id] = one
    return best
