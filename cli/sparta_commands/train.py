"""`sparta train`: a model from queries and the passages that answer them."""

from __future__ import annotations

import click

from cli._arguments import Excludes, Needs, arguments, flag, group, made, option, real, takes, typed
from cli._training import (
    RETRIEVER_RULES,
    DataArguments,
    EndArguments,
    LengthArguments,
    LoopArguments,
    named_sets,
    report,
    typed_command,
)
from sparta.base.errors import InputError


@arguments
class _Training:
    data: DataArguments = group(DataArguments)
    lengths: LengthArguments = group(LengthArguments)
    pressure: float = real(0.001, "Weight of the vocabulary penalty.", least=None)
    terms: int | None = option(
        "Adapt the penalty so that a paragraph has about N terms.", type=click.IntRange(1), metavar="N"
    )
    loop: LoopArguments = group(LoopArguments)
    segments: bool = flag("Mark the answer by segment 1, as the paper does.")
    tied: bool = flag("Term embeddings are the encoder's word embeddings.")
    lexical: bool = option(
        "No extra weight for terms that occur in the answer.", "--no-lexical", flag_value=False, default=True
    )
    context_share: float | None = option(
        "Share of an answer's weights that come from its context [default: 0.4, with --no-context"
        " or --segments 0; a model that is trained further keeps its own].",
        type=click.FloatRange(0, 1, max_open=True),
    )
    term_rate: float = option(
        "Learning rate of the term embeddings, times that of the encoder.",
        type=click.FloatRange(0),
        default=5.0,
    )
    gain_rate: float = option(
        "Learning rate of the gains of terms that occur in the answer, times that of the encoder.",
        type=click.FloatRange(0),
        default=5.0,
    )
    paper: bool = flag(
        "Train as printed in the paper: maximum over the whole context, segments, tied embeddings,"
        " negatives half random and half nearby, and nothing else. There are 8 negatives per"
        " question (the paper prints no number). The options set lengths, steps and learning rate;"
        " the paper's are --max-length 512 --train-length 512 --steps 10000 --learning-rate 3e-5."
    )
    full_precision: bool = flag("Store float weights instead of int8 with row scales.")
    end: EndArguments = group(EndArguments)
    RULES = (
        Excludes(("segments",), ("context",), "segments mark an answer in a context"),
        Needs("term embeddings apart (no --tied)", ("term_rate",), lambda a: not a.tied),
        Needs("gains (no --no-lexical)", ("gain_rate",), lambda a: a.lexical),
        *RETRIEVER_RULES,
    )


@click.command()
@takes(_Training)
def train(training: _Training) -> None:
    """Train a model on questions and passages that answer them.

    Training files are pairs as JSONL (question, positive; maybe context, start, title, negative), SQuAD JSON,
    DPR JSON, MRQA JSONL, TSV of triples, or a BEIR folder with qrels/train.tsv, compressed or not. With a
    SPARTA model as --encoder, that model is trained further. With several GPUs:

    \b
    torchrun --nproc-per-node 4 -m cli._sparta train …
    """  # noqa: D301 (click looks for the backspace)
    from sparta.training.options import PAPER_DECIDES

    if training.paper and (fixed := typed(*PAPER_DECIDES)):
        raise InputError(
            f"--paper decides {', '.join(fixed)} itself", remedy=f"leave out --paper, or {', '.join(fixed)}"
        )
    data = training.data
    sets = named_sets(data, training.lengths)
    from dense.training.teacher import open_bi_encoder
    from sparta.training.options import SpartaRecipe
    from sparta.training.train import train_model

    recipe = made(SpartaRecipe, training)
    resume, command = training.end.resume, typed_command()
    report(train_model(sets, recipe, data.output, resume=resume, openers=[open_bi_encoder], command=command))
