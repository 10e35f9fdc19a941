"""`hybrid sweep`: what pruning costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli._arguments import output_type, typed
from cli._options import (
    depth_option,
    encode_options,
    form_option,
    index_option,
    language_option,
    model_options,
    quiet_option,
    skip_invalid_option,
    threads_option,
    unit_option,
)
from cli._output import corpus_bar
from sparta.base.errors import InputError


@click.command()
@click.argument("sets", nargs=-1, metavar="[SET]...", type=click.Path(path_type=Path))
@index_option
@click.option(
    "-K",
    "ks",
    default="50,100,300,500,1000,1500,2000",
    show_default=True,
    help="How many terms of each passage are kept; all of them is added.",
)
@model_options
@unit_option
@skip_invalid_option
@language_option
@click.option("--measures", default="RR,Success@1", show_default=True, help="As ir_measures names them.")
@depth_option
@threads_option
@form_option
@click.option("--plot", type=output_type, help="Draw the first measure and the size here (PNG, SVG, PDF).")
@quiet_option
def sweep(sets: tuple[Path, ...], ks: str, **given: Any) -> None:
    """Measure what pruning to K terms per passage costs: quality, size and latency.

    Each SET is a BEIR folder, SQuAD JSON or MRQA JSONL, as for sparta eval; without one, it is the corpus of
    the index, with the questions and judgments beside it. It is encoded once (SPARTA, Table 7).
    """
    from hybrid.evaluation.measures import parse_measures
    from hybrid.evaluation.plots import check_plot
    from hybrid.evaluation.sweep import draw, sweep_table
    from hybrid.evaluation.sweep import sweep as measure
    from hybrid.evaluation.testsets import check_test_set, names_of

    try:
        wanted = [int(k) for k in ks.split(",")]
        if min(wanted) < 1:
            raise ValueError
    except ValueError:
        raise InputError(f"expected -K as numbers from 1 on, separated by commas, found {ks!r}") from None
    for path in sets:
        check_test_set(path)
    if sets and typed("index"):
        raise InputError("expected test sets or --index, found both", remedy="leave one of them out")
    measures = parse_measures(given["measures"].split(","))
    check_plot(given["plot"])
    named = names_of(sets)
    chosen = [(path, str(path / "corpus.jsonl"), name) for path, name in named.items()]
    from sparta.models.load import open_encoder
    from sparta.models.resolve import model_for

    encoding = encode_options(**given, top_k=None, min_weight=0.0)
    model = open_encoder(model_for(given["model"], given["language"]), given["bits"], encoding.devices)
    found = []
    for source, corpus, name in chosen or [_indexed(given["index"])]:
        with corpus_bar(corpus, given["unit"], quiet=given["quiet"]) as bar:
            found += measure(
                source,
                model,
                encoding,
                wanted,
                measures=measures,
                depth=given["depth"],
                threads=given["threads"],
                skip_invalid=given["skip_invalid"],
                advance=bar.update,
                name=name,
            )
    click.echo(sweep_table(found, measures).write(given["form"]))
    if given["plot"]:
        draw(found, measures[0], given["plot"])


def _indexed(index: Path | None) -> tuple[Any, str, str]:
    """Return the set beside an index, its corpus, and its name."""
    from hybrid.evaluation.questions import set_beside
    from sparta.index.folder import default_index

    found = set_beside(index or default_index())
    return found, str(found.corpus), found.name
