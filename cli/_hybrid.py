"""`hybrid`: evaluation, and the experiments of the papers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cli._args import (
    SpartaGroup,
    Text,
    corpus_bar,
    depth_option,
    dumps,
    encode_options,
    file_type,
    folder_type,
    form_option,
    index_option,
    model_options,
    open_model,
    options,
    threads_option,
    unit_options,
)
from sparta.base.errors import InputError


@click.group(cls=SpartaGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sparta-search", prog_name="hybrid")
def main() -> None:
    """Measure rankings, and run the experiments of the papers."""


@main.command()
@click.argument("sets", nargs=-1, required=True, metavar="SET...", type=click.Path(path_type=Path))
@click.option(
    "-K",
    "ks",
    default="50,100,300,500,1000,1500,2000",
    show_default=True,
    help="How many terms of each passage are kept; all of them is added.",
)
@model_options
@unit_options
@click.option("--measures", default="RR,Success@1", show_default=True, help="As ir_measures names them.")
@depth_option
@threads_option
@form_option
@click.option("--plot", type=file_type, help="Draw the first measure and the size here (PNG, SVG, PDF).")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def sweep(sets: tuple[Path, ...], ks: str, **given: Any) -> None:
    """Measure what pruning costs: quality, size and latency with K terms a passage.

    Each SET is a BEIR folder, SQuAD JSON or MRQA JSONL, as for eval; it is encoded once (SPARTA, Table 7).
    """
    from hybrid.measures import parse_measures
    from hybrid.sweep import draw, sweep_table
    from hybrid.sweep import sweep as measure

    try:
        wanted = [int(k) for k in ks.split(",")]
        if min(wanted) < 1:
            raise ValueError
    except ValueError:
        raise InputError(f"expected -K as numbers from 1 on, separated by commas, found {ks!r}") from None
    for path in sets:
        if not path.exists():
            raise InputError("no such test set", where=str(path), remedy="check the path")
    measures = parse_measures(given["measures"].split(","))
    encoding = encode_options(**{**given, "language": "en"})
    model = open_model(given["model"], given["bits"], given["device"])
    found = []
    for path in sets:
        with corpus_bar(str(path / "corpus.jsonl"), given["unit"], quiet=given["quiet"]) as bar:
            found += measure(
                path,
                model,
                encoding,
                wanted,
                measures=measures,
                depth=given["depth"],
                threads=given["threads"],
                skip_invalid=given["skip_invalid"],
                advance=bar.update,
            )
    click.echo(sweep_table(found, measures).write(given["form"]))
    if given["plot"]:
        draw(found, measures[0], given["plot"])


fusion_options = options(
    index_option,
    click.option(
        "--base", type=click.Choice(["sparta"]), default="sparta", show_default=True, help="What BM25 joins."
    ),
    click.option(
        "--method",
        type=click.Choice(["linear", "rrf"]),
        default="linear",
        show_default=True,
        help="How to add.",
    ),
    click.option(
        "--normalization",
        type=click.Choice(["minmax", "zscore", "none"]),
        default="minmax",
        show_default=True,
        help="Of scores, for each question and channel.",
    ),
    click.option(
        "--candidates",
        type=click.IntRange(1),
        default=100,
        show_default=True,
        help="Passages from each channel.",
    ),
)
alpha_option = click.option("--alpha", type=float, default=1.0, show_default=True, help="Weight of BM25.")


def _fusion(given: dict[str, Any]) -> Any:
    from hybrid.fusion import Fusion

    return Fusion.with_alpha(
        given["base"],
        given["alpha"],
        method=given["method"],
        normalization=given["normalization"],
        candidates=given["candidates"],
    )


@main.command()
@click.argument("question", type=Text())
@alpha_option
@fusion_options
@click.option("-k", "depth", type=click.IntRange(1), default=10, show_default=True, help="Passages.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def search(question: str, **given: Any) -> None:
    """Answer a question from both channels: base + α·bm25."""
    from hybrid.compare import search_both
    from sparta.layout import default_index

    fusion = _fusion(given)
    found = search_both(given["index"] or default_index(), question, fusion, given["depth"])
    if given["as_json"]:
        for row in found:
            click.echo(dumps(row))
        return
    for row in found:
        places = ", ".join(f"{name} {row['ranks'][name] or '–'}" for name in fusion.weights)
        click.echo(f"{row['rank']:>3}  {row['score']:.3f}  {row['docid']}  ({places})")
        click.echo(f"     {row['text'][:160]}")
    click.echo(fusion.formula())


@main.command(name="eval")
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    type=folder_type,
    help="Folder of questions: BEIR's, or questions.jsonl with answers [default: beside the index's corpus].",
)
@click.option(
    "--run",
    "runs",
    multiple=True,
    type=file_type,
    help="A TREC run to fuse instead of an index's channels; --alpha weighs all but the first.",
)
@click.option("--qrels", type=file_type, help="Judgments for --run, in TREC's or BEIR's form.")
@alpha_option
@fusion_options
@threads_option
@click.option("--match", type=click.Choice(["string", "regex"]), default="string", show_default=True)
@form_option
def evaluate_channels(
    datasets: tuple[Path, ...], runs: tuple[Path, ...], qrels: Path | None, **given: Any
) -> None:
    """Measure every channel of an index and their fusion, on questions with known answers.

    answer_recall@K is the share of questions with an answer in the text of the first K passages (R@K of the
    DPR and TASER papers). p is that of a paired t-test against the best single channel (Holm).
    """
    from hybrid.compare import compare, compare_runs, compare_table, questions_beside, questions_of
    from sparta.layout import default_index

    index = given["index"] or default_index()
    fusion = _fusion(given)
    if bool(runs) != bool(qrels) or len(runs) == 1 or (runs and datasets):
        raise InputError(
            "expected several --run with --qrels, or neither of them",
            remedy="hybrid eval --run a.trec --run b.trec --qrels test.tsv",
        )
    if runs and qrels:
        names = [path.stem if len({p.stem for p in runs}) == len(runs) else str(path) for path in runs]
        fusion = replace(fusion, weights={n: given["alpha"] if i else 1.0 for i, n in enumerate(names)})
        click.echo(compare_table([compare_runs(runs, qrels, fusion)]).write(given["form"]))
        if given["form"] == "text":
            click.echo(fusion.formula())
        return
    asked = [questions_of(folder) for folder in datasets] or [questions_beside(index)]
    found = [compare(index, one, fusion, match=given["match"], threads=given["threads"]) for one in asked]
    click.echo(compare_table(found).write(given["form"]))
    if given["form"] == "text":
        click.echo(fusion.formula())


@main.command()
@click.option("--dataset", type=folder_type, help="As for eval.")
@fusion_options
@threads_option
@click.option("--measure", default="RR", show_default=True, help="As ir_measures names it.")
@form_option
def tune(dataset: Path | None, **given: Any) -> None:
    """Measure base + α·bm25 for α from 0.5 to 2.0, and name the best (TASER, §4.3)."""
    from hybrid.compare import questions_beside, questions_of
    from hybrid.compare import tune as measured
    from hybrid.measures import parse_measures
    from hybrid.tables import Table
    from sparta.layout import default_index

    index = given["index"] or default_index()
    [measure] = parse_measures([given["measure"]])
    asked = questions_of(dataset) if dataset else questions_beside(index)
    alphas = [round(0.5 + 0.1 * i, 1) for i in range(16)]
    fusion = _fusion({**given, "alpha": 1.0})
    found = measured(index, asked, fusion, alphas, measure, threads=given["threads"])
    best = max(found, key=lambda pair: (pair[1], -pair[0]))
    rows = [[f"{alpha:.1f}", 100 * value, "best" if alpha == best[0] else ""] for alpha, value in found]
    click.echo(Table(["alpha", measure, ""], rows, digits=2).write(given["form"]))


if __name__ == "__main__":
    main()
