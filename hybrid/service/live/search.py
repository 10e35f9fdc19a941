"""A batch of questions, searched together and written as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hybrid.retrieval.channels import CHANNELS, DENSE, channel
from hybrid.retrieval.fusion import Fusion, parse_weights
from hybrid.retrieval.hits import fused_hits
from hybrid.service.errors import as_exception
from hybrid.service.live.snapshot import LiveIndex, Snapshot
from hybrid.service.metrics import Metrics
from hybrid.service.schemas import dumps
from sparta.base.errors import InputError
from sparta.base.filters import Filter
from sparta.base.records import Hit
from sparta.search.explain import marked_snippet, term_shares, word_snippets
from sparta.search.searcher import IMPACT

_ADDING = {
    DENSE: "dense index",
    IMPACT: "sparta index --corpus FILE --resume, with --model FOLDER where none ships for its language",
}
"""The commands that add a channel; BM25 every index has."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How questions are searched; those of one plan go into Java in one call.

    `weights` are the channels, one or several with their weights; `name` is how they were named. Of `deepest`
    passages at most are the groups where a ranking is one of groups.
    """

    name: str
    weights: tuple[tuple[str, float], ...]
    k: int = 10
    offset: int = 0
    filter: Filter | None = None
    collapse: str | None = None
    explain: bool = False
    deepest: int | None = None

    @property
    def fused(self) -> bool:
        """Whether rankings are fused, also those of one channel that has a weight."""
        return "," in self.name or "=" in self.name


@dataclass(frozen=True, slots=True)
class Job:
    """The questions of one request; `one` where it was one by itself, not a list."""

    queries: Sequence[str]
    plan: Plan
    one: bool = True
    began: float = field(default_factory=time.perf_counter)


@lru_cache(256)
def weights_of(channels: str) -> tuple[tuple[str, float], ...]:
    """The channels that a request names, with their weights.

    :raises InputError: an unknown channel or a weight that is none.
    """
    if "," in channels or "=" in channels:
        return tuple(parse_weights(channels, CHANNELS, "channels:").items())
    return ((channel(channels), 1.0),)


class BatchSearch:
    """Answers jobs: one call into Java searches for those of one plan, one reads the records of their hits.

    :param threads: Java's threads over the questions of one call
    """

    def __init__(self, index: LiveIndex, threads: int, metrics: Metrics) -> None:
        self._index, self._threads, self._metrics = index, threads, metrics

    def __call__(self, jobs: Sequence[Job]) -> list[bytes | Exception]:
        """The answer of each job as JSON, or the exception that it met; all are of one commit."""
        plans: dict[Plan, list[int]] = {}
        for number, job in enumerate(jobs):
            plans.setdefault(job.plan, []).append(number)
        answers: list[bytes | Exception] = [b""] * len(jobs)
        self._metrics.batch(sum(len(job.queries) for job in jobs))
        with self._index.reading() as snapshot:
            for plan, numbers in plans.items():
                own = [jobs[number] for number in numbers]
                for number, answer in zip(numbers, self._tried(snapshot, plan, own), strict=True):
                    answers[number] = answer
        return answers

    def _tried(self, snapshot: Snapshot, plan: Plan, jobs: Sequence[Job]) -> Sequence[bytes | Exception]:
        """The answers of jobs of one plan; a job that fails is searched again without the other jobs."""
        try:
            return self.answers(snapshot, plan, jobs)
        except BaseException as error:  # also a panic of the tokenizer
            if len(jobs) == 1:
                return [as_exception(error)]
        return [self._tried(snapshot, plan, [job])[0] for job in jobs]

    def answers(self, snapshot: Snapshot, plan: Plan, jobs: Sequence[Job]) -> list[bytes]:
        """The answers of jobs of one plan."""
        queries = [query for job in jobs for query in job.queries]
        hits = iter(hits_of(snapshot, plan, queries, self._threads))
        version = snapshot.version._asdict()
        answers = []
        for job in jobs:
            results = [
                {"query": query, "hits": _shown(snapshot, plan, query, next(hits))} for query in job.queries
            ]
            own: dict[str, Any] = results[0] if job.one else {"results": results}
            took = round((time.perf_counter() - job.began) * 1000, 3)
            answers.append(dumps({**own, "channels": plan.name, "version": version, "took_ms": took}))
        return answers


def require_channels(weights: Sequence[tuple[str, float]], there: Sequence[str]) -> list[str]:
    """The names of channels that are all there, in an index that has these.

    :raises InputError: one is not.
    """
    names = [name for name, _ in weights]
    for name in names:
        if name not in there:
            raise InputError(
                f"expected a channel of {', '.join(there)}, found {name}, which this index lacks",
                remedy=f"leave it out, or add it: {_ADDING[name]}",
            )
    return names


def hits_of(snapshot: Snapshot, plan: Plan, queries: Sequence[str], threads: int) -> Sequence[Sequence[Hit]]:
    """The hits of each of some questions."""
    names = require_channels(plan.weights, snapshot.names)
    channels, searchers = snapshot.channels, snapshot.channels.searchers
    if not plan.fused:
        own, depth = searchers[names[0]], plan.offset + plan.k
        options: dict[str, Any] = {"filter": plan.filter, "collapse": plan.collapse}
        ranked = own.rank(queries, depth, threads, **options, deepest=plan.deepest)
        return own.batch_hits([one.part(plan.offset, depth) for one in ranked])
    page: dict[str, Any] = {"offset": plan.offset, "filter": plan.filter, "collapse": plan.collapse}
    return fused_hits(Fusion(dict(plan.weights)), channels, queries, plan.k, threads, **page)


def _shown(snapshot: Snapshot, plan: Plan, query: str, hits: Sequence[Hit]) -> list[dict[str, Any]]:
    shown = []
    explained = _explained(snapshot, query, hits) if plan.explain else [{}] * len(hits)
    for rank, (hit, more) in enumerate(zip(hits, explained, strict=True), plan.offset + 1):
        shown.append({"rank": rank, **hit.as_dict(), **more})
    return shown


def _explained(snapshot: Snapshot, query: str, hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """For each hit a snippet, the words in it to mark and each term's share of the score by impacts.

    A hit of another channel has them too, where there are impacts: they say which of its words count. In an
    index for BM25 alone, its words are marked.
    """
    tokenizer = snapshot.lucene.tokenizer
    by_impacts = IMPACT in snapshot.names
    ids = [hit.passage_id for hit in hits]
    shares = term_shares(snapshot.lucene, query, ids) if by_impacts else [()] * len(hits)
    words = set(tokenizer.terms(query))
    by_words = None if by_impacts else word_snippets(snapshot.lucene, query)
    explained = []
    for hit, own in zip(hits, shares, strict=True):
        terms = [share for share in own if share.impact]
        shares_of_terms = {s.term: float(s.share) for s in terms}
        snippet = (
            by_words(hit.text) if by_words else marked_snippet(tokenizer, hit.text, shares_of_terms or words)
        )
        total = sum(share.share for share in terms) or len(words) or 1
        marks = [[start, end, round(share / total, 4)] for start, end, share in snippet.marks]
        more = {"terms": [share.as_dict() for share in terms]} if by_impacts else {}
        explained.append({**more, "snippet": snippet.text, "marks": marks})
    return explained
