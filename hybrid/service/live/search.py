"""Searches a batch of questions together and writes the results as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, cast

from hybrid.retrieval.channels import CHANNELS, Channels, channel
from hybrid.retrieval.fusion import Fusion, parse_weights
from hybrid.retrieval.searcher import HybridSearcher
from hybrid.service.errors import as_exception
from hybrid.service.live.hits import hit_objects
from hybrid.service.metrics import IndexMetrics
from hybrid.service.schemas import dumps
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.base.records import ChannelPlace, Hit, Ranking
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.index.channels import DENSE
from sparta.index.reader import IndexReader
from sparta.rerank.reranked import reranked
from sparta.search.explain import TermContribution, term_contributions
from sparta.search.facets import count_values
from sparta.search.retriever import Page, Retriever
from sparta.search.searcher import IMPACT, Searcher, is_fusion
from sparta.search.snippet import marked_snippet, word_snippets

if TYPE_CHECKING:
    from dense.channel.searcher import DenseSearcher

_MOST_VALUES = 1000  # of a facet, in one answer


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of a search; questions with equal plans share one call into Java.

    `weights` are the channels with their weights; `name` is the request's spelling of the channels. `rerank`
    is the number of first hits that the cross-encoder orders anew.
    """

    name: str
    weights: tuple[tuple[str, float], ...]
    page: Page = field(default_factory=Page)
    explain: bool = False
    facets: tuple[str, ...] = ()
    rerank: int = 0

    @property
    def fused(self) -> bool:
        """Whether rankings are fused; a single channel with a weight counts as fused."""
        return is_fusion(self.name)

    @property
    def is_dense(self) -> bool:
        """Whether the search needs the vectors of its queries."""
        return any(name == DENSE for name, _ in self.weights)


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
    if is_fusion(channels):
        return tuple(parse_weights(channels, CHANNELS, option=None).items())
    return ((channel(channels), 1.0),)


class BatchSearch(Closing):
    """Answers jobs: one call into Java searches all jobs of a plan, a second reads the records of all hits.

    One run of the network encodes the queries of all jobs that need vectors, whatever their plans.

    :param reader: reader of the index; closing this object closes the reader
    :param threads: number of Java's threads per call
    :param reranker: folder or name of the cross-encoder; None if no plan reranks
    """

    def __init__(
        self, reader: IndexReader, threads: int, metrics: IndexMetrics, reranker: str | None = None
    ) -> None:
        self.reader, self._threads, self._metrics = reader, threads, metrics
        self._reranker = reranker
        self.lucene = Searcher(reader)
        self._channels = Channels(reader, CHANNELS)
        self._dense = cast("DenseSearcher", self._channels.searchers[DENSE])

    def __call__(self, jobs: Sequence[Job]) -> list[bytes | Exception]:
        """Return the answer of each job as JSON, or its exception; all answers come from one commit."""
        plans: dict[Plan, list[int]] = {}
        for number, job in enumerate(jobs):
            plans.setdefault(job.plan, []).append(number)
        answers: list[bytes | Exception] = [b""] * len(jobs)
        self._metrics.batch(sum(len(job.queries) for job in jobs))
        with self.reader.holding(), self._encoded(jobs):
            for plan, job_numbers in plans.items():
                plan_jobs = [jobs[number] for number in job_numbers]
                for number, answer in zip(job_numbers, self._tried(plan, plan_jobs), strict=True):
                    answers[number] = answer
        return answers

    @contextmanager
    def _encoded(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Encode the queries of all dense and fused jobs in one run of the network.

        If the run fails, each plan encodes its queries, so that only the job with the bad query fails.
        """
        queries = [query for job in jobs if job.plan.is_dense for query in job.queries]
        with ExitStack() as stack:
            if queries and DENSE in self.channels:
                with suppress(BaseException):  # also a panic of the tokenizer
                    stack.enter_context(self._dense.encoded(queries))
            yield

    def _tried(self, plan: Plan, jobs: Sequence[Job]) -> Sequence[bytes | Exception]:
        """Return the answers of jobs with one plan; if the call fails, each job is searched alone."""
        try:
            return self.answers(plan, jobs)
        except BaseException as error:  # also a panic of the tokenizer
            if len(jobs) == 1:
                return [as_exception(error)]
        return [self._tried(plan, [job])[0] for job in jobs]

    def answers(self, plan: Plan, jobs: Sequence[Job], stop: Event | None = None) -> list[bytes]:
        """Return the answers of jobs with the same plan.

        :raises CancelledError: `stop` was set before the hits of all queries were explained and counted
        """
        queries = [query for job in jobs for query in job.queries]
        hits_of_queries = iter(self._hit_objects(plan, queries))
        version = self.reader.version._asdict()
        answers = []
        for job in jobs:
            results = []
            for query in job.queries:
                if stop is not None and stop.is_set():
                    raise CancelledError
                hits = self._shown(plan, query, *next(hits_of_queries))
                results.append({"query": query, "hits": hits, **self._facets(plan, query)})
            answer: dict[str, Any] = results[0] if job.one else {"results": results}
            took = round((time.perf_counter() - job.began) * 1000, 3)
            facts = {"channels": plan.name, "rerank": plan.rerank, "version": version, "took_ms": took}
            answers.append(dumps({**answer, **facts}))
        return answers

    @property
    def channels(self) -> list[str]:
        """The channels of the index."""
        with self.reader.snapshot() as snapshot:
            return [name for name in CHANNELS if name in snapshot.channels]

    def hits(self, plan: Plan, queries: Sequence[str]) -> list[list[Hit]]:
        """Return the hits of each query.

        :raises InputError: the index lacks a channel of the plan
        """
        retriever = self.retriever(plan)
        return retriever.search_all(queries, plan.page, self._threads)

    def retriever(self, plan: Plan) -> Retriever:
        """Return the retriever of a plan.

        :raises InputError: the index lacks a channel of the plan
        """
        names = require_channels(plan.weights, self.channels)
        retriever: Retriever = self._channels.searchers[names[0]]
        if plan.fused:
            retriever = HybridSearcher(self._channels, Fusion(dict(plan.weights)))
        if plan.rerank and self._reranker is not None:
            return reranked(retriever, self._reranker, plan.rerank)
        return retriever

    def _hit_objects(
        self, plan: Plan, queries: Sequence[str]
    ) -> list[tuple[list[dict[str, Any]], Sequence[int] | None]]:
        """Return the hits of each query as JSON objects, and their docids; None for joined hits."""
        retriever, page = self.retriever(plan), plan.page
        if page.join:
            hits_of_queries = retriever.search_all(queries, page, self._threads)
            return [
                ([{"rank": rank, **hit.as_dict()} for rank, hit in enumerate(hits, page.offset + 1)], None)
                for hits in hits_of_queries
            ]
        with self.reader.snapshot() as snapshot, self.reader.holding(snapshot):
            rankings: list[Ranking] = []
            places: list[list[dict[str, ChannelPlace]] | None] = []
            if isinstance(retriever, HybridSearcher):
                for ranking in retriever.fused_rankings(queries, page, self._threads):
                    rankings.append(ranking)
                    places.append(ranking.places())
            else:
                rankings = retriever.rank(queries, page, self._threads)
                places = [None] * len(rankings)
            docids = [docid for ranking in rankings for docid in ranking.docids]
            records = iter(snapshot.lucene.raws(docids))
        return [
            (hit_objects(ranking, records, page.offset, ranking_places), ranking.docids)
            for ranking, ranking_places in zip(rankings, places, strict=True)
        ]

    def close(self) -> None:
        """Release the index."""
        self._channels.close()

    def _shown(
        self, plan: Plan, query: str, hits: list[dict[str, Any]], docids: Sequence[int] | None
    ) -> list[dict[str, Any]]:
        """Return a query's hits, with explanations if the plan says so."""
        if plan.explain:
            for hit, explanation in zip(hits, self._explained(query, hits, docids), strict=True):
                hit.update(explanation)
        return hits

    def _facets(self, plan: Plan, query: str) -> dict[str, Any]:
        """Return the counts of the plan's facets; of many values, the most frequent ones."""
        if not plan.facets:
            return {}
        page = plan.page
        counts = count_values(self.retriever(plan), query, plan.facets, filter=page.filter, hits=page.hits)
        shown = {field: dict(islice(values.items(), _MOST_VALUES)) for field, values in counts.items()}
        return {"facets": shown}

    def _explained(
        self, query: str, hits: Sequence[dict[str, Any]], docids: Sequence[int] | None
    ) -> list[dict[str, Any]]:
        """Return for each hit a snippet, its marked words, and each term's contribution to the impact score.

        If the index has impacts, hits of other channels get these contributions too. In a BM25-only index,
        words are marked without contributions, and the marks have no shares.
        """
        tokenizer = self.lucene.tokenizer
        has_impacts = IMPACT in self.channels
        places = [(hit["id"], hit.get("start", 0)) for hit in hits]
        contributions: Sequence[tuple[TermContribution, ...]] = [()] * len(hits)
        if has_impacts:
            contributions = term_contributions(self.lucene, query, places, docids)
        query_words = set(tokenizer.terms(query))
        word_snippet = None if has_impacts else word_snippets(self.lucene, query)
        explanations = []
        for hit, terms in zip(hits, contributions, strict=True):
            contribution_of_term = {term.term: float(term.contribution) for term in terms}
            snippet = (
                word_snippet(hit["text"])
                if word_snippet
                else marked_snippet(tokenizer, hit["text"], contribution_of_term or query_words)
            )
            total = sum(term.contribution for term in terms)
            marks = [
                [start, end, round(added / total, 4) if total else None]
                for start, end, added in snippet.marks
            ]
            term_objects = {"terms": [term.as_dict() for term in terms]} if has_impacts else {}
            explanations.append({**term_objects, "snippet": snippet.text, "marks": marks})
        return explanations


def require_channels(
    weights: Sequence[tuple[str, float]], there: Sequence[str], index: Path | None = None
) -> list[str]:
    """Return the names of the channels, if the index has all of them.

    :param index: the index, for the error's command; None says no path to a client of the service
    :raises InputError: the index lacks a channel
    """
    names = [name for name, _ in weights]
    for name in names:
        if name not in there:
            raise InputError(
                f"the index has no channel {name}; its channels: {', '.join(there)}",
                remedy=remedy("omit the channel, or add the channel with: {}", _how_to_add(name, index)),
            )
    return names


def _how_to_add(channel: str, index: Path | None) -> Remedy:
    """Return the command that adds a channel to an index. Every index has BM25."""
    of_index = {} if index is None else {"index": index}
    if channel == DENSE:
        return remedy("{}", Command.of("dense index", **of_index))
    return remedy(
        "{}, with the other options of the index's first build, and with {} if sparta ships no model for its"
        " language",
        Command.of("sparta index", corpus="FILE", resume=True, **of_index),
        Option("model", "FOLDER"),
    )
