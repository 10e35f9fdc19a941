"""`sparta export` and `sparta export-model`: the impacts and the model for other software."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import folder_type, output_type
from cli._options import index_option
from cli._output import counted
from sparta.base.errors import InputError
from sparta.base.files import is_standard_output


@click.command()
@index_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["pyserini-json", "ciff", "opensearch"]),
    required=True,
    help="What the other engine reads.",
)
@click.option(
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="New file to write; for opensearch a new folder.",
)
@click.option(
    "--query-weights",
    type=output_type,
    help="Also write the query-term weights, integers, as JSON, where the index's model has such weights.",
)
def export(index: Path | None, form: str, output: Path, query_weights: Path | None) -> None:
    """Write the impacts for another engine.

    As Pyserini's JSON vectors, in the Common Index File Format, which PISA and others read, or as a folder
    for OpenSearch: mapping, bulk requests, tokenizer model, and the commands that load them (sparta push
    loads an index itself). The first two hold no query-term weights: --query-weights writes them. Impacts and
    query weights are integers; their scales are printed.
    """
    if query_weights is not None and query_weights.absolute() == output.absolute():
        raise InputError(
            f"expected two files, found {output} for the impacts and for the weights of questions",
            remedy="give --query-weights a name of its own",
        )
    if form != "opensearch" and output.is_file() and not is_standard_output(output):
        raise InputError(
            "expected a new file, found one that is there",
            where=str(output),
            remedy="delete it, or choose another --output",
        )
    from hybrid.opensearch.files import export_opensearch
    from sparta.export.exporters import export_index, export_query_weights, scale
    from sparta.search.searcher import Searcher

    with Searcher(index) as searcher:
        if query_weights is not None:
            weighed = export_query_weights(searcher, query_weights)
            click.echo(f"{query_weights}: {counted(weighed, 'term')}", err=is_standard_output(output))
        elif searcher.tokenizer.weights is not None and form != "opensearch":
            click.echo(
                "this index has query-term weights: with weights of 1 the ranking is another"
                " (--query-weights FILE writes them)",
                err=True,
            )
        if form == "opensearch":
            documents, postings = export_opensearch(searcher, output)
        else:
            documents, postings = export_index(searcher, form, output)
        said = scale(searcher)
    said = f"{output}: {counted(documents, 'passage')}, {counted(postings, 'posting')}; {said}"
    click.echo(said, err=is_standard_output(output))


@click.command(name="export-model")
@click.option(
    "--model", metavar="FOLDER|ID", help="Model folder or hub id [default: the model that ships with sparta]."
)
@click.option("--output", required=True, type=folder_type, help="Folder to write, new or empty.")
def export_model(model: str | None, output: Path) -> None:
    """Write a SPARTA model for sentence-transformers.

    SparseEncoder(FOLDER, trust_remote_code=True) opens it, with the same weights and without sparta.
    """
    from sparta.export.sentence_transformers import export_sentence_transformers

    export_sentence_transformers(model, output)
    click.echo(f'{output}: SparseEncoder("{output}", trust_remote_code=True)')
