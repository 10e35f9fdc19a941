"""`hybrid eval`: every channel and fusion measured on queries with known answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._answering import answering_of, answering_options
from cli._arguments import file_type, folder_type, output_type, typed
from cli._chains import model_options, open_chains
from cli._fusion_options import (
    alpha_option,
    base_option,
    folder_of,
    fusion_of,
    fusion_options,
    given_weights,
    notes,
    print_table,
    query_sets_of,
    question_options,
    weights_of,
    weights_option,
)
from cli._opensearch import REMOTE_CHANNELS, is_remote, remote_channels, server_options
from cli._options import bm25_of, bm25_options, form_option, quiet_option, threads_option
from cli._output import counted
from sparta.base.errors import IndexStateError, InputError
from sparta.base.files import check_place

if TYPE_CHECKING:
    from hybrid.evaluation.testsets import QuestionSet
    from hybrid.retrieval.fusion import Fusion


_OF_CHANNELS = (
    "index",
    "datasets",
    "sample",
    "matches",
    "base",
    "no_dense",
    "build_dense",
    "k1",
    "b",
    "threads",
    *("answers", "reader", "depths", "weight", "output_answers", "plot"),
    *("opensearch", "name", "ca", "insecure"),
    *("chains", "model", "entities", "path_reader"),
)


@click.command(name="eval")
@click.argument("more_runs", nargs=-1, metavar="", type=file_type)
@question_options
@click.option(
    "--run",
    "--runs",
    "runs",
    multiple=True,
    metavar="FILE...",
    type=file_type,
    help="TREC runs to fuse instead of an index's channels; --alpha weighs all but the first.",
)
@click.option("--qrels", type=file_type, help="Judgments for --runs, in TREC's or BEIR's form.")
@base_option("every fusion of two and of three channels")
@alpha_option
@weights_option()
@click.option(
    "--build-dense", is_flag=True, help="Build the dense channel first, if there is none (the shipped model)."
)
@click.option("--no-dense", is_flag=True, help="Leave the dense channel out.")
@fusion_options
@bm25_options
@server_options(required=False)
@click.option(
    "--chain",
    "chains",
    multiple=True,
    metavar="NAME|FILE",
    help="Also measure a chain: hop, hop-read, named, tabletext, hotpot, single, or a file; several may be"
    " given.",
)
@model_options
@threads_option
@form_option
@click.option(
    "--measures",
    metavar="NAME,…",
    help="What to measure, as far as a set allows it: as ir_measures names it, answer_recall@K, of KILT's"
    " provenance page_Rprec, page_recall@K, page_success@K, passage_Rprec and so on, or of HotpotQA's JSON,"
    " with a chain that reads, sup_EM, sup_F1, joint_EM, joint_F1.",
)
@click.option("--per-query", type=output_type, help="Also write the measures of every query here, as JSONL.")
@click.option("--output-runs", type=folder_type, help="Also leave the rankings in this folder, as TREC runs.")
@answering_options
@click.option("--plot", type=output_type, help="With --answers: draw EM against depth here (PNG, SVG, PDF).")
@quiet_option
def evaluate_channels(more_runs: tuple[Path, ...], qrels: Path | None, **given: Any) -> None:
    """Measure every channel of an index and their fusions, on queries with known answers.

    Without --base or --weights these are all fusions of two and of three channels, BM25 weighted by α.
    answer_recall@K is the share of queries with an answer in the text of the top K passages (R@K of the
    DPR and TASER papers). Of KILT's tasks, R-precision, recall and success of evidence sets are those of its
    published evaluation, of pages and of passages. p is that of a paired t-test against the best single
    channel (Holm), with a star below 0.05. An index without a dense channel is measured without it;
    --build-dense builds it. With --answers a reader reads the best passages of each ranking: EM and F1. ± is
    half of the 95 % interval of EM, F1 or R-precision. passage_EM: the first passages are the evidence
    and no others, of a --chain those of its best path; path_recall@K: one of its K best paths is the
    evidence.

    \b
    hybrid eval --alpha 1.2
    hybrid eval --build-dense --dataset nq.test.tsv --weights bm25=1.2,impact=1,dense=1
    hybrid eval --dataset fever-dev-kilt.jsonl --dataset trex-dev-kilt.jsonl
    hybrid eval --answers --dataset nq.test.tsv --depths 1,10,50
    hybrid eval --runs a.trec b.trec --qrels test.tsv
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.evaluation.chains import of_paths
    from hybrid.evaluation.compare import compare, timed, with_macro
    from hybrid.evaluation.rankings import RECALL_AT, parse_any
    from hybrid.evaluation.results import plot_answers, results_table, write_answers, write_per_query
    from hybrid.evidence.supporting import OF_SENTENCES
    from hybrid.retrieval.channels import Channels

    runs = (*given["runs"], *more_runs)
    if runs or qrels:
        _evaluate_runs(runs, qrels, given)
        return
    measures = [parse_any(name) for name in given["measures"].split(",")] if given["measures"] else []
    of_chains = [name for name in measures if of_paths(name)]
    of_sentences = [name for name in of_chains if name in OF_SENTENCES]
    if of_sentences and not given["chains"]:
        raise InputError(
            f"expected --chain for {of_sentences[0]}, which a chain that reads can tell, found none",
            remedy="--chain hop-read --path-reader FOLDER, trained on HotpotQA's JSON (sparta train-paths)",
        )
    only_paths = len(of_chains) == len(measures) and not of_sentences
    if of_chains and (not given["chains"] or only_paths):
        wanted = "a measure of channels" if given["chains"] else "--chain"
        raise InputError(
            f"expected {wanted} beside {of_chains[0]}, which chains alone have, found none",
            remedy=f"--chain {(given['chains'] or ['hop'])[0]} --measures passage_EM,{of_chains[0]}",
        )
    check_place(given["per_query"], "file")
    index, remote = folder_of(given), is_remote(given)
    if remote and not given["datasets"]:
        raise InputError("expected --dataset with --opensearch, found none", remedy="name the questions")
    query_sets = query_sets_of(given, index)
    if given["answers"] and not any(one.answers for one in query_sets):
        raise InputError(
            "expected questions with answers, found none",
            where=", ".join(one.name for one in query_sets),
            remedy="leave --answers out, or give the questions `answers`",
        )
    answering = answering_of(
        given, max(given["candidates"], *RECALL_AT), "plot", language=_language_of(index, remote)
    )
    names, fusions = _planned_there(given) if remote else _planned(index, given)
    results = []
    with ExitStack() as opened:
        chains = [opened.enter_context(one) for one in open_chains(given)]
        channels = opened.enter_context(
            remote_channels(given) if remote else Channels(index, names, bm25_of(given))
        )
        bar = opened.enter_context(_chains_bar(query_sets, len(chains), quiet=given["quiet"]))
        for one in query_sets:
            compared = compare(
                channels,
                one,
                fusions,
                threads=given["threads"],
                output_runs=given["output_runs"],
                answering=answering,
                measures=measures,
                chains=chains,
                advance=bar.update,
            )
            results += with_macro(timed(compared, channels, one, fusions), one)
    print_table(results_table(results), given["form"], notes(query_sets, fusions))
    write_per_query(results, given["per_query"])
    if answering:
        write_answers(results, given["output_answers"])
        plot_answers(results, answering, given["plot"])


def _chains_bar(query_sets: Sequence[QuestionSet], chains: int, *, quiet: bool) -> Any:
    """Open a bar of the questions that chains are asked, one at a time; only on a terminal."""
    from tqdm import tqdm

    total = chains * sum(len(one.queries) for one in query_sets)
    return tqdm(total=total, unit="question", disable=True if quiet or not total else None)


def _language_of(index: Path, remote: bool) -> str:
    """Return the language of an index; of one that lies elsewhere, English."""
    from sparta.index.folder import IndexFolder

    generation = None if remote else IndexFolder(index).state().searchable
    return generation.language if generation else "en"


def _evaluate_runs(runs: Sequence[Path], qrels: Path | None, given: Mapping[str, Any]) -> None:
    from hybrid.evaluation.evaluate import evaluate_runs, named_runs
    from hybrid.evaluation.measures import parse_measures
    from hybrid.evaluation.rankings import MEASURES
    from hybrid.evaluation.results import results_table, write_per_query

    if others := typed(*_OF_CHANNELS):
        raise InputError(
            f"expected runs, or channels of an index, found --runs or --qrels with {', '.join(others)}",
            remedy=f"leave {others[0]} out, or --runs and --qrels",
        )
    if not (qrels and given["runs"]) or len(runs) < 2:
        raise InputError(
            "expected several --runs with --qrels, or neither of them",
            remedy="hybrid eval --runs a.trec b.trec --qrels test.tsv",
        )
    check_place(given["per_query"], "file")
    names = list(named_runs(runs))
    weights = dict.fromkeys(names, given["alpha"]) | {names[0]: 1.0}
    if given["weights"] is not None:
        weights = given_weights(given["weights"], names)
    fusion = fusion_of(weights, given)
    measures = parse_measures(given["measures"].split(",")) if given["measures"] else MEASURES
    results = evaluate_runs(runs, qrels, measures, fusion=fusion, output_runs=given["output_runs"])
    print_table(results_table([results]), given["form"], notes([], [fusion]))
    write_per_query([results], given["per_query"])


def _planned_there(given: Mapping[str, Any]) -> tuple[list[str], list[Fusion]]:
    """Return the same for an index in OpenSearch, which has no dense channel."""
    from hybrid.retrieval.fusion import every_hybrid

    chosen = given["weights"] is not None or given["base"]
    every = [weights_of(given)] if chosen else every_hybrid(REMOTE_CHANNELS, given["alpha"])
    return list(REMOTE_CHANNELS), [fusion_of(weights, given) for weights in every]


def _planned(index: Path, given: Mapping[str, Any]) -> tuple[list[str], list[Fusion]]:
    """Return the channels to measure and the fusions of them; builds the dense channel if told to."""
    from hybrid.retrieval.channels import channels_of
    from hybrid.retrieval.fusion import every_hybrid
    from sparta.index.folder import IndexFolder

    IndexFolder(index).state()  # no index at all is one message, not two
    chosen = given["weights"] is not None or given["base"]
    wanted = weights_of(given) if chosen else {}
    if given["no_dense"] and (given["build_dense"] or "dense" in wanted):
        raise InputError("expected a dense channel or --no-dense, found both", remedy="leave one of them out")
    if given["build_dense"]:
        _build_dense(index, quiet=given["quiet"])
    names = [name for name in channels_of(index) if name != "dense" or not given["no_dense"]]
    if "dense" not in names and not given["no_dense"] and (not chosen or "dense" in wanted):
        lacks = f"{index} has no dense channel"
        build = f"add --build-dense, or run: dense index --index {index}"
        if "dense" in wanted:
            raise IndexStateError(lacks, remedy=build)
        click.echo(f"{lacks}: dense and its fusions are left out\n  → {build}", err=True)
    every = [wanted] if chosen else every_hybrid(names, given["alpha"])
    return names, [fusion_of(weights, given) for weights in every]


def _build_dense(index: Path, *, quiet: bool) -> None:
    from tqdm import tqdm

    from dense.channel.sync import build_dense
    from dense.channel.table import exists as has_dense

    if not has_dense(index):
        with tqdm(unit="passage", disable=True if quiet else None) as bar:
            report = build_dense(index, expect=bar.reset, advance=bar.update)
        click.echo(
            f"dense channel built: {counted(report.passages, 'passage')} in {report.seconds:.0f} s", err=True
        )
