"""`sparta eval`: rankings measured on test sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli._answering import answering_of, answering_options
from cli._arguments import file_type, folder_type, output_type, typed
from cli._fusion_options import print_table
from cli._options import (
    depth_option,
    encode_options,
    form_option,
    language_option,
    model_options,
    quiet_option,
    threads_option,
    unit_options,
)
from cli._output import corpus_bar, counted
from sparta.base.errors import InputError
from sparta.base.files import check_place

_OF_SETS = (
    *("model", "bits", "device", "dtype", "language"),
    *("unit", "chunk", "overlap", "top_k", "min_weight", "skip_invalid"),
    *("channels", "dense", "depth", "threads", "output_runs", "answers"),
)
"""Options that say how a test set is indexed and searched."""


@click.command(name="eval")
@click.argument("sets", nargs=-1, metavar="[SET]...", type=click.Path(path_type=Path))
@click.option(
    "--run", "runs", multiple=True, type=file_type, help="A TREC run, with --qrels; several may be given."
)
@click.option("--qrels", type=file_type, help="Judgments for --run, in TREC's or BEIR's form.")
@click.option(
    "--out-of-domain",
    "out_of_domain",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="SET",
    help="A set of another domain than the model's training; these have a mean of their own. [default: as"
    " MultiReQA splits its sets]",
)
@model_options
@unit_options
@click.option(
    "--channel",
    "channels",
    multiple=True,
    type=click.Choice(["impact", "bm25", "sparta"]),  # sparta: the former name of impact
    metavar="[impact|bm25]",
    help="What is ranked by [default: both].",
)
@click.option(
    "--dense",
    multiple=True,
    metavar="MODEL",
    help="Also search the candidates exactly with this bi-encoder or Poly-Encoder: a model's folder, or"
    " taser-det-en or multi-task-bge-small-en, which ship; several may be given.",
)
@click.option(
    "--measures",
    default="RR,Success@1,R@20,nDCG@10",
    show_default=True,
    help="Measures, as ir_measures names them.",
)
@language_option
@depth_option
@threads_option
@form_option
@click.option("--per-query", type=output_type, help="Also write the measures of every query here, as JSONL.")
@click.option("--output-runs", type=folder_type, help="Also leave the TREC runs in this folder.")
@answering_options
@click.option(
    "--plot",
    type=output_type,
    help="Draw the first measure here (PNG, SVG, PDF); with --answers, EM against depth.",
)
@quiet_option
def eval_command(
    sets: tuple[Path, ...],
    runs: tuple[Path, ...],
    qrels: Path | None,
    out_of_domain: tuple[Path, ...],
    **given: Any,
) -> None:
    """Measure rankings on test sets, or runs against judgments.

    A SET is a BEIR folder, SQuAD JSON, MRQA JSONL, or a folder with candidates.json of MultiReQA and its MRQA
    JSONL; it is indexed in a temporary folder. Of all but BEIR's, each sentence becomes a candidate answer
    (ReQA). With --answers a reader reads the best passages of each ranking, and the judged passages: EM and
    F1. Or measure runs: --run A.trec --run B.trec --qrels Q. p is that of a paired t-test of the first
    measure, or of EM, against the best ranking of the set (Holm).

    \b
    sparta eval beir/nfcorpus
    sparta eval dev-v1.1.json --dense taser-det-en --top-k 500
    sparta eval dev-v1.1.json --answers
    sparta eval MultiReQA/SQuAD MultiReQA/HotpotQA MultiReQA/BioASQ MultiReQA/DuoRC
    """  # noqa: D301 (click looks for the backspace)
    if bool(sets or out_of_domain) == bool(runs) or bool(runs) != bool(qrels):
        raise InputError(
            "expected test sets, or --run and --qrels together",
            remedy="sparta eval FOLDER, or sparta eval --run run.trec --qrels test.tsv",
        )
    if runs and (others := typed(*_OF_SETS)):
        raise InputError(
            f"expected test sets with {', '.join(others)}, found runs, which are measured as they are",
            remedy=f"leave {others[0]} out",
        )
    check_place(given["per_query"], "file")
    from hybrid.evaluation.evaluate import evaluate_runs, evaluate_set
    from hybrid.evaluation.measures import parse_measures
    from hybrid.evaluation.plots import check_plot
    from hybrid.evaluation.results import (
        draw,
        plot_answers,
        results_table,
        write_answers,
        write_per_query,
    )
    from hybrid.evaluation.testsets import check_test_set, domains_of, names_of

    measures = parse_measures(given["measures"].split(","))
    check_plot(given["plot"])
    answering = answering_of(given, given["depth"], language=given["language"])
    if qrels:
        found = [evaluate_runs(runs, qrels, measures)]
    else:
        domains = domains_of(sets)
        if out_of_domain:
            domains = dict.fromkeys(sets, "in-domain") | dict.fromkeys(out_of_domain, "out-of-domain")
        for path in domains:
            check_test_set(path)
        options = encode_options(**given)
        channels, model = _ranked_by(given, options)
        found, names = [], names_of(domains)
        for path, domain in domains.items():
            with corpus_bar(str(path / "corpus.jsonl"), options.unit, quiet=given["quiet"]) as bar:
                one = evaluate_set(
                    path,
                    model,
                    options,
                    channels=channels,
                    dense=given["dense"],
                    measures=measures,
                    depth=given["depth"],
                    threads=given["threads"],
                    output_runs=given["output_runs"],
                    skip_invalid=given["skip_invalid"],
                    advance=bar.update,
                    name=names[path],
                    domain=domain,
                    answering=answering,
                )
            found.append(one)
            if one.left_out:
                left = counted(one.left_out, "question")
                click.echo(f"{one.name}: left out {left} without a judged passage", err=True)
    write_per_query(found, given["per_query"])
    write_answers(found, given["output_answers"])
    print_table(results_table(found, measures, label="ranking", digits=1), given["form"])
    if answering:
        plot_answers(found, answering, given["plot"])
    elif given["plot"]:
        draw(found, measures[0], given["plot"])


def _ranked_by(given: dict[str, Any], options: Any) -> tuple[tuple[str, ...], Any]:
    """Return what ranks, and the model of impacts, where these do."""
    from sparta.models.resolve import model_for, shipped_for

    channels = given["channels"]
    if not channels and given["model"] is None and shipped_for(given["language"]) is None:
        click.echo(
            f"no SPARTA model ships for the language {given['language']!r}: ranked by BM25 alone;"
            " --model names one that reads it",
            err=True,
        )
        channels = ("bm25",)
    channels = channels or ("impact", "bm25")
    if tuple(channels) == ("bm25",):
        return channels, None
    from sparta.models.load import open_encoder

    return channels, open_encoder(
        model_for(given["model"], given["language"]), given["bits"], options.devices
    )
