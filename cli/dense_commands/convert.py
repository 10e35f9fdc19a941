"""`dense convert`: convert checkpoints of other projects into model folders."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import command, folder_type, option


@command()
@option(
    "Checkpoint file of DPR, TASER or Chain-of-Skills; or both folders of a DPR model of transformers, with"
    " --from twice.",
    "--from",
    "sources",
    multiple=True,
    required=True,
    metavar="FILE|FOLDER|ID",
)
@click.option("--output", required=True, type=folder_type, help="Folder for the model.")
@option("Tokenizer, if the checkpoint has none.", "--tokenizer", metavar="FOLDER|ID")
@click.option(
    "--reader",
    type=click.Choice(["question", "passage", "expanded", "mention", "entity"]),
    help="Keep only the expert for these texts, as a plain bi-encoder; for a model with skills.",
)
@click.option(
    "--int8",
    is_flag=True,
    help="Store the weights in 8-bit integers with row scales, without experts that no skill of the model"
    " uses.",
)
def convert(
    sources: tuple[str, ...], output: Path, tokenizer: str | None, reader: str | None, int8: bool
) -> None:
    """Convert a checkpoint of DPR, TASER or Chain-of-Skills.

    --from may also be a model folder of sparta: --int8 then makes the model smaller, and --reader entity
    makes a model that encodes entity descriptions, for the links of a chain.

    \b
    dense convert --from hf_bert_base.cp --tokenizer bert-base-uncased --output dpr
    dense convert --from facebook/dpr-question_encoder-single-nq-base \\
                  --from facebook/dpr-ctx_encoder-single-nq-base --output dpr
    """  # noqa: D301 (click looks for the backspace)
    from dense.models.checkpoints import form_of
    from dense.models.convert import convert as converted
    from dense.models.skill_checkpoints import single_expert_model, without_unread
    from sparta.training.ranking import check_output

    check_output(output, resume=False)
    model = converted(sources, tokenizer)
    if reader:
        model = single_expert_model(model, reader)
    if int8:
        model = without_unread(model)
    model.save_pretrained(output, int8=int8)
    parameters = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    click.echo(f"{output}: {form_of(model.config)}, {parameters:.1f}M parameters")
