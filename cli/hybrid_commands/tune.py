"""`hybrid tune`: choose the weights of a fusion on questions with known answers."""

from __future__ import annotations

from pathlib import Path

from cli._arguments import arguments, command, group, option, takes
from cli._fusion_options import (
    MethodArguments,
    QuestionArguments,
    base_option,
    channel_weights,
    query_sets,
    weights_option,
)
from cli._options import form_option, index_option, threads_option
from cli._output import notes, print_table
from sparta.base.checks import parse_numbers
from sparta.base.errors import InputError


@arguments
class _Tuning:
    questions: QuestionArguments = group(QuestionArguments)
    base: str | None = base_option("impact")
    weights: str | None = weights_option(
        "Weight of each channel, instead of --base; BM25's weight is tuned: dense=1,impact=0.5,bm25=1."
    )
    channels: str | None = option(
        "Channels, besides the base, whose weights are tuned [default: bm25].",
        metavar="NAME,…",
        section="Fusion",
    )
    index: Path | None = index_option
    method: MethodArguments = group(MethodArguments)
    alphas: str = option(
        "Weights α to try.", metavar="FROM:TO:STEP|α,…", default="0.5:2:0.1", section="Fusion"
    )
    candidates: str = option(
        "Number of passages fused from each channel; several numbers are tried.",
        metavar="N,…",
        default="100",
        section="Fusion",
    )
    threads: int = threads_option
    measure: str | None = option(
        "Measure to maximize: a name of ir_measures, answer_recall@K, or for KILT page_Rprec,"
        " passage_recall@K"
        " and the like [default: RR if every set has judgments, else answer_recall@20]."
    )
    form: str = form_option

    def to_tune(self) -> tuple[dict[str, float], list[str]]:
        """Return the initial weight of each channel, and the channels whose weights are tuned."""
        from hybrid.retrieval.channels import CHANNELS

        weights = channel_weights(self.weights, self.base, 1.0)
        tuned = ["bm25"]
        if self.channels is not None:
            base = next(iter(weights))
            names = [name.strip() for name in self.channels.split(",")]
            unknown = [name for name in names if name not in CHANNELS]
            if unknown or len(set(names)) < len(names) or self.weights is not None:
                raise InputError(
                    f"--channels must name {', '.join(CHANNELS)} at most once, without --weights, found"
                    f" {self.channels!r}",
                    remedy="for example: hybrid tune --base dense --channels bm25,impact",
                )
            tuned = [name for name in names if name != base]
            weights = {base: 1.0, **dict.fromkeys(tuned, 1.0)}
        if not tuned or tuned[0] not in weights or len(weights) < 2:
            raise InputError(
                f"tuning needs two channels, and one of the channels to tune, found {', '.join(weights)}",
                remedy="to tune the weight of BM25: hybrid tune --weights dense=1,impact=0.5,bm25=1",
            )
        return weights, tuned


@command()
@takes(_Tuning)
def tune(tuning: _Tuning) -> None:
    """Choose the weights of a fusion on your questions.

    Measures base + α·bm25 for each α of --alphas (TASER, §4.3) and each number of --candidates, and prints
    the best setting. With several sets, the mean over the sets decides. With a single set, five-fold
    cross-validation also measures the choice: chosen on four fifths of the questions, measured on the rest.

    \b
    hybrid tune --dataset nq.dev.tsv
    hybrid tune --base dense --channels bm25,impact --candidates 20,50,100
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.evaluation.measures import parse_any
    from hybrid.evaluation.tune import (
        best_fusion,
        channel_table,
        fold_table,
        measure_for,
        parse_alphas,
        tune_table,
        verdict,
    )
    from hybrid.evaluation.tune import tune as measured
    from hybrid.retrieval.channels import Channels
    from sparta.index.folder import default_index

    index = tuning.index or default_index()
    weights, tuned = tuning.to_tune()
    alphas, candidates = parse_alphas(tuning.alphas), parse_numbers(tuning.candidates, "candidates")
    fusion = tuning.method.fusion(weights, max(candidates))
    sets = query_sets(tuning.questions, index)
    measure = parse_any(tuning.measure) if tuning.measure else measure_for(sets)
    with Channels(index, list(weights)) as channels:
        settings = measured(
            channels, sets, fusion, measure, tuned, alphas, candidates=candidates, threads=tuning.threads
        )
    is_data = tuning.form in ("csv", "json")  # one table, for programs
    more = {"Each channel without fusion:": channel_table(settings)}
    if settings.folds:
        more["Cross-validation (each setting is chosen on the other folds):"] = fold_table(settings)
    print_table(
        tune_table(settings, only_settings=not is_data),
        tuning.form,
        notes(sets, [best_fusion(fusion, settings)]),
        verdicts=[verdict(settings)],
        more={} if is_data else more,
    )
