"""`hybrid sweep`: quality, size and latency of pruned indexes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli._arguments import argument, arguments, command, group, made, option, output_type, takes, typed
from cli._options import (
    ModelArguments,
    depth_option,
    form_option,
    index_option,
    language_option,
    quiet_option,
    skip_invalid_option,
    threads_option,
    unit_option,
)
from sparta.base.checks import parse_numbers
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from hybrid.evaluation.testsets import QuestionSet


@arguments
class _Sweep:
    sets: tuple[Path, ...] = argument("sets", nargs=-1, metavar="[SET]...", type=click.Path(path_type=Path))
    index: Path | None = index_option
    ks: str = option(
        "Numbers of terms kept per passage; the unpruned index is always measured, too.",
        "-K",
        default="50,100,300,500,1000,1500,2000",
    )
    model: ModelArguments = group(ModelArguments)
    unit: str = unit_option
    skip_invalid: bool = skip_invalid_option
    language: str = language_option
    measures: str = option("Measures, by their names in ir_measures.", default="RR,Success@1")
    depth: int = depth_option
    threads: int = threads_option
    form: str = form_option
    plot: Path | None = option(
        "Plot the first measure and the index size to this file (PNG, SVG, PDF).", type=output_type
    )
    quiet: bool = quiet_option


@command()
@takes(_Sweep)
def sweep(chosen: _Sweep) -> None:
    """Measure what it costs to keep fewer terms per passage.

    For each K, keeps the K terms with the highest weights and measures quality, index size and latency
    (SPARTA, Table 7). A SET is a BEIR folder, SQuAD JSON, MRQA JSONL or irds:NAME; without a SET, the corpus
    of the index is measured with the questions and judgments beside it, by default with the language, model
    and chunks of the index. Each corpus is encoded once.

    \b
    hybrid sweep beir/nfcorpus -K 50,100,500
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.evaluation.measures import parse_measures, split_measures
    from hybrid.evaluation.plots import check_plot
    from hybrid.evaluation.questions import set_beside
    from hybrid.evaluation.sweep import draw, sweep_table
    from hybrid.evaluation.sweep import sweep as measure
    from hybrid.evaluation.testsets import check_test_set, names_of

    numbers = parse_numbers(chosen.ks, "K")
    for path in chosen.sets:
        check_test_set(path)
    if chosen.sets and typed("index"):
        raise InputError("--index cannot be combined with test sets", remedy="omit --index or the test sets")
    measures = parse_measures(split_measures(chosen.measures))
    check_plot(chosen.plot)
    from sparta.index.folder import default_index
    from sparta.models.load import open_encoder
    from sparta.models.resolve import model_for
    from sparta.neural.devices import parse_devices
    from sparta.shards.encode import EncodeOptions

    index = chosen.index or default_index()
    if not chosen.sets:
        chosen = _as_in_index(chosen, index)
    encoding = made(EncodeOptions, chosen, devices=parse_devices(chosen.model.device))
    name = model_for(chosen.model.model, chosen.language)
    model = open_encoder(name, chosen.model.bits, encoding.devices, chosen.model.query_encoder)
    results = []
    sets: list[tuple[Path | QuestionSet, str]] = [*names_of(chosen.sets).items()]
    for source, set_name in sets or [(set_beside(index), "")]:
        results += measure(
            source,
            model,
            encoding,
            numbers,
            measures=measures,
            depth=chosen.depth,
            threads=chosen.threads,
            skip_invalid=chosen.skip_invalid,
            progress=False if chosen.quiet else None,
            name=set_name,
        )
    click.echo(sweep_table(results, measures).write(chosen.form))
    if chosen.plot:
        draw(results, measures[0], chosen.plot)


def _as_in_index(chosen: _Sweep, index: Path) -> _Sweep:
    """Return the options with the language, chunks and model of an index, unless the user typed others.

    :raises InputError: the index was built with options for reading that this command lacks
    """
    from sparta.data.units import SENTENCE
    from sparta.index.folder import IndexFolder
    from sparta.index.inputs.options import IndexOptions, options_to_grow

    generation = IndexFolder(index).state().searchable
    if generation is None:
        return chosen
    if generation.job.reading:
        raise InputError(
            "the index was built with --id-field, --text-field, --title-field or --query, which a sweep does"
            " not support",
            where=str(index),
            remedy="name a test set: a BEIR folder, SQuAD JSON, MRQA JSONL or irds:NAME",
        )
    encoder, language = chosen.model, chosen.language if typed("language") else generation.language
    if language == generation.language and encoder.model is None:
        named = IndexOptions(bits=encoder.bits, query_encoder=encoder.query_encoder)
        of_index = options_to_grow(index, named)
        encoder = replace(
            encoder, model=of_index.model, bits=of_index.bits, query_encoder=of_index.query_encoder
        )
    is_whole = generation.unit == SENTENCE  # judgments beside an index are of whole passages
    unit = chosen.unit if typed("unit") or is_whole else generation.unit
    return replace(chosen, language=language, unit=unit, model=encoder)
