"""`dense convert`: checkpoints of others become model folders."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import folder_type


@click.command()
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    metavar="FILE|FOLDER|ID",
    help="A dict file of DPR, TASER or Chain-of-Skills, or transformers' DPR: both its folders, by --from"
    " twice.",
)
@click.option("--output", required=True, type=folder_type, help="Folder for the model.")
@click.option("--tokenizer", metavar="FOLDER|ID", help="Tokenizer of a checkpoint that brings none.")
@click.option(
    "--reader",
    type=click.Choice(["question", "passage", "expanded", "mention", "entity"]),
    help="Of a model with skills, the expert that reads these texts alone, as a plain bi-encoder.",
)
@click.option(
    "--int8",
    is_flag=True,
    help="Store the weights in 8 bits with row scales; experts that none of the model's skills uses are left"
    " out.",
)
def convert(
    sources: tuple[str, ...], output: Path, tokenizer: str | None, reader: str | None, int8: bool
) -> None:
    """Make a model folder from a checkpoint of DPR, TASER or Chain-of-Skills.

    Of a folder of ours, --int8 makes a smaller one, and --reader entity one that indexes descriptions of
    entities, for the links of a chain.

    \b
    dense convert --from hf_bert_base.cp --tokenizer bert-base-uncased --output dpr
    dense convert --from facebook/dpr-question_encoder-single-nq-base \\
                  --from facebook/dpr-ctx_encoder-single-nq-base --output dpr
    """  # noqa: D301 (click looks for the backspace)
    from dense.models.checkpoints import form_of
    from dense.models.convert import convert as converted
    from dense.models.skill_checkpoints import reader_alone, without_unread
    from sparta.training.ranking import check_output

    check_output(output, resume=False)
    model = converted(sources, tokenizer)
    if reader:
        model = reader_alone(model, reader)
    if int8:
        model = without_unread(model)
    model.save_pretrained(output, int8=int8)
    parameters = sum(p.numel() for p in model.parameters()) / 1e6
    click.echo(f"{output}: {form_of(model.config)}, {parameters:.1f}M parameters")
