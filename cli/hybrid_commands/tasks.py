"""`hybrid tasks`: models measured on tasks of KILT, over all passages of an index."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import output_type
from cli._fusion_options import notes, print_table, sample_option
from cli._options import form_option, index_option
from sparta.base.files import check_place


@click.command()
@index_option
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="A task of KILT, such as fever.dev.jsonl.",
)
@click.option("--model", "models", multiple=True, metavar="FOLDER|NAME", help="A bi-encoder, or several.")
@sample_option
@click.option("--device", metavar="NAME", help="Device [default: the best there is].")
@click.option("--per-query", type=output_type, help="Also write the measures of every query here, as JSONL.")
@form_option
def tasks(
    index: Path | None,
    datasets: tuple[Path, ...],
    models: tuple[str, ...],
    sample: int | None,
    device: str | None,
    per_query: Path | None,
    form: str,
) -> None:
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

    check_place(per_query, "file")
    pool = TaskPool(index or default_index(), datasets, sample)
    results = measure_all(pool, models, device)
    print_table(results_table(results, label="model"), form, notes(pool.sets, []))
    write_per_query(results, per_query)
