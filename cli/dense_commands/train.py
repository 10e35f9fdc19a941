"""`dense train`: train a bi-encoder on questions and passages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._arguments import (
    Excludes,
    Needs,
    arguments,
    command,
    flag,
    folder_type,
    group,
    made,
    one_of,
    option,
    takes,
    typed,
    whole,
)
from cli._training import (
    RETRIEVER_RULES,
    DataArguments,
    EndArguments,
    LengthArguments,
    LoopArguments,
    checkpoint_option,
    dropout_option,
    named_sets,
    rate_option,
    report,
    typed_command,
)

if TYPE_CHECKING:
    from dense.training.train import Recipe
    from sparta.base.records import Passage


@arguments
class _Form:
    """Architecture of the model."""

    SECTION = "Architecture"
    routing: str | None = option(
        "TASER's experts: det chooses by question or passage (Det-R), seq by a router per text (Seq-R),"
        " tok by a"
        " router per token (Tok-R) [default: no experts, one shared encoder].",
        type=click.Choice(["det", "seq", "tok"]),
    )
    experts: int = whole(2, "Number of experts, for --routing.", least=2)
    period: int = whole(
        3, "Every N-th layer has experts, for --routing; with 3, two shared layers lie between."
    )
    two_encoders: bool = flag("Use one encoder for questions and one for passages (DPR).")
    codes: int = whole(
        0,
        "Number of vectors per passage (Poly-Encoder). 0 means one vector (--pooling). Only such a model can"
        " be indexed.",
        least=0,
    )
    pooling: str = one_of(
        ["mean", "cls"], "Vector of a text: mean of its token states, or the state of [CLS]."
    )
    dot: bool = flag("Score by the dot product instead of cosine.")
    separate_title: bool = flag("Put [SEP] between title and text, as in DPR.")
    RULES = (Excludes(("routing",), ("two_encoders",)), Needs("--routing", ("experts", "period")))


@arguments
class _Lengths(LengthArguments):
    learning_rate: float = rate_option(5e-5, "Peak learning rate.")


@arguments
class _Learning:
    """Batches, regularization and validation."""

    SECTION = "Batches and validation"
    layer_decay: float = option(
        "Factor on the learning rate per layer, from the top layer down; embeddings learn slowest.",
        type=click.FloatRange(0, 1, min_open=True),
        default=1.0,
    )
    entropy: float = option(
        "Weight β of the routers' entropy, for --routing seq or tok.",
        type=click.FloatRange(0),
        default=0.01,
    )
    negatives: int = whole(
        2, "Number of hard negatives per positive in a batch; 1 in DPR and TASER.", least=0
    )
    questions: int = whole(6, "Highest number of questions per paragraph in a batch.")
    question_length: int | None = option(
        "Longest question in wordpieces, in training and in search [default: as in the model of"
        " --encoder, else"
        " 64].",
        type=click.IntRange(3),
    )
    dropout: float = dropout_option("Dropout rate of the encoder; 0.1 in DPR and TASER.")
    by_size: bool = flag(
        "Draw batches from each set in proportion to its number of questions, times its weight."
    )
    largest: int | None = option(
        "Count larger sets as N questions, for --by-size, so that they do not crowd out small sets.",
        type=click.IntRange(1),
        metavar="N",
    )
    gather: bool = flag(
        "Under torchrun, use the passages of all processes as candidates for every question (DPR). Each"
        " process"
        " adds --batch-size paragraphs to the shared batch."
    )
    validate_by: str = option(
        "Measure that selects the best model.", metavar="rr|average-rank|recall@K", default="rr"
    )
    held_out: int = whole(120, "Number of held-out questions per set, for validation.", least=0)
    candidates: int = whole(
        80, "Number of training paragraphs per set, ranked together with the held-out ones.", least=0
    )
    two_stages: bool = flag(
        "Train twice: the first model finds the hard negatives for the second training (TASER)."
    )
    p2_alone: bool = flag(
        "Use only the first model's negatives in the second training, for --two-stages. With several sets"
        " this is"
        " always so."
    )
    index: Path | None = option(
        "Index whose passages the first model ranks too, for --two-stages; TASER ranks all of Wikipedia"
        " [default: the texts of the training files].",
        type=folder_type,
    )
    checkpoint_every: int = checkpoint_option
    RULES = (
        Needs("--two-stages", ("p2_alone", "index")),
        Needs("--by-size", ("largest",)),
        Excludes(("dev",), ("held_out", "candidates")),
    )


@arguments
class _Training:
    data: DataArguments = group(DataArguments)
    paper: str | None = option(
        "Set the form and the learning of a paper, and print them; typed options win. The paper's batch size"
        " and steps are printed too.",
        "--recipe",
        type=click.Choice(["dpr", "taser"]),
        section="Architecture",
    )
    form: _Form = group(_Form)
    lengths: _Lengths = group(_Lengths)
    learning: _Learning = group(_Learning)
    loop: LoopArguments = group(LoopArguments)
    end: EndArguments = group(EndArguments)
    RULES = (
        Needs("--pooling mean", ("codes",), lambda a: a.form.pooling == "mean" or not a.form.codes),
        Needs("--routing seq or tok", ("experts",), lambda a: a.form.routing != "det" or a.form.experts <= 2),
        Needs("--routing seq or tok", ("entropy",), lambda a: a.form.routing in ("seq", "tok")),
        Needs(
            "--no-context or --pooling cls",
            ("separate_title",),
            lambda a: not a.loop.context or a.form.pooling == "cls",
        ),
        Needs(
            "--dev or --held-out", ("candidates", "validate_by"), lambda a: a.learning.held_out or a.data.dev
        ),
        Excludes(("paper",), ("routing", "two_encoders", "codes"), "the recipe decides the encoders"),
        *RETRIEVER_RULES,
    )

    def recipe(self) -> Recipe:
        """Return the recipe of the training."""
        from dense.training.train import Recipe

        form = self.form
        values = {"shared": not form.two_encoders, "cosine": not form.dot, "routing": form.routing or ""}
        return made(Recipe, self, **{**values, **self.settings_of_paper()})

    def settings_of_paper(self) -> dict[str, Any]:
        """Return the settings of --recipe that no typed option replaces, by the fields of `Recipe`."""
        from dense.training.train import PAPER_RECIPES

        options = {"shared": "two_encoders", "cosine": "dot"}
        settings = PAPER_RECIPES[self.paper] if self.paper else {}
        return {name: value for name, value in settings.items() if not typed(options.get(name, name))}


@command()
@takes(_Training)
def train(training: _Training) -> None:
    """Train a bi-encoder: TASER, DPR, or one shared encoder.

    --routing trains TASER, --two-encoders trains DPR; without both, one encoder reads questions and passages.
    Training files are those of sparta train, and the output of dense mine. Each file is a set, each batch
    comes from one set, and the weights decide how often a set is drawn. The best model is written to
    OUTPUT/best. With --two-stages, each of the two trainings takes --steps steps.

    \b
    dense train --encoder bert-base-uncased --routing det --pooling cls --dot --separate-title \\
                --passages nq-train.json --output taser --two-stages
    """  # noqa: D301 (click looks for the backspace)
    from sparta.training.validation import measure_named

    data, learning = training.data, training.learning
    measure_named(learning.validate_by)
    sets = named_sets(data, training.lengths)
    if learning.by_size:
        sizes = [
            min(training_set.n_questions, learning.largest or training_set.n_questions)
            for training_set in sets
        ]
        sets = [
            replace(training_set, weight=training_set.weight * size)
            for training_set, size in zip(sets, sizes, strict=True)
        ]
    if training.paper:
        _print_paper(training, sum(each.n_questions for each in sets if not each.dev))
    from dense.training.stages import train_in_two_stages
    from dense.training.train import train_dense

    train = train_dense
    if learning.two_stages:
        collection: list[Passage] = []
        if learning.index:
            from sparta.data.units import check_whole
            from sparta.search.searcher import Searcher

            with Searcher(learning.index) as searcher:
                check_whole(searcher.unit, learning.index)  # pieces of a right passage would be its negatives
                collection = list(searcher.live_passages())
        train = partial(train_in_two_stages, only_p2=learning.p2_alone, collection=collection)
    resume, command = training.end.resume, typed_command()
    report(train(sets, training.recipe(), data.output, resume=resume, command=command))


def _print_paper(training: _Training, questions: int) -> None:
    """Print the settings of --recipe, and the paper's numbers for this number of questions."""
    from dense.training.train import PAPER_BATCH, PAPER_EPOCHS

    settings = training.settings_of_paper()
    words = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())
    steps = max(1, questions * PAPER_EPOCHS // PAPER_BATCH)
    batch = PAPER_BATCH * 2
    click.echo(f"recipe {training.paper}: {words}", err=True)
    click.echo(f"the paper's batches and epochs: --batch-size {batch} --steps {steps}", err=True)
