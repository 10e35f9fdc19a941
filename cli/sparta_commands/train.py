"""`sparta train`: a model from queries and the passages that answer them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli._numbers import Finite
from cli._options import typed
from cli._training import (
    data_options,
    end_options,
    length_options,
    loop_options,
    named_sets,
    refuse_unused,
    report,
    typed_command,
    without_effect,
)
from sparta.base.errors import InputError


@click.command()
@data_options
@length_options(learning_rate=1.5e-4)
@click.option(
    "--pressure", type=Finite(), default=0.001, show_default=True, help="Weight of the vocabulary penalty."
)
@click.option(
    "--terms",
    type=click.IntRange(1),
    metavar="N",
    help="Adapt the penalty so that a paragraph has about N terms.",
)
@loop_options
@click.option("--segments", is_flag=True, help="Mark the answer by segment 1, as the paper does.")
@click.option("--tied", is_flag=True, help="Term embeddings are the encoder's word embeddings.")
@click.option(
    "--no-lexical",
    "lexical",
    flag_value=False,
    default=True,
    help="No extra weight for terms that occur in the answer.",
)
@click.option(
    "--context-share",
    type=click.FloatRange(0, 1, max_open=True),
    help="Share of an answer's weights that come from its context "
    "[default: 0.4, with --no-context or --segments 0; a model that is trained further keeps its own].",
)
@click.option(
    "--term-rate",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Learning rate of the term embeddings, times that of the encoder.",
)
@click.option(
    "--gain-rate",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Learning rate of the gains of terms that occur in the answer, times that of the encoder.",
)
@click.option(
    "--paper",
    is_flag=True,
    help="Train as printed in the paper: maximum over the whole context, segments, tied embeddings,"
    " negatives half random and half nearby, and nothing else. There are 8 negatives per question (the paper"
    " prints no number). The options set lengths, steps and learning rate; the paper's are --max-length 512"
    " --train-length 512 --steps 10000 --learning-rate 3e-5.",
)
@click.option("--full-precision", is_flag=True, help="Store float weights instead of int8 with row scales.")
@end_options
def train(output: Path, resume: bool, **given: Any) -> None:
    """Train a model on questions and passages that answer them.

    Training files are pairs as JSONL (question, positive; maybe context, start, title, negative), SQuAD JSON,
    DPR JSON, MRQA JSONL, TSV of triples, or a BEIR folder with qrels/train.tsv, compressed or not. With a
    SPARTA model as --encoder, that model is trained further. With several GPUs:

    \b
    torchrun --nproc-per-node 4 -m cli._sparta train …
    """  # noqa: D301 (click looks for the backspace)
    if given["segments"] and not given["context"]:
        raise InputError(
            "expected --no-context or --segments, found both", remedy="segments mark an answer in a context"
        )
    from sparta.training.options import PAPER_DECIDES

    if given["paper"] and (fixed := typed(*PAPER_DECIDES)):
        raise InputError(
            f"--paper decides {', '.join(fixed)} itself", remedy=f"leave out --paper, or {', '.join(fixed)}"
        )
    needed = [(option, "term embeddings apart (no --tied)") for option in typed("term_rate") if given["tied"]]
    needed += [(o, "gains (no --no-lexical)") for o in typed("gain_rate") if not given["lexical"]]
    refuse_unused([*needed, *without_effect(given)])
    sets = named_sets(given)
    from dense.training.teacher import open_bi_encoder
    from sparta.training.options import SpartaRecipe
    from sparta.training.train import train_model

    recipe = SpartaRecipe(**given)
    report(
        train_model(sets, recipe, output, resume=resume, openers=[open_bi_encoder], command=typed_command())
    )
