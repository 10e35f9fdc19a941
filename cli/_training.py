"""What `sparta train` and `dense train` share: options, and the sets that they name."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from cli._numbers import HIGHEST_SEED, Finite
from cli._options import Decorator, command_line, folder_type, language_option, number, options, typed
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from sparta.training.options import TrainResult
    from sparta.training.paragraphs import ParagraphSet

data_options = options(
    click.option(
        "--encoder",
        metavar="FOLDER|ID",
        required=True,
        help="Pretrained encoder to begin with; or, to train it further, a model that this command made,"
        " or the name of the shipped one.",
    ),
    click.option(
        "--pairs",
        multiple=True,
        metavar="FILE[=WEIGHT]",
        help="Questions and positives; a positive is read in its context when the record has one.",
    ),
    click.option(
        "--articles",
        multiple=True,
        metavar="FILE[=WEIGHT]",
        help="The same; positives that stand beside each other come from one text and are its sentences.",
    ),
    click.option(
        "--passages",
        multiple=True,
        metavar="FILE[=WEIGHT]",
        help="The same; the answer is the whole context.",
    ),
    click.option(
        "--dev",
        multiple=True,
        metavar="FILE[=WEIGHT]",
        help="Validate on the questions of this file, with its texts and negatives as candidates"
        " [default: on questions held out from the training files].",
    ),
    language_option,
    click.option("--output", required=True, type=folder_type, help="Folder for checkpoints and the model."),
)


def length_options(learning_rate: float) -> Decorator:
    """How long, how much at once, how fast."""
    return options(
        number("--steps", default=1100, text="Steps of training."),
        number(
            "--batch-size",
            default=12,
            least=2,
            text="Paragraphs per step, with their sentences and questions.",
        ),
        number("--accumulate", default=1, text="Batches whose gradients make one step."),
        number("--max-length", default=256, least=16, text="Wordpieces that the model reads at once."),
        number(
            "--train-length",
            default=192,
            least=16,
            text="Wordpieces of a training text; longer ones are cut.",
        ),
        click.option(
            "--learning-rate",
            type=Finite(0, min_open=True),
            default=learning_rate,
            show_default=True,
            help="Highest learning rate.",
        ),
    )


loop_options = options(
    number("--validate-every", default=200, text="Steps between validations."),
    number("--seed", default=13, least=0, most=HIGHEST_SEED, text="Seed of everything random."),
    click.option(
        "--teacher",
        "teachers",
        multiple=True,
        metavar="bm25|FOLDER|ID[=WEIGHT]",
        help="Distil from BM25, SPARTA models, bi-encoders or other encoders; "
        "the scores of several are added.",
    ),
    number(
        "--mine-every",
        default=0,
        least=0,
        text="Steps between mining hard negatives with the model itself; 0: never.",
    ),
    click.option(
        "--no-mined", "mined", flag_value=False, default=True, help="Do not mine negatives with BM25."
    ),
    click.option(
        "--no-context", "context", flag_value=False, default=True, help="Read answers without their context."
    ),
)
end_options = options(
    click.option("--resume", is_flag=True, help="Continue from the last checkpoint."),
    click.option("--device", metavar="NAME", help="Device [default: the best there is]."),
)


def named_sets(given: dict[str, Any]) -> list[ParagraphSet]:
    """Open the sets that the command line names, and let the training speak.

    Sets are told apart by their names, when they validate: files of one name get their paths as names. A dev
    file is read as the first training file is.

    :param given: the options; what they say of the sets is taken out, so that the recipe's are left
    """
    named = {layout: given.pop(layout) for layout in ("pairs", "articles", "passages")}
    batch_size, language = given.pop("batch_size"), given.pop("language")
    if not any(named.values()):
        raise InputError(
            "expected --pairs, --articles or --passages, found none", remedy="name at least one file of pairs"
        )
    from sparta.training.options import TRAIN_LENGTH
    from sparta.training.paragraphs import LONGEST_WORDS, name_and_weight, open_set

    logging.getLogger("sparta").setLevel(logging.INFO)
    files = [(name, layout) for layout, names in named.items() for name in names]
    words = LONGEST_WORDS * given["train_length"] // TRAIN_LENGTH
    sets = [open_set(name, layout, batch_size, words, language) for name, layout in files]
    dev = [(name, files[0][1]) for name in given.pop("dev")]
    sets += [replace(open_set(name, layout, 1, words, language), dev=True) for name, layout in dev]
    files += dev
    shared = {name for name, n in Counter(one.name for one in sets).items() if n > 1}
    paths = [f"{name_and_weight(name, 'FILE')[0]}/{layout}" for name, layout in files]
    return [replace(s, name=path) if s.name in shared else s for s, path in zip(sets, paths, strict=True)]


def refuse_unused(needed: Iterable[tuple[str, str]]) -> None:
    """Refuse the first option that has no effect.

    :param needed: options that were typed, each with what it needs and does not have
    """
    for option, what in needed:
        raise InputError(f"expected {what} with {option}, found none", remedy=f"leave {option} out")


def without_effect(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the typed options of all trainings of retrievers that have no effect, with what they need."""
    if given["train_length"] > given["max_length"]:
        yield from ((o, f"--max-length {given['train_length']} or more") for o in typed("train_length"))
    if given["mine_every"] >= given["steps"]:
        yield from ((option, f"more --steps than {given['mine_every']}") for option in typed("mine_every"))


def typed_command() -> str:
    """Return the running command, for the model card."""
    return command_line("output", "resume", "device")


def report(result: TrainResult) -> None:
    """Say where the model lies and how it validated, in the first process of torchrun."""
    if not int(os.environ.get("RANK", "0")):
        click.echo(f"{result.folder}: validation {result.reached}")
