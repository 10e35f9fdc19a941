"""`hybrid downstream`, `hybrid train-labels`: what is answered with the passages that are found."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from cli._arguments import HIGHEST_SEED, Finite, choice, folder_type, number, options, output_type
from cli._fusion_options import notes, print_table, sample_option
from cli._options import form_option, index_option, quiet_option
from cli._search import channel_option
from cli._training import end_options, report

_retrieving = options(
    index_option,
    channel_option("What retrieves"),
    number("--depth", default=3, text="Passages that are read with a question."),
    sample_option,
)


@click.command()
@click.option(
    "--dataset",
    required=True,
    type=click.Path(path_type=Path),
    help="A task of KILT, or questions with answers in any form of hybrid eval.",
)
@choice(
    "--by",
    values=["title", "reader", "label", "generated"],
    text="What answers: the title of the best passage (entity linking), a reader (slot filling, questions), a"
    " classifier of train-labels (fact checking), or a sequence-to-sequence model.",
)
@click.option("--model", metavar="FOLDER|ID", help="The reader, classifier or generating model.")
@click.option("--output", required=True, type=output_type, help="File for the answers, JSONL.")
@_retrieving
@quiet_option
@end_options
@form_option
def downstream(
    dataset: Path, index: Path | None, output: Path, sample: int | None, form: str, quiet: bool, **given: Any
) -> None:
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

    from hybrid.evaluation.questions import questions_of
    from hybrid.evaluation.results import results_table
    from hybrid.replications.downstream import solve_task
    from hybrid.replications.solvers import open_solver
    from hybrid.retrieval.fusion import CANDIDATES
    from hybrid.retrieval.searcher import open_retriever
    from sparta.index.folder import default_index

    known = questions_of(dataset)
    known = known if sample is None else known.sample(sample)
    own = {name: given.pop(name) for name in ("by", "model", "device")}
    folder = index or default_index()
    most = max(CANDIDATES, given["depth"])
    with open_retriever(folder, given.pop("channel"), candidates=most) as retriever:
        solver = open_solver(retriever, **own)
        with tqdm(unit="question", disable=True if quiet else None) as bar:
            model = _shown(own["model"])
            found = solve_task(
                known, folder, retriever, solver, output, model=model, advance=bar.update, **given
            )
    print_table(results_table([found], label="answered by"), form, notes([known], []))


def _shown(model: str | None) -> str:
    """A model as the answers name it: a folder by its absolute path."""
    return str(Path(model).resolve()) if model and Path(model).exists() else model or ""


@click.command("train-labels")
@click.option("--encoder", metavar="FOLDER|ID", required=True, help="Pretrained encoder to begin with.")
@click.option("--data", required=True, type=click.Path(path_type=Path), help="Claims: a task of KILT.")
@click.option("--output", required=True, type=folder_type, help="Folder for checkpoints and the model.")
@_retrieving
@number("--steps", default=600, text="Steps of training.")
@number("--batch-size", default=16, text="Claims of a step.")
@number("--accumulate", default=1, text="Batches whose gradients make one step.")
@number("--max-length", default=320, least=96, text="Wordpieces of a claim with its passages.")
@click.option(
    "--learning-rate", type=Finite(0, min_open=True), default=5e-5, show_default=True, help="Highest rate."
)
@number("--held-out", default=300, least=1, text="Claims for validation.")
@number("--validate-every", default=100, text="Steps between validations.")
@number("--seed", default=13, least=0, most=HIGHEST_SEED, text="Seed of everything random.")
@end_options
def train_labels(
    data: Path,
    index: Path | None,
    channel: str | None,
    depth: int,
    sample: int | None,
    output: Path,
    resume: bool,
    **given: Any,
) -> None:
    """Train a classifier of claims that reads the passages found for them.

    The labels are the answers of the file, such as SUPPORTS and REFUTES. The best model by accuracy on
    held-out claims ends in OUTPUT/best; passages are kept in OUTPUT, so that --resume finds them there.

    \b
    hybrid train-labels --data fever.train.jsonl --encoder bert-base-uncased --channel bm25 --output labels
    """  # noqa: D301 (click looks for the backspace)
    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.claims import claims_of
    from hybrid.replications.labels import LabelRecipe
    from hybrid.replications.labels import train_labels as train
    from sparta.training.ranking import check_output

    check_output(output, resume=resume)
    logging.getLogger("sparta").setLevel(logging.INFO)
    known = questions_of(data)
    known = known if sample is None else known.sample(sample)
    claims = claims_of(known, index, channel, depth, output)
    report(train(claims, LabelRecipe(**given), output, resume=True))
