"""A chain of steps at work: from a question to paths of evidence (Chain-of-Skills, §3.3 and Appendix A)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from hybrid.multihop.paths import Evidence, EvidencePath
from hybrid.multihop.scores import merged
from hybrid.multihop.steps import EXPAND, LINK, RERANK, RETRIEVE, Step, ordered, read_chain
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

    def retrieve(self, question: str, channel: str, depth: int) -> Sequence[Hit]:
        """The best passages for a question."""

    def expand(self, question: str, passages: Sequence[Hit], depth: int) -> Sequence[Sequence[Hit]]:
        """For each passage the best ones for the question with it."""

    def link(self, texts: Sequence[str], depth: int) -> Sequence[Sequence[Linked]]:
        """For each text the best descriptions of each entity in it."""

    def rerank(self, question: str, passages: Sequence[Hit]) -> Sequence[float]:
        """How well each passage supports the question."""


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
        """The `k` best paths for a question."""
        if k < 1:
            raise InputError(f"k must be at least 1, found {k}")
        paths: dict[str, list[EvidencePath]] = {"": [EvidencePath()]}
        found: dict[str, Found] = {}
        seconds: dict[str, float] = {}
        reranks: dict[str, float] = {}
        for step in self.steps:
            began = time.perf_counter()
            if step.skill == RERANK:
                source = self._named[step.after[0]].after
                before = paths[source[0] if source else ""]
                paths[step.name] = self._rerank(question, step, before, found, reranks)
            else:
                found[step.name] = self._find(question, step, paths[step.after[0] if step.after else ""])
            seconds[step.name] = time.perf_counter() - began
        return ChainResult(paths[self.steps[-1].name][:k], seconds)

    def _find(self, question: str, step: Step, paths: Sequence[EvidencePath]) -> Found:
        """What a step finds from each path; never a passage that stands in it already."""
        last = [path.passages[-1].hit for path in paths if path.passages]
        found: Found = []
        if step.skill == RETRIEVE:
            found = [[Linked(h, "") for h in self.tools.retrieve(question, step.channel, step.depth)]]
        elif step.skill == EXPAND and last:
            expanded = self.tools.expand(question, last, step.depth)
            found = [[Linked(hit, "") for hit in own] for own in expanded]
        elif paths:
            found = self.tools.link([hit.text for hit in last] if step.after else [question], step.depth)
        pairs = zip(paths, found, strict=True)
        return [[one for one in own if one.hit.passage_id not in path.ids] for path, own in pairs]

    def _rerank(
        self,
        question: str,
        step: Step,
        paths: Sequence[EvidencePath],
        found: Mapping[str, Found],
        known: dict[str, float],
    ) -> list[EvidencePath]:
        """Eq. 6 to 8 for what was found from each path, and the best of all paths that this makes."""
        links = next((name for name in step.after if self._named[name].skill == LINK), "")
        retrieved = next((name for name in step.after if name != links), "")
        candidates: list[tuple[EvidencePath, Evidence]] = []
        for number, path in enumerate(paths):
            own = {name: _best(found[name][number]) for name in (retrieved, links) if name}
            ranked = {name: {i: one.hit.score for i, one in best.items()} for name, best in own.items()}
            scores = merged(ranked.get(retrieved, {}), ranked.get(links, {}), step.promote)
            for passage_id, score in scores.items():
                given = {name: best[passage_id] for name, best in own.items() if passage_id in best}
                hit = next(iter(given.values())).hit
                steps = {name: one.hit.score for name, one in given.items()}
                span = given[links].span if links in given else ""
                candidates.append((path, Evidence(hit, steps, score, span)))
        if step.candidates is not None:
            candidates.sort(key=lambda one: -(one[0].score + one[1].score))
            del candidates[step.candidates :]
        if step.weight:
            candidates = self._with_reranking(question, step, candidates, known)
        made = [path.then(evidence) for path, evidence in candidates]
        return sorted(made, key=lambda path: -path.score)[: step.keep]

    def _with_reranking(
        self,
        question: str,
        step: Step,
        candidates: Sequence[tuple[EvidencePath, Evidence]],
        known: dict[str, float],
    ) -> list[tuple[EvidencePath, Evidence]]:
        """Eq. 8; a passage is reranked once, in whatever paths it stands."""
        new = {e.hit.passage_id: e.hit for _, e in candidates if e.hit.passage_id not in known}
        if new:
            known.update(zip(new, self.tools.rerank(question, list(new.values())), strict=True))
        made = []
        for path, e in candidates:
            own = known[e.hit.passage_id]
            score = e.score + step.weight * own
            made.append((path, Evidence(e.hit, {**e.scores, step.name: own}, score, e.span)))
        return made


def _best(found: Sequence[Linked]) -> dict[str, Linked]:
    """Of each passage its highest score: several entities may mean the same."""
    best: dict[str, Linked] = {}
    for one in found:
        known = best.get(one.hit.passage_id)
        if known is None or one.hit.score > known.hit.score:
            best[one.hit.passage_id] = one
    return best
