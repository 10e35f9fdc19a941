"""`dense train-skills`: one encoder for several skills."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli._arguments import Needs, arguments, choice, flag, folder_type, group, made, number, option, takes
from cli._training import (
    EndArguments,
    accumulate_option,
    checkpoint_option,
    dropout_option,
    files_option,
    rate_option,
    report,
    seed_option,
    typed_command,
    validate_option,
)
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from dense.training.skill_data import SkillFile


@arguments
class _Skills:
    """The files that each skill learns from."""

    single: tuple[str, ...] = files_option(
        "--single", "Questions and passages: KILT's rows, pairs, DPR's JSON."
    )
    expanded: tuple[str, ...] = files_option(
        "--expanded",
        "Questions that go on from a passage: KILT's rows of several, paragraphs with links.",
    )
    span: tuple[str, ...] = files_option(
        "--span",
        "Texts with entities: paragraphs or table rows with links, rows with [START_ENT] and [END_ENT].",
    )
    link: tuple[str, ...] = files_option("--link", "Entities and the pages that they mean: the same files.")
    rerank: tuple[str, ...] = files_option(
        "--rerank", "Questions, passages and negatives: KILT's rows, pairs, DPR's JSON."
    )

    def files(self) -> list[SkillFile]:
        """Return the files with their weights."""
        from dense.training.skill_data import SkillFile
        from sparta.training.paragraphs import name_and_weight

        named = [
            (skill, name_and_weight(name, "FILE")) for skill, names in vars(self).items() for name in names
        ]
        if not named:
            options = ", ".join(f"--{name}" for name in vars(self))
            raise InputError(
                f"expected one of {options}, found none", remedy="name a file for at least one skill"
            )
        return [SkillFile(skill, Path(path), weight) for skill, (path, weight) in named]


@arguments
class SkillRecipeArguments:
    """How one encoder is trained for several skills or tasks."""

    encoder: str = option(
        "--encoder",
        metavar="FOLDER|ID",
        required=True,
        help="Pretrained encoder to begin with, or a model that dense train or this command made.",
    )
    texts: tuple[Path, ...] = option(
        "--texts",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Passages that the files name, by their ids or titles.",
    )
    placement: str = choice(
        "--placement",
        values=["attention", "feed-forward", "none"],
        text="Where the experts are: attention matrices, feed-forwards, or nowhere: one encoder for all.",
    )
    assignment: str = choice(
        "--assignment",
        values=["paper", "naive", "pretraining"],
        text="Which expert reads what: the paper's six, expanded queries with single ones, or the four of"
        " pretraining.",
    )
    period: int = number("--period", default=2, text="Every N-th layer has experts.")
    pooling: str = choice(
        "--pooling", values=["cls", "mean"], text="A text is the state of [CLS], or the mean of its tokens'."
    )
    cosine: bool = flag("--cosine", text="Cosine instead of the dot product of vectors as they are.")
    markers: bool = flag(
        "--markers", text="Put the class of its task (by the name of its file) before a question."
    )
    query_experts: bool = flag(
        "--query-experts", text="Give each class of tasks an expert of its own for questions."
    )
    by_size: bool = flag("--by-size", text="Draw batches in proportion to the files' examples.")
    largest: int | None = option(
        "--largest",
        type=click.IntRange(1),
        metavar="N",
        help="With --by-size: a file of more examples counts as N, so that it does not drown the others.",
    )
    steps: int = number("--steps", default=1100, text="Steps of training.")
    batch_size: int = number(
        "--batch-size", default=16, least=2, text="Queries of a batch; each is of one skill and one file."
    )
    accumulate: int = accumulate_option
    negatives: int = number("--negatives", default=1, text="Hard negatives of a query.")
    spans: int = number("--spans", default=30, text="Spans of a text that are no entities.")
    max_length: int = number(
        "--max-length", default=256, least=16, text="Wordpieces that the model reads at once."
    )
    question_length: int = number(
        "--question-length", default=64, least=3, text="Wordpieces that are read of a question."
    )
    learning_rate: float = rate_option(
        "--learning-rate", 5e-5, "Highest learning rate; ten times that for the span layer."
    )
    dropout: float = dropout_option("Dropout of the encoder in training.")
    held_out: int = number(
        "--held-out", default=100, least=0, text="Held-out queries of each file, for validation."
    )
    validate_every: int = validate_option(200)
    checkpoint_every: int = checkpoint_option
    seed: int = seed_option
    RULES = (
        Needs("--by-size", ("largest",)),
        Needs("another --placement than none", ("period", "assignment"), lambda a: a.placement != "none"),
    )


recipe_options = group(SkillRecipeArguments)


@arguments
class _Training:
    recipe: SkillRecipeArguments = recipe_options
    skills: _Skills = group(_Skills)
    output: Path = option(
        "--output", required=True, type=folder_type, help="Folder for checkpoints and the model."
    )
    dev: tuple[Path, ...] = option(
        "--dev",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Validate on these tasks of KILT, over all passages of --index, instead: mean R-precision.",
    )
    index: Path | None = option("--index", type=folder_type, help="With --dev: the index folder.")
    end: EndArguments = group(EndArguments)
    RULES = (
        Needs("--index", ("dev",)),
        Needs("--dev", ("index",)),
        Needs("--single", ("markers", "query_experts"), lambda a: a.skills.single),
        Needs("--span", ("spans",), lambda a: a.skills.span),
        Needs("held-out examples and not --dev", ("held_out",), lambda a: not a.dev),
        Needs("another skill than --span", ("negatives",), lambda a: a.has_ranked_skill()),
    )

    def has_ranked_skill(self) -> bool:
        """Whether a skill other than spans is learned."""
        return any(names for skill, names in vars(self.skills).items() if skill != "span")


@click.command("train-skills")
@takes(_Training)
def train_skills(training: _Training) -> None:
    """Train one encoder for several skills (Chain-of-Skills).

    Single and expanded retrieval, entity spans, entity links, reranking: those that a file is given for. A
    batch is of one file, drawn by the weights. The best model ends in OUTPUT/best, and knows what it can.

    \b
    dense train-skills --encoder bert-base-uncased --texts passages.jsonl --output skills \\
        --single nq-train.json --expanded multihop.jsonl --rerank multihop.jsonl \\
        --span hyperlinks.jsonl --link hyperlinks.jsonl=4
    """  # noqa: D301 (click looks for the backspace)
    from dense.training.skill_data import read_skill_sets
    from dense.training.skill_train import SkillRecipe
    from dense.training.skill_train import train_skills as train

    recipe = training.recipe
    files = training.skills.files()
    logging.getLogger("sparta").setLevel(logging.INFO)
    sets = read_skill_sets(
        files,
        recipe.texts,
        recipe.batch_size,
        by_size=recipe.by_size,
        largest=recipe.largest,
        tasks=recipe.markers or recipe.query_experts,
    )
    validation = None
    if training.index:
        from hybrid.replications.pool import IndexValidation, TaskPool

        validation = IndexValidation(TaskPool(training.index, training.dev))
    result = train(
        sets,
        made(SkillRecipe, recipe, device=training.end.device),
        training.output,
        resume=training.end.resume,
        command=typed_command(),
        validation=validation,
    )
    report(result)
