"""What makes readers: `mine-answers`, `train-reader`, `tune-reader`; of paths `mine-paths`, `train-paths`."""

from __future__ import annotations

import logging
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from cli._chains import model_options, open_chain
from cli._fusion_options import sample_option
from cli._numbers import HIGHEST_SEED, Finite
from cli._options import (
    Decorator,
    choice,
    counted,
    folder_type,
    index_option,
    is_kept,
    language_option,
    number,
    options,
    output_type,
    quiet_option,
    threads_option,
    typed,
)
from cli._search import channel_option
from cli._training import end_options, refuse_unused, report, typed_command
from sparta.base.errors import InputError
from sparta.base.files import check_place


def share(name: str, *, default: float, text: str) -> Decorator:
    """Option of a share, 0 to 1."""
    return click.option(name, type=Finite(0, 1), default=default, show_default=True, help=text)


_questions = options(
    click.option(
        "--dataset",
        required=True,
        type=click.Path(path_type=Path),
        help="Questions with answers: a BEIR folder, DPR's TSV or JSON, SQuAD JSON, MRQA JSONL, JSON lines.",
    ),
    index_option,
    channel_option("What retrieves"),
    number("--depth", default=10, text="Passages retrieved per question."),
    sample_option,
    choice("--match", values=["string", "regex"], text="How answers are matched; regex for CuratedTREC."),
    threads_option,
)


def _check_output(output: Path) -> None:
    """Examples are plain JSONL.

    :raises InputError: the name says otherwise, or nothing can be written there.
    """
    if not output.name.endswith(".jsonl"):
        raise InputError(
            "expected a name that ends in .jsonl",
            where=str(output),
            remedy="write plain lines: examples.jsonl",
        )
    check_place(output, "file")


@click.command("mine-answers")
@_questions
@click.option("--output", required=True, type=output_type, help="File for the examples, .jsonl.")
def mine_answers(output: Path, **given: Any) -> None:
    """Find passages that hold answers, to train a reader on.

    \b
    sparta mine-answers --dataset nq.dev.tsv --output nq.jsonl
    sparta train-reader --data nq.jsonl --output READER
    """  # noqa: D301 (click looks for the backspace)
    _check_output(output)
    from hybrid.answering.mining import mine_answers as mine
    from hybrid.evaluation.questions import questions_of

    queries = [q for q in _sampled(questions_of(given["dataset"]), given).queries if q.answers]
    with _opened(given) as retriever:
        settings = {name: given[name] for name in ("depth", "match", "threads")}
        written = mine(queries, retriever, output, language=retriever.language, **settings)
    said = f"{output}: {counted(written, 'question')} of {len(queries):,} with an answer in a passage"
    click.echo(said, err=not is_kept(output))


@click.command("train-reader")
@click.option(
    "--data",
    multiple=True,
    required=True,
    metavar="FILE[=N]",
    help="SQuAD JSON, MRQA JSONL, DPR JSON, pairs with answers, or what mine-answers wrote; with =N, N of its"
    " questions in an epoch (a sample, or some again); several may be given.",
)
@click.option("--output", required=True, type=folder_type, help="Folder; the best reader is left in best.")
@click.option(
    "--encoder",
    metavar="FOLDER|ID",
    help="Encoder, or reader, to begin with [default: the reader that ships for the language].",
)
@language_option
@number("--steps", default=1500, text="Training steps.")
@number("--batch-size", default=12, text="Questions per step.")
@number("--accumulate", default=1, text="Batches per step.")
@click.option(
    "--learning-rate",
    type=Finite(0, min_open=True),
    default=6e-5,
    show_default=True,
    help="Peak learning rate; ten times that for the span layer.",
)
@share("--layer-decay", default=1.0, text="Factor on the learning rate for each layer below the top.")
@share("--negatives", default=0.4, text="Share of questions that also get passages without the answer.")
@number(
    "--passages",
    default=2,
    least=2,
    text="At most so many passages for such a question, with the one that holds the answer.",
)
@share("--unanswered", default=0.15, text="Share of these that get no passage with the answer.")
@click.option(
    "--per-passage",
    "globally",
    flag_value=False,
    default=True,
    help="One softmax over each passage, not over the passages of a question.",
)
@number(
    "--global-tokens",
    default=0,
    least=0,
    text="Fusion-in-Encoder: number of global tokens shared by all passages of a question.",
)
@click.option("--dropout", type=Finite(0, 1, max_open=True), default=0.0, show_default=True, help="Dropout.")
@number("--train-length", default=256, least=128, text="Training windows, in wordpieces.")
@number("--max-length", default=320, text="Windows when it reads, in wordpieces.")
@number("--overlap", default=96, least=0, text="Wordpieces that two windows of a text share.")
@number("--longest-question", default=64, text="Wordpieces of a question that are read.")
@number("--longest-answer", default=30, text="Wordpieces of the longest answer.")
@number("--held-out", default=300, text="Questions for validation.")
@number("--validate-every", default=300, text="Steps between validations.")
@number("--seed", default=13, least=0, most=HIGHEST_SEED, text="Seed of everything random.")
@end_options
def train_reader(data: tuple[str, ...], output: Path, resume: bool, **given: Any) -> None:
    """Train a reader to find answers in passages.

    One softmax over the passages of a question is learned (shared normalization, Clark and Gardner), and "no
    answer" where none holds one. The best by F1 on held-out questions is kept.
    """
    from sparta.reader.config import ReaderLayout
    from sparta.reader.train import ReaderRecipe
    from sparta.reader.train import train_reader as train

    names = ("passages", *(["unanswered"] if given["unanswered"] else []))
    refuse_unused((o, "--negatives above 0") for o in typed(*names) if not given["negatives"])
    logging.getLogger("sparta").setLevel(logging.INFO)
    lengths = {field.name: given.pop(field.name) for field in fields(ReaderLayout)}
    recipe = ReaderRecipe(**given, layout=ReaderLayout(**lengths))
    result = train([_file_of(one) for one in data], recipe, output, resume=resume, command=typed_command())
    report(result)


@click.command("tune-reader")
@_questions
@click.option("--reader", required=True, metavar="FOLDER", help="The reader to tune.")
@click.option("--output", required=True, type=folder_type, help="Folder for the tuned reader.")
@click.option("--int8", is_flag=True, help="Store weights in 8 bits with row scales.")
def tune_reader(output: Path, **given: Any) -> None:
    """Calibrate a reader, and choose how mentions count.

    Give it questions that it was not trained on. Prints EM where the best mention of an answer counts and
    where those of all passages add up, at each weight of the ranker, and the expected calibration error of
    the probabilities, fitted on one half of the questions and measured on the other.
    """
    from hybrid.evaluation.questions import questions_of
    from hybrid.evaluation.tune_reader import tune_and_save

    questions = _sampled(questions_of(given["dataset"]), given)
    settings = {name: given[name] for name in ("depth", "threads", "int8")}
    with _opened(given) as retriever:
        tuned = tune_and_save(given["reader"], questions, retriever, output, **settings)
    for (sums, weight), em in tuned.by_setting.items():
        chosen = (sums, weight) == (tuned.config.adds_up, tuned.config.weight)
        mentions = "mentions add up" if sums else "best mention"
        click.echo(f"{mentions:15}  weight {weight:.1f}  EM {100 * em:.2f}{'  *' if chosen else ''}")
    error = tuned.calibration_error
    shown = "not measured" if error is None else f"{100 * error:.1f} points"
    click.echo(f"{counted(tuned.questions, 'question')}; expected calibration error {shown}\n{output}")


@click.command("mine-paths")
@click.option(
    "--dataset",
    required=True,
    type=click.Path(path_type=Path),
    help="Questions whose evidence is known: KILT's JSONL, or a BEIR folder with answers.",
)
@index_option
@click.option("--chain", metavar="NAME|FILE", default="hop", show_default=True, help="What finds paths.")
@model_options
@number("--depth", default=20, text="Passages of the best paths, per question.")
@click.option("--output", required=True, type=output_type, help="File for the examples, .jsonl.")
@quiet_option
def mine_paths(output: Path, **given: Any) -> None:
    """Find passages to train a reader of paths on.

    Those that a chain finds for each question, and its evidence.

    \b
    sparta mine-paths --dataset multihop.train.jsonl --output paths.jsonl
    sparta train-paths --data paths.jsonl --output PATH-READER
    """  # noqa: D301 (click looks for the backspace)
    _check_output(output)
    from tqdm import tqdm

    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.path_mining import mine_paths as mine

    questions = questions_of(given["dataset"])
    bar = tqdm(unit="question", total=len(questions.queries), disable=True if given["quiet"] else None)
    with bar, open_chain(given) as chain:
        written = mine(questions, chain, output, depth=given["depth"], advance=bar.update)
    said = f"{output}: {counted(written, 'question')} of {len(questions.queries):,} with their passages"
    click.echo(said, err=not is_kept(output))


@click.command("train-paths")
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
@number("--steps", default=700, text="Training steps.")
@number("--batch-size", default=8, text="Questions per step.")
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
@number("--validate-every", default=350, text="Steps between validations.")
@number("--seed", default=13, least=0, most=HIGHEST_SEED, text="Seed of everything random.")
@end_options
def train_paths(data: tuple[Path, ...], output: Path, resume: bool, **given: Any) -> None:
    """Train a reader of paths (Chain-of-Skills).

    It learns to tell the supporting passages of a question, and to answer it, also with yes or no. From
    HotpotQA's JSON it also learns to tell the supporting sentences. It reads English. The best on held-out
    questions is kept, by the mean of passage EM and F1.
    """
    from hybrid.replications.path_train import PathRecipe, train_path_reader
    from sparta.reader.config import DEFAULT_READER

    for path in data:
        if not path.is_file():
            raise InputError("expected a file of questions with their passages, found none", where=str(path))
    logging.getLogger("sparta").setLevel(logging.INFO)
    recipe = PathRecipe(**{**given, "encoder": given["encoder"] or DEFAULT_READER})
    report(train_path_reader(data, recipe, output, resume=resume, command=typed_command()))


def _opened(given: dict[str, Any]) -> Any:
    from hybrid.retrieval.fusion import CANDIDATES
    from hybrid.retrieval.searcher import open_retriever

    return open_retriever(given["index"], given["channel"], candidates=max(CANDIDATES, given["depth"]))


def _sampled(questions: Any, given: dict[str, Any]) -> Any:
    from dataclasses import replace

    known = replace(questions, match=given["match"])
    return known.sample(given["sample"]) if given["sample"] else known


def _file_of(text: str) -> tuple[Path, int | None]:
    """`FILE` or `FILE=N`."""
    match = re.fullmatch(r"(.+)=([1-9]\d*)", text)
    path = Path(match[1] if match else text)
    if not path.is_file():
        raise InputError("expected a file of questions with answers, found none", where=str(path))
    return path, int(match[2]) if match else None
