"""Options, training sets and the report of the training commands."""

from __future__ import annotations

import logging
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._arguments import (
    HIGHEST_SEED,
    Finite,
    Needs,
    arguments,
    command_line,
    flag,
    folder_type,
    option,
    whole,
)
from cli._options import device_option, language_option
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from sparta.training.options import TrainResult
    from sparta.training.paragraphs import ParagraphSet


def files_option(name: str, text: str) -> Any:
    """Declare an option of several training files, each with an optional weight."""
    return option(text, name, multiple=True, metavar="FILE[=WEIGHT]")


def rate_option(default: float, text: str) -> Any:
    """Declare the option of a learning rate above 0."""
    return option(text, "--learning-rate", type=Finite(0, min_open=True), default=default)


def dropout_option(text: str) -> Any:
    """Declare an option of a dropout rate, 0 by default."""
    return option(text, "--dropout", type=Finite(0, 1, max_open=True), default=0.0)


seed_option = whole(13, "Seed of all random numbers.", "--seed", least=0, most=HIGHEST_SEED)
accumulate_option = whole(1, "Number of batches whose gradients make one step.", "--accumulate")
checkpoint_option = option("", "--checkpoint-every", type=click.IntRange(1), default=200, hidden=True)


def validate_option(default: int) -> Any:
    """Declare the option of the steps between validations."""
    return whole(default, "Number of steps between validations.", "--validate-every")


@arguments
class DataArguments:
    """The start model and the training files of a retriever, and its output folder."""

    SECTION = "Data"

    encoder: str = option(
        "Pretrained encoder to start from. To train a model further: a folder that this command wrote, or the"
        " name of a shipped model.",
        metavar="FOLDER|ID",
        required=True,
    )
    pairs: tuple[str, ...] = files_option(
        "--pairs",
        "Questions and positives; each positive is encoded within its context, if the record has one.",
    )
    articles: tuple[str, ...] = files_option(
        "--articles",
        "Questions and positives; adjacent positives are sentences of one text.",
    )
    passages: tuple[str, ...] = files_option(
        "--passages", "Questions and positives; the answer is the whole context."
    )
    dev: tuple[str, ...] = files_option(
        "--dev",
        "File to validate on: its questions, with its passages and negatives as candidates"
        " [default: questions held out from the training files].",
    )
    language: str = language_option
    output: Path = option("Folder for checkpoints and the model.", required=True, type=folder_type)


@arguments
class LengthArguments:
    """Steps, batch size, lengths and learning rate."""

    SECTION = "Training"

    steps: int = whole(1100, "Number of training steps.")
    batch_size: int = whole(
        12, "Number of paragraphs per batch, with their sentences and questions.", least=2
    )
    accumulate: int = accumulate_option
    max_length: int = whole(256, "Longest input of the model, in wordpieces.", least=16)
    train_length: int = whole(192, "Longest training text, in wordpieces; longer texts are cut.", least=16)
    learning_rate: float = rate_option(1.5e-4, "Peak learning rate.")


@arguments
class LoopArguments:
    """Validation, seed, teachers and mined negatives."""

    SECTION = "Teachers and negatives"

    validate_every: int = validate_option(200)
    seed: int = seed_option
    teachers: tuple[str, ...] = option(
        "Teacher whose scores the model learns: BM25, or the folder of a SPARTA model, a bi-encoder, a"
        " late-interaction model (ColBERT), a cross-encoder or another encoder. Repeat the option to add the"
        " scores of several teachers.",
        "--teacher",
        metavar="bm25|FOLDER|ID[=WEIGHT]",
    )
    mine_every: int = whole(
        0, "Number of steps between minings of hard negatives with the model itself; 0: never.", least=0
    )
    mined: bool = option("Do not mine negatives with BM25.", "--no-mined", flag_value=False, default=True)
    context: bool = option(
        "Encode answers without their context.", "--no-context", flag_value=False, default=True
    )


@arguments
class EndArguments:
    """Options that continue a stopped training and select the device."""

    resume: bool = flag("Continue from the last checkpoint.")
    device: str | None = device_option


def named_sets(data: DataArguments, lengths: LengthArguments) -> list[ParagraphSet]:
    """Return the open training sets of the command line, and turn on the log of the training.

    Validation reports each set by name, so files with equal names get their paths as names. A dev file has
    the layout of the first training file.
    """
    layouts = {"pairs": data.pairs, "articles": data.articles, "passages": data.passages}
    if not any(layouts.values()):
        raise InputError(
            "no training data is named: --pairs, --articles or --passages is needed",
            remedy="name a training file: --pairs FILE",
        )
    from sparta.training.paragraphs import longest_words, name_and_weight, open_set

    logging.getLogger("sparta").setLevel(logging.INFO)
    files = [(name, layout) for layout, names in layouts.items() for name in names]
    words = longest_words(lengths.train_length)
    sets = [open_set(name, layout, lengths.batch_size, words, data.language) for name, layout in files]
    dev = [(name, files[0][1]) for name in data.dev]
    sets += [replace(open_set(name, layout, 1, words, data.language), dev=True) for name, layout in dev]
    files += dev
    repeated_names = {
        name for name, n in Counter(training_set.name for training_set in sets).items() if n > 1
    }
    paths = [f"{name_and_weight(name, 'FILE')[0]}/{layout}" for name, layout in files]
    return [
        replace(training_set, name=path) if training_set.name in repeated_names else training_set
        for training_set, path in zip(sets, paths, strict=True)
    ]


RETRIEVER_RULES = (
    Needs(
        "a --max-length of --train-length or more",
        ("train_length",),
        lambda a: a.lengths.train_length <= a.lengths.max_length,
    ),
    Needs("more --steps than --mine-every", ("mine_every",), lambda a: a.loop.mine_every < a.lengths.steps),
)
"""Rules of all trainings of retrievers: options that have no effect with some settings."""


def typed_command() -> str:
    """Return the running command without paths of output and device, for the model card."""
    return command_line("output", "resume", "device")


def report(result: TrainResult) -> None:
    """Print the model's folder and its validation score; under torchrun only in the first process."""
    if not int(os.environ.get("RANK", "0")):
        click.echo(f"{result.folder}: validation {result.reached}")
