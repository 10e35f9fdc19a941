"""`dense train`: a bi-encoder from queries and passages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from cli._arguments import Excludes, Needs, arguments, flag, group, made, one_of, option, takes, whole
from cli._training import (
    RETRIEVER_RULES,
    DataArguments,
    EndArguments,
    LengthArguments,
    LoopArguments,
    checkpoint_option,
    dropout_option,
    named_sets,
    rate_option,
    report,
    typed_command,
)

if TYPE_CHECKING:
    from dense.training.train import Recipe


@arguments
class _Form:
    """The form of the model."""

    routing: str | None = option(
        "Experts chosen by side (Det-R), by a router for each text (Seq-R) or token (Tok-R)"
        " [default: none, one shared encoder].",
        type=click.Choice(["det", "seq", "tok"]),
    )
    experts: int = whole(2, "With --routing: how many.", least=2)
    period: int = whole(
        3, "With --routing: every N-th layer has experts; 3 leaves two shared layers between."
    )
    two_encoders: bool = flag("One encoder for questions, one for passages (DPR).")
    codes: int = whole(
        0,
        "Vectors of a passage (Poly-Encoder); 0: one, the mean of its tokens. An index takes 0 only.",
        least=0,
    )
    pooling: str = one_of(["mean", "cls"], "A text is the mean of its tokens' states, or the state of [CLS].")
    dot: bool = flag("Dot product of vectors as they are, instead of cosine.")
    separate_title: bool = flag("[SEP] between title and text, as DPR reads them.")
    RULES = (Excludes(("routing",), ("two_encoders",)), Needs("--routing", ("experts", "period")))


@arguments
class _Lengths(LengthArguments):
    learning_rate: float = rate_option("--learning-rate", 5e-5, "Highest learning rate.")


@arguments
class _Learning:
    """How it learns."""

    layer_decay: float = option(
        "Factor of the learning rate per layer, from the top down; embeddings learn slowest.",
        type=click.FloatRange(0, 1, min_open=True),
        default=1.0,
    )
    entropy: float = option(
        "With --routing seq or tok: β, the weight of the routers' entropy.",
        type=click.FloatRange(0),
        default=0.01,
    )
    questions: int = whole(6, "Questions per paragraph in a batch, at most.")
    question_length: int | None = option(
        "Wordpieces that are read of a question, in training and in search [default: 64, or as a"
        " model that is trained further has it].",
        type=click.IntRange(3),
    )
    dropout: float = dropout_option("Dropout of the encoder in training; 0.1 in DPR and TASER.")
    by_size: bool = flag("Draw batches from the sets in proportion to their questions, times their weights.")
    largest: int | None = option(
        "With --by-size: a set of more questions counts as N, so that it does not drown the others.",
        type=click.IntRange(1),
        metavar="N",
    )
    gather: bool = flag(
        "Under torchrun: the processes share one batch of --batch-size paragraphs from each, in"
        " which every question has the candidates of all (DPR)."
    )
    validate_by: str = option(
        "Measure by which the best model is chosen.", metavar="rr|average-rank|recall@K", default="rr"
    )
    held_out: int = whole(120, "Held-out questions of each set, for validation.", least=0)
    candidates: int = whole(
        80, "Training paragraphs of each set that are ranked with the held-out ones.", least=0
    )
    two_stages: bool = flag("Train, let that model find hard negatives, and train anew with them (TASER).")
    p2_alone: bool = flag(
        "With --two-stages: the second takes the negatives that the first found alone; several"
        " sets always do."
    )
    checkpoint_every: int = checkpoint_option
    RULES = (
        Needs("--two-stages", ("p2_alone",)),
        Needs("--by-size", ("largest",)),
        Excludes(("dev",), ("held_out", "candidates")),
    )


@arguments
class _Training:
    data: DataArguments = group(DataArguments)
    form: _Form = group(_Form)
    lengths: _Lengths = group(_Lengths)
    learning: _Learning = group(_Learning)
    loop: LoopArguments = group(LoopArguments)
    end: EndArguments = group(EndArguments)
    RULES = (
        Needs("--pooling mean", ("codes",), lambda a: a.form.pooling == "mean" or not a.form.codes),
        Needs("--routing seq or tok", ("experts",), lambda a: a.form.routing != "det" or a.form.experts <= 2),
        Needs("--routing seq or tok", ("entropy",), lambda a: a.form.routing in ("seq", "tok")),
        Needs(
            "--no-context or --pooling cls",
            ("separate_title",),
            lambda a: not a.loop.context or a.form.pooling == "cls",
        ),
        Needs(
            "--dev or --held-out", ("candidates", "validate_by"), lambda a: a.learning.held_out or a.data.dev
        ),
        *RETRIEVER_RULES,
    )

    def recipe(self) -> Recipe:
        """Return the recipe of the training."""
        from dense.training.train import Recipe

        form = self.form
        return made(
            Recipe, self, shared=not form.two_encoders, cosine=not form.dot, routing=form.routing or ""
        )


@click.command()
@takes(_Training)
def train(training: _Training) -> None:
    """Train a bi-encoder: TASER, DPR, or one shared encoder.

    TASER with --routing, DPR with --two-encoders, else one encoder for both sides. Files are those of
    sparta train, and what dense mine writes. Several files are several sets: a batch is of one set, drawn by
    the weights. The best model ends in OUTPUT/best. With --two-stages, --steps are those of each.

    \b
    dense train --encoder bert-base-uncased --routing det --pooling cls --dot --separate-title \\
                --passages nq-train.json --output taser --two-stages
    """  # noqa: D301 (click looks for the backspace)
    from sparta.training.metrics import measure_named

    data, learning = training.data, training.learning
    measure_named(learning.validate_by)
    sets = named_sets(data, training.lengths)
    if learning.by_size:
        sizes = [min(each.n_questions, learning.largest or each.n_questions) for each in sets]
        sets = [replace(each, weight=each.weight * n) for each, n in zip(sets, sizes, strict=True)]
    from dense.training.stages import train_in_two_stages
    from dense.training.train import train_dense

    train = partial(train_in_two_stages, p2_alone=learning.p2_alone) if learning.two_stages else train_dense
    resume, command = training.end.resume, typed_command()
    report(train(sets, training.recipe(), data.output, resume=resume, command=command))
