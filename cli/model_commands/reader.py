"""Commands that make readers (`mine-answers`, `train-reader`, `tune-reader`) and path readers (`*-paths`)."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import click

from cli._arguments import (
    Needs,
    arguments,
    command,
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
    accumulate_option,
    dropout_option,
    rate_option,
    report,
    seed_option,
    typed_command,
    validate_option,
)
from sparta.base.errors import InputError
from sparta.base.files import check_output_file

_examples_option = option(
    "File for the training examples, .jsonl.", "--output", required=True, type=output_type
)
_best_option = option(
    "Folder for checkpoints; the best reader is written to its subfolder best.",
    "--output",
    required=True,
    type=folder_type,
)


@arguments
class _Questions:
    """Questions with answers, and the channels that retrieve passages for them."""

    SECTION = "Questions and retrieval"

    dataset: Path = option(
        "Questions with answers: a BEIR folder, DPR's TSV or JSON, SQuAD JSON, MRQA JSONL, or JSON lines.",
        required=True,
    )
    index: Path | None = index_option
    channel: str | None = channel_option("Channel that retrieves passages")
    depth: int = whole(10, "Number of passages retrieved per question.")
    sample: int | None = sample_option
    match: str = one_of(["string", "regex"], "How answers are matched in passages; CuratedTREC needs regex.")
    threads: int = threads_option

    def sampled(self) -> Any:
        """Return the questions, or the sample of --sample."""
        from dataclasses import replace

        from hybrid.evaluation.questions import questions_of

        return replace(questions_of(self.dataset), match=self.match).sample(self.sample)

    def retriever(self) -> Any:
        """Return an open retriever of the channels."""
        from hybrid.retrieval.searcher import open_retriever

        return open_retriever(self.index, self.channel, n_hits=self.depth)


def _check_output(output: Path) -> None:
    """Raise InputError unless the output is a .jsonl file in a writable folder."""
    if not output.name.endswith(".jsonl"):
        raise InputError(
            "the name of the output file must end in .jsonl",
            where=str(output),
            remedy="write, for example, --output examples.jsonl",
        )
    check_output_file(output, "file")


@arguments
class _AnswerMining:
    questions: _Questions = group(_Questions)
    output: Path = _examples_option


@command("mine-answers")
@takes(_AnswerMining)
def mine_answers(mining: _AnswerMining) -> None:
    """Find passages with answers, to train a reader.

    Retrieves passages for each question and writes the questions whose passages contain an answer.

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
    report = (
        f"{output}: {counted(written, 'question')} of {len(queries):,} with an answer in a retrieved passage"
    )
    click.echo(report, err=not is_kept(output))


@arguments
class _ReaderTraining:
    data: tuple[str, ...] = option(
        "Training file: SQuAD JSON, MRQA JSONL, DPR JSON, pairs with answers, or the output of mine-answers."
        " With =N, each epoch takes N of its questions, repeating some if there are fewer. Repeat the option"
        " for several files.",
        required=True,
        metavar="FILE[=N]",
    )
    output: Path = _best_option
    encoder: str | None = option(
        "Encoder or reader to start from [default: the reader shipped for the language].",
        metavar="FOLDER|ID",
    )
    language: str = language_option
    steps: int = whole(1500, "Number of training steps.")
    batch_size: int = whole(12, "Questions per step.")
    accumulate: int = accumulate_option
    learning_rate: float = rate_option(6e-5, "Peak learning rate; the span layer learns ten times as fast.")
    layer_decay: float = real(1.0, "Factor on the learning rate per layer, from the top layer down.", most=1)
    negatives: float = real(
        0.4, "Fraction of questions that also get passages without the answer (negatives).", most=1
    )
    passages: int = whole(
        2, "Most passages of a question with negatives, the passage with the answer included.", least=2
    )
    unanswered: float = real(
        0.15, "Fraction of the questions with negatives that get no passage with the answer.", most=1
    )
    globally: bool = option(
        "Normalize scores over each passage, not over all passages of a question.",
        "--per-passage",
        flag_value=False,
        default=True,
    )
    global_tokens: int = whole(
        0, "Number of global tokens that all passages of a question share (Fusion-in-Encoder).", least=0
    )
    dropout: float = dropout_option("Dropout rate.")
    train_length: int = whole(256, "Length of a window in training, in wordpieces.", least=128)
    max_length: int = whole(320, "Length of a window at inference, in wordpieces.")
    overlap: int = whole(96, "Overlap of two windows of a passage, in wordpieces.", least=0)
    longest_question: int = whole(64, "Longest question, in wordpieces; the rest is cut.")
    longest_answer: int = whole(30, "Longest answer, in wordpieces.")
    held_out: int = whole(300, "Number of held-out questions, for validation.")
    validate_every: int = validate_option(300)
    seed: int = seed_option
    end: EndArguments = group(EndArguments)
    RULES = (
        Needs("--negatives above 0", ("passages",), lambda a: a.negatives),
        Needs("--negatives above 0", ("unanswered",), lambda a: a.negatives or not a.unanswered),
    )


@command("train-reader")
@takes(_ReaderTraining)
def train_reader(training: _ReaderTraining) -> None:
    """Train a reader that extracts answers from passages.

    Scores are normalized over all passages of a question (shared normalization, Clark and Gardner 2018), and
    the reader learns "no answer" for questions without one. The reader with the best F1 on held-out questions
    is kept.

    \b
    sparta train-reader --data squad-train.json --data nq.jsonl --output READER
    """  # noqa: D301 (click looks for the backspace)
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
    reader: str = option("Reader to tune.", required=True, metavar="FOLDER")
    output: Path = option("Folder for the tuned reader.", required=True, type=folder_type)
    int8: bool = flag("Store the reader in 8-bit integers with row scales.")
    coverage: float = real(
        0.8, "Share of the questions that the reader answers; below their scores, it abstains.", most=1
    )


@command("tune-reader")
@takes(_Tuning)
def tune_reader(tuning: _Tuning) -> None:
    """Calibrate a reader's scores on your questions.

    Use questions that the reader was not trained on. Prints EM for each weight of the retrieval score, both
    if only the best mention of an answer counts and if all mentions add up; the best setting is saved. Also
    prints the expected calibration error of the probabilities, fitted on half of the questions and measured
    on the other half. The tuned reader abstains below a threshold, for the channel and the depth of the
    tuning. The share --coverage of the questions has a score above the threshold.

    \b
    sparta tune-reader --reader READER/best --dataset held-out.jsonl --output TUNED
    """  # noqa: D301 (click looks for the backspace)
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
            coverage=tuning.coverage,
        )
    for (combines_mentions, weight), em in tuned.by_setting.items():
        is_best = (combines_mentions, weight) == (tuned.config.combines_mentions, tuned.config.weight)
        mentions = "all mentions" if combines_mentions else "best mention"
        best = "  (best, saved)" if is_best else ""
        click.echo(f"{mentions}  retrieval weight {weight:.1f}  EM {100 * em:.2f}{best}")
    calibration_error = tuned.calibration_error
    shown = "not measured" if calibration_error is None else f"{100 * calibration_error:.1f} points"
    questions = counted(tuned.questions, "question")
    click.echo(f"expected calibration error: {shown} ({questions})")
    if abstention := tuned.config.abstention:
        place = f"channel {abstention.channel}, depth {abstention.depth}"
        click.echo(
            f"threshold {abstention.threshold:.3f}: answers {tuned.coverage:.0%} of the questions ({place})"
        )
    click.echo(f"{tuning.output}: tuned reader")


@arguments
class _PathMining:
    dataset: Path = option(
        "Questions with known evidence: KILT's JSONL, or a BEIR folder with answers.", required=True
    )
    index: Path | None = index_option
    chain: str = option("Chain that finds paths.", metavar="NAME|FILE", default="hop")
    models: ChainModels = group(ChainModels)
    depth: int = whole(20, "Number of passages per question, from the best paths.")
    output: Path = _examples_option
    quiet: bool = quiet_option


@command("mine-paths")
@takes(_PathMining)
def mine_paths(mining: _PathMining) -> None:
    """Find paths of passages, to train a path reader.

    Writes the passages that a chain finds for each question, and the question's evidence.

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
    report = f"{output}: {counted(written, 'question')} of {len(questions.queries):,} with their passages"
    click.echo(report, err=not is_kept(output))


@arguments
class _PathTraining:
    data: tuple[Path, ...] = option(
        "Training file: output of mine-paths, or HotpotQA's JSON. Repeat the option for several files.",
        required=True,
    )
    output: Path = _best_option
    encoder: str | None = option(
        "Encoder or reader to start from [default: the shipped reader].", metavar="FOLDER|ID"
    )
    steps: int = whole(700, "Number of training steps.")
    batch_size: int = whole(8, "Questions per step.")
    accumulate: int = accumulate_option
    learning_rate: float = rate_option(
        5e-5, "Peak learning rate; the scoring layers learn ten times as fast."
    )
    layer_decay: float = real(0.9, "Factor on the learning rate per layer, from the top layer down.", most=1)
    dropout: float = dropout_option("Dropout rate.")
    max_length: int = whole(320, "Longest path, in wordpieces; the rest is cut.", least=128)
    held_out: int = whole(150, "Number of held-out questions, for validation.")
    validate_every: int = validate_option(350)
    seed: int = seed_option
    end: EndArguments = group(EndArguments)


@command("train-paths")
@takes(_PathTraining)
def train_paths(training: _PathTraining) -> None:
    """Train a path reader (Chain-of-Skills).

    A path reader marks the passages that support the answer and extracts the answer, which may be yes or no.
    HotpotQA's JSON also teaches it to mark the supporting sentences. It reads English only. The path reader
    with the best mean of passage EM and F1 on held-out questions is kept.

    \b
    sparta train-paths --data paths.jsonl --output PATH-READER
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.replications.path_train import PathRecipe, train_path_reader
    from sparta.reader.config import DEFAULT_READER

    data = training.data
    for path in data:
        if not path.is_file():
            raise InputError("no such file of questions with passages", where=str(path))
    logging.getLogger("sparta").setLevel(logging.INFO)
    recipe = made(PathRecipe, training, encoder=training.encoder or DEFAULT_READER)
    resume, command = training.end.resume, typed_command()
    report(train_path_reader(data, recipe, training.output, resume=resume, command=command))


def _file_of(text: str) -> tuple[Path, int | None]:
    """Parse `FILE` or `FILE=N`; return the file and N (None without)."""
    match = re.fullmatch(r"(.+)=([1-9]\d*)", text)
    path = Path(match[1] if match else text)
    if not path.is_file():
        raise InputError("no such file of questions with answers", where=str(path))
    return path, int(match[2]) if match else None
