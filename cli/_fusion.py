"""`hybrid search`, `hybrid eval`, `hybrid tune`: several channels as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._args import counted, file_type, folder_type, form_option, threads_option, typed
from cli._fusion_args import (
    alpha_option,
    asked_of,
    base_option,
    folder_of,
    fusion_of,
    fusion_options,
    given_weights,
    method_options,
    notes,
    print_table,
    question_options,
    tuned_options,
    weights_of,
    weights_option,
)
from cli._search import check_search, print_hits, search_many, search_options
from sparta.base.errors import IndexStateError, InputError, ModelError

if TYPE_CHECKING:
    from hybrid.retrieval.fusion import Fusion


@click.command()
@search_options
@base_option("sparta")
@alpha_option
@weights_option()
@method_options
def search(**given: Any) -> None:
    """Find passages in several channels: base + α·bm25, or as --weights says.

    A hit shows its rank, title, [id], score and place in each channel, and where its text has words of the
    question. Many questions come from --queries, and their answers go to --output; a passage that is not
    among the --candidates of any channel is not found.
    """
    check_search("hybrid search", given)
    from hybrid.retrieval.fusion import formula
    from hybrid.retrieval.searcher import HybridHit, HybridSearcher

    fusion = fusion_of(weights_of(given), given)

    def places(hit: HybridHit) -> tuple[str, dict[str, Any]]:
        ranks = {name: hit.ranks.get(name) for name in fusion.weights}
        shown = ", ".join(f"{name} {place or '–'}" for name, place in ranks.items())
        return f"{hit.score:.4g} ({shown})", {"ranks": ranks}

    folder = folder_of(given)
    if given["queries"] is not None:
        search_many(lambda: HybridSearcher(folder, fusion), given)
    else:
        with HybridSearcher(folder, fusion) as searcher:
            print_hits(searcher, given, places)
    click.echo(formula(fusion), err=given["as_json"])


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
@click.option("--no-dense", is_flag=True, help="Leave the dense channel out, and build none.")
@fusion_options
@threads_option
@form_option
@click.option("--output-runs", type=folder_type, help="Also leave the rankings in this folder, as TREC runs.")
def evaluate_channels(more_runs: tuple[Path, ...], qrels: Path | None, **given: Any) -> None:
    """Measure every channel of an index and their fusions, on questions with known answers.

    Without --base or --weights these are all fusions of two and of three channels, BM25 weighed by α.
    answer_recall@K is the share of questions with an answer in the text of the first K passages (R@K of the
    DPR and TASER papers). p is that of a paired t-test against the best single channel (Holm), with a star
    below 0.05. A dense channel that is missing is built first, with the model that ships.

    \b
    hybrid eval --alpha 1.2
    hybrid eval --dataset nq.test.tsv --weights bm25=1.2,sparta=1,dense=1
    hybrid eval --runs a.trec b.trec --qrels test.tsv
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.evaluation.compare import compare, compare_table, timed, with_macro
    from hybrid.retrieval.channels import Channels

    runs = (*given["runs"], *more_runs)
    if runs or qrels:
        _evaluate_runs(runs, qrels, given)
        return
    index = folder_of(given)
    asked = asked_of(given, index)
    names, fusions = _planned(index, given)
    found = []
    with Channels(index, names) as channels:
        for one in asked:
            compared = compare(channels, one, fusions, threads=given["threads"], runs=given["output_runs"])
            found += with_macro(timed(compared, channels, one, fusions), one)
    print_table(compare_table(found), given["form"], notes(asked, fusions))


def _evaluate_runs(runs: Sequence[Path], qrels: Path | None, given: Mapping[str, Any]) -> None:
    from hybrid.evaluation.compare import compare_runs, compare_table, leave_run, named_runs

    if others := typed("index", "datasets", "sample", "matches", "base", "no_dense"):
        raise InputError(
            f"expected runs, or channels of an index, found --runs or --qrels with {', '.join(others)}",
            remedy=f"leave {others[0]} out, or --runs and --qrels",
        )
    if not (qrels and given["runs"]) or len(runs) < 2:
        raise InputError(
            "expected several --runs with --qrels, or neither of them",
            remedy="hybrid eval --runs a.trec b.trec --qrels test.tsv",
        )
    named = named_runs(runs)
    weights = {name: given["alpha"] if i else 1.0 for i, name in enumerate(named)}
    if given["weights"] is not None:
        weights = given_weights(given["weights"], list(named))
    fusion = fusion_of(weights, given)
    compared, fused = compare_runs(named, qrels, fusion)
    if given["output_runs"]:
        leave_run(given["output_runs"], qrels.stem, fusion.label, fused)
    print_table(compare_table([compared]), given["form"], notes([], [fusion]))


def _planned(index: Path, given: Mapping[str, Any]) -> tuple[list[str], list[Fusion]]:
    """Return the channels to measure and the fusions of them; builds the dense channel if it has to."""
    from hybrid.retrieval.channels import channels_of
    from hybrid.retrieval.fusion import every_hybrid
    from sparta.index.folder import IndexFolder

    IndexFolder(index).state()  # no index at all is one message, not two
    chosen = given["weights"] is not None or given["base"]
    wanted = weights_of(given) if chosen else {}
    if given["no_dense"] and "dense" in wanted:
        raise InputError("expected a dense channel or --no-dense, found both", remedy="leave one of them out")
    if not given["no_dense"] and (not chosen or "dense" in wanted):
        _build_dense(index, needed="dense" in wanted)
    names = [name for name in channels_of(index) if name != "dense" or not given["no_dense"]]
    every = [wanted] if chosen else every_hybrid(names, given["alpha"])
    return names, [fusion_of(weights, given) for weights in every]


def _build_dense(index: Path, *, needed: bool) -> None:
    """Build the dense channel if there is none; what is not `needed` is left out where it cannot be built."""
    from tqdm import tqdm

    from dense.channel.sync import has_dense, sync
    from dense.models.resolve import dense_model_folder

    if has_dense(index):
        return
    try:
        dense_model_folder(None)
        with tqdm(unit="passage", disable=None) as bar:
            click.echo(f"{index} has no dense channel yet: building it, once", err=True)
            report = sync(index, expect=bar.reset, advance=bar.update)
        click.echo(f"{counted(report.passages, 'passage')} in {report.seconds:.0f} s", err=True)
    except (ModelError, IndexStateError) as error:
        if needed:
            raise
        click.echo(f"the dense channel is left out: {error}", err=True)


@click.command()
@question_options
@base_option("sparta")
@weights_option("Channels and their weights, in place of --base; that of BM25 is tuned.")
@click.option(
    "--channels", metavar="NAME,…", help="Channels besides the base whose weights are tuned [default: bm25]."
)
@tuned_options
@threads_option
@click.option(
    "--measure",
    help="As ir_measures names it, or answer_recall@K [default: RR if all is judged, else answer_recall@20].",
)
@form_option
def tune(**given: Any) -> None:
    """Measure base + α·bm25 for α from 0.5 to 2.0, or for --alphas, and name the best (TASER, §4.3).

    With --candidates 20,50,100, each of these numbers of passages from each channel is tried too. Of several
    sets the mean decides: one choice for all. On one set the choice is also cross-validated: made on four of
    five parts of the questions, measured on the fifth.
    """
    from hybrid.evaluation.tune import chosen, measure_for, parse_alphas, parse_candidates, tune_table
    from hybrid.evaluation.tune import tune as measured
    from hybrid.retrieval.channels import Channels

    index = folder_of(given)
    weights, tuned = _to_tune(given)
    alphas, candidates = parse_alphas(given["alphas"]), parse_candidates(given["candidates"])
    fusion = fusion_of(weights, {**given, "candidates": max(candidates)})
    asked = asked_of(given, index)
    measure = _measure(given["measure"]) if given["measure"] else measure_for(asked)
    with Channels(index, list(weights)) as channels:
        found = measured(
            channels, asked, fusion, measure, tuned, alphas, candidates=candidates, threads=given["threads"]
        )
    print_table(tune_table(found), given["form"], notes(asked, [chosen(fusion, found)]))


def _to_tune(given: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    """Return the weights to begin with, and the channels whose weights are tuned."""
    from hybrid.retrieval.channels import CHANNELS

    weights = weights_of({**given, "alpha": 1.0})
    if given["channels"] is None:
        tuned = ["bm25"]
    else:
        base = next(iter(weights))
        named = [name.strip() for name in given["channels"].split(",")]
        unknown = [name for name in named if name not in CHANNELS]
        if unknown or len(set(named)) < len(named) or given["weights"] is not None:
            raise InputError(
                f"expected --channels of {', '.join(CHANNELS)}, each once and without --weights, found"
                f" {given['channels']!r}",
                remedy="hybrid tune --base dense --channels bm25,sparta",
            )
        tuned = [name for name in named if name != base]
        weights = {base: 1.0, **dict.fromkeys(tuned, 1.0)}
    if not tuned or tuned[0] not in weights or len(weights) < 2:
        raise InputError(
            f"expected a channel to tune beside the others, found {', '.join(weights)}",
            remedy="hybrid tune --weights dense=1,sparta=0.5,bm25=1 tunes the weight of BM25",
        )
    return weights, tuned


def _measure(name: str) -> str:
    from hybrid.evaluation.measures import parse_measures

    head, _, depth = name.partition("@")
    if head == "answer_recall" and depth.isdecimal() and int(depth) > 0:
        return f"{head}@{int(depth)}"
    return parse_measures([name])[0]
