"""`dense train`: a bi-encoder from queries and passages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from cli._options import choice, number, options, typed
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

form_options = options(
    click.option(
        "--routing",
        type=click.Choice(["det", "seq", "tok"]),
        help="Experts chosen by side (Det-R), by a router for each text (Seq-R) or token (Tok-R)"
        " [default: none, one shared encoder].",
    ),
    number("--experts", default=2, least=2, text="With --routing: how many."),
    number(
        "--period",
        default=3,
        text="With --routing: every N-th layer has experts; 3 leaves two shared layers between.",
    ),
    click.option("--two-encoders", is_flag=True, help="One encoder for questions, one for passages (DPR)."),
    number(
        "--codes",
        default=0,
        least=0,
        text="Vectors of a passage (Poly-Encoder); 0: one, the mean of its tokens. An index takes 0 only.",
    ),
    choice(
        "--pooling",
        values=["mean", "cls"],
        text="A text is the mean of its tokens' states, or the state of [CLS].",
    ),
    click.option("--dot", is_flag=True, help="Dot product of vectors as they are, instead of cosine."),
    click.option("--separate-title", is_flag=True, help="[SEP] between title and text, as DPR reads them."),
)
learning_options = options(
    click.option(
        "--layer-decay",
        type=click.FloatRange(0, 1, min_open=True),
        default=1.0,
        show_default=True,
        help="Factor of the learning rate per layer, from the top down; embeddings learn slowest.",
    ),
    click.option(
        "--entropy",
        type=click.FloatRange(0),
        default=0.01,
        show_default=True,
        help="With --routing seq or tok: β, the weight of the routers' entropy.",
    ),
    number("--questions", default=6, text="Questions per paragraph in a batch, at most."),
    click.option(
        "--question-length",
        type=click.IntRange(3),
        help="Wordpieces that are read of a question, in training and in search"
        " [default: 64, or as a model that is trained further has it].",
    ),
    click.option(
        "--dropout",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.0,
        show_default=True,
        help="Dropout of the encoder in training; 0.1 in DPR and TASER.",
    ),
    click.option(
        "--by-size",
        is_flag=True,
        help="Draw batches from the sets in proportion to their questions, times their weights.",
    ),
    click.option(
        "--largest",
        type=click.IntRange(1),
        metavar="N",
        help="With --by-size: a set of more questions counts as N, so that it does not drown the others.",
    ),
    click.option(
        "--gather",
        is_flag=True,
        help="Under torchrun: the processes share one batch of --batch-size paragraphs from each, in which"
        " every question has the candidates of all (DPR).",
    ),
    click.option(
        "--validate-by",
        metavar="rr|average-rank|recall@K",
        default="rr",
        show_default=True,
        help="Measure by which the best model is chosen.",
    ),
    number("--held-out", default=120, least=0, text="Held-out questions of each set, for validation."),
    number(
        "--candidates",
        default=80,
        least=0,
        text="Training paragraphs of each set that are ranked with the held-out ones.",
    ),
    click.option(
        "--two-stages",
        is_flag=True,
        help="Train, let that model find hard negatives, and train anew with them (TASER).",
    ),
    click.option(
        "--p2-alone",
        is_flag=True,
        help="With --two-stages: the second takes the negatives that the first found alone; several sets"
        " always do.",
    ),
    click.option("--checkpoint-every", type=click.IntRange(1), default=200, hidden=True),
)


@click.command()
@data_options
@form_options
@length_options(learning_rate=5e-5)
@learning_options
@loop_options
@end_options
def train(
    two_stages: bool,
    p2_alone: bool,
    by_size: bool,
    largest: int | None,
    output: Path,
    resume: bool,
    **given: Any,
) -> None:
    """Train a bi-encoder: TASER, DPR, or one shared encoder.

    TASER with --routing, DPR with --two-encoders, else one encoder for both sides. Files are those of
    sparta train, and what dense mine writes. Several files are several sets: a batch is of one set, drawn by
    the weights. The best model ends in OUTPUT/best. With --two-stages, --steps are those of each.

    \b
    dense train --encoder bert-base-uncased --routing det --pooling cls --dot --separate-title \\
                --passages nq-train.json --output taser --two-stages
    """  # noqa: D301 (click looks for the backspace)
    from sparta.training.metrics import measure_named

    measure_named(given["validate_by"])
    if p2_alone and not two_stages:
        raise InputError("expected --two-stages with --p2-alone, found none", remedy="leave --p2-alone out")
    if largest and not by_size:
        raise InputError("expected --by-size with --largest, found none", remedy="leave --largest out")
    if given["dev"] and (unused := typed("held_out", "candidates")):
        raise InputError(f"expected --dev or {unused[0]}, found both", remedy=f"leave {unused[0]} out")
    chosen = _checked(given)
    sets = named_sets(chosen)
    if by_size:
        sizes = [min(one.n_questions, largest or one.n_questions) for one in sets]
        sets = [replace(one, weight=one.weight * n) for one, n in zip(sets, sizes, strict=True)]
    from dense.training.stages import train_in_two_stages
    from dense.training.train import Recipe, train_dense

    training = partial(train_in_two_stages, p2_alone=p2_alone) if two_stages else train_dense
    report(training(sets, Recipe(**chosen), output, resume=resume, command=typed_command()))


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """The options as the recipe's fields; what does not go together is refused before anything is read."""
    together = {
        "--routing and --two-encoders": given["routing"] and given["two_encoders"],
        "--pooling cls and --codes": given["pooling"] == "cls" and given["codes"],
        "--routing det and more than 2 --experts": given["routing"] == "det" and given["experts"] > 2,
    }
    for names, found in together.items():
        if found:
            raise InputError(f"expected one of {names}, found both", remedy="leave one out")
    context = given["context"] and given["pooling"] != "cls"
    needed = [(option, "--routing") for option in typed("experts", "period") if not given["routing"]]
    learned = given["routing"] in ("seq", "tok")
    needed += [(option, "--routing seq or tok") for option in typed("entropy") if not learned]
    needed += [(o, "--no-context or --pooling cls") for o in typed("separate_title") if context]
    if not given["held_out"] and not given["dev"]:
        needed += [(option, "--dev or --held-out") for option in typed("candidates", "validate_by")]
    refuse_unused([*needed, *without_effect(given)])
    recipe = {k: v for k, v in given.items() if k not in ("two_encoders", "dot", "routing")}
    return {
        **recipe,
        "shared": not given["two_encoders"],
        "cosine": not given["dot"],
        "routing": given["routing"] or "",
    }
