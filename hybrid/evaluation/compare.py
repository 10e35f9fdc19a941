"""Compares the channels of an index and their fusions on questions with answers or judged passages."""

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
    kind_of,
    measures_of,
    parse_any,
)
from hybrid.evaluation.rankings import (
    Retrieved,
    depth_of,
    lucene_searcher,
    search_all,
    warn_if_none_judged,
    warn_of_few_candidates,
    warn_of_few_hits,
)
from hybrid.evaluation.results import SetResults, check_runs, save_run
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evidence.supporting import OF_SENTENCES
from hybrid.multihop.searcher import ChainSearcher
from hybrid.retrieval.channels import ChannelGroup
from hybrid.retrieval.fusion import CANDIDATES, Fusion, named
from hybrid.retrieval.searcher import FusedRetriever
from sparta.base.checks import list_of, path_of
from sparta.base.errors import InputError
from sparta.base.files import make_folder
from sparta.base.records import Advance, Run
from sparta.base.remedies import Command, Option, remedy
from sparta.index.channels import DENSE
from sparta.rerank.reranked import RERANKED, Reranking

logger = logging.getLogger("sparta.hybrid")

TIMED_QUERIES = 50
_WARM_UP_QUERIES = 150
_WARM_UP_QUERIES_DENSE = 5
_READ_ANSWERS = Option("answering", flag="answers")


def compare(
    channels: ChannelGroup,
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
    reranking: Reranking | None = None,
) -> SetResults:
    """Search each channel once, fuse the rankings by each fusion, and measure all rankings.

    A fusion ranks at most its `candidates` of each channel.

    :param chains: chains to measure too; a chain runs on one question at a time
    :param advance: called with the number of questions that a chain has searched or the reader has read
    :param measures: the measures to compute if the set has the data; empty means the defaults of
        `measures_of`
    :param output_runs: a folder for all rankings, as TREC runs
    :param answering: also read the best passages of each ranking and measure the answers. For a chain that
        reads its paths, the answer of the best path is measured
    :param depth: number of measured passages per ranking; None is the number that fusions, measures and the
        reader need. If the reader reads or `reranking` orders more passages, all but chains rank this many
    :param others: further rankings, by name: a function from depth to a run and the search time in seconds
    :param one_by_one: search one channel after the other and measure each channel's latency
    :param judged: also read the judged passages, as a separate ranking
    :param reranking: also measure the rankings of channels, fusions and `others` with their first passages
        ordered anew
    """
    measure_names = _measures(query_set, measures, chains, is_answered=bool(answering and query_set.answers))
    depths = [depth_of(fusion, name) for name in ["", *measure_names] for fusion in fusions or [Fusion()]]
    depth = depth or max([*depths, *(answering.depths if answering else ())])
    read_depths = [number for number, _ in answering.names()] if answering else []
    searched_depth = max(depth, reranking.depth if reranking else 0, *read_depths)
    warn_of_few_hits(depth, measure_names)
    warn_of_few_candidates(fusions, measure_names)
    if output_runs:
        check_runs([query_set])
        make_folder(path_of(output_runs, "a folder"))  # raises for a wrong path before hours of searching
    retrieved = search_all(channels, query_set, searched_depth, threads, one_by_one=one_by_one)
    query_set = retrieved.query_set  # with the language of the index
    warn_if_none_judged(retrieved)
    searched_others = {name: rank(searched_depth) for name, rank in (others or {}).items()}
    other_runs = {name: run for name, (run, _) in searched_others.items()}
    fused: dict[str, Run] = {}
    for label, fusion in named(fusions).items():
        if label not in retrieved.runs:  # a fusion of one channel is the channel itself
            fused[label] = retrieved.fused(fusion, searched_depth)
            retrieved = retrieved.with_fusion(label, fusion)
    chain_runs = [run_chain(chain, query_set, depth, measure_names, advance) for chain in chains]
    retrieved = retrieved.with_pages(chain_run.run for chain_run in chain_runs)
    for chain_run in chain_runs:
        if chain_run.hits:
            retrieved = retrieved.with_hits(chain_run.name, chain_run.hit)
    runs = {**retrieved.runs, **other_runs, **fused}
    ms = _milliseconds(query_set, retrieved.ms, searched_others)
    reranked_runs, reranking_ms = _reranked(reranking, retrieved, runs, ms)
    runs |= {chain_run.name: chain_run.run for chain_run in chain_runs}
    runs |= reranked_runs
    measured_runs = {
        name: {query_id: ranking[:depth] for query_id, ranking in run.items()} for name, run in runs.items()
    }
    if output_runs:
        for name, run in measured_runs.items():
            save_run(output_runs, query_set.name, name, run)
    evaluations = [retrieved.measured(name, run, measure_names) for name, run in measured_runs.items()]
    path_measures = {chain_run.name: chain_run.per_query for chain_run in chain_runs}
    evaluations = [
        replace(evaluation, per_query={**evaluation.per_query, **path_measures.get(evaluation.name, {})})
        for evaluation in evaluations
    ]
    answers: Mapping[str, Mapping[str, Answer | None]] = {}
    if answering:
        chain_answers = {
            chain_run.name: chain_run.answers for chain_run in chain_runs if chain_run.answers is not None
        }
        if judged:
            retrieved = replace(retrieved, query_set=_with_indexed_passages(channels, query_set))
        evaluations, answers = measure_answers(
            retrieved,
            runs,
            evaluations,
            answering,
            judged=judged,
            chain_answers=chain_answers,
            advance=advance,
            reranked=dict.fromkeys(reranked_runs, reranking.depth if reranking else 0),
        )
    return SetResults(
        query_set.name,
        evaluations,
        fused=[*fused, *reranked_runs, *path_measures, *([JUDGED] if answering and judged else [])],
        answers=answers,
        ms={
            **ms,
            **reranking_ms,
            **{chain_run.name: chain_run.median() for chain_run in chain_runs},
        },
        omitted_questions=query_set.omitted_questions,
        misplaced=query_set.misplaced,
        steps={chain_run.name: chain_run for chain_run in chain_runs},
    )


def _reranked(
    reranking: Reranking | None, retrieved: Retrieved, runs: Mapping[str, Run], ms_before: Mapping[str, float]
) -> tuple[dict[str, Run], dict[str, float]]:
    """Return the reranked rankings, and the latency of each in ms/query.

    :param ms_before: the latency of each ranking before reranking, if measured
    """
    reranked_runs: dict[str, Run] = {}
    ms: dict[str, float] = {}
    if reranking is None:
        return reranked_runs, ms
    queries = {query.query_id: query.text for query in retrieved.query_set.queries}
    reranking.open()  # the first query does not pay for it

    for name, run in runs.items():
        start = time.perf_counter()
        reranked_runs[name + RERANKED] = reranking.run(queries, run, retrieved.in_ranking(name).hit)
        seconds = time.perf_counter() - start
        ms[name + RERANKED] = 1000 * seconds / len(queries) + ms_before.get(name, 0.0)
    return reranked_runs, ms


def _with_indexed_passages(channels: ChannelGroup, query_set: QuestionSet) -> QuestionSet:
    """Return the question set with only the judged passages that the index has."""
    judged_ids = list({passage_id for relevance in query_set.qrels.values() for passage_id in relevance})
    docids = lucene_searcher(channels).docids(judged_ids)
    known_ids = {passage_id for passage_id, docid in zip(judged_ids, docids, strict=True) if docid >= 0}
    qrels = {
        query_id: {passage: judgments[passage] for passage in judgments if passage in known_ids}
        for query_id, judgments in query_set.qrels.items()
    }
    return replace(query_set, qrels=qrels)


def _milliseconds(
    query_set: QuestionSet, channel_ms: Mapping[str, float], other_runs: Mapping[str, tuple[Run, float]]
) -> dict[str, float]:
    """Return each ranking's latency in ms/query: the time of all queries divided by their number."""
    other_ms = {name: 1000 * seconds / len(query_set.queries) for name, (_, seconds) in other_runs.items()}
    return {**channel_ms, **other_ms}


def _measures(
    query_set: QuestionSet, measures: Sequence[str], chains: Sequence[ChainSearcher], *, is_answered: bool
) -> list[str]:
    """Return the requested (or default) measures for which the question set has the data.

    :param is_answered: the answers of each ranking are measured, so a ranking needs no other measure
    :raises InputError: the set and the chains have the data for none of the measures.
    """
    marks_sentences = any(chain.tells_sentences for chain in chains)
    defaults = [
        *measures_of(query_set),
        *(MEASURES if chains else ()),
        *(OF_SENTENCES if marks_sentences else ()),
    ]
    requested = [parse_any(measure) for measure in list_of(measures, "measures")] or defaults
    chosen = [measure for measure in requested if can_measure(query_set, measure)]
    if not chosen:
        if is_answered and not measures:
            return []
        raise _lacks_data(query_set, requested if measures else ())
    sentence_measures = [measure for measure in chosen if kind_of(measure) is SENTENCES]
    if sentence_measures and not marks_sentences:
        raise InputError(
            f"the measure {sentence_measures[0]} needs a chain whose reader marks supporting sentences",
            where=query_set.name,
            remedy=remedy(
                "train the reader on HotpotQA's JSON ({}), then use the trained reader: {} {}",
                Command("sparta train-paths"),
                Option("chain", "hop-read"),
                Option("path_reader", "FOLDER"),
            ),
        )
    if not all(kind_of(measure).of_chains for measure in chosen):
        return chosen
    of_channels = measures_of(query_set)[:1]  # the channels' rankings need a measure too
    if not is_answered and not (sentence_measures and of_channels):
        option = Option("measures", ",".join([*chosen, *of_channels])) if of_channels else _READ_ANSWERS
        raise InputError(
            f"{', '.join(chosen)} can only measure chains; add a measure for the channels",
            where=query_set.name,
            remedy=remedy("add a measure: {}", option),
        )
    return [*(of_channels if sentence_measures else ()), *chosen]


def _lacks_data(query_set: QuestionSet, requested: Sequence[str]) -> InputError:
    """Return the error for a question set that lacks the data of all requested (or all default) measures."""
    if requested:
        message = f"the questions lack the data (answers, judgments, provenance) for {', '.join(requested)}"
        advice = remedy("choose other {}, or omit this question set", Option("measures"))
    elif query_set.answers:
        message = "all answers of the questions are labels, such as yes, which no passage contains"
        advice = remedy("measure a reader's answers: {}, or omit this question set", _READ_ANSWERS)
    else:
        message = "the questions have neither answers nor judged passages"
        advice = remedy("add a list `answers` to each question, or omit this question set")
    return InputError(message, where=query_set.name, remedy=advice)


def timed(
    results: SetResults, channels: ChannelGroup, query_set: QuestionSet, fusions: Sequence[Fusion]
) -> SetResults:
    """Return the results with the median latency of each ranking in ms/query, one query at a time.

    A reranked ranking takes its mean time of reranking and the time of the ranking before it.
    """
    queries = [query.text for query in query_set.queries[:TIMED_QUERIES]]
    measured = {name: median(query_ms) for name, query_ms in latencies(channels, queries, fusions).items()}
    first_stage = {
        name: measured.get(name.removesuffix(RERANKED), 0.0) for name in results.ms if name.endswith(RERANKED)
    }
    return replace(
        results,
        ms={**measured, **{name: ms + first_stage.get(name, 0.0) for name, ms in results.ms.items()}},
    )


def latencies(
    channels: ChannelGroup, queries: Sequence[str], fusions: Sequence[Fusion], *, k: int = 10, rounds: int = 1
) -> dict[str, list[float]]:
    """Return the latency in milliseconds of each query, by channel and fusion, `rounds` times per query.

    Queries run one at a time. A channel returns as many passages as the fusions take from it. A fusion
    returns its k best passages, as `hybrid search` does, and searches its channels in parallel. Each query
    runs in all channels and fusions before the next query, so that other load on the machine affects all
    equally. Rankings with the dense channel run last, because the threads of the encoder keep a processor
    busy for some time. A warm-up comes first, because Java compiles frequent code.
    """
    candidates = max((fusion.candidates for fusion in fusions), default=CANDIDATES)
    searches: dict[str, Callable[[str], object]] = {
        name: partial(searcher.search, k=candidates) for name, searcher in channels.searchers.items()
    }
    fusions_by_label = named(fusions)
    for label, fusion in fusions_by_label.items():
        searches.setdefault(label, partial(_search_fusion, channels, fusion, k))
    uses_dense = {DENSE: True, **{label: DENSE in f.weights for label, f in fusions_by_label.items()}}
    names = sorted(searches, key=lambda name: uses_dense.get(name, False))
    for number, query in enumerate(islice(cycle(queries), _WARM_UP_QUERIES)):
        for name in names:
            if number < _WARM_UP_QUERIES_DENSE or not uses_dense.get(name):
                searches[name](query)
    times: dict[str, list[float]] = {name: [] for name in searches}
    for query in list(queries) * rounds:
        for name in names:
            start = time.perf_counter()
            searches[name](query)
            times[name].append(1000 * (time.perf_counter() - start))
    return times


def _search_fusion(channels: ChannelGroup, fusion: Fusion, k: int, query: str) -> object:
    """Search a fusion for at most `k` hits, as `hybrid search` does."""
    return FusedRetriever(channels, fusion).search(query, min(k, fusion.candidates))


def with_macro(results: SetResults, query_set: QuestionSet) -> list[SetResults]:
    """Return the results; for grouped queries (EntityQuestions), both micro and macro averages.

    The micro average is over queries, the macro average over groups.
    """
    if not query_set.groups:
        return [results]
    macro = [_by_group(evaluation, query_set.groups) for evaluation in results.evaluations]
    return [
        replace(results, name=f"{query_set.name} (micro)"),
        replace(results, name=f"{query_set.name} (macro)", evaluations=macro, answers={}),
    ]


def _by_group(evaluation: Evaluation, groups: Mapping[str, str]) -> Evaluation:
    """Return the evaluation with groups in place of queries, so that its mean is the macro average."""
    means: dict[str, dict[str, float]] = {}
    for measure, values in evaluation.per_query.items():
        values_by_group: dict[str, list[float]] = {}
        for query_id, value in values.items():
            values_by_group.setdefault(groups[query_id], []).append(value)
        means[measure] = {group: fmean(group_values) for group, group_values in values_by_group.items()}
    return Evaluation(evaluation.name, means)
