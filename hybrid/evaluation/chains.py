"""Chains put to the questions of a set, to be measured beside the channels of the index."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from hybrid.answering.answers import Answer
from hybrid.answering.path_answerer import answers_of
from hybrid.evaluation.measures import PATHS, SENTENCES, cutoff_of, kind_of
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evidence.measures import EvidenceSets, evidence_by_passage
from hybrid.evidence.supporting import Fact, facts_of, measured
from hybrid.multihop.measures import passage_em, path_recall
from hybrid.multihop.paths import passages_of
from hybrid.multihop.searcher import ALL, ChainSearcher
from sparta.base.records import Advance, Run, ScoredPassage
from sparta.data.sentences import sentence_splitter

EM = "passage_EM"
MEASURES = (EM, "path_recall@20", "R@20", "R@100")
"""What is measured of chains beside what a set is measured by anyway."""
_WARMING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ChainRun:
    """What a chain found: passages, measures of its paths by query, and milliseconds by query and step; the
    answers by query, if it reads paths (None where it found none).
    """

    name: str
    run: Run
    per_query: Mapping[str, Mapping[str, float]]
    ms: Mapping[str, Mapping[str, float]]
    answers: Mapping[str, Answer | None] | None = None

    def median(self) -> float:
        """Milliseconds of all steps together, of the median question."""
        return median(sum(steps.values()) for steps in self.ms.values())

    def by_step(self) -> str:
        """The median of each step: `search 8.1 + first 3.2`."""
        steps = next(iter(self.ms.values()))
        return " + ".join(f"{name} {median(one[name] for one in self.ms.values()):.1f}" for name in steps)


def run_chain(
    searcher: ChainSearcher,
    query_set: QuestionSet,
    depth: int,
    measures: Sequence[str],
    advance: Advance | None = None,
) -> ChainRun:
    """Ask a chain every question of a set, one at a time.

    Where the set is `without_own`, a hit with the query's own id does not count.
    """
    needed = evidence_by_passage(query_set.gold, query_set.qrels)
    passage = query_set.gold.passage if query_set.gold else str
    wanted = [m for m in measures if m == EM or kind_of(m) is PATHS]
    told = [m for m in measures if kind_of(m) is SENTENCES] if searcher.tells_sentences else []
    split, facts = sentence_splitter(query_set.language), dict[str, frozenset[Fact]]()
    runs, ms = dict[str, list[ScoredPassage]](), dict[str, dict[str, float]]()
    per_query: dict[str, dict[str, float]] = {m: {} for m in wanted}
    answers: dict[str, Answer | None] = {}
    _warm(searcher, query_set)
    for query in query_set.queries:
        found = searcher.search(query.text, ALL)
        hits = passages_of(found.paths, depth + query_set.without_own)
        runs[query.query_id] = [
            ScoredPassage(hit.passage_id, hit.score)
            for hit in hits
            if not query_set.without_own or hit.passage_id != query.query_id
        ][:depth]
        ms[query.query_id] = {name: 1000 * seconds for name, seconds in found.seconds.items()}
        if searcher.reads:
            answers[query.query_id] = next(iter(answers_of(found.paths[:1], query_set.language)), None)
        evidence = [tuple(dict.fromkeys(map(passage, path.evidence_ids))) for path in found.paths]
        if found.paths and (known := query_set.supporting.get(query.query_id)):
            facts[query.query_id] = facts_of(found.paths[0], known, split)
        for measure in wanted if query.query_id in needed else ():
            per_query[measure][query.query_id] = _measured(measure, evidence, needed[query.query_id])
        if advance:
            advance(1)
    if told:
        said = {q: answer.answer if answer else None for q, answer in answers.items()}
        values = measured(query_set.supporting, facts, said, query_set.answers, query_set.language)
        per_query |= {measure: values[measure] for measure in told}
    return ChainRun(f"chain {searcher.channel}", runs, per_query, ms, answers if searcher.reads else None)


def _warm(searcher: ChainSearcher, query_set: QuestionSet) -> None:
    """Ask some questions before they are timed, as channels are: Java compiles what it runs often."""
    until = time.monotonic() + _WARMING_SECONDS
    for query in query_set.queries:
        searcher.search(query.text, 1)
        if time.monotonic() > until:
            return


def _measured(measure: str, paths: Sequence[Sequence[str]], sets: EvidenceSets) -> float:
    """The best of several evidence sets."""
    if k := cutoff_of(measure):
        return float(any(path_recall(paths, list(units), k) for units in sets))
    return float(any(passage_em(paths, list(units)) for units in sets))
