"""Questions put to the channels of an index, and how good the rankings are that come back."""

from __future__ import annotations

import itertools
import logging
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
from hybrid.retrieval.channels import Channels
from hybrid.retrieval.fusion import Fusion
from sparta.base.errors import InputError
from sparta.base.records import Hit, Ranking, Run, ScoredPassage
from sparta.data.answers import has_answer
from sparta.data.units import is_chunk
from sparta.search.searcher import Searcher

_AT_ONCE = 500
_WARMING = 10  # queries that are asked before time is taken
logger = logging.getLogger("sparta.hybrid")


class Holds:
    """Whether a passage holds an answer to a question; decided once, when it is first asked for.

    :param text: gives the text of a passage that was found for a question, by the ids of both
    :param match: and `language`, as in `has_answer`.
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
        """Whether this passage holds an answer to this question."""
        key = query_id, passage_id
        if key not in self._known:
            text, answers = self._text(query_id, passage_id), self.answers[query_id]
            self._known[key] = has_answer(text, answers, match=self.match, language=self.language)
        return self._known[key]


def answer_recall(name: str, run: Run, holds: Holds, ks: Sequence[int] = (20, 100)) -> Evaluation:
    """Share of questions with an answer among the first K passages (DPR's top-K accuracy; R@K of the papers).

    Over all questions with known answers; one that the run does not answer counts 0.
    """
    deepest = max(ks)
    first = {
        q: next((i for i, hit in enumerate(run.get(q, ())[:deepest]) if holds(q, hit.passage_id)), deepest)
        for q in holds.answers
    }
    return Evaluation(
        name, {f"{ANSWER_RECALL}{k}": {q: float(at < k) for q, at in first.items()} for k in ks}
    )


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What each channel found for each question, which of it holds an answer, and the passages' records.

    `record` takes the ids of a question and of a passage: of a document in an index of chunks, the chunk that
    the first channel found, where each may have found another. With `by_question`, a passage's record differs
    between questions. `in_context` gives hits as a reader reads them. `pages` are those of the passages,
    where the questions have KILT's provenance. `ms` is the latency of a query by channel, where each was
    searched by itself.
    """

    query_set: QuestionSet
    runs: Mapping[str, Run]
    holds: Holds
    record: Callable[[str, str], dict[str, Any]]
    pages: Mapping[str, str] = field(default_factory=dict)
    by_question: bool = False
    ms: Mapping[str, float] = field(default_factory=dict)
    in_context: Callable[[Sequence[Hit]], list[Hit]] = list

    def with_pages(self, runs: Iterable[Run]) -> Retrieved:
        """The same with the pages of what other rankings hold, where pages count."""
        if not self.pages:
            return self
        found = {hit.passage_id: q for run in runs for q, own in run.items() for hit in own}
        ids = found.keys() - self.pages.keys()
        return replace(self, pages={**self.pages, **{i: page_of(i, self.record(found[i], i)) for i in ids}})

    def fused(self, fusion: Fusion, depth: int | None = None) -> Run:
        """Fuse what was found, to this depth."""
        return fusion.fuse_runs(self.runs, depth)

    def measured(self, name: str, run: Run, measures: Iterable[str]) -> Evaluation:
        """Measure a run by answers (`answer_recall@K`), evidence (`page_…`, `passage_…`), judged passages."""
        kinds = {measure: kind_of(measure) for measure in measures}
        depths = [cutoff_of(m) for m, kind in kinds.items() if kind is ANSWERS]
        of_sets = [m for m, kind in kinds.items() if kind in (PAGES, PASSAGES)]
        by_passage = [m for m, kind in kinds.items() if kind is JUDGED]
        per_query: dict[str, Mapping[str, float]] = {}
        if depths:
            per_query |= answer_recall(name, run, self.holds, depths).per_query
        if of_sets:
            asked = self.query_set
            gold = asked.gold or Gold({}, evidence_by_passage(None, asked.qrels))
            per_query |= by_evidence(run, gold, of_sets, self.pages.__getitem__)
        if by_passage:
            per_query |= evaluate(name, run, self._judgments(), by_passage).per_query
        return Evaluation(name, per_query)

    def _judgments(self) -> Qrels:
        """The judged passages; of KILT's provenance also what the index lacks, which is never found."""
        gold, qrels = self.query_set.gold, self.query_set.qrels
        if not gold or not qrels:
            return qrels
        named = {q: dict(own) for q, own in qrels.items()}
        for q, sets in gold.passages.items():
            known = named.setdefault(q, {})
            for unit in itertools.chain.from_iterable(sets):
                if unit and unit.isdisjoint(known):  # any of it would do
                    known[min(unit)] = 1
        return named


def depth_of(fusion: Fusion, measure: str = "") -> int:
    """Return how many passages of each channel are ranked: all candidates, and what is measured."""
    return max(fusion.candidates, *RECALL_AT, cutoff_of(measure))


class Shown(NamedTuple):
    """Where a passage that was found can be read: the first channel that found it, and its number there."""

    passage_id: str
    channel: str
    docid: int


def search_all(
    channels: Channels, query_set: QuestionSet, depth: int, threads: int = 2, *, one_by_one: bool = False
) -> Retrieved:
    """Search all channels side by side, each once.

    :param one_by_one: one after the other, and warm, to take the time: that of all questions together,
        divided by their number
    """
    first = next(iter(channels.searchers.values()))
    query_set, chunks = replace(query_set, language=first.language), is_chunk(first.unit)
    shown: dict[tuple[str, str], Shown] = {}
    pages: dict[str, str] = {}
    runs: dict[str, dict[str, list[ScoredPassage]]] = {name: {} for name in channels.searchers}
    groups = [[name] for name in channels.searchers] if one_by_one else [list(channels.searchers)]
    seconds = dict.fromkeys(channels.searchers, 0.0)
    if one_by_one:
        channels.batch_search([query.text for query in query_set.queries[:_WARMING]], depth, threads)
    for start in range(0, len(query_set.queries), _AT_ONCE):
        some = query_set.queries[start : start + _AT_ONCE]
        texts = [q.text for q in some]
        answers: dict[str, list[Ranking]] = {}
        for names in groups:
            began = time.monotonic()
            options: dict[str, Any] = {"names": names} if one_by_one else {}
            answers |= channels.batch_search(texts, depth + query_set.without_own, threads, **options)
            seconds[names[0]] += time.monotonic() - began
        for name, rankings in answers.items():
            for query, found in zip(some, rankings, strict=True):
                of = query.query_id if chunks else ""
                known = [
                    shown.setdefault((of, passage_id), Shown(passage_id, name, docid))
                    for passage_id, docid in zip(found.passage_ids, found.docids, strict=True)
                ]
                runs[name][query.query_id] = [
                    ScoredPassage(one.passage_id, score)  # one string for all places of a passage
                    for one, score in zip(known, found.scores, strict=True)
                    if not query_set.without_own or one.passage_id != query.query_id
                ][:depth]
        if query_set.gold:
            pages |= _pages(channels, [one for one in shown.values() if one.passage_id not in pages])

    def record(query_id: str, passage_id: str) -> dict[str, Any]:
        one = shown.get((query_id if chunks else "", passage_id))
        if one is None:  # that a chain found
            return words(channels).first_part(passage_id)
        return channels.searchers[one.channel].records([one.docid])[0]

    def text(query_id: str, passage_id: str) -> str:
        """The text of a stored record, without its title, as DPR matches it."""
        stored = record(query_id, passage_id)
        return str(stored.get("text") or stored.get("contents") or "")

    holds = Holds(query_set.answers, text, match=query_set.match, language=query_set.language)
    ms = {name: 1000 * spent / len(query_set.queries) for name, spent in seconds.items()}
    return Retrieved(
        query_set,
        runs,
        holds,
        record,
        pages,
        by_question=chunks,
        ms=ms if one_by_one else {},
        in_context=partial(as_read, first),
    )


def words(channels: Channels) -> Searcher:
    """A channel that lies in Lucene's index, where passages are found by their ids.

    :raises InputError: there is none.
    """
    found = next((one for one in channels.searchers.values() if isinstance(one, Searcher)), None)
    if found is None:
        raise InputError("expected impact or bm25 among the channels beside a chain, found neither")
    return found


def _pages(channels: Channels, passages: Sequence[Shown]) -> dict[str, str]:
    """The pages of passages, read together."""
    pages = {}
    for name, searcher in channels.searchers.items():
        own = [one for one in passages if one.channel == name]
        records = searcher.records([one.docid for one in own])
        pages.update(
            {one.passage_id: page_of(one.passage_id, r) for one, r in zip(own, records, strict=True)}
        )
    return pages


def warn_if_none_judged(retrieved: Retrieved) -> None:
    """Say so when no channel found anything judged: then questions and index hardly belong together."""
    gold = retrieved.query_set.gold
    if gold and gold.pages and gold.page_ids().isdisjoint(retrieved.pages.values()):
        logger.warning(
            "%s: none of the pages of its provenance was found by any channel: are they pages of this index,"
            " by the same titles or Wikipedia ids?",
            retrieved.query_set.name,
        )
        return
    qrels = retrieved.query_set.qrels
    judged = {(q, p) for q, own in qrels.items() for p, relevance in own.items() if relevance > 0}
    hits = ((q, hit.passage_id) for run in retrieved.runs.values() for q, own in run.items() for hit in own)
    if judged and judged.isdisjoint(hits):
        logger.warning(
            "%s: none of its %d judged passages was found by any channel: are they passages of this index,"
            " with the same ids and unit?",
            retrieved.query_set.name,
            len(judged),
        )
