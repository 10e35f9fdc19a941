"""Every channel of an index beside their fusion, on questions whose answers or passages are known."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hybrid.answers import answer_recall
from hybrid.evaluate import Evaluated, read_judged_run, search_index
from hybrid.fusion import Fusion, Run
from hybrid.measures import Evaluation, evaluate, p_values
from hybrid.tables import Cell, Table
from hybrid.testsets import Qrels
from sparta.base.errors import InputError
from sparta.base.queries import read_queries
from sparta.base.records import Query, ScoredPassage
from sparta.base.trec import read_qrels
from sparta.layout import IndexFolder
from sparta.search import Hit, Searcher

MEASURES = ("RR", "nDCG@10")
RECALL_AT = (20, 100)
HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions, and what is known of them: passages (qrels), answers, or both."""

    name: str
    queries: tuple[Query, ...]
    qrels: Qrels


def questions_beside(index: Path) -> Asked:
    """Return the questions that lie beside the corpus of an index: `questions.jsonl`, maybe `qrels.tsv`.

    :raises InputError: there are none; another set can be named.
    """
    generation = IndexFolder(index).state().searchable
    source = (generation.job.get("source") if generation else None) or ""
    folder = Path(source).parent if source else index
    if not source or not (folder / "questions.jsonl").is_file():
        raise InputError(
            "expected questions beside the index's corpus (questions.jsonl), found none",
            where=str(folder),
            remedy="name a folder that has queries.jsonl and qrels: --dataset DIR",
        )
    return _known(folder.name, folder / "questions.jsonl", folder / "qrels.tsv")


def questions_of(folder: Path) -> Asked:
    """Return the questions of a BEIR folder, or of one with `questions.jsonl` and answers."""
    for queries, qrels in (("queries.jsonl", "qrels/test.tsv"), ("questions.jsonl", "qrels.tsv")):
        if (folder / queries).is_file():
            return _known(folder.name, folder / queries, folder / qrels)
    raise InputError(
        "expected queries.jsonl with qrels/test.tsv, or questions.jsonl, found neither",
        where=str(folder),
        remedy="complete the folder, or name another",
    )


def _known(name: str, queries: Path, qrels: Path) -> Asked:
    judged = read_qrels(qrels) if qrels.is_file() else {}
    asked = tuple(q for q in read_queries(queries) if q.answers or q.query_id in judged)
    if not asked:
        raise InputError(
            "expected questions with answers or judged passages, found none",
            where=str(queries),
            remedy="give them answers, or qrels beside them",
        )
    return Asked(name, asked, judged)


def compare(
    index: Path,
    asked: Asked,
    fusion: Fusion,
    *,
    match: str = "string",
    threads: int = 2,
) -> Evaluated:
    """Search every channel, fuse, and measure all of them to the same depth; the fusion comes last."""
    depth = max(fusion.candidates, *RECALL_AT)
    ids = [q.query_id for q in asked.queries]
    texts = [q.text for q in asked.queries]
    runs: dict[str, Run] = {}
    shown: dict[str, str] = {}
    facts: list[dict[str, float]] = []
    for channel in fusion.weights:
        with Searcher(index, channel=channel) as searcher:
            searcher.batch_search(texts[:5], ids[:5], depth, threads)
            started = time.perf_counter()
            hits = searcher.batch_search(texts, ids, depth, threads)
            seconds = time.perf_counter() - started
            for found in hits.values():
                for hit in found:
                    if hit.docid not in shown:
                        shown[hit.docid] = text_of(hit)
        runs[channel] = {q: [ScoredPassage(h.docid, h.score) for h in found] for q, found in hits.items()}
        facts.append({"ms": 1000 * seconds / len(ids)})
    started = time.perf_counter()
    runs[HYBRID] = fusion.fuse_runs(runs, depth)
    own = 1000 * (time.perf_counter() - started) / len(ids)
    facts.append({"ms": own + sum(fact["ms"] for fact in facts)})
    evaluations = [measured(name, run, asked, shown, match) for name, run in runs.items()]
    return Evaluated(asked.name, evaluations, facts)


def compare_runs(paths: Sequence[Path], qrels: Path, fusion: Fusion) -> Evaluated:
    """Fuse runs that are there, named by the fusion's weights in their order, and measure all of them."""
    if len(fusion.weights) < len(paths) or HYBRID in fusion.weights:
        raise InputError(
            f"expected runs with names of their own, none of them {HYBRID!r}, found"
            f" {', '.join(map(str, paths))}",
            remedy="give the files other names",
        )
    judged = read_qrels(qrels)
    runs: dict[str, Run] = {
        name: read_judged_run(path, judged, qrels) for name, path in zip(fusion.weights, paths, strict=True)
    }
    depth = max(len(found) for run in runs.values() for found in run.values())
    runs[HYBRID] = fusion.fuse_runs(runs, depth)
    evaluations = [evaluate(name, run, judged, MEASURES) for name, run in runs.items()]
    return Evaluated(qrels.stem, evaluations)


def search_both(index: Path, question: str, fusion: Fusion, k: int) -> list[dict[str, Any]]:
    """Answer one question from all channels: rank, score, passage id, text, and the rank in each channel."""
    rankings: dict[str, list[ScoredPassage]] = {}
    texts: dict[str, str] = {}
    for channel in fusion.weights:
        with Searcher(index, channel=channel) as searcher:
            hits = searcher.search(question, fusion.candidates)
            rankings[channel] = [ScoredPassage(h.docid, h.score) for h in hits]
            texts |= {h.docid: text_of(h) for h in hits}
    places = {name: {p.passage_id: i for i, p in enumerate(r, 1)} for name, r in rankings.items()}
    return [
        {
            "rank": rank,
            "score": found.score,
            "docid": found.passage_id,
            "ranks": {name: own.get(found.passage_id) for name, own in places.items()},
            "text": texts[found.passage_id],
        }
        for rank, found in enumerate(fusion.fuse(rankings, k), 1)
    ]


def text_of(hit: Hit) -> str:
    """Return the text of a passage found, without its title."""
    record = hit.doc()
    return str(record.get("text") or record.get("contents") or "")


def measured(
    name: str, run: Run, asked: Asked, shown: Mapping[str, str], match: str = "string"
) -> Evaluation:
    """Measure one run by answers, by judged passages, or by both."""
    per_query: dict[str, Mapping[str, float]] = {}
    answers = {q.query_id: q.answers for q in asked.queries if q.answers}
    if answers:
        texts = {q: [shown[p.passage_id] for p in run.get(q, ())] for q in answers}
        per_query |= answer_recall(name, texts, answers, RECALL_AT, match=match).per_query
    if asked.qrels:
        per_query |= evaluate(name, run, asked.qrels, MEASURES).per_query
    return Evaluation(name, per_query)


def compare_table(sets: Sequence[Evaluated]) -> Table:
    """One row for each set and channel; p of RR, or of the first measure, against the best single channel.

    The p of the fusion says whether it differs from the best single channel (paired t-test; Holm).
    """
    rows: list[list[Cell]] = []
    measures = list(dict.fromkeys(m for one in sets for m in one.evaluations[0].per_query))
    for one in sets:
        known = one.evaluations[0].per_query
        first = "RR" if "RR" in known else next(iter(known))
        *channels, _ = one.evaluations
        best = max(channels, key=lambda e: e.mean(first))
        others = [e for e in one.evaluations if e is not best]
        p = {e.name: value for e, value in zip(others, p_values(best, others, first), strict=True)}
        facts = one.facts or [{}] * len(one.evaluations)
        for evaluation, fact in zip(one.evaluations, facts, strict=True):
            chance = "" if evaluation is best else f"{p[evaluation.name]:.3f}"
            means: list[Cell] = [100 * evaluation.mean(m) if m in known else None for m in measures]
            rows.append([one.name, evaluation.name, *means, chance, *fact.values()])
    timed = ["ms a question"] if sets[0].facts else []
    return Table(["set", "channel", *measures, "p", *timed], rows, digits=2)


def tune(
    index: Path,
    asked: Asked,
    fusion: Fusion,
    alphas: Sequence[float],
    measure: str = "RR",
    *,
    threads: int = 2,
) -> list[tuple[float, float]]:
    """Return the measure's mean for each α of `base + α·bm25` (TASER, §4.3), else fused as `fusion` says."""
    if not asked.qrels:
        raise InputError("expected judged passages to tune on, found none", where=asked.name)
    runs: dict[str, Run] = {
        channel: search_index(index, channel, asked.queries, fusion.candidates, threads)[0]
        for channel in fusion.weights
    }
    return [
        (
            alpha,
            evaluate("", weighed(fusion, alpha).fuse_runs(runs), asked.qrels, [measure]).mean(measure),
        )
        for alpha in alphas
    ]


def weighed(fusion: Fusion, alpha: float) -> Fusion:
    """Return the same with another α: the weight of all channels but the base."""
    base = next(iter(fusion.weights))
    return replace(fusion, weights={name: 1.0 if name == base else alpha for name in fusion.weights})
