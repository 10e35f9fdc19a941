"""`hybrid tasks`: models measured on tasks of KILT, over all passages of an index."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import arguments, option, output_type, takes
from cli._fusion_options import notes, print_table, sample_option
from cli._options import device_option, form_option, index_option
from sparta.base.files import check_place


@arguments
class _Tasks:
    index: Path | None = index_option
    datasets: tuple[Path, ...] = option(
        "A task of KILT, such as fever.dev.jsonl.", "--dataset", required=True
    )
    models: tuple[str, ...] = option("A bi-encoder, or several.", "--model", metavar="FOLDER|NAME")
    sample: int | None = sample_option
    device: str | None = device_option
    per_query: Path | None = option(
        "Also write the measures of every query here, as JSONL.", type=output_type
    )
    form: str = form_option


@click.command()
@takes(_Tasks)
def tasks(chosen: _Tasks) -> None:
    """Measure bi-encoders on tasks beside the index's own bm25 and impact: exact search, one table.

    R-precision and Recall@20 of pages and of passages. Models are encoded here, and the index keeps nothing
    of them. A model with task markers or query experts reads questions as those of their task.

    \b
    hybrid tasks --index sparta-index --model multi --model taser-det-en \\
        --dataset fever.dev.jsonl --dataset zsre.dev.jsonl
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.evaluation.results import results_table, write_per_query
    from hybrid.replications.pool import TaskPool, measure_all
    from sparta.index.folder import default_index

    check_place(chosen.per_query, "file")
    pool = TaskPool(chosen.index or default_index(), chosen.datasets, chosen.sample)
    results = measure_all(pool, chosen.models, chosen.device)
    print_table(results_table(results, label="model"), chosen.form, notes(pool.sets, []))
    write_per_query(results, chosen.per_query)
