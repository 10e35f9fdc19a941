"""`sparta train`: train a SPARTA model on questions and passages."""

from __future__ import annotations

import click

from cli._arguments import Excludes, Needs, arguments, command, flag, group, made, option, real, takes, typed
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
    pressure: float = real(0.001, "Weight of the sparsity penalty on the vocabulary.", least=None)
    terms: int | None = option(
        "Adapt the sparsity penalty so that a paragraph has about N terms.",
        type=click.IntRange(1),
        metavar="N",
    )
    loop: LoopArguments = group(LoopArguments)
    segments: bool = flag("Mark the answer with token type (segment) 1, as in the paper.")
    tied: bool = flag("Use the encoder's word embeddings as term embeddings.")
    lexical: bool = option(
        "Do not add a learned weight to terms that occur in the answer.",
        "--no-lexical",
        flag_value=False,
        default=True,
    )
    context_share: float | None = option(
        "Share of the context in an answer's term weights, from 0 to 1 [default: 0.4; 0 with --no-context or"
        " --segments; as in the model if --encoder is a SPARTA model].",
        type=click.FloatRange(0, 1, max_open=True),
    )
    term_rate: float = option(
        "Factor on the learning rate for the term embeddings.",
        type=click.FloatRange(0),
        default=5.0,
    )
    gain_rate: float = option(
        "Factor on the learning rate for the learned weight of terms that occur in the answer.",
        type=click.FloatRange(0),
        default=5.0,
    )
    paper: bool = flag(
        "Train as the paper describes: maximum over the whole context, segments, tied embeddings, negatives"
        " half random and half from nearby paragraphs, and 8 negatives per question (the paper gives no"
        " number). Options set all numbers that this recipe does not fix. For the paper's numbers, add"
        " --max-length 512 --train-length 512 --steps 10000 --learning-rate 3e-5."
    )
    full_precision: bool = flag("Store the model in 32-bit floats instead of 8-bit integers with row scales.")
    end: EndArguments = group(EndArguments)
    RULES = (
        Excludes(("segments",), ("context",), "segments mark an answer in a context"),
        Needs("term embeddings apart (no --tied)", ("term_rate",), lambda a: not a.tied),
        Needs("gains (no --no-lexical)", ("gain_rate",), lambda a: a.lexical),
        *RETRIEVER_RULES,
    )


@command()
@takes(_Training)
def train(training: _Training) -> None:
    """Train a SPARTA model on questions and passages.

    Training files, plain or compressed: JSONL of pairs (question, positive; optional context, start, title,
    negative), SQuAD JSON, DPR JSON, MRQA JSONL, TSV of triples, or a BEIR folder with qrels/train.tsv. If
    --encoder is a SPARTA model, training continues from that model. On several GPUs:

    \b
    torchrun --nproc-per-node 4 -m cli._sparta train …
    """  # noqa: D301 (click looks for the backspace)
    from sparta.training.options import PAPER_DECIDES

    if training.paper and (fixed := typed(*PAPER_DECIDES)):
        raise InputError(
            f"--paper already sets {', '.join(fixed)}", remedy=f"omit --paper, or omit {', '.join(fixed)}"
        )
    data = training.data
    sets = named_sets(data, training.lengths)
    from dense.training.teacher import open_bi_encoder
    from sparta.training.options import SpartaRecipe
    from sparta.training.train import train_model

    recipe = made(SpartaRecipe, training)
    resume, command = training.end.resume, typed_command()
    report(train_model(sets, recipe, data.output, resume=resume, openers=[open_bi_encoder], command=command))
