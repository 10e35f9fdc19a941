"""`sparta export` and `sparta export-model`: write impacts and models for other software."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import command, folder_type, option, output_type
from cli._options import index_option
from cli._output import counted
from sparta.base.errors import InputError
from sparta.base.files import is_standard_output


@command()
@index_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["pyserini-json", "ciff", "opensearch"]),
    required=True,
    help="Format of the output: Pyserini's JSON vectors, CIFF (PISA and others), or OpenSearch files.",
)
@click.option(
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="New file to write; with opensearch a new folder.",
)
@click.option(
    "--query-weights",
    type=output_type,
    help="Also write the integer query-term weights of the index's model to this file, as JSON.",
)
def export(index: Path | None, form: str, output: Path, query_weights: Path | None) -> None:
    """Write an index for PISA, Pyserini or OpenSearch.

    pyserini-json writes Pyserini's JSON vectors. ciff writes the Common Index File Format, which PISA and
    others read. opensearch writes a folder with mapping, bulk requests, tokenizer model and the commands that
    load them; sparta push loads an index directly. The first two formats hold no query-term weights;
    --query-weights writes them. Impacts and query-term weights are integers; the command prints their scales.
    """
    if query_weights is not None and query_weights.absolute() == output.absolute():
        raise InputError(
            f"--output and --query-weights name the same file, {output}",
            remedy="choose another file for --query-weights",
        )
    if form != "opensearch" and output.is_file() and not is_standard_output(output):
        raise InputError(
            "the output file already exists",
            where=str(output),
            remedy="delete the file, or choose another --output",
        )
    from hybrid.opensearch.files import export_opensearch
    from sparta.export.exporters import export_index, export_query_weights, scale
    from sparta.search.searcher import Searcher

    with Searcher(index) as searcher:
        if query_weights is not None:
            n_terms = export_query_weights(searcher, query_weights)
            click.echo(f"{query_weights}: {counted(n_terms, 'term')}", err=is_standard_output(output))
        elif searcher.tokenizer.weights is not None and form != "opensearch":
            click.echo(
                "note: the exported impacts give another ranking without the index's query-term weights;"
                " --query-weights FILE writes these weights",
                err=True,
            )
        if form == "opensearch":
            documents, postings = export_opensearch(searcher, output)
        else:
            documents, postings = export_index(searcher, form, output)
        scales = scale(searcher)
    report = f"{output}: {counted(documents, 'passage')}, {counted(postings, 'posting')}; {scales}"
    click.echo(report, err=is_standard_output(output))


@command("export-model")
@option(
    "SPARTA model: a folder, or an id of the Hugging Face hub [default: the shipped model].",
    "--model",
    metavar="FOLDER|ID",
)
@click.option("--output", required=True, type=folder_type, help="Folder to write, new or empty.")
def export_model(model: str | None, output: Path) -> None:
    """Write a SPARTA model for sentence-transformers.

    SparseEncoder(FOLDER, trust_remote_code=True) opens the model with the same weights and without sparta.
    """
    from sparta.export.sentence_transformers import export_sentence_transformers

    export_sentence_transformers(model, output)
    click.echo(f'{output}: SparseEncoder("{output}", trust_remote_code=True)')
