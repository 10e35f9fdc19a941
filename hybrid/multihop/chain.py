"""Runs a chain of steps, from a question to paths of evidence (Chain-of-Skills, §3.3 and Appendix A)."""

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
    PER_PATH,
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
from sparta.base.renames import renamed_attributes

if TYPE_CHECKING:
    from sparta.reader.path_reader import PathReading


class Linked(NamedTuple):
    """A passage that describes an entity, and the entity's name in the text that links to the passage."""

    hit: Hit
    span: str


class ChainTools(Protocol):
    """The operations of a chain's steps; `hybrid.multihop.tools.IndexTools` implements them for an index."""

    def check(self, steps: Sequence[Step]) -> None:
        """Raise if one of the steps cannot run."""

    def retrieve(self, step: Step, question: str) -> Sequence[Hit]:
        """Return the best passages for a question."""

    def expand(self, step: Step, question: str, passages: Sequence[Hit]) -> Sequence[Sequence[Hit]]:
        """Return, for each passage, the best passages for the question combined with the passage."""

    def link(self, step: Step, passages: Sequence[Hit]) -> Sequence[Sequence[Linked]]:
        """Return, for each passage (or the question as the only passage), the passages about its entities.

        The passages come from the chain's index.
        """

    def rerank(self, step: Step, question: str, passages: Sequence[Hit]) -> Sequence[float]:
        """Return a score for each passage: how well the passage supports the question."""

    def terms(self, step: Step, question: str, passages: Sequence[Hit]) -> npt.NDArray[np.float32]:
        """Return how well each passage covers each term of the question, `(n_passages, n_terms)`."""

    def in_context(self, hits: Sequence[Hit]) -> Sequence[Hit]:
        """Return the hits with the text that a reader reads: sentences with their passage's text."""

    def read(self, question: str, paths: Sequence[Sequence[Hit]]) -> Sequence[PathReading]:
        """Return the reader's result for each path: scores, an answer and supporting sentences."""


class ChainResult(NamedTuple):
    """The paths of a question, best first, and the seconds of each step, by step name."""

    paths: list[EvidencePath]
    seconds: dict[str, float]


LinkedByPath = Sequence[Sequence[Linked]]
"""The passages that a step found, by path of the previous rerank; in the first hop, from the question."""


@renamed_attributes(search="find_paths")
class Chain:
    """A chain of steps.

    Paths are ordered by score, descending. Paths with equal scores keep the order in which the chain made the
    paths: first by the previous hop's order, then retrieved passages before linked passages.

    :param steps: steps in any order; `read_chain` reads steps from a file
    :raises InputError: `ordered` refuses the steps.
    :raises ModelError: the tools lack a model or skill that a step needs.
    """

    def __init__(self, steps: Sequence[Step], tools: ChainTools) -> None:
        self.steps, self.tools = ordered(steps), tools
        self._steps_by_name = {step.name: step for step in self.steps}
        tools.check(self.steps)

    @staticmethod
    def open(name: str | Path, tools: ChainTools) -> Chain:
        """Return the chain of a file, or a chain that is included in the package, by name."""
        return Chain(read_chain(name), tools)

    def find_paths(self, question: str, k: int = 10) -> ChainResult:
        """Return the `k` best paths for a question; paths with the same passages count as one path."""
        question, k = query_of(question), whole("k", k)
        paths: dict[str, list[EvidencePath]] = {"": [EvidencePath()]}
        hits_by_step: dict[str, LinkedByPath] = {}
        seconds: dict[str, float] = {}
        question_scores = _QuestionScores()
        for step in self.steps:
            start = time.perf_counter()
            if step.skill == READ:
                paths[step.name] = self._read(question, step, paths[step.after[0]])
            elif step.skill == RERANK:
                sources = [source for name in step.after for source in self._steps_by_name[name].after]
                previous_paths = paths[sources[0] if sources else ""]
                paths[step.name] = self._rerank(question, step, previous_paths, hits_by_step, question_scores)
            else:
                hits_by_step[step.name] = self._find(
                    question, step, paths[step.after[0] if step.after else ""]
                )
            seconds[step.name] = time.perf_counter() - start
        return ChainResult(paths[self.steps[-1].name][:k], seconds)

    def _find(self, question: str, step: Step, paths: Sequence[EvidencePath]) -> LinkedByPath:
        """Return the passages that a step finds from each path."""
        last_passages = [path.passages[-1].hit for path in paths if path.passages]
        linked: LinkedByPath = []
        if step.skill == RETRIEVE:
            linked = [[Linked(hit, "") for hit in self.tools.retrieve(step, question)]]
        elif step.skill == EXPAND and last_passages:
            expanded = self.tools.expand(step, question, last_passages)
            linked = [[Linked(hit, "") for hit in hits] for hits in expanded]
        elif paths:
            linked = self.tools.link(step, last_passages if step.after else [Hit("", 0.0, text=question)])
        return linked

    def _rerank(
        self,
        question: str,
        step: Step,
        paths: Sequence[EvidencePath],
        hits_by_step: Mapping[str, LinkedByPath],
        question_scores: _QuestionScores,
    ) -> list[EvidencePath]:
        """Return the best paths after each path is extended by one passage of the steps in `step.after`.

        Scores follow Eq. 6 to 8 of Chain-of-Skills.

        :param hits_by_step: the passages that each earlier step found
        """
        candidates: list[_Candidate] = []
        for number, path in enumerate(paths):
            linked_by_step = {
                name: _best_links(hits_by_step[name][number if self._steps_by_name[name].after else 0])
                for name in step.after
            }
            # Links to passages of the path (a passage names itself) would scale the other links: drop them.
            for name in step.after:
                if self._steps_by_name[name].skill == LINK:
                    links = linked_by_step[name].items()
                    linked_by_step[name] = {id_: linked for id_, linked in links if id_ not in path.ids}
            retrieval_scores = self._scores(linked_by_step, from_links=False)
            scores = merged(retrieval_scores, self._scores(linked_by_step, from_links=True), step.promote)
            new_scores = (
                (passage_id, score) for passage_id, score in scores.items() if passage_id not in path.ids
            )
            candidates += [
                _Candidate(path, passage_id, score, 0.0, linked_by_step) for passage_id, score in new_scores
            ]
        if step.candidates is not None:
            candidates.sort(key=lambda candidate: -candidate.total(0))
            del candidates[step.candidates :]
        if step.weight:
            candidates = self._with_reranking(question, step, candidates, question_scores)
        best: dict[frozenset[str], _Candidate] = {}
        for candidate in sorted(candidates, key=lambda candidate: -candidate.total(step.weight)):
            best.setdefault(frozenset((*candidate.path.ids, candidate.passage_id)), candidate)
            if len(best) == step.keep:
                break
        return [candidate.path.then(self._evidence(step, candidate)) for candidate in best.values()]

    def _read(self, question: str, step: Step, paths: Sequence[EvidencePath]) -> list[EvidencePath]:
        """Return the read paths in the reader's order (Chain-of-Skills, Appendix C), then the unread paths.

        The reader reads only passages that count as evidence. A path without evidence is not read and ranks
        behind the read paths.
        """
        read_count = step.candidates or READ_PATHS
        best_paths = [path for path in paths[:read_count] if path.evidence_ids]
        unread_paths = [*(path for path in paths[:read_count] if not path.evidence_ids), *paths[read_count:]]
        evidence = [[passage.hit for passage in path.passages if passage.counts] for path in best_paths]
        hits = [self.tools.in_context(path_hits) for path_hits in evidence]
        readings = self.tools.read(question, hits) if best_paths else []
        read_paths = [
            with_reading(step, path, path_hits, reading)
            for path, path_hits, reading in zip(best_paths, hits, readings, strict=True)
        ]
        read_paths.sort(key=lambda path: -path.score)
        if read_paths and unread_paths:
            lowest = read_paths[-1].score
            offset = max(0.0, max(path.score for path in unread_paths) - lowest)
            unread_paths = [replace(path, score=min(lowest, path.score - offset)) for path in unread_paths]
        return [*read_paths, *unread_paths]

    def _evidence(self, step: Step, candidate: _Candidate) -> Evidence:
        """Return the evidence that a candidate adds to its path."""
        passage_id = candidate.passage_id
        step_links = {
            name: links[passage_id] for name, links in candidate.linked_by_step.items() if passage_id in links
        }
        scores = {name: linked.hit.score for name, linked in step_links.items()}
        if step.weight:
            scores[step.name] = candidate.rerank
        span = next((linked.span for linked in reversed(step_links.values()) if linked.span), "")
        counts = any(self._steps_by_name[name].evidence for name in step_links)
        return Evidence(candidate.hit, scores, candidate.score + step.weight * candidate.rerank, span, counts)

    def _scores(self, linked_by_step: _LinkedByStep, *, from_links: bool) -> dict[str, float]:
        """Return each passage's highest weighted score from the link steps, or from the other steps."""
        scores: dict[str, float] = {}
        for name, links in linked_by_step.items():
            step = self._steps_by_name[name]
            if (step.skill == LINK) == from_links:
                for passage_id, linked in links.items():
                    score = step.weight * linked.hit.score
                    scores[passage_id] = max(score, scores.get(passage_id, score))
        return scores

    def _with_reranking(
        self, question: str, step: Step, candidates: Sequence[_Candidate], question_scores: _QuestionScores
    ) -> list[_Candidate]:
        """Return the candidates with their reranking scores (Chain-of-Skills, Eq. 8).

        A model scores each passage once per question. The score by terms depends on the path: it is the
        passage's gain in the path's coverage of the question's terms.
        """
        hits = {candidate.passage_id: candidate.hit for candidate in candidates}
        if step.by == TERMS:
            cover = question_scores.cover.setdefault(step.channel, Cover())
            path_hits = {
                evidence.hit.passage_id: evidence.hit
                for candidate in candidates
                for evidence in candidate.path.passages
            }
            if unscored := [hit for id_, hit in {**hits, **path_hits}.items() if id_ not in cover.rows]:
                cover.add([hit.passage_id for hit in unscored], self.tools.terms(step, question, unscored))
            groups = itertools.groupby(candidates, key=lambda candidate: candidate.path.ids)
            scores = [
                score
                for path_ids, group in groups
                for score in cover.gains(path_ids, [candidate.passage_id for candidate in group])
            ]
        else:
            if unscored := [hit for id_, hit in hits.items() if id_ not in question_scores.reranks]:
                reranked = self.tools.rerank(step, question, unscored)
                question_scores.reranks.update(
                    zip([hit.passage_id for hit in unscored], reranked, strict=True)
                )
            scores = [question_scores.reranks[candidate.passage_id] for candidate in candidates]
        return [candidate._replace(rerank=score) for candidate, score in zip(candidates, scores, strict=True)]


def with_reading(step: Step, path: EvidencePath, hits: Sequence[Hit], reading: PathReading) -> EvidencePath:
    """Return a path with its reading: each passage's score grows by `step.weight` times the reader's score.

    :param hits: the path's evidence, with the text that the reader read
    """
    scores, read_hits = iter(reading.scores), iter(hits)
    sentences = iter(reading.sentences or ())
    passages = []
    for evidence in path.passages:
        if evidence.counts:
            score = next(scores)
            step_scores = {**evidence.scores, step.name: score}
            supporting = None if reading.sentences is None else tuple(next(sentences))
            total = evidence.score + step.weight * score
            evidence = replace(
                evidence, hit=next(read_hits), scores=step_scores, score=total, supporting=supporting
            )
        passages.append(evidence)
    answer = reading.answer
    passage_id = path.evidence_ids[answer.passage] if answer.passage >= 0 else ""
    path_answer = PathAnswer(answer.text, answer.score, passage_id, answer.start, answer.end)
    total = sum(evidence.score for evidence in passages)
    if step.threshold == PER_PATH:  # the passages' scores are already without the threshold
        total += step.weight * (len(reading.scores) - 1) * reading.threshold
    return EvidencePath(tuple(passages), total, path_answer)


_LinkedByStep = Mapping[str, Mapping[str, Linked]]
"""The passages that each step found from one path: `{step name: {passage id: linked passage}}`."""


class _Candidate(NamedTuple):
    """A passage that may extend a path: its merged score (Chain-of-Skills, Eq. 7) and its reranking score."""

    path: EvidencePath
    passage_id: str
    score: float
    rerank: float
    linked_by_step: _LinkedByStep

    @property
    def hit(self) -> Hit:
        links_by_step = self.linked_by_step.values()
        return next(links[self.passage_id].hit for links in links_by_step if self.passage_id in links)

    def total(self, weight: float) -> float:
        """Return the path's score with this passage, added up in the same order as in `EvidencePath.then`."""
        return self.path.score + (self.score + weight * self.rerank)


class _QuestionScores:
    """The reranking scores of one question's passages: model scores, and term coverage by channel."""

    def __init__(self) -> None:
        self.reranks: dict[str, float] = {}
        self.cover: dict[str, Cover] = {}


def _best_links(linked_passages: Sequence[Linked]) -> dict[str, Linked]:
    """Return the highest-scored link to each passage: several entities may name one passage."""
    best: dict[str, Linked] = {}
    for linked in linked_passages:
        previous = best.get(linked.hit.passage_id)
        if previous is None or linked.hit.score > previous.hit.score:
            best[linked.hit.passage_id] = linked
    return best
