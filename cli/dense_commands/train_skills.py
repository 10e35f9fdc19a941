"""`dense train-skills`: train one encoder for several skills."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

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
    whole,
)
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
    """The training files of each skill."""

    SECTION = "Training files"
    single: tuple[str, ...] = files_option(
        "--single", "Single retrieval: questions and passages, as KILT's JSONL, pairs, or DPR's JSON."
    )
    expanded: tuple[str, ...] = files_option(
        "--expanded",
        "Retrieval with a query expanded by a passage: KILT's JSONL with several passages, or paragraphs"
        " with links.",
    )
    span: tuple[str, ...] = files_option(
        "--span",
        "Entity spans: paragraphs or table rows with links, or KILT's JSONL with [START_ENT] and [END_ENT].",
    )
    link: tuple[str, ...] = files_option(
        "--link", "Entity links, from an entity to its page: the same files as for --span."
    )
    rerank: tuple[str, ...] = files_option(
        "--rerank", "Reranking: questions, passages and negatives, as KILT's JSONL, pairs, or DPR's JSON."
    )

    def files(self) -> list[SkillFile]:
        """Return the training files with their skills and weights."""
        from dense.training.skill_data import SkillFile
        from sparta.training.paragraphs import name_and_weight

        files_of_skills = [
            (skill, name_and_weight(name, "FILE")) for skill, names in vars(self).items() for name in names
        ]
        if not files_of_skills:
            options = ", ".join(f"--{name}" for name in vars(self))
            raise InputError(
                f"no training data is named: at least one of {options} is needed",
                remedy="for example: --single FILE",
            )
        return [SkillFile(skill, Path(path), weight) for skill, (path, weight) in files_of_skills]


@arguments
class SkillRecipeArguments:
    """Recipe of one encoder for several skills or tasks."""

    SECTION = "Training"
    encoder: str = option(
        "Encoder to start from: a pretrained encoder, or a model from dense train or this command.",
        metavar="FOLDER|ID",
        required=True,
    )
    texts: tuple[Path, ...] = option(
        "File of the passages that the training files name by id or title.", metavar="FILE"
    )
    placement: str = one_of(
        ["attention", "feed-forward", "encoder", "none"],
        "Part of a layer that has experts: attention matrices or feed-forward; encoder makes each expert a"
        " separate encoder, none uses one encoder for all.",
    )
    assignment: str = one_of(
        ["paper", "naive", "pretraining"],
        "Assignment of texts to experts: paper has six experts, naive shares the expert of single and"
        " expanded"
        " queries, pretraining has four.",
    )
    period: int = whole(2, "Every N-th layer has experts.")
    pooling: str = one_of(
        ["cls", "mean"], "Vector of a text: the state of [CLS], or the mean of its token states."
    )
    cosine: bool = flag("Score by cosine instead of the dot product.")
    markers: bool = flag("Put the class of the task before each question; the file's name decides the class.")
    query_experts: bool = flag("Use a separate question expert for each class of tasks.")
    by_size: bool = flag("Draw batches from each file in proportion to its number of examples.")
    largest: int | None = option(
        "Count larger files as N examples, for --by-size, so that they do not crowd out small files.",
        type=click.IntRange(1),
        metavar="N",
    )
    steps: int = whole(1100, "Number of training steps.")
    batch_size: int = whole(16, "Number of queries per batch; a batch has one skill and one file.", least=2)
    accumulate: int = accumulate_option
    negatives: int = whole(1, "Number of hard negatives per query.")
    spans: int = whole(30, "Number of spans per text that are no entities (negatives).")
    max_length: int = whole(256, "Longest input of the model, in wordpieces.", least=16)
    question_length: int = whole(64, "Longest question, in wordpieces; the rest is cut.", least=3)
    learning_rate: float = rate_option(5e-5, "Peak learning rate; the span layer learns ten times as fast.")
    dropout: float = dropout_option("Dropout rate of the encoder.")
    held_out: int = whole(100, "Number of held-out queries per file, for validation.", least=0)
    validate_every: int = validate_option(200)
    checkpoint_every: int = checkpoint_option
    seed: int = seed_option
    RULES = (
        Needs("--by-size", ("largest",)),
        Needs("another --placement than none", ("assignment",), lambda a: a.placement != "none"),
        Needs(
            "--placement attention or feed-forward",
            ("period",),
            lambda a: a.placement in ("attention", "feed-forward"),
        ),
    )


@arguments
class _Training:
    recipe: SkillRecipeArguments = group(SkillRecipeArguments)
    skills: _Skills = group(_Skills)
    output: Path = option("Folder for checkpoints and the model.", required=True, type=folder_type)
    dev: tuple[Path, ...] = option(
        "Task of KILT to validate on, by mean R-precision over all passages of --index, instead of held-out"
        " queries. Repeat the option for several tasks.",
        metavar="FILE",
    )
    index: Path | None = option("Index folder, for --dev.", type=folder_type)
    end: EndArguments = group(EndArguments)
    RULES = (
        Needs("--index", ("dev",)),
        Needs("--dev", ("index",)),
        Needs("--single", ("markers", "query_experts"), lambda a: a.skills.single),
        Needs("--span", ("spans",), lambda a: a.skills.span),
        Excludes(("held_out",), ("dev",)),
        Needs("another skill than --span", ("negatives",), lambda a: a.has_ranked_skill()),
    )

    def has_ranked_skill(self) -> bool:
        """Return whether a skill other than entity spans is trained."""
        return any(names for skill, names in vars(self.skills).items() if skill != "span")


@command("train-skills")
@takes(_Training)
def train_skills(training: _Training) -> None:
    """Train one encoder for several skills (Chain-of-Skills).

    The skills are single and expanded retrieval, entity spans, entity links and reranking; a skill is trained
    if it has a training file. Each batch comes from one file; the weights decide how often a file is drawn.
    The best model is written to OUTPUT/best, with the list of its skills.

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
