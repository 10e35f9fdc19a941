"""`hybrid tune`: the weight of BM25, chosen on queries with known answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from cli._fusion_options import (
    base_option,
    folder_of,
    fusion_of,
    notes,
    print_table,
    query_sets_of,
    question_options,
    tuned_options,
    weights_of,
    weights_option,
)
from cli._options import form_option, threads_option
from sparta.base.errors import InputError


@click.command()
@question_options
@base_option("impact")
@weights_option("Channels and their weights, in place of --base; that of BM25 is tuned.")
@click.option(
    "--channels", metavar="NAME,…", help="Channels besides the base whose weights are tuned [default: bm25]."
)
@tuned_options
@threads_option
@click.option(
    "--measure",
    help="As ir_measures names it, answer_recall@K, or of KILT's provenance page_Rprec, passage_recall@K and"
    " so on [default: RR if all is judged, else answer_recall@20].",
)
@form_option
def tune(**given: Any) -> None:
    """Measure base + α·bm25 for α from 0.5 to 2.0, or for --alphas, and name the best (TASER, §4.3).

    With --candidates 20,50,100, each of these numbers of passages from each channel is tried too. Of several
    sets the mean decides: one choice for all. On one set the choice is also cross-validated: made on four of
    five parts of the questions, measured on the fifth.
    """
    from hybrid.evaluation.rankings import parse_any
    from hybrid.evaluation.tune import chosen, measure_for, parse_alphas, parse_candidates, tune_table
    from hybrid.evaluation.tune import tune as measured
    from hybrid.retrieval.channels import Channels

    index = folder_of(given)
    weights, tuned = _to_tune(given)
    alphas, candidates = parse_alphas(given["alphas"]), parse_candidates(given["candidates"])
    fusion = fusion_of(weights, {**given, "candidates": max(candidates)})
    query_sets = query_sets_of(given, index)
    measure = parse_any(given["measure"]) if given["measure"] else measure_for(query_sets)
    with Channels(index, list(weights)) as channels:
        found = measured(
            channels,
            query_sets,
            fusion,
            measure,
            tuned,
            alphas,
            candidates=candidates,
            threads=given["threads"],
        )
    print_table(tune_table(found), given["form"], notes(query_sets, [chosen(fusion, found)]))


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
                remedy="hybrid tune --base dense --channels bm25,impact",
            )
        tuned = [name for name in named if name != base]
        weights = {base: 1.0, **dict.fromkeys(tuned, 1.0)}
    if not tuned or tuned[0] not in weights or len(weights) < 2:
        raise InputError(
            f"expected a channel to tune beside the others, found {', '.join(weights)}",
            remedy="hybrid tune --weights dense=1,impact=0.5,bm25=1 tunes the weight of BM25",
        )
    return weights, tuned
