"""`dense train-skills`: one encoder for several skills."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli._arguments import Needs, arguments, flag, folder_type, group, made, one_of, option, takes, whole
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
        "--expanded", "Questions that go on from a passage: KILT's rows of several, paragraphs with links."
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
        "Pretrained encoder to begin with, or a model that dense train or this command made.",
        metavar="FOLDER|ID",
        required=True,
    )
    texts: tuple[Path, ...] = option("Passages that the files name, by their ids or titles.", metavar="FILE")
    placement: str = one_of(
        ["attention", "feed-forward", "none"],
        "Where the experts are: attention matrices, feed-forwards, or nowhere: one encoder for all.",
    )
    assignment: str = one_of(
        ["paper", "naive", "pretraining"],
        "Which expert reads what: the paper's six, expanded queries with single ones, or the four"
        " of pretraining.",
    )
    period: int = whole(2, "Every N-th layer has experts.")
    pooling: str = one_of(["cls", "mean"], "A text is the state of [CLS], or the mean of its tokens'.")
    cosine: bool = flag("Cosine instead of the dot product of vectors as they are.")
    markers: bool = flag("Put the class of its task (by the name of its file) before a question.")
    query_experts: bool = flag("Give each class of tasks an expert of its own for questions.")
    by_size: bool = flag("Draw batches in proportion to the files' examples.")
    largest: int | None = option(
        "With --by-size: a file of more examples counts as N, so that it does not drown the others.",
        type=click.IntRange(1),
        metavar="N",
    )
    steps: int = whole(1100, "Steps of training.")
    batch_size: int = whole(16, "Queries of a batch; each is of one skill and one file.", least=2)
    accumulate: int = accumulate_option
    negatives: int = whole(1, "Hard negatives of a query.")
    spans: int = whole(30, "Spans of a text that are no entities.")
    max_length: int = whole(256, "Wordpieces that the model reads at once.", least=16)
    question_length: int = whole(64, "Wordpieces that are read of a question.", least=3)
    learning_rate: float = rate_option(
        "--learning-rate", 5e-5, "Highest learning rate; ten times that for the span layer."
    )
    dropout: float = dropout_option("Dropout of the encoder in training.")
    held_out: int = whole(100, "Held-out queries of each file, for validation.", least=0)
    validate_every: int = validate_option(200)
    checkpoint_every: int = checkpoint_option
    seed: int = seed_option
    RULES = (
        Needs("--by-size", ("largest",)),
        Needs("another --placement than none", ("period", "assignment"), lambda a: a.placement != "none"),
    )


@arguments
class _Training:
    recipe: SkillRecipeArguments = group(SkillRecipeArguments)
    skills: _Skills = group(_Skills)
    output: Path = option("Folder for checkpoints and the model.", required=True, type=folder_type)
    dev: tuple[Path, ...] = option(
        "Validate on these tasks of KILT, over all passages of --index, instead: mean R-precision.",
        metavar="FILE",
    )
    index: Path | None = option("With --dev: the index folder.", type=folder_type)
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
