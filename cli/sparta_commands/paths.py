"""`sparta mine-paths`, `sparta train-path-reader`: what makes a reader of paths."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from cli._chains import model_options, open_chain
from cli._numbers import HIGHEST_SEED, Finite
from cli._options import (
    counted,
    file_type,
    folder_type,
    index_option,
    is_kept,
    language_option,
    number,
    quiet_option,
)
from cli._training import end_options, report, typed_command
from sparta.base.errors import InputError
from sparta.base.files import check_place


@click.command("mine-paths")
@click.option(
    "--queries",
    "dataset",
    required=True,
    type=click.Path(path_type=Path),
    help="Questions whose evidence is known: KILT's JSONL, or a BEIR folder with answers.",
)
@index_option
@click.option("--chain", metavar="NAME|FILE", default="hop", show_default=True, help="What finds paths.")
@model_options
@number("--depth", default=20, text="Passages of the best paths, per question.")
@click.option("--output", required=True, type=file_type, help="File for the examples, .jsonl.")
@quiet_option
def mine_paths(output: Path, **given: Any) -> None:
    """Find passages to train a reader of paths on.

    Those that a chain finds for each question, and its evidence.

    \b
    sparta mine-paths --queries multihop.train.jsonl --output paths.jsonl
    sparta train-path-reader --data paths.jsonl --output PATH-READER
    """  # noqa: D301 (click looks for the backspace)
    check_place(output, "file")
    from tqdm import tqdm

    from hybrid.evaluation.questions import questions_of
    from hybrid.tasks.path_mining import mine_paths as mine

    questions = questions_of(given["dataset"])
    bar = tqdm(unit="question", total=len(questions.queries), disable=True if given["quiet"] else None)
    with bar, open_chain(given) as chain:
        written = mine(questions, chain, output, depth=given["depth"], advance=bar.update)
    said = f"{output}: {counted(written, 'question')} of {len(questions.queries):,} with their passages"
    click.echo(said, err=not is_kept(output))


@click.command("train-path-reader")
@click.option(
    "--data",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="What mine-paths wrote, or HotpotQA's JSON; several may be given.",
)
@click.option("--output", required=True, type=folder_type, help="Folder; the best reader is left in best.")
@click.option(
    "--encoder", metavar="FOLDER|ID", help="Encoder, or reader, to begin with [default: the shipped reader]."
)
@language_option
@number("--steps", default=1000, text="Training steps.")
@number("--questions", default=8, text="Questions per batch.")
@number("--accumulate", default=1, text="Batches per step.")
@click.option(
    "--learning-rate",
    type=Finite(0, min_open=True),
    default=5e-5,
    show_default=True,
    help="Peak learning rate; ten times that for the layers of scores.",
)
@click.option(
    "--layer-decay",
    type=Finite(0, 1),
    default=0.9,
    show_default=True,
    help="Factor on the learning rate for each layer below the top.",
)
@click.option("--dropout", type=Finite(0, 1, max_open=True), default=0.0, show_default=True, help="Dropout.")
@number("--max-length", default=320, least=128, text="Wordpieces of a path that are read.")
@number("--held-out", default=150, text="Questions for validation.")
@number("--validate-every", default=250, text="Steps between validations.")
@number("--seed", default=13, least=0, most=HIGHEST_SEED, text="Seed of everything random.")
@end_options
def train_path_reader(data: tuple[Path, ...], output: Path, resume: bool, **given: Any) -> None:
    """Train a reader of paths (Chain-of-Skills).

    It learns which passages a question needs, which sentences support the answer, where these are known
    (HotpotQA), and the answer, which may be yes or no. The best on held-out questions is kept: by the mean of
    passage EM and F1.
    """
    from sparta.reader.config import DEFAULT_READER
    from sparta.reader.path_train import PathRecipe
    from sparta.reader.path_train import train_path_reader as train

    for path in data:
        if not path.is_file():
            raise InputError("expected a file of questions with their passages, found none", where=str(path))
    logging.getLogger("sparta").setLevel(logging.INFO)
    recipe = PathRecipe(**{**given, "encoder": given["encoder"] or DEFAULT_READER})
    report(train(data, recipe, output, resume=resume, command=typed_command()))
