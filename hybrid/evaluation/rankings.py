"""Searches channels with evaluation queries and measures the rankings."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from hybrid.answering.answers import as_read
from hybrid.evaluation.measures import (
    ANSWER_RECALL,
    ANSWERS,
    JUDGED,
    PAGES,
    PASSAGES,
    RECALL_AT,
    Evaluation,
    cutoff_of,
    evaluate,
    kind_of,
)
from hybrid.evaluation.testsets import Qrels, QuestionSet
from hybrid.evidence.gold import page_of
from hybrid.evidence.measures import Gold, evidence_by_passage
from hybrid.evidence.measures import measured as by_evidence
from hybrid.retrieval.channels import ChannelGroup
from hybrid.retrieval.fusion import Fusion
from sparta.base.errors import InputError
from sparta.base.records import Hit, Ranking, Run, ScoredPassage
from sparta.data.answers import has_answer
from sparta.data.units import is_chunk
from sparta.rerank.reranked import RERANKED
from sparta.search.retriever import hit_of
from sparta.search.searcher import Searcher

HitOf = Callable[[str, str], Hit]
"""Returns a passage as a hit, from a query id and a passage id. The hit's score has no meaning."""
_BLOCK = 500  # queries that are searched together
_WARM_UP_QUERIES = 10
logger = logging.getLogger("sparta.hybrid")


class Holds:
    """Returns whether a passage contains an answer to a question; results are cached.

    :param text: returns the text of a passage, from a query id and a passage id
    :param match: how answers are matched, as in `has_answer`
    :param language: language of the matching rules, as in `has_answer`
    """

    def __init__(
        self,
        answers: Mapping[str, Sequence[str]],
        text: Callable[[str, str], str],
        *,
        match: str = "string",
        language: str = "en",
    ) -> None:
        self.answers, self.match, self.language = answers, match, language
        self._text = text
        self._known: dict[tuple[str, str], bool] = {}

    def __call__(self, query_id: str, passage_id: str) -> bool:
        """Return whether the passage contains an answer to the question."""
        key = query_id, passage_id
        if key not in self._known:
            text, answers = self._text(query_id, passage_id), self.answers[query_id]
            self._known[key] = has_answer(text, answers, match=self.match, language=self.language)
        return self._known[key]


class FusedHolds(Holds):
    """Returns whether a fusion's chunk contains an answer, from the results of the chunk's channel.

    :param channel_holds: returns the `Holds` of the channel that found a passage, from the same ids
    """

    def __init__(
        self, answers: Mapping[str, Sequence[str]], channel_holds: Callable[[str, str], Holds]
    ) -> None:
        super().__init__(answers, lambda *_: "")
        self._channel_holds = channel_holds

    def __call__(self, query_id: str, passage_id: str) -> bool:
        """Return whether the passage contains an answer to the question."""
        return self._channel_holds(query_id, passage_id)(query_id, passage_id)


def answer_recall(name: str, run: Run, holds: Holds, ks: Sequence[int] = (20, 100)) -> Evaluation:
    """Return DPR's top-K accuracy: the share of questions with an answer in the first K passages.

    Papers also call this measure R@K. The share is over all questions with known answers. A question that the
    run lacks counts 0.
    """
    limit = max(ks)
    first_ranks: dict[str, int] = {}
    for query_id in holds.answers:
        ranking = enumerate(run.get(query_id, ())[:limit])
        answer_ranks = (rank for rank, hit in ranking if holds(query_id, hit.passage_id))
        first_ranks[query_id] = next(answer_ranks, limit)
    per_query = {
        f"{ANSWER_RECALL}{k}": {query_id: float(rank < k) for query_id, rank in first_ranks.items()}
        for k in ks
    }
    return Evaluation(name, per_query)


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The rankings of a question set in several channels, with the passages' records and answer matches.

    `hit` returns the hit for a query id and a passage id. With `by_question`, a passage's text
    depends on the question. In an index of chunks, rankings may have different chunks of a document:
    `by_ranking` then holds the hits and the answer matches of each ranking (see `in_ranking`), and
    `hit` returns the chunk that the first channel found. `in_context` returns hits with the text that a
    reader reads. `pages` maps passage ids to pages if the questions have KILT's provenance. `ms` is each
    channel's latency in ms/query, if each channel was searched separately.
    """

    query_set: QuestionSet
    runs: Mapping[str, Run]
    holds: Holds
    hit: HitOf
    pages: Mapping[str, str] = field(default_factory=dict)
    by_question: bool = False
    ms: Mapping[str, float] = field(default_factory=dict)
    in_context: Callable[[Sequence[Hit]], list[Hit]] = list
    by_ranking: Mapping[str, Retrieved] = field(default_factory=dict)

    def in_ranking(self, name: str) -> Retrieved:
        """Return these rankings with the hits of one ranking, also if a cross-encoder ordered it anew."""
        return self.by_ranking.get(name.removesuffix(RERANKED), self)

    def with_hits(self, name: str, hit: HitOf, holds: Holds | None = None) -> Retrieved:
        """Return these rankings with the hits of one more ranking, for `in_ranking`."""
        holds = holds or _holds_of(self.query_set, hit)
        view = replace(self, hit=hit, holds=holds, by_ranking={})
        return replace(self, by_ranking={**self.by_ranking, name: view})

    def with_fusion(self, name: str, fusion: Fusion) -> Retrieved:
        """Return these rankings with the hits of a fusion, for `in_ranking`.

        A document's chunk is that of the first channel that ranks the document, as in `FusedRanking`.
        """
        if not self.by_ranking:
            return self
        channel_by_passage = {
            (query_id, hit.passage_id): channel
            for channel in reversed(list(fusion.weights))
            for query_id, ranking in self.runs[channel].items()
            for hit in ranking[: fusion.candidates]
        }

        def channel(query_id: str, passage_id: str) -> Retrieved:
            return self.by_ranking[channel_by_passage[query_id, passage_id]]

        def hit(query_id: str, passage_id: str) -> Hit:
            return channel(query_id, passage_id).hit(query_id, passage_id)

        def channel_holds(query_id: str, passage_id: str) -> Holds:
            return channel(query_id, passage_id).holds

        return self.with_hits(name, hit, FusedHolds(self.holds.answers, channel_holds))

    def with_pages(self, runs: Iterable[Run]) -> Retrieved:
        """Return the rankings with the pages of further runs' passages added, if the questions have pages."""
        if not self.pages:
            return self
        query_by_passage = {
            hit.passage_id: query_id for run in runs for query_id, hits in run.items() for hit in hits
        }
        new_hits = {
            passage_id: self.hit(query_by_passage[passage_id], passage_id)
            for passage_id in query_by_passage.keys() - self.pages.keys()
        }
        new_pages = {
            passage_id: page_of(passage_id, {**hit.metadata, "title": hit.title})
            for passage_id, hit in new_hits.items()
        }
        return replace(self, pages={**self.pages, **new_pages})

    def fused(self, fusion: Fusion, depth: int | None = None) -> Run:
        """Fuse the channels' rankings; each fused ranking has at most `depth` passages."""
        return fusion.fuse_runs(self.runs, depth)

    def measured(self, name: str, run: Run, measures: Iterable[str]) -> Evaluation:
        """Measure a run by answers (`answer_recall@K`), evidence (`page_…`, `passage_…`) or qrels."""
        kinds = {measure: kind_of(measure) for measure in measures}
        depths = [cutoff_of(measure) for measure, kind in kinds.items() if kind is ANSWERS]
        evidence_measures = [measure for measure, kind in kinds.items() if kind in (PAGES, PASSAGES)]
        judged_measures = [measure for measure, kind in kinds.items() if kind is JUDGED]
        per_query: dict[str, Mapping[str, float]] = {}
        if depths:
            per_query |= answer_recall(name, run, self.in_ranking(name).holds, depths).per_query
        if evidence_measures:
            query_set = self.query_set
            gold = query_set.gold or Gold({}, evidence_by_passage(None, query_set.qrels))
            per_query |= by_evidence(run, gold, evidence_measures, self.pages.__getitem__)
        if judged_measures:
            per_query |= evaluate(name, run, self._judgments(), judged_measures).per_query
        return Evaluation(name, per_query)

    def _judgments(self) -> Qrels:
        """Return the qrels; for KILT, evidence that the index lacks is added as a relevant passage."""
        gold, qrels = self.query_set.gold, self.query_set.qrels
        if not gold or not qrels:
            return qrels
        all_judgments = {query_id: dict(judgments) for query_id, judgments in qrels.items()}
        for query_id, sets in gold.passages.items():
            query_judgments = all_judgments.setdefault(query_id, {})
            for unit in itertools.chain.from_iterable(sets):
                if unit and unit.isdisjoint(
                    query_judgments
                ):  # any passage of the unit can stand for the unit
                    query_judgments[min(unit)] = 1
        return all_judgments


def depth_of(fusion: Fusion, measure: str = "") -> int:
    """Return the number of passages to rank per channel, sufficient for the fusion and the measure."""
    return max(fusion.candidates, *RECALL_AT, cutoff_of(measure))


def warn_of_few_candidates(fusions: Iterable[Fusion], measures: Sequence[str]) -> None:
    """Warn of measures that need more passages than a fusion of channels has candidates per channel."""
    candidates = min((fusion.candidates for fusion in fusions if len(fusion.weights) > 1), default=math.inf)
    for measure in _deeper(measures, candidates):
        logger.warning(
            "the measure %s needs more passages than the %d candidates per channel of a fusion",
            measure,
            candidates,
        )


def warn_of_few_hits(depth: int, measures: Sequence[str]) -> None:
    """Warn of measures that need more passages than each ranking has."""
    for measure in _deeper(measures, depth):
        logger.warning(
            "the measure %s needs more than the %d passages of each ranking: raise -k (in Python: depth)",
            measure,
            depth,
        )


def _deeper(measures: Sequence[str], depth: float) -> list[str]:
    """Return the measures whose cutoff is above a depth."""
    return [measure for measure in measures if cutoff_of(measure) > depth]


class FirstHit(NamedTuple):
    """A retrieved passage, with the first channel that found it and its docid there."""

    passage_id: str
    channel: str
    docid: int


def search_all(
    channels: ChannelGroup, query_set: QuestionSet, depth: int, threads: int = 2, *, one_by_one: bool = False
) -> Retrieved:
    """Search all channels with all questions, and return the rankings.

    :param one_by_one: search one channel after the other, after a warm-up, to measure each channel's latency.
        The latency is the time of all queries divided by the number of queries
    """
    first = next(iter(channels.searchers.values()))
    query_set, chunks = replace(query_set, language=first.language), is_chunk(first.unit)
    first_hits: dict[tuple[str, str, str], FirstHit] = {}
    pages: dict[str, str] = {}
    runs: dict[str, dict[str, list[ScoredPassage]]] = {name: {} for name in channels.searchers}
    groups = [[name] for name in channels.searchers] if one_by_one else [list(channels.searchers)]
    seconds = dict.fromkeys(channels.searchers, 0.0)
    if one_by_one:
        channels.batch_search([query.text for query in query_set.queries[:_WARM_UP_QUERIES]], depth, threads)
    for start in range(0, len(query_set.queries), _BLOCK):
        block = query_set.queries[start : start + _BLOCK]
        texts = [query.text for query in block]
        rankings_by_channel: dict[str, list[Ranking]] = {}
        for names in groups:
            start_time = time.monotonic()
            options: dict[str, Any] = {"names": names} if one_by_one else {}
            rankings_by_channel |= channels.batch_search(
                texts, depth + query_set.excludes_query_id, threads, **options
            )
            seconds[names[0]] += time.monotonic() - start_time
        for name, rankings in rankings_by_channel.items():
            for query, ranking in zip(block, rankings, strict=True):
                key = (name, query.query_id) if chunks else ("", "")
                ranked_passages = [
                    first_hits.setdefault((*key, passage_id), FirstHit(passage_id, name, docid))
                    for passage_id, docid in zip(ranking.passage_ids, ranking.docids, strict=True)
                ]
                runs[name][query.query_id] = [
                    ScoredPassage(passage.passage_id, score)  # all rankings share one string per passage id
                    for passage, score in zip(ranked_passages, ranking.scores, strict=True)
                    if not query_set.excludes_query_id or passage.passage_id != query.query_id
                ][:depth]
        if query_set.gold:
            pages |= _pages(channels, [hit for hit in first_hits.values() if hit.passage_id not in pages])

    def hit(query_id: str, passage_id: str, names: Sequence[str] = list(runs)) -> Hit:
        keys = ((name, query_id, passage_id) for name in names) if chunks else [("", "", passage_id)]
        first_hit = next((first_hits[key] for key in keys if key in first_hits), None)
        if first_hit is None:  # only a chain found the passage, or the qrels name it
            return hit_of(passage_id, 0.0, lucene_searcher(channels).first_part(passage_id))
        [record] = channels.searchers[first_hit.channel].records([first_hit.docid])
        return hit_of(passage_id, 0.0, record)

    ms = {name: 1000 * channel_seconds / len(query_set.queries) for name, channel_seconds in seconds.items()}
    retrieved = Retrieved(
        query_set,
        runs,
        _holds_of(query_set, hit),
        hit,
        pages,
        by_question=chunks,
        ms=ms if one_by_one else {},
        in_context=partial(as_read, first),
    )
    for name in runs if chunks else ():
        retrieved = retrieved.with_hits(name, partial(hit, names=[name]))
    return retrieved


def _holds_of(query_set: QuestionSet, hit: HitOf) -> Holds:
    """Return the answer matches of a question set in the texts of hits, without titles, as in DPR."""

    def text(query_id: str, passage_id: str) -> str:
        return hit(query_id, passage_id).text

    return Holds(query_set.text_answers, text, match=query_set.match, language=query_set.language)


def lucene_searcher(channels: ChannelGroup) -> Searcher:
    """Return a channel in the Lucene index, which finds passages by id.

    :raises InputError: no channel is impact or bm25.
    """
    for searcher in channels.searchers.values():
        if isinstance(searcher, Searcher):
            return searcher
    raise InputError("a chain needs the channel impact or bm25")


def _pages(channels: ChannelGroup, passages: Sequence[FirstHit]) -> dict[str, str]:
    """Return the pages of passages, by passage id; reads each channel's records in one call."""
    pages = {}
    for name, searcher in channels.searchers.items():
        channel_passages = [passage for passage in passages if passage.channel == name]
        records = searcher.records([passage.docid for passage in channel_passages])
        for passage, record in zip(channel_passages, records, strict=True):
            pages[passage.passage_id] = page_of(passage.passage_id, record)
    return pages


def warn_if_none_judged(retrieved: Retrieved) -> None:
    """Log a warning if no channel found a judged passage: the questions may belong to another index."""
    gold = retrieved.query_set.gold
    if gold and gold.pages and gold.page_ids().isdisjoint(retrieved.pages.values()):
        logger.warning(
            "%s: no channel found a page of the provenance. Check that this index has these pages, with the"
            " same titles or Wikipedia ids",
            retrieved.query_set.name,
        )
        return
    qrels = retrieved.query_set.qrels
    judged = {
        (query_id, passage_id)
        for query_id, judgments in qrels.items()
        for passage_id, relevance in judgments.items()
        if relevance > 0
    }
    hits = (
        (query_id, hit.passage_id)
        for run in retrieved.runs.values()
        for query_id, ranking in run.items()
        for hit in ranking
    )
    if judged and judged.isdisjoint(hits):
        logger.warning(
            "%s: no channel found any of the %d judged passages. Check that this index has these passages,"
            " with the same ids and unit",
            retrieved.query_set.name,
            len(judged),
        )
