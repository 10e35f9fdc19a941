"""Questions with two gold passages, and rankings of the second passage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hybrid.replications.tables.experiment import Experiment
from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy

if TYPE_CHECKING:
    from hybrid.evaluation.testsets import QuestionSet
    from sparta.base.records import Passage


KILT = ("kilt-hotpot", "kilt-passages")
"""The data of the tables on HotpotQA. KILT's provenance names the gold passages; HotpotQA's JSON does not."""


class TwoHops(NamedTuple):
    """Questions with two gold passages: the question, and the ids of the passages in order."""

    question: str
    first: str
    second: str


def two_hops(experiment: Experiment) -> tuple[list[TwoHops], list[Passage]]:
    """Return the questions with two gold passages, and the passages of the index.

    :raises InputError: the index has the gold passages of no question.
    """
    from hybrid.evaluation.questions import judged
    from sparta.search.searcher import Searcher

    index, questions = hotpot(experiment)
    gold = judged(questions, index).qrels
    hops = [
        TwoHops(query.text, *ids)
        for query in questions.queries
        if len(ids := list(gold.get(query.query_id, {}))) == 2
    ]
    if not hops:
        raise InputError(
            f"no question of {len(questions.queries)} has two gold passages in the index",
            where=str(experiment.path("kilt-hotpot")),
            remedy=remedy(
                "use KILT's data for the questions and the passages, and raise {}", Option("questions")
            ),
        )
    with Searcher(index) as searcher:
        return hops, list(searcher.live_passages())


def hotpot(experiment: Experiment, source: str = "kilt-hotpot") -> tuple[Path, QuestionSet]:
    """Return an index of the passages of multi-hop questions, and the questions within the cut.

    :param source: the questions, by the name of their source
    """
    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.tables.collection import index_of, kilt_texts, sampled

    questions = sampled(questions_of(experiment.path(source)), experiment)
    return index_of(experiment, "kilt", kilt_texts(experiment), [questions], "bm25"), questions


def searched(index: Path, queries: Sequence[str]) -> list[list[str]]:
    """Return the ids of BM25's 101 best passages for each query."""
    from sparta.search.searcher import Searcher

    with Searcher(index, channel="bm25") as searcher:
        run = searcher.run(queries, list(map(str, range(len(queries)))), 101)
    return [[hit.passage_id for hit in run.get(str(n), ())] for n in range(len(queries))]


def nearest(questions: Any, vectors: Any, passages: Sequence[Passage]) -> list[list[str]]:
    """Return the ids of the 101 passages with the highest dot products, for each question."""
    order = (-(questions @ vectors.T)).argsort(axis=1, kind="stable")[:, :101]
    return [[passages[row].passage_id for row in rows] for rows in order.tolist()]


def hits_of(ranked: Sequence[Sequence[str]], hops: Sequence[TwoHops], column: str) -> dict[str, Any]:
    """Return the share of questions whose second passage is among the 20 and 100 best, without the first."""
    rest = [[i for i in ids if i != hop.first] for ids, hop in zip(ranked, hops, strict=True)]
    return {
        f"{column} Top-{k}": 100
        * sum(h.second in ids[:k] for ids, h in zip(rest, hops, strict=True))
        / len(hops)
        for k in (20, 100)
    }
