"""`hybrid downstream`, `hybrid train-labels`: what is answered with the passages that are found."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli._arguments import (
    arguments,
    folder_type,
    group,
    made,
    one_of,
    option,
    output_type,
    takes,
    whole,
)
from cli._fusion_options import notes, print_table, sample_option
from cli._options import form_option, index_option, quiet_option
from cli._search import channel_option
from cli._training import EndArguments, accumulate_option, rate_option, report, seed_option, validate_option

if TYPE_CHECKING:
    from hybrid.evaluation.testsets import QuestionSet


@arguments
class _Retrieving:
    index: Path | None = index_option
    channel: str | None = channel_option("What retrieves")
    depth: int = whole(3, "Passages that are read with a question.")
    sample: int | None = sample_option

    def questions(self, path: Path) -> QuestionSet:
        """Open the questions, or a sample of them."""
        from hybrid.evaluation.questions import questions_of

        questions = questions_of(path)
        return questions if self.sample is None else questions.sample(self.sample)


@arguments
class _Downstream:
    dataset: Path = option(
        "A task of KILT, or questions with answers in any form of hybrid eval.", required=True
    )
    by: str = one_of(
        ["title", "reader", "label", "generated"],
        "What answers: the title of the best passage (entity linking), a reader (slot filling, questions), a"
        " classifier of train-labels (fact checking), or a sequence-to-sequence model.",
    )
    model: str | None = option("The reader, classifier or generating model.", metavar="FOLDER|ID")
    output: Path = option("File for the answers, JSONL.", required=True, type=output_type)
    retrieving: _Retrieving = group(_Retrieving)
    quiet: bool = quiet_option
    end: EndArguments = group(EndArguments)
    form: str = form_option


@click.command()
@takes(_Downstream)
def downstream(chosen: _Downstream) -> None:
    """Answer a task's questions from the best passages, and measure the answers (Maillard et al., Table 4).

    accuracy is letter for letter, EM and F1 are SQuAD's, and kilt_accuracy counts an answer where the pages
    are right too. A generating model reads the passages before the input, as BART does in KILT.

    \b
    hybrid downstream --dataset linking.dev.jsonl --by title --output links.jsonl
    hybrid downstream --dataset zsre.dev.jsonl --by reader --output slots.jsonl --channel bm25
    hybrid downstream --dataset fever.dev.jsonl --by label --model labels --output claims.jsonl
    hybrid downstream --dataset nq.test.tsv --by generated --model facebook/bart-large --output nq.jsonl
    """  # noqa: D301 (click looks for the backspace)
    from tqdm import tqdm

    from hybrid.evaluation.results import results_table
    from hybrid.replications.downstream import solve_task
    from hybrid.replications.solvers import open_solver
    from hybrid.retrieval.fusion import CANDIDATES
    from hybrid.retrieval.searcher import open_retriever
    from sparta.index.folder import default_index

    retrieving, model = chosen.retrieving, chosen.model
    questions = retrieving.questions(chosen.dataset)
    folder = retrieving.index or default_index()
    most = max(CANDIDATES, retrieving.depth)
    with open_retriever(folder, retrieving.channel, candidates=most) as retriever:
        solver = open_solver(retriever, chosen.by, model, chosen.end.device)
        with tqdm(unit="question", disable=True if chosen.quiet else None) as bar:
            results = solve_task(
                questions,
                folder,
                retriever,
                solver,
                chosen.output,
                depth=retrieving.depth,
                model=_shown(model),
                resume=chosen.end.resume,
                advance=bar.update,
            )
    print_table(results_table([results], label="answered by"), chosen.form, notes([questions], []))


def _shown(model: str | None) -> str:
    """A model as the answers name it: a folder by its absolute path."""
    return str(Path(model).resolve()) if model and Path(model).exists() else model or ""


@arguments
class _Labels:
    encoder: str = option("Pretrained encoder to begin with.", metavar="FOLDER|ID", required=True)
    data: Path = option("Claims: a task of KILT.", required=True)
    output: Path = option("Folder for checkpoints and the model.", required=True, type=folder_type)
    retrieving: _Retrieving = group(_Retrieving)
    steps: int = whole(600, "Steps of training.")
    batch_size: int = whole(16, "Claims of a step.")
    accumulate: int = accumulate_option
    max_length: int = whole(320, "Wordpieces of a claim with its passages.", least=96)
    learning_rate: float = rate_option("--learning-rate", 5e-5, "Highest rate.")
    held_out: int = whole(300, "Claims for validation.")
    validate_every: int = validate_option(100)
    seed: int = seed_option
    end: EndArguments = group(EndArguments)


@click.command("train-labels")
@takes(_Labels)
def train_labels(chosen: _Labels) -> None:
    """Train a classifier of claims that reads the passages found for them.

    The labels are the answers of the file, such as SUPPORTS and REFUTES. The best model by accuracy on
    held-out claims ends in OUTPUT/best; passages are kept in OUTPUT, so that --resume finds them there.

    \b
    hybrid train-labels --data fever.train.jsonl --encoder bert-base-uncased --channel bm25 --output labels
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.replications.claims import claims_of
    from hybrid.replications.labels import LabelRecipe
    from hybrid.replications.labels import train_labels as train
    from sparta.training.ranking import check_output

    check_output(chosen.output, resume=chosen.end.resume)
    logging.getLogger("sparta").setLevel(logging.INFO)
    retrieving = chosen.retrieving
    questions = retrieving.questions(chosen.data)
    claims = claims_of(questions, retrieving.index, retrieving.channel, retrieving.depth, chosen.output)
    report(train(claims, made(LabelRecipe, chosen), chosen.output, resume=True))
