"""`hybrid tune`: the weight of BM25, chosen on queries with known answers."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import arguments, group, option, takes
from cli._fusion_options import (
    MethodArguments,
    QuestionArguments,
    base_option,
    channel_weights,
    notes,
    print_table,
    query_sets,
    weights_option,
)
from cli._options import form_option, index_option, threads_option
from sparta.base.errors import InputError


@arguments
class _Tuning:
    questions: QuestionArguments = group(QuestionArguments)
    base: str | None = base_option("impact")
    weights: str | None = weights_option(
        "Channels and their weights, in place of --base; that of BM25 is tuned."
    )
    channels: str | None = option(
        "Channels besides the base whose weights are tuned [default: bm25].", metavar="NAME,…"
    )
    index: Path | None = index_option
    method: MethodArguments = group(MethodArguments)
    alphas: str = option("Weights to try.", metavar="FROM:TO:STEP|α,…", default="0.5:2:0.1")
    candidates: str = option(
        "Passages from each channel; of several numbers the best is chosen too.",
        metavar="N,…",
        default="100",
    )
    threads: int = threads_option
    measure: str | None = option(
        "As ir_measures names it, answer_recall@K, or of KILT's provenance page_Rprec, passage_recall@K and"
        " so on [default: RR if all is judged, else answer_recall@20]."
    )
    form: str = form_option

    def to_tune(self) -> tuple[dict[str, float], list[str]]:
        """Return the weights to begin with, and the channels whose weights are tuned."""
        from hybrid.retrieval.channels import CHANNELS

        weights = channel_weights(self.weights, self.base, 1.0)
        tuned = ["bm25"]
        if self.channels is not None:
            base = next(iter(weights))
            named = [name.strip() for name in self.channels.split(",")]
            unknown = [name for name in named if name not in CHANNELS]
            if unknown or len(set(named)) < len(named) or self.weights is not None:
                raise InputError(
                    f"expected --channels of {', '.join(CHANNELS)}, each once and without --weights, found"
                    f" {self.channels!r}",
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


@click.command()
@takes(_Tuning)
def tune(tuning: _Tuning) -> None:
    """Measure base + α·bm25 for α from 0.5 to 2.0, or for --alphas, and name the best (TASER, §4.3).

    With --candidates 20,50,100, each of these numbers of passages from each channel is tried too. Of several
    sets the mean decides: one choice for all. On one set the choice is also cross-validated: made on four of
    five parts of the questions, measured on the fifth.
    """
    from hybrid.evaluation.measures import parse_any
    from hybrid.evaluation.tune import chosen, measure_for, parse_alphas, parse_candidates, tune_table
    from hybrid.evaluation.tune import tune as measured
    from hybrid.retrieval.channels import Channels
    from sparta.index.folder import default_index

    index = tuning.index or default_index()
    weights, tuned = tuning.to_tune()
    alphas, candidates = parse_alphas(tuning.alphas), parse_candidates(tuning.candidates)
    fusion = tuning.method.fusion(weights, max(candidates))
    sets = query_sets(tuning.questions, index)
    measure = parse_any(tuning.measure) if tuning.measure else measure_for(sets)
    with Channels(index, list(weights)) as channels:
        settings = measured(
            channels, sets, fusion, measure, tuned, alphas, candidates=candidates, threads=tuning.threads
        )
    print_table(tune_table(settings), tuning.form, notes(sets, [chosen(fusion, settings)]))
