"""What `sparta train` and `dense train` share: options, and the sets that they name."""

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
    """Option of several training files, each with a weight."""
    return option(text, name, multiple=True, metavar="FILE[=WEIGHT]")


def rate_option(name: str, default: float, text: str) -> Any:
    """Option of a learning rate, which is above 0."""
    return option(text, name, type=Finite(0, min_open=True), default=default)


def dropout_option(text: str) -> Any:
    """Option of dropout, off by default."""
    return option(text, "--dropout", type=Finite(0, 1, max_open=True), default=0.0)


seed_option = whole(13, "Seed of everything random.", "--seed", least=0, most=HIGHEST_SEED)
accumulate_option = whole(1, "Batches whose gradients make one step.", "--accumulate")
checkpoint_option = option("", "--checkpoint-every", type=click.IntRange(1), default=200, hidden=True)


def validate_option(default: int) -> Any:
    """Option of the steps between validations."""
    return whole(default, "Steps between validations.", "--validate-every")


@arguments
class DataArguments:
    """What a retriever begins with and learns from, and where it goes."""

    encoder: str = option(
        "Pretrained encoder to begin with; or, to train it further, a model that this command"
        " made, or the name of the shipped one.",
        metavar="FOLDER|ID",
        required=True,
    )
    pairs: tuple[str, ...] = files_option(
        "--pairs", "Questions and positives; a positive is read in its context when the record has one."
    )
    articles: tuple[str, ...] = files_option(
        "--articles",
        "The same; positives that stand beside each other come from one text and are its sentences.",
    )
    passages: tuple[str, ...] = files_option("--passages", "The same; the answer is the whole context.")
    dev: tuple[str, ...] = files_option(
        "--dev",
        "Validate on the questions of this file, with its texts and negatives as candidates"
        " [default: on questions held out from the training files].",
    )
    language: str = language_option
    output: Path = option("Folder for checkpoints and the model.", required=True, type=folder_type)


@arguments
class LengthArguments:
    """How long, how much at once, how fast."""

    steps: int = whole(1100, "Steps of training.")
    batch_size: int = whole(12, "Paragraphs per step, with their sentences and questions.", least=2)
    accumulate: int = accumulate_option
    max_length: int = whole(256, "Wordpieces that the model reads at once.", least=16)
    train_length: int = whole(192, "Wordpieces of a training text; longer ones are cut.", least=16)
    learning_rate: float = rate_option("--learning-rate", 1.5e-4, "Highest learning rate.")


@arguments
class LoopArguments:
    """What a retriever learns beside the files."""

    validate_every: int = validate_option(200)
    seed: int = seed_option
    teachers: tuple[str, ...] = option(
        "Distil from BM25, SPARTA models, bi-encoders or other encoders; the scores of several are added.",
        "--teacher",
        metavar="bm25|FOLDER|ID[=WEIGHT]",
    )
    mine_every: int = whole(
        0, "Steps between mining hard negatives with the model itself; 0: never.", least=0
    )
    mined: bool = option("Do not mine negatives with BM25.", "--no-mined", flag_value=False, default=True)
    context: bool = option(
        "Read answers without their context.", "--no-context", flag_value=False, default=True
    )


@arguments
class EndArguments:
    """Where a training runs, and whether it continues."""

    resume: bool = flag("Continue from the last checkpoint.")
    device: str | None = device_option


def named_sets(data: DataArguments, lengths: LengthArguments) -> list[ParagraphSet]:
    """Open the sets that the command line names, and let the training speak.

    Sets are told apart by their names, when they validate: files of one name get their paths as names. A dev
    file is read as the first training file is.
    """
    layouts = {"pairs": data.pairs, "articles": data.articles, "passages": data.passages}
    if not any(layouts.values()):
        raise InputError(
            "expected --pairs, --articles or --passages, found none", remedy="name at least one file of pairs"
        )
    from sparta.training.options import TRAIN_LENGTH
    from sparta.training.paragraphs import LONGEST_WORDS, name_and_weight, open_set

    logging.getLogger("sparta").setLevel(logging.INFO)
    files = [(name, layout) for layout, names in layouts.items() for name in names]
    words = LONGEST_WORDS * lengths.train_length // TRAIN_LENGTH
    sets = [open_set(name, layout, lengths.batch_size, words, data.language) for name, layout in files]
    dev = [(name, files[0][1]) for name in data.dev]
    sets += [replace(open_set(name, layout, 1, words, data.language), dev=True) for name, layout in dev]
    files += dev
    shared = {name for name, n in Counter(each.name for each in sets).items() if n > 1}
    paths = [f"{name_and_weight(name, 'FILE')[0]}/{layout}" for name, layout in files]
    return [replace(s, name=path) if s.name in shared else s for s, path in zip(sets, paths, strict=True)]


RETRIEVER_RULES = (
    Needs(
        "a --max-length of --train-length or more",
        ("train_length",),
        lambda a: a.lengths.train_length <= a.lengths.max_length,
    ),
    Needs("more --steps than --mine-every", ("mine_every",), lambda a: a.loop.mine_every < a.lengths.steps),
)
"""Options of all trainings of retrievers that may have no effect."""


def typed_command() -> str:
    """Return the running command, for the model card."""
    return command_line("output", "resume", "device")


def report(result: TrainResult) -> None:
    """Say where the model lies and how it validated, in the first process of torchrun."""
    if not int(os.environ.get("RANK", "0")):
        click.echo(f"{result.folder}: validation {result.reached}")
