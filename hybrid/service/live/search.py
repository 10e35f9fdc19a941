"""Searches a batch of questions together and writes the results as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hybrid.retrieval.channels import CHANNELS, DENSE, Channels, channel
from hybrid.retrieval.fusion import Fusion, parse_weights
from hybrid.retrieval.searcher import HybridSearcher
from hybrid.service.errors import as_exception
from hybrid.service.metrics import Metrics
from hybrid.service.schemas import dumps
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.base.records import Hit
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.index.reader import IndexReader
from sparta.search.explain import marked_snippet, term_shares, word_snippets
from sparta.search.retriever import Page
from sparta.search.searcher import IMPACT, Searcher

_ADDING: dict[str, Remedy] = {
    DENSE: remedy("{}", Command.of("dense index")),
    IMPACT: remedy(
        "{}, with {} if sparta ships no model for its language",
        Command.of("sparta index", corpus="FILE", resume=True),
        Option("model", "FOLDER"),
    ),
}
"""What adds a channel; BM25 every index has."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of a search; questions with equal plans share one call into Java.

    `weights` are the channels with their weights; `name` is the request's spelling of them.
    """

    name: str
    weights: tuple[tuple[str, float], ...]
    page: Page = field(default_factory=Page)
    explain: bool = False

    @property
    def fused(self) -> bool:
        """Whether rankings are fused; a single channel with a weight counts as fused."""
        return "," in self.name or "=" in self.name


@dataclass(frozen=True, slots=True)
class Job:
    """The questions of one request; `one` is false if the request sent a list."""

    queries: Sequence[str]
    plan: Plan
    one: bool = True
    began: float = field(default_factory=time.perf_counter)


@lru_cache(256)
def weights_of(channels: str) -> tuple[tuple[str, float], ...]:
    """Return the channels of a request with their weights.

    :raises InputError: a channel is unknown, or a weight is no number
    """
    if "," in channels or "=" in channels:
        return tuple(parse_weights(channels, CHANNELS, option="").items())
    return ((channel(channels), 1.0),)


class BatchSearch(Closing):
    """Answers jobs: one call into Java searches all jobs of a plan, one more reads the records of their hits.

    :param reader: reader of the index; closing this object closes the reader
    :param threads: number of Java's threads per call
    """

    def __init__(self, reader: IndexReader, threads: int, metrics: Metrics) -> None:
        self.reader, self._threads, self._metrics = reader, threads, metrics
        self.lucene = Searcher(reader)
        self._channels = Channels(reader, CHANNELS)

    def __call__(self, jobs: Sequence[Job]) -> list[bytes | Exception]:
        """Return the answer of each job as JSON, or its exception; all answers come from one commit."""
        plans: dict[Plan, list[int]] = {}
        for number, job in enumerate(jobs):
            plans.setdefault(job.plan, []).append(number)
        answers: list[bytes | Exception] = [b""] * len(jobs)
        self._metrics.batch(sum(len(job.queries) for job in jobs))
        with self.reader.holding():
            for plan, numbers in plans.items():
                plan_jobs = [jobs[number] for number in numbers]
                for number, answer in zip(numbers, self._tried(plan, plan_jobs), strict=True):
                    answers[number] = answer
        return answers

    def _tried(self, plan: Plan, jobs: Sequence[Job]) -> Sequence[bytes | Exception]:
        """Return the answers of jobs with one plan; if the call fails, each job is searched alone."""
        try:
            return self.answers(plan, jobs)
        except BaseException as error:  # also a panic of the tokenizer
            if len(jobs) == 1:
                return [as_exception(error)]
        return [self._tried(plan, [job])[0] for job in jobs]

    def answers(self, plan: Plan, jobs: Sequence[Job]) -> list[bytes]:
        """Return the answers of jobs with the same plan."""
        queries = [query for job in jobs for query in job.queries]
        hits = iter(self.hits(plan, queries))
        version = self.reader.version._asdict()
        answers = []
        for job in jobs:
            results = [
                {"query": query, "hits": self._shown(plan, query, next(hits))} for query in job.queries
            ]
            answer: dict[str, Any] = results[0] if job.one else {"results": results}
            took = round((time.perf_counter() - job.began) * 1000, 3)
            answers.append(dumps({**answer, "channels": plan.name, "version": version, "took_ms": took}))
        return answers

    @property
    def channels(self) -> list[str]:
        """The channels of the index."""
        with self.reader.reading() as snapshot:
            return [name for name in CHANNELS if name in snapshot.channels]

    def hits(self, plan: Plan, queries: Sequence[str]) -> list[list[Hit]]:
        """The hits of each of some questions."""
        names = require_channels(plan.weights, self.channels)
        if plan.fused:
            retriever = HybridSearcher(self._channels, Fusion(dict(plan.weights)))
            return retriever.search_all(queries, plan.page, self._threads)
        return self._channels.searchers[names[0]].search_all(queries, plan.page, self._threads)

    def close(self) -> None:
        """Release the index."""
        self._channels.close()

    def _shown(self, plan: Plan, query: str, hits: Sequence[Hit]) -> list[dict[str, Any]]:
        shown = []
        explained = self._explained(query, hits) if plan.explain else [{}] * len(hits)
        for rank, (hit, more) in enumerate(zip(hits, explained, strict=True), plan.page.offset + 1):
            shown.append({"rank": rank, **hit.as_dict(), **more})
        return shown

    def _explained(self, query: str, hits: Sequence[Hit]) -> list[dict[str, Any]]:
        """Return for each hit a snippet, its marked words, and each term's share of the impact score.

        Hits of other channels have them too, if the index has impacts. In a BM25-only index, words are marked
        without shares.
        """
        tokenizer = self.lucene.tokenizer
        by_impacts = IMPACT in self.channels
        ids = [hit.passage_id for hit in hits]
        shares = term_shares(self.lucene, query, ids) if by_impacts else [()] * len(hits)
        words = set(tokenizer.terms(query))
        by_words = None if by_impacts else word_snippets(self.lucene, query)
        explained = []
        for hit, hit_shares in zip(hits, shares, strict=True):
            terms = [share for share in hit_shares if share.impact]
            shares_of_terms = {s.term: float(s.share) for s in terms}
            snippet = (
                by_words(hit.text)
                if by_words
                else marked_snippet(tokenizer, hit.text, shares_of_terms or words)
            )
            total = sum(share.share for share in terms) or len(words) or 1
            marks = [[start, end, round(share / total, 4)] for start, end, share in snippet.marks]
            more = {"terms": [share.as_dict() for share in terms]} if by_impacts else {}
            explained.append({**more, "snippet": snippet.text, "marks": marks})
        return explained


def require_channels(weights: Sequence[tuple[str, float]], there: Sequence[str]) -> list[str]:
    """Return the names of the channels, if the index has all of them.

    :raises InputError: the index lacks a channel
    """
    names = [name for name, _ in weights]
    for name in names:
        if name not in there:
            raise InputError(
                f"the index has no channel {name}; its channels: {', '.join(there)}",
                remedy=remedy("omit the channel, or add the channel with: {}", _ADDING[name]),
            )
    return names
