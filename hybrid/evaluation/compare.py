"""Every channel of an index beside their fusions, on questions whose answers or passages are known."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean, median

from hybrid.answering.answers import Answer
from hybrid.evaluation.answering import JUDGED, Answering, measure_answers
from hybrid.evaluation.chains import MEASURES, run_chain
from hybrid.evaluation.measures import (
    SENTENCES,
    Evaluation,
    can_measure,
    cutoff_of,
    kind_of,
    measures_of,
    parse_any,
)
from hybrid.evaluation.rankings import depth_of, search_all, warn_if_none_judged, words
from hybrid.evaluation.results import SetResults, save_run
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evidence.supporting import OF_SENTENCES
from hybrid.multihop.searcher import ChainSearcher
from hybrid.retrieval.channels import Channels
from hybrid.retrieval.fusion import CANDIDATES, Fusion, named
from hybrid.retrieval.searcher import HybridSearcher
from sparta.base.checks import path_of, several
from sparta.base.errors import InputError
from sparta.base.files import make_folder
from sparta.base.records import Advance, Run
from sparta.base.remedies import Command, Option, remedy

logger = logging.getLogger("sparta.hybrid")

TIMED_QUERIES = 50
_WARMING = 150
_WARMING_DENSE = 5


def compare(
    channels: Channels,
    query_set: QuestionSet,
    fusions: Sequence[Fusion],
    *,
    threads: int = 2,
    output_runs: str | Path | None = None,
    answering: Answering | None = None,
    measures: Sequence[str] = (),
    chains: Sequence[ChainSearcher] = (),
    advance: Advance | None = None,
    depth: int | None = None,
    others: Mapping[str, Callable[[int], tuple[Run, float]]] | None = None,
    one_by_one: bool = False,
    judged: bool = False,
) -> SetResults:
    """Search every channel once, fuse in every way, and measure all rankings.

    A fusion ranks no more than its `candidates` of each channel.

    :param chains: asked every question one at a time, and measured beside the channels
    :param advance: told of each question that a chain was asked
    :param measures: what to measure, as far as the set allows it; nothing is what `measures_of` says
    :param output_runs: a folder in which to leave all rankings as TREC runs
    :param answering: also read the best passages of each ranking, and measure the answers; of a chain that
        reads its paths, the answer of the best one
    :param depth: how many passages are ranked; None is as many as fusions and measures need
    :param others: rankings besides, by name: each takes the depth and gives a run, and the seconds it took
    :param one_by_one: search one channel after the other, and take its time
    :param judged: also read the judged passages, as a ranking of its own
    """
    own = _measures(query_set, measures, chains)
    depth = depth or max(depth_of(fusion, m) for m in own for fusion in fusions or [Fusion()])
    few = min((one.candidates for one in fusions if len(one.weights) > 1), default=depth)
    for measure in own:
        if cutoff_of(measure) > few:
            logger.warning("%s: fusions have %d candidates of each channel", measure, few)
    if output_runs:
        make_folder(path_of(output_runs, "a folder"))  # before hours of searching
    retrieved = search_all(channels, query_set, depth, threads, one_by_one=one_by_one)
    warn_if_none_judged(retrieved)
    ranked = {name: rank(depth) for name, rank in (others or {}).items()}
    fused = {
        label: retrieved.fused(fusion, depth)
        for label, fusion in named(fusions).items()
        if label not in retrieved.runs  # one channel as it is
    }
    chained = [run_chain(chain, query_set, depth, own, advance) for chain in chains]
    retrieved = retrieved.with_pages(one.run for one in chained)
    more = {name: run for name, (run, _) in ranked.items()}
    runs = {**retrieved.runs, **more, **fused, **{one.name: one.run for one in chained}}
    if output_runs:
        for name, run in runs.items():
            save_run(output_runs, query_set.name, name, run)
    found = [retrieved.measured(name, run, own) for name, run in runs.items()]
    by_paths = {one.name: one.per_query for one in chained}
    found = [Evaluation(e.name, {**e.per_query, **by_paths.get(e.name, {})}) for e in found]
    answers: Mapping[str, Mapping[str, Answer | None]] = {}
    if answering:
        own_answers = {one.name: one.answers for one in chained if one.answers is not None}
        if judged:
            retrieved = replace(retrieved, query_set=_with_passages_there(channels, query_set))
        found, answers = measure_answers(retrieved, runs, found, answering, judged=judged, own=own_answers)
    return SetResults(
        query_set.name,
        found,
        fused=[*fused, *by_paths, *([JUDGED] if answering and judged else [])],
        answers=answers,
        ms={**_milliseconds(query_set, retrieved.ms, ranked), **{one.name: one.median() for one in chained}},
        left_out=query_set.left_out,
        misplaced=query_set.misplaced,
        steps={one.name: one for one in chained},
    )


def _with_passages_there(channels: Channels, query_set: QuestionSet) -> QuestionSet:
    """Return questions with those of their judged passages that the index holds."""
    named = list({passage_id for relevance in query_set.qrels.values() for passage_id in relevance})
    docids = words(channels).docids(named)
    there = {passage_id for passage_id, docid in zip(named, docids, strict=True) if docid >= 0}
    qrels = {q: {p: r for p, r in judged.items() if p in there} for q, judged in query_set.qrels.items()}
    return replace(query_set, qrels=qrels)


def _milliseconds(
    query_set: QuestionSet, known: Mapping[str, float], ranked: Mapping[str, tuple[Run, float]]
) -> dict[str, float]:
    """Return the latency of a query: of all together, divided by their number."""
    taken = {name: 1000 * seconds / len(query_set.queries) for name, (_, seconds) in ranked.items()}
    return {**known, **taken}


def _measures(query_set: QuestionSet, measures: Sequence[str], chains: Sequence[ChainSearcher]) -> list[str]:
    """Return what to measure: of the named measures, or of the usual ones, those that the set allows.

    :raises InputError: the set or the chains allow none of them.
    """
    tells = any(one.tells_sentences for one in chains)
    usual = [*measures_of(query_set), *(MEASURES if chains else ()), *(OF_SENTENCES if tells else ())]
    wanted = [parse_any(m) for m in several(measures, "measures")] or usual
    own = [m for m in wanted if can_measure(query_set, m)]
    if not own:
        raise InputError(
            f"expected what {', '.join(wanted)} can be measured by (answers, judged passages, KILT's"
            " provenance), found none of it",
            where=query_set.name,
            remedy=remedy("choose other {}, or leave the set out", Option("measures")),
        )
    told = [m for m in own if kind_of(m) is SENTENCES]
    if told and not tells:
        raise InputError(
            f"expected a chain whose reader tells supporting sentences for {told[0]}, found none",
            where=query_set.name,
            remedy=remedy(
                "train the reader on HotpotQA's JSON ({}), and name it: {} {}",
                Command("sparta train-paths"),
                Option("chain", "hop-read"),
                Option("path_reader", "FOLDER"),
            ),
        )
    if told and all(kind_of(m).of_chains for m in own):
        own = [measures_of(query_set)[0], *own]  # of channels, which are measured beside the chain
    if all(kind_of(m).of_chains for m in own):
        raise InputError(
            f"expected a measure of channels beside {', '.join(own)} that this set can be measured by, found"
            " none",
            where=query_set.name,
            remedy=remedy("{}", Option("measures", ",".join([*own, measures_of(query_set)[0]]))),
        )
    return own


def timed(
    results: SetResults, channels: Channels, query_set: QuestionSet, fusions: Sequence[Fusion]
) -> SetResults:
    """Return the results with the median latency of each ranking (ms/query, one query at a time)."""
    queries = [q.text for q in query_set.queries[:TIMED_QUERIES]]
    measured = {name: median(own) for name, own in latencies(channels, queries, fusions).items()}
    return replace(results, ms={**measured, **results.ms})


def latencies(
    channels: Channels, queries: Sequence[str], fusions: Sequence[Fusion], *, k: int = 10, rounds: int = 1
) -> dict[str, list[float]]:
    """Return the milliseconds of queries asked one at a time, by channel and fusion, `rounds` times each.

    A channel is asked for as many passages as the fusions take of it, a fusion for its k best, as `hybrid
    search` does; a fusion's channels are searched side by side. All are asked one query before the next
    comes, so that what else the machine does is shared by them; those with the dense channel come last, since
    the threads of its encoder keep a processor for a while. Java is warm before: it compiles what is
    called often.
    """
    candidates = max((fusion.candidates for fusion in fusions), default=CANDIDATES)
    asking: dict[str, Callable[[str], object]] = {
        name: partial(searcher.search, k=candidates) for name, searcher in channels.searchers.items()
    }
    own = named(fusions)
    for label, fusion in own.items():
        asking.setdefault(label, partial(_ask, channels, fusion, k))
    dense = {"dense": True, **{label: "dense" in fusion.weights for label, fusion in own.items()}}
    names = sorted(asking, key=lambda name: dense.get(name, False))
    for number, query in enumerate(islice(cycle(queries), _WARMING)):
        for name in names:
            if number < _WARMING_DENSE or not dense.get(name):
                asking[name](query)
    times: dict[str, list[float]] = {name: [] for name in asking}
    for query in list(queries) * rounds:
        for name in names:
            started = time.perf_counter()
            asking[name](query)
            times[name].append(1000 * (time.perf_counter() - started))
    return times


def _ask(channels: Channels, fusion: Fusion, k: int, query: str) -> object:
    return HybridSearcher(channels, fusion).search(query, min(k, fusion.candidates))


def with_macro(results: SetResults, query_set: QuestionSet) -> list[SetResults]:
    """Return the results; of queries in groups (EntityQuestions), over queries and over groups."""
    if not query_set.groups:
        return [results]
    macro = [_by_group(one, query_set.groups) for one in results.evaluations]
    return [
        replace(results, name=f"{query_set.name} (micro)"),
        replace(results, name=f"{query_set.name} (macro)", evaluations=macro, answers={}),
    ]


def _by_group(one: Evaluation, groups: Mapping[str, str]) -> Evaluation:
    """Return the same over groups of queries in place of queries; their mean is the macro average."""
    means: dict[str, dict[str, float]] = {}
    for measure, values in one.per_query.items():
        members: dict[str, list[float]] = {}
        for query_id, value in values.items():
            members.setdefault(groups[query_id], []).append(value)
        means[measure] = {group: fmean(own) for group, own in members.items()}
    return Evaluation(one.name, means)
