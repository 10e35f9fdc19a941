"""Runs chains on evaluation questions and measures their paths."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from hybrid.answering.answers import Answer
from hybrid.answering.path_answerer import answers_of
from hybrid.evaluation.measures import PATHS, SENTENCES, cutoff_of, kind_of
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evidence.measures import EvidenceSets, evidence_by_passage
from hybrid.evidence.supporting import Fact, facts_of, measured
from hybrid.multihop.measures import passage_em, path_recall
from hybrid.multihop.paths import distinct_evidence
from hybrid.multihop.searcher import ALL, ChainSearcher
from sparta.base.records import Advance, Hit, Run, ScoredPassage
from sparta.data.sentences import sentence_splitter
from sparta.data.units import is_chunk

EM = "passage_EM"
MEASURES = (EM, "path_recall@20", "R@20", "R@100")
"""The default measures of chains, in addition to the question set's default measures."""
_WARM_UP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ChainRun:
    """The results of a chain on a question set.

    `run` ranks the passages of the paths. `per_query` has the paths' measures by measure and query id, `ms`
    the milliseconds by query id and step name. `answers` has the answer by query id if the chain reads paths;
    None for a question without an answer. In an index of chunks, `hits` has the chunks of the paths by query
    id and passage id.
    """

    name: str
    run: Run
    per_query: Mapping[str, Mapping[str, float]]
    ms: Mapping[str, Mapping[str, float]]
    answers: Mapping[str, Answer | None] | None = None
    hits: Mapping[tuple[str, str], Hit] = field(default_factory=dict)

    def hit(self, query_id: str, passage_id: str) -> Hit:
        """Return a document's chunk in the paths."""
        return self.hits[query_id, passage_id]

    def median(self) -> float:
        """Return the median time of all steps together, in ms/query."""
        return median(sum(steps.values()) for steps in self.ms.values())

    def by_step(self) -> str:
        """Return the median time of each step as text: `search 8.1 + first 3.2`."""
        steps = next(iter(self.ms.values()))
        return " + ".join(
            f"{name} {median(step_ms[name] for step_ms in self.ms.values()):.1f}" for name in steps
        )


def run_chain(
    searcher: ChainSearcher,
    query_set: QuestionSet,
    depth: int,
    measures: Sequence[str],
    advance: Advance | None = None,
) -> ChainRun:
    """Run a chain on each question of a set, one question at a time.

    If the set is `excludes_query_id`, a hit with the query's id does not count.
    """
    evidence_sets = evidence_by_passage(query_set.gold, query_set.qrels)
    passage_of_hit = query_set.gold.passage if query_set.gold else str
    path_measures = [name for name in measures if name == EM or kind_of(name) is PATHS]
    sentence_measures = [name for name in measures if kind_of(name) is SENTENCES and searcher.tells_sentences]
    split_sentences, facts = sentence_splitter(query_set.language), dict[str, frozenset[Fact]]()
    runs, step_ms_by_query = dict[str, list[ScoredPassage]](), dict[str, dict[str, float]]()
    per_query: dict[str, dict[str, float]] = {name: {} for name in path_measures}
    answers: dict[str, Answer | None] = {}
    chunks: dict[tuple[str, str], Hit] = {}
    has_chunks = is_chunk(searcher.tools.words.unit)
    _warm_up(searcher, query_set)
    for query in query_set.queries:
        result = searcher.find_paths(query.text, ALL)
        hits = distinct_evidence(result.paths, depth + query_set.excludes_query_id)
        runs[query.query_id] = [
            ScoredPassage(hit.passage_id, hit.score)
            for hit in hits
            if not query_set.excludes_query_id or hit.passage_id != query.query_id
        ][:depth]
        if has_chunks:
            chunks |= {(query.query_id, hit.passage_id): hit for hit in hits}
        step_ms_by_query[query.query_id] = {name: 1000 * seconds for name, seconds in result.seconds.items()}
        if searcher.reads:
            answers[query.query_id] = next(iter(answers_of(result.paths[:1], query_set.language)), None)
        evidence_ids = [tuple(dict.fromkeys(map(passage_of_hit, path.evidence_ids))) for path in result.paths]
        if result.paths and (supporting := query_set.supporting.get(query.query_id)):
            facts[query.query_id] = facts_of(result.paths[0], supporting, split_sentences)
        for measure in path_measures if query.query_id in evidence_sets else ():
            per_query[measure][query.query_id] = _path_measure(
                measure, evidence_ids, evidence_sets[query.query_id]
            )
        if advance:
            advance(1)
    if sentence_measures:
        answer_texts = {query_id: answer.answer if answer else None for query_id, answer in answers.items()}
        values = measured(query_set.supporting, facts, answer_texts, query_set.answers, query_set.language)
        per_query |= {measure: values[measure] for measure in sentence_measures}
    name, read_answers = f"chain {searcher.channel}", answers if searcher.reads else None
    return ChainRun(name, runs, per_query, step_ms_by_query, read_answers, chunks)


def _warm_up(searcher: ChainSearcher, query_set: QuestionSet) -> None:
    """Run the chain on some questions before timing, since Java first has to compile frequent code."""
    deadline = time.monotonic() + _WARM_UP_SECONDS
    for query in query_set.queries:
        searcher.find_paths(query.text, 1)
        if time.monotonic() > deadline:
            return


def _path_measure(measure: str, paths: Sequence[Sequence[str]], sets: EvidenceSets) -> float:
    """Return a path measure of one question; the best of several evidence sets counts."""
    if k := cutoff_of(measure):
        return float(any(path_recall(paths, list(units), k) for units in sets))
    return float(any(passage_em(paths, list(units)) for units in sets))
