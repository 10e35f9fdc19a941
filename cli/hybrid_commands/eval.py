"""`hybrid eval`: measure the channels of an index and their fusions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
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
    flag,
    folder_type,
    group,
    option,
    output_type,
    takes,
)
from cli._chains import ChainModels, open_chains
from cli._fusion_options import (
    FusionArguments,
    QuestionArguments,
    alpha_option,
    base_option,
    channel_weights,
    query_sets,
    typed_weights,
    weights_option,
)
from cli._opensearch import REMOTE_CHANNELS, ServerArguments
from cli._options import Bm25Arguments, form_option, index_option, quiet_option, threads_option
from cli._output import counted, notes, print_table
from cli._search import RerankArguments
from sparta.base.errors import IndexStateError, InputError
from sparta.base.files import check_output_file
from sparta.base.remedies import Command

if TYPE_CHECKING:
    from hybrid.evaluation.results import SetResults
    from hybrid.evaluation.testsets import QuestionSet
    from hybrid.retrieval.fusion import Fusion
    from sparta.index.reader import IndexReader


_OF_CHANNELS = (  # options without effect on runs
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
    *("chains", "model", "entities", "path_reader", "rerank"),
)


@arguments
class _Evaluation:
    more_runs: tuple[Path, ...] = argument("more_runs", nargs=-1, metavar="", type=file_type)
    questions: QuestionArguments = group(QuestionArguments)
    runs: tuple[Path, ...] = option(
        "TREC runs to fuse instead of an index's channels; --alpha is the weight of all runs after the"
        " first.",
        "--run",
        "--runs",
        metavar="FILE...",
        type=file_type,
        section="Runs",
    )
    qrels: Path | None = option(
        "Judgments for --runs, in TREC's or BEIR's format.", type=file_type, section="Runs"
    )
    base: str | None = base_option("all fusions of two and three channels")
    alpha: float = alpha_option
    weights: str | None = weights_option()
    build_dense: bool = flag("Build a missing dense channel first, with the shipped model.")
    no_dense: bool = flag("Do not measure the dense channel.")
    index: Path | None = index_option
    method: FusionArguments = group(FusionArguments)
    bm25: Bm25Arguments = group(Bm25Arguments)
    server: ServerArguments = group(ServerArguments)
    chains: tuple[str, ...] = option(
        "Also measure a chain: hop, hop-read, named, tabletext, hotpot, single, or a file of steps."
        " Repeat the"
        " option for several chains.",
        "--chain",
        metavar="NAME|FILE",
        section="Chain",
    )
    models: ChainModels = group(ChainModels)
    rerank: RerankArguments = group(RerankArguments)
    threads: int = threads_option
    form: str = form_option
    measures: str | None = option(
        "Measures: names of ir_measures; answer_recall@K; for KILT page_Rprec, page_recall@K,"
        " page_success@K and"
        " the same with passage_; for HotpotQA's JSON with a chain that reads its paths sup_EM, sup_F1,"
        " joint_EM,"
        " joint_F1 [default: as the judgments of each set allow].",
        metavar="NAME,…",
        section="Output",
    )
    per_query: Path | None = option(
        "Write the measures of every query to this file, as JSONL.", type=output_type, section="Output"
    )
    output_runs: Path | None = option(
        "Write the rankings to this folder, as TREC runs.", type=folder_type, section="Output"
    )
    answering: AnsweringArguments = group(AnsweringArguments)
    plot: Path | None = option(
        "Plot EM against depth to this file (PNG, SVG, PDF).", type=output_type, section="Answers"
    )
    quiet: bool = quiet_option
    RULES = (
        Needs("channels of an index", _OF_CHANNELS, lambda a: not a.has_runs(), actual="--runs or --qrels"),
        Needs("--answers", ("plot",), lambda a: a.answering.answers, remedy="add --answers"),
    )

    def has_runs(self) -> bool:
        """Return whether runs are measured instead of an index."""
        return bool(self.runs or self.more_runs or self.qrels)

    def named_measures(self) -> list[str]:
        """Return the measures of --measures.

        :raises InputError: a measure needs a chain that is not there
        """
        from hybrid.evaluation.measures import SENTENCES, kind_of, parse_any, split_measures

        measures = [parse_any(name) for name in split_measures(self.measures)] if self.measures else []
        of_chains = [name for name in measures if kind_of(name).of_chains]
        of_sentences = [name for name in of_chains if kind_of(name) is SENTENCES]
        if of_sentences and not self.chains:
            raise InputError(
                f"the measure {of_sentences[0]} needs --chain with a path reader",
                remedy="add --chain hop-read --path-reader FOLDER; sparta train-paths makes the path"
                " reader from"
                " HotpotQA's JSON",
            )
        only_paths = len(of_chains) == len(measures) and not of_sentences
        if of_chains and (not self.chains or only_paths):
            missing = "a measure of channels" if self.chains else "--chain"
            raise InputError(
                f"the measure {of_chains[0]} applies only to chains: {missing} is missing",
                remedy=f"--chain {(self.chains or ['hop'])[0]} --measures passage_EM,{of_chains[0]}",
            )
        return measures

    def fusions(self, channels: Sequence[str]) -> list[Fusion]:
        """Return the fusion of the options, or all fusions of the channels."""
        from hybrid.retrieval.fusion import all_fusion_weights

        all_weights = (
            [self.named_weights()] if self.names_fusion() else all_fusion_weights(channels, self.alpha)
        )
        return [self.method.fusion(weights, self.candidates()) for weights in all_weights]

    def candidates(self) -> int:
        """Return the number of passages that each channel contributes to a fusion."""
        return self.rerank.candidates(self.method.candidates)

    def names_fusion(self) -> bool:
        """Return whether the options name one fusion."""
        return self.weights is not None or self.base is not None

    def named_weights(self) -> dict[str, float]:
        """Return the channel weights of the fusion that the options name."""
        return channel_weights(self.weights, self.base, self.alpha)


@command("eval")
@takes(_Evaluation)
def evaluate_channels(chosen: _Evaluation) -> None:
    """Measure channels of your index. For test sets: sparta eval.

    Measures every channel, and without --base and --weights also all fusions of two and three channels, with
    weight α for BM25. A missing dense channel is left out; --build-dense builds it. With --answers, a reader
    extracts answers from the best passages of each ranking.

    answer_recall@K is the fraction of queries with an answer in the text of the top K passages (R@K in the
    DPR and TASER papers). For KILT's tasks, R-precision, recall and success follow KILT's published
    evaluation. passage_EM counts a query if its top passages (of a chain: the passages of its best path) are
    exactly the evidence. path_recall@K counts a query if one of the K best paths is the evidence.

    p is the p-value of a paired t-test against the best single channel, with Holm's correction; a star marks
    p < 0.05. ± is half of the 95 % confidence interval of EM, F1 or R-precision. A line below the table says
    whether a fusion is better than the best single channel, and whether significantly.

    \b
    hybrid eval --alpha 1.2
    hybrid eval --build-dense --dataset nq.test.tsv --weights bm25=1.2,impact=1,dense=1
    hybrid eval --dataset fever-dev-kilt.jsonl --dataset trex-dev-kilt.jsonl
    hybrid eval --answers --dataset nq.test.tsv --depths 1,10,50
    hybrid eval --runs a.trec b.trec --qrels test.tsv
    """  # noqa: D301 (click looks for the backspace)
    if chosen.has_runs():
        _evaluate_runs(chosen)
        return
    from hybrid.evaluation.compare import compare, timed, with_macro
    from hybrid.evaluation.measures import RECALL_AT
    from hybrid.evaluation.results import (
        check_runs,
        plot_answers,
        results_table,
        write_answers,
        write_per_query,
    )
    from hybrid.retrieval.channels import Channels
    from hybrid.retrieval.fusion import named
    from sparta.index.folder import default_index

    measures = chosen.named_measures()
    check_output_file(chosen.per_query, "file")
    index, remote = chosen.index or default_index(), chosen.server.is_remote()
    if remote and not chosen.questions.datasets:
        raise InputError("--opensearch needs --dataset", remedy="add --dataset FILE")
    sets = query_sets(chosen.questions, None if remote else index)
    if chosen.output_runs:
        check_runs(sets)
    if chosen.answering.answers and not any(query_set.answers for query_set in sets):
        raise InputError(
            "--answers needs questions with answers, but no question has an answer",
            where=", ".join(query_set.name for query_set in sets),
            remedy="omit --answers, or add a list `answers` to each question",
        )
    results = []
    with ExitStack() as stack:
        names = list(REMOTE_CHANNELS)
        if not remote:
            reader = stack.enter_context(_opened(index, chosen))
            names = _measured_channels(reader, chosen)
        fusions = chosen.fusions(names)
        depth = max(chosen.candidates(), *RECALL_AT)
        chains = open_chains(chosen.chains, chosen.models, chosen.index, remote=remote)
        chains = [stack.enter_context(chain) for chain in chains]
        channels = stack.enter_context(chosen.server.channels() if remote else Channels(reader, names))
        language = channels.searchers[names[0]].language
        answering = chosen.answering.open(depth, "--candidates", plot=chosen.plot, language=language)
        bar = stack.enter_context(
            _bar_of_questions(sets, len(chains), reads=answering is not None, quiet=chosen.quiet)
        )
        for query_set in sets:
            compared = compare(
                channels,
                query_set,
                fusions,
                threads=chosen.threads,
                output_runs=chosen.output_runs,
                answering=answering,
                measures=measures,
                chains=chains,
                advance=bar.update,
                reranking=chosen.rerank.for_evaluation(language),
            )
            results += with_macro(timed(compared, channels, query_set, fusions), query_set)
    print_table(
        results_table(results), chosen.form, notes(sets, fusions), verdicts=_verdicts(results, named(fusions))
    )
    write_per_query(results, chosen.per_query)
    if answering:
        write_answers(results, chosen.answering.output_answers)
        plot_answers(results, answering, chosen.plot)


def _verdicts(
    results: Sequence[SetResults], fusions: Collection[str], singles: str = "channel"
) -> Iterator[str]:
    """Yield one line for each set: whether a fusion is better than the best single ranking."""
    from hybrid.evaluation.results import verdict

    for set_results in results:
        names = [name for name in fusions if name in set_results.fused]
        if line := verdict(set_results, names, singles):
            yield f"{set_results.name}: {line[0].lower()}{line[1:]}" if len(results) > 1 else line


def _bar_of_questions(sets: Sequence[QuestionSet], chains: int, *, reads: bool, quiet: bool) -> Any:
    """Return a progress bar of the questions that chains search and a reader reads, for a terminal only."""
    from tqdm import tqdm

    total = chains * sum(len(query_set.queries) for query_set in sets)
    total += sum(len(query_set.answers) for query_set in sets) if reads else 0
    return tqdm(total=total, unit="question", disable=True if quiet or not total else None)


def _evaluate_runs(chosen: _Evaluation) -> None:
    """Measure TREC runs and their fusion against --qrels, and print the table."""
    from hybrid.evaluation.evaluate import evaluate_runs, named_runs
    from hybrid.evaluation.measures import MEASURES, parse_measures, split_measures
    from hybrid.evaluation.results import results_table, write_per_query

    runs = (*chosen.runs, *chosen.more_runs)
    if not (chosen.qrels and chosen.runs) or len(runs) < 2:
        raise InputError(
            "to compare runs, name --qrels and at least two --runs",
            remedy="for example: hybrid eval --runs a.trec b.trec --qrels test.tsv",
        )
    check_output_file(chosen.per_query, "file")
    names = list(named_runs(runs))
    weights = dict.fromkeys(names, chosen.alpha) | {names[0]: 1.0}
    if chosen.weights is not None:
        weights = typed_weights(chosen.weights, names)
    fusion = chosen.method.fusion(weights, chosen.method.candidates)
    measures = parse_measures(split_measures(chosen.measures)) if chosen.measures else MEASURES
    results = evaluate_runs(runs, chosen.qrels, measures, fusion=fusion, output_runs=chosen.output_runs)
    print_table(
        results_table([results]),
        chosen.form,
        notes([], [fusion]),
        verdicts=_verdicts([results], [fusion.label], "run"),
    )
    write_per_query([results], chosen.per_query)


def _opened(index: Path, chosen: _Evaluation) -> IndexReader:
    """Return an open reader of the index; --build-dense adds the dense channel."""
    from sparta.index.reader import IndexReader

    weights = chosen.named_weights() if chosen.names_fusion() else {}
    if chosen.no_dense and (chosen.build_dense or "dense" in weights):
        raise InputError(
            "--no-dense cannot be combined with a dense channel",
            remedy="omit --no-dense or the dense channel",
        )
    if chosen.build_dense:
        _build_dense(index, quiet=chosen.quiet)
    return IndexReader(index, chosen.bm25.parameters, channels=())


def _measured_channels(reader: IndexReader, chosen: _Evaluation) -> list[str]:
    """Open the index's measured channels and return their names."""
    from hybrid.retrieval.channels import CHANNELS
    from sparta.index.channels import OTHER_CHANNELS

    with reader.snapshot() as snapshot:
        existing = snapshot.channels
        names = [name for name in CHANNELS if name in existing and (name != "dense" or not chosen.no_dense)]
        for name in names:
            if name in OTHER_CHANNELS:
                snapshot.channel(name)
    weights = chosen.named_weights() if chosen.names_fusion() else {}
    if "dense" not in names and not chosen.no_dense and (not weights or "dense" in weights):
        index = reader.folder.path
        missing = f"{index} has no dense channel"
        build = f"add --build-dense, or run: {Command.of('dense index', index=index).for_command_line()}"
        if "dense" in weights:
            raise IndexStateError(missing, remedy=build)
        click.echo(f"{missing}: only the other channels are measured\n  → {build}", err=True)
    return names


def _build_dense(index: Path, *, quiet: bool) -> None:
    """Build the dense channel with the shipped model, unless the index has one."""
    from tqdm import tqdm

    from dense.channel.sync import build_dense
    from dense.channel.table import exists as has_dense

    if not has_dense(index):
        with tqdm(unit="passage", disable=True if quiet else None) as bar:
            report = build_dense(index, expect=bar.reset, advance=bar.update)
        click.echo(
            f"dense channel built: {counted(report.passages, 'passage')} in {report.seconds:.0f} s", err=True
        )
