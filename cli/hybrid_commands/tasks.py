"""`hybrid tasks`: measure bi-encoders on tasks of KILT, over all passages of an index."""

from __future__ import annotations

from pathlib import Path

from cli._arguments import arguments, command, option, output_type, takes
from cli._fusion_options import sample_option
from cli._options import device_option, form_option, index_option
from cli._output import notes, print_table
from sparta.base.files import check_output_file


@arguments
class _Tasks:
    index: Path | None = index_option
    datasets: tuple[Path, ...] = option(
        "Task of KILT, such as fever.dev.jsonl. Repeat the option for several.", "--dataset", required=True
    )
    models: tuple[str, ...] = option(
        "Bi-encoder to measure. Repeat the option for several.", "--model", metavar="FOLDER|NAME"
    )
    sample: int | None = sample_option
    device: str | None = device_option
    per_query: Path | None = option(
        "Write the measures of every query to this file, as JSONL.", type=output_type
    )
    form: str = form_option


@command()
@takes(_Tasks)
def tasks(chosen: _Tasks) -> None:
    """Measure bi-encoders on tasks of KILT, over all passages.

    Prints R-precision and Recall@20 of pages and passages, beside bm25 and impact of the index. Each model
    encodes all passages of the index and searches them exactly; the index itself does not change. A model
    with task markers or query experts encodes each question for its task.

    \b
    hybrid tasks --index sparta-index --model multi --model taser-det-en \\
        --dataset fever.dev.jsonl --dataset zsre.dev.jsonl
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.evaluation.results import results_table, write_per_query
    from hybrid.replications.pool import TaskPool, measure_all
    from sparta.index.folder import default_index

    check_output_file(chosen.per_query, "file")
    pool = TaskPool(chosen.index or default_index(), chosen.datasets, chosen.sample)
    results = measure_all(pool, chosen.models, chosen.device)
    print_table(results_table(results, label="model"), chosen.form, notes(pool.sets, []))
    write_per_query(results, chosen.per_query)
