"""`sparta eval`: measure rankings on test sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._answering import AnsweringArguments
from cli._arguments import (
    Needs,
    argument,
    arguments,
    command,
    file_type,
    folder_type,
    group,
    option,
    output_type,
    takes,
    typed,
)
from cli._options import (
    ModelArguments,
    TermArguments,
    depth_option,
    encoding_options,
    form_option,
    language_option,
    quiet_option,
    threads_option,
)
from cli._output import counted, print_table
from cli._search import RerankArguments
from sparta.base.errors import InputError
from sparta.base.files import check_output_file

if TYPE_CHECKING:
    from hybrid.evaluation.answering import Answering
    from hybrid.evaluation.results import SetResults

_OF_SETS = (
    *("model", "bits", "query_encoder", "device", "dtype", "language"),
    *("unit", "chunk", "overlap", "top_k", "min_weight", "skip_invalid"),
    *("channels", "dense", "depth", "threads", "output_runs", "answers", "rerank"),
)
"""Options that decide how a test set is indexed and searched."""


@arguments
class _Evaluation:
    sets: tuple[Path, ...] = argument("sets", nargs=-1, metavar="[SET]...", type=click.Path(path_type=Path))
    runs: tuple[Path, ...] = option(
        "TREC run to measure against --qrels; repeat the option for several runs.",
        "--run",
        type=file_type,
        section="Runs",
    )
    qrels: Path | None = option(
        "Judgments for --run, in TREC's or BEIR's format.", type=file_type, section="Runs"
    )
    out_of_domain: tuple[Path, ...] = option(
        "Test set from another domain than the model's training data; the table has a separate mean of these"
        " sets [default: MultiReQA's split].",
        metavar="SET",
    )
    model: ModelArguments = group(ModelArguments)
    terms: TermArguments = group(TermArguments)
    channels: tuple[str, ...] = option(
        "Channel to measure; repeat the option for several [default: both].",
        "--channel",
        type=click.Choice(["impact", "bm25", "sparta"]),  # sparta: the former name of impact
        metavar="[impact|bm25]",
    )
    dense: tuple[str, ...] = option(
        "Also measure exact search with this bi-encoder or Poly-Encoder: a folder, or a shipped model"
        " (taser-det-en, multi-task-bge-small-en). Repeat the option for several models.",
        metavar="MODEL",
    )
    rerank: RerankArguments = group(RerankArguments)
    measures: str = option("Measures, by their names in ir_measures.", default="RR,Success@1,R@20,nDCG@10")
    language: str = language_option
    depth: int = depth_option
    threads: int = threads_option
    form: str = form_option
    per_query: Path | None = option(
        "Write the measures of every query to this file, as JSONL.", type=output_type, section="Output"
    )
    output_runs: Path | None = option(
        "Write the TREC runs to this folder.", type=folder_type, section="Output"
    )
    answering: AnsweringArguments = group(AnsweringArguments)
    plot: Path | None = option(
        "Plot the first measure to this file (PNG, SVG, PDF); with --answers, plot EM against depth.",
        type=output_type,
        section="Output",
    )
    quiet: bool = quiet_option
    RULES = (Needs("test sets", _OF_SETS, lambda a: not a.runs, actual="runs"),)

    def check(self) -> None:
        """Raise InputError unless there are either test sets, or runs with judgments."""
        if bool(self.sets or self.out_of_domain) == bool(self.runs) or bool(self.runs) != bool(self.qrels):
            raise InputError(
                "name either test sets, or --run and --qrels together",
                remedy="run: sparta eval FOLDER, or sparta eval --run run.trec --qrels test.tsv",
            )
        check_output_file(self.per_query, "file")


@command("eval")
@takes(_Evaluation)
def eval_command(chosen: _Evaluation) -> None:
    """Measure models on test sets. For your own index: hybrid eval.

    With --run and --qrels, measures TREC runs instead.

    A SET is a BEIR folder, SQuAD JSON, MRQA JSONL, irds:NAME (a dataset of ir_datasets), or a folder with
    MultiReQA's candidates.json and MRQA JSONL. The command indexes it in a temporary folder. Except in BEIR
    sets and irds:NAME, each sentence is a candidate answer (ReQA). With --answers, a reader extracts answers
    from the best passages of each ranking and from the judged passages, and EM and F1 are measured.

    p is the p-value of a paired t-test of the first measure (or of EM) against the best ranking of the set,
    with Holm's correction.

    \b
    sparta eval beir/nfcorpus
    sparta eval dev-v1.1.json --dense taser-det-en --top-k 500
    sparta eval dev-v1.1.json --answers
    sparta eval MultiReQA/SQuAD MultiReQA/HotpotQA MultiReQA/BioASQ MultiReQA/DuoRC
    sparta eval --run a.trec --run b.trec --qrels test.tsv
    """  # noqa: D301 (click looks for the backspace)
    chosen.check()
    from hybrid.evaluation.evaluate import evaluate_runs
    from hybrid.evaluation.measures import parse_measures, split_measures
    from hybrid.evaluation.plots import check_plot
    from hybrid.evaluation.results import (
        draw,
        plot_answers,
        results_table,
        write_answers,
        write_per_query,
    )

    measures, plot = parse_measures(split_measures(chosen.measures)), chosen.plot
    check_plot(plot)
    answering = chosen.answering.open(
        chosen.depth, "-k", plot=plot, device=chosen.model.device, language=chosen.language
    )
    if chosen.qrels:
        results = [evaluate_runs(chosen.runs, chosen.qrels, measures)]
    else:
        results = list(_evaluate_sets(chosen, measures, answering))
    write_per_query(results, chosen.per_query)
    write_answers(results, chosen.answering.output_answers)
    print_table(results_table(results, measures, label="ranking", digits=1), chosen.form)
    if answering:
        plot_answers(results, answering, plot)
    elif plot:
        draw(results, measures[0], plot)


def _evaluate_sets(
    chosen: _Evaluation, measures: Sequence[str], answering: Answering | None
) -> Iterator[SetResults]:
    """Yield the results of each test set."""
    from hybrid.evaluation.evaluate import evaluate_set
    from hybrid.evaluation.results import check_run_names
    from hybrid.evaluation.testsets import check_test_set, domains_of, names_of

    domains = domains_of(chosen.sets)
    if chosen.out_of_domain:
        domains = dict.fromkeys(chosen.sets, "in-domain") | dict.fromkeys(
            chosen.out_of_domain, "out-of-domain"
        )
    names = names_of(domains)
    if chosen.output_runs:
        check_run_names([*names.values()])
    for path in domains:
        check_test_set(path)
    options = encoding_options(chosen.model, chosen.terms, chosen.language)
    channels, model = _ranked_by(chosen, options)
    for path, domain in domains.items():
        results = evaluate_set(
            path,
            model,
            options,
            channels=channels,
            dense=chosen.dense,
            measures=measures,
            depth=chosen.depth,
            threads=chosen.threads,
            output_runs=chosen.output_runs,
            skip_invalid=chosen.terms.skip_invalid,
            progress=False if chosen.quiet else None,
            name=names[path],
            domain=domain,
            answering=answering,
            reranking=chosen.rerank.for_evaluation(chosen.language),
        )
        if results.omitted_questions:
            left = counted(results.omitted_questions, "question")
            them = "it" if results.omitted_questions == 1 else "them"
            click.echo(
                f"{results.name}: {left} left out, because the set names no relevant passage for {them}",
                err=True,
            )
        yield results


def _ranked_by(chosen: _Evaluation, options: Any) -> tuple[tuple[str, ...], Any]:
    """Return the channels to measure, and the open SPARTA model (None if only BM25 is measured).

    :raises InputError: only BM25 is measured, and an option of other rankings is typed
    """
    from sparta.models.resolve import model_for, no_model, shipped_for

    channels, model, language = chosen.channels, chosen.model.model, chosen.language
    if not channels and model is None and shipped_for(language) is None:
        error = no_model(language)
        advice = error.remedy.for_command_line()
        click.echo(f"note: {error.message}, so only BM25 is measured; to measure impacts: {advice}", err=True)
        channels = ("bm25",)
    channels = channels or ("impact", "bm25")
    if channels == ("bm25",):
        _refuse_unused(chosen)
        return channels, None
    from sparta.models.load import open_encoder

    name, arguments = model_for(model, language), chosen.model
    return channels, open_encoder(name, arguments.bits, options.devices, arguments.query_encoder)


def _refuse_unused(chosen: _Evaluation) -> None:
    """Raise InputError if an option is typed that has no effect, because only BM25 is measured."""
    names = ["model", "bits", "query_encoder", "top_k", "min_weight"]
    if not chosen.dense:
        names += ["dtype"] if chosen.answering.answers else ["dtype", "device"]
    if unused := typed(*names):
        more = ", or add --channel impact" if chosen.channels else ""
        raise InputError(f"{unused[0]} has no effect on the channel bm25", remedy=f"omit {unused[0]}{more}")
