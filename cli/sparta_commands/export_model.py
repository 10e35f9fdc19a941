"""`sparta export-model`: a model's folder for sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import click

from cli._options import folder_type


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
