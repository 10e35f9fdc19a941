"""What makes readers: `mine-answers`, `train-reader`, `tune-reader`; of paths `mine-paths`, `train-paths`."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import click

from cli._arguments import (
    Needs,
    arguments,
    flag,
    folder_type,
    group,
    made,
    one_of,
    option,
    output_type,
    real,
    takes,
    whole,
)
from cli._chains import ChainModels, open_chain
from cli._fusion_options import sample_option
from cli._options import index_option, language_option, quiet_option, threads_option
from cli._output import counted, is_kept
from cli._search import channel_option
from cli._training import (
    EndArguments,
    dropout_option,
    rate_option,
    report,
    seed_option,
    typed_command,
    validate_option,
)
from sparta.base.errors import InputError
from sparta.base.files import check_place


def _share(name: str, default: float, text: str) -> Any:
    """Option of a share, 0 to 1."""
    return real(default, text, name, most=1)


_examples_option = option("File for the examples, .jsonl.", "--output", required=True, type=output_type)
_best_option = option("Folder; the best reader is left in best.", "--output", required=True, type=folder_type)
_batches_option = whole(1, "Batches per step.", "--accumulate")


@arguments
class _Questions:
    """Questions with answers, and what retrieves passages for them."""

    dataset: Path = option(
        "Questions with answers: a BEIR folder, DPR's TSV or JSON, SQuAD JSON, MRQA JSONL, JSON lines.",
        required=True,
    )
    index: Path | None = index_option
    channel: str | None = channel_option("What retrieves")
    depth: int = whole(10, "Passages retrieved per question.")
    sample: int | None = sample_option
    match: str = one_of(["string", "regex"], "How answers are matched; regex for CuratedTREC.")
    threads: int = threads_option

    def sampled(self) -> Any:
        """Read the questions, or a sample of them."""
        from dataclasses import replace

        from hybrid.evaluation.questions import questions_of

        questions = replace(questions_of(self.dataset), match=self.match)
        return questions.sample(self.sample) if self.sample else questions

    def retriever(self) -> Any:
        """Open the channels."""
        from hybrid.retrieval.fusion import CANDIDATES
        from hybrid.retrieval.searcher import open_retriever

        return open_retriever(self.index, self.channel, candidates=max(CANDIDATES, self.depth))


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


@arguments
class _AnswerMining:
    questions: _Questions = group(_Questions)
    output: Path = _examples_option


@click.command("mine-answers")
@takes(_AnswerMining)
def mine_answers(mining: _AnswerMining) -> None:
    """Find passages that hold answers, to train a reader on.

    \b
    sparta mine-answers --dataset nq.dev.tsv --output nq.jsonl
    sparta train-reader --data nq.jsonl --output READER
    """  # noqa: D301 (click looks for the backspace)
    output, source = mining.output, mining.questions
    _check_output(output)
    from hybrid.answering.mining import mine_answers as mine

    queries = [q for q in source.sampled().queries if q.answers]
    with source.retriever() as retriever:
        written = mine(
            queries,
            retriever,
            output,
            language=retriever.language,
            depth=source.depth,
            match=source.match,
            threads=source.threads,
        )
    said = f"{output}: {counted(written, 'question')} of {len(queries):,} with an answer in a passage"
    click.echo(said, err=not is_kept(output))


@arguments
class _ReaderTraining:
    data: tuple[str, ...] = option(
        "SQuAD JSON, MRQA JSONL, DPR JSON, pairs with answers, or what mine-answers wrote; with"
        " =N, N of its questions in an epoch (a sample, or some again); several may be given.",
        required=True,
        metavar="FILE[=N]",
    )
    output: Path = _best_option
    encoder: str | None = option(
        "Encoder, or reader, to begin with [default: the reader that ships for the language].",
        metavar="FOLDER|ID",
    )
    language: str = language_option
    steps: int = whole(1500, "Training steps.")
    batch_size: int = whole(12, "Questions per step.")
    accumulate: int = _batches_option
    learning_rate: float = rate_option(
        "--learning-rate", 6e-5, "Peak learning rate; ten times that for the span layer."
    )
    layer_decay: float = _share(
        "--layer-decay", 1.0, "Factor on the learning rate for each layer below the top."
    )
    negatives: float = _share(
        "--negatives", 0.4, "Share of questions that also get passages without the answer."
    )
    passages: int = whole(
        2, "At most so many passages for such a question, with the one that holds the answer.", least=2
    )
    unanswered: float = _share("--unanswered", 0.15, "Share of these that get no passage with the answer.")
    globally: bool = option(
        "One softmax over each passage, not over the passages of a question.",
        "--per-passage",
        flag_value=False,
        default=True,
    )
    global_tokens: int = whole(
        0, "Fusion-in-Encoder: number of global tokens shared by all passages of a question.", least=0
    )
    dropout: float = dropout_option("Dropout.")
    train_length: int = whole(256, "Training windows, in wordpieces.", least=128)
    max_length: int = whole(320, "Windows when it reads, in wordpieces.")
    overlap: int = whole(96, "Wordpieces that two windows of a text share.", least=0)
    longest_question: int = whole(64, "Wordpieces of a question that are read.")
    longest_answer: int = whole(30, "Wordpieces of the longest answer.")
    held_out: int = whole(300, "Questions for validation.")
    validate_every: int = validate_option(300)
    seed: int = seed_option
    end: EndArguments = group(EndArguments)
    RULES = (
        Needs("--negatives above 0", ("passages",), lambda a: a.negatives),
        Needs("--negatives above 0", ("unanswered",), lambda a: a.negatives or not a.unanswered),
    )


@click.command("train-reader")
@takes(_ReaderTraining)
def train_reader(training: _ReaderTraining) -> None:
    """Train a reader to find answers in passages.

    One softmax over the passages of a question is learned (shared normalization, Clark and Gardner), and "no
    answer" where none holds one. The best by F1 on held-out questions is kept.
    """
    from sparta.reader.config import ReaderLayout
    from sparta.reader.train import ReaderRecipe
    from sparta.reader.train import train_reader as train

    logging.getLogger("sparta").setLevel(logging.INFO)
    recipe = made(ReaderRecipe, training, layout=made(ReaderLayout, training))
    files = [_file_of(name) for name in training.data]
    resume, command = training.end.resume, typed_command()
    report(train(files, recipe, training.output, resume=resume, command=command))


@arguments
class _Tuning:
    questions: _Questions = group(_Questions)
    reader: str = option("The reader to tune.", required=True, metavar="FOLDER")
    output: Path = option("Folder for the tuned reader.", required=True, type=folder_type)
    int8: bool = flag("Store weights in 8 bits with row scales.")


@click.command("tune-reader")
@takes(_Tuning)
def tune_reader(tuning: _Tuning) -> None:
    """Calibrate a reader, and choose how mentions count.

    Give it questions that it was not trained on. Prints EM where the best mention of an answer counts and
    where those of all passages add up, at each weight of the ranker, and the expected calibration error of
    the probabilities, fitted on one half of the questions and measured on the other.
    """
    from hybrid.evaluation.tune_reader import tune_and_save

    source = tuning.questions
    questions = source.sampled()
    with source.retriever() as retriever:
        tuned = tune_and_save(
            tuning.reader,
            questions,
            retriever,
            tuning.output,
            depth=source.depth,
            threads=source.threads,
            int8=tuning.int8,
        )
    for (sums, weight), em in tuned.by_setting.items():
        chosen = (sums, weight) == (tuned.config.adds_up, tuned.config.weight)
        mentions = "mentions add up" if sums else "best mention"
        click.echo(f"{mentions:15}  weight {weight:.1f}  EM {100 * em:.2f}{'  *' if chosen else ''}")
    error = tuned.calibration_error
    shown = "not measured" if error is None else f"{100 * error:.1f} points"
    click.echo(f"{counted(tuned.questions, 'question')}; expected calibration error {shown}\n{tuning.output}")


@arguments
class _PathMining:
    dataset: Path = option(
        "Questions whose evidence is known: KILT's JSONL, or a BEIR folder with answers.", required=True
    )
    index: Path | None = index_option
    chain: str = option("What finds paths.", metavar="NAME|FILE", default="hop")
    models: ChainModels = group(ChainModels)
    depth: int = whole(20, "Passages of the best paths, per question.")
    output: Path = _examples_option
    quiet: bool = quiet_option


@click.command("mine-paths")
@takes(_PathMining)
def mine_paths(mining: _PathMining) -> None:
    """Find passages to train a reader of paths on.

    Those that a chain finds for each question, and its evidence.

    \b
    sparta mine-paths --dataset multihop.train.jsonl --output paths.jsonl
    sparta train-paths --data paths.jsonl --output PATH-READER
    """  # noqa: D301 (click looks for the backspace)
    output = mining.output
    _check_output(output)
    from tqdm import tqdm

    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.path_mining import mine_paths as mine

    questions = questions_of(mining.dataset)
    bar = tqdm(unit="question", total=len(questions.queries), disable=True if mining.quiet else None)
    with bar, open_chain(mining.chain, mining.models, mining.index) as chain:
        written = mine(questions, chain, output, depth=mining.depth, advance=bar.update)
    said = f"{output}: {counted(written, 'question')} of {len(questions.queries):,} with their passages"
    click.echo(said, err=not is_kept(output))


@arguments
class _PathTraining:
    data: tuple[Path, ...] = option(
        "What mine-paths wrote, or HotpotQA's JSON; several may be given.", required=True
    )
    output: Path = _best_option
    encoder: str | None = option(
        "Encoder, or reader, to begin with [default: the shipped reader].", metavar="FOLDER|ID"
    )
    steps: int = whole(700, "Training steps.")
    batch_size: int = whole(8, "Questions per step.")
    accumulate: int = _batches_option
    learning_rate: float = rate_option(
        "--learning-rate", 5e-5, "Peak learning rate; ten times that for the layers of scores."
    )
    layer_decay: float = _share(
        "--layer-decay", 0.9, "Factor on the learning rate for each layer below the top."
    )
    dropout: float = dropout_option("Dropout.")
    max_length: int = whole(320, "Wordpieces of a path that are read.", least=128)
    held_out: int = whole(150, "Questions for validation.")
    validate_every: int = validate_option(350)
    seed: int = seed_option
    end: EndArguments = group(EndArguments)


@click.command("train-paths")
@takes(_PathTraining)
def train_paths(training: _PathTraining) -> None:
    """Train a reader of paths (Chain-of-Skills).

    It learns to tell the supporting passages of a question, and to answer it, also with yes or no. From
    HotpotQA's JSON it also learns to tell the supporting sentences. It reads English. The best on held-out
    questions is kept, by the mean of passage EM and F1.
    """
    from hybrid.replications.path_train import PathRecipe, train_path_reader
    from sparta.reader.config import DEFAULT_READER

    data = training.data
    for path in data:
        if not path.is_file():
            raise InputError("expected a file of questions with their passages, found none", where=str(path))
    logging.getLogger("sparta").setLevel(logging.INFO)
    recipe = made(PathRecipe, training, encoder=training.encoder or DEFAULT_READER)
    resume, command = training.end.resume, typed_command()
    report(train_path_reader(data, recipe, training.output, resume=resume, command=command))


def _file_of(text: str) -> tuple[Path, int | None]:
    """`FILE` or `FILE=N`."""
    match = re.fullmatch(r"(.+)=([1-9]\d*)", text)
    path = Path(match[1] if match else text)
    if not path.is_file():
        raise InputError("expected a file of questions with answers, found none", where=str(path))
    return path, int(match[2]) if match else None
