"""`dense train-skills`: one encoder for several skills."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._numbers import HIGHEST_SEED, Finite
from cli._options import Decorator, choice, folder_type, number, options, typed
from cli._training import end_options, refuse_unused, report, typed_command
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from dense.training.skill_data import SkillFile

_WHAT = {
    "single": "Questions and passages: KILT's rows, pairs, DPR's JSON.",
    "expanded": "Questions that go on from a passage: KILT's rows of several, paragraphs with links.",
    "span": "Texts with entities: paragraphs or table rows with links, rows with [START_ENT] and [END_ENT].",
    "link": "Entities and the pages that they mean: the same files.",
    "rerank": "Questions, passages and negatives: KILT's rows, pairs, DPR's JSON.",
}


def _skill(name: str) -> Decorator:
    return click.option(f"--{name}", multiple=True, metavar="FILE[=WEIGHT]", help=_WHAT[name])


skill_options = options(*map(_skill, _WHAT))


recipe_options = options(
    click.option(
        "--encoder",
        metavar="FOLDER|ID",
        required=True,
        help="Pretrained encoder to begin with, or a model that dense train or this command made.",
    ),
    click.option(
        "--texts",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Passages that the files name, by their ids or titles.",
    ),
    choice(
        "--placement",
        values=["attention", "feed-forward", "none"],
        text="Where the experts are: attention matrices, feed-forwards, or nowhere: one encoder for all.",
    ),
    choice(
        "--assignment",
        values=["paper", "naive", "pretraining"],
        text="Which expert reads what: the paper's six, expanded queries with single ones, or the four of"
        " pretraining.",
    ),
    number("--period", default=2, text="Every N-th layer has experts."),
    choice(
        "--pooling", values=["cls", "mean"], text="A text is the state of [CLS], or the mean of its tokens'."
    ),
    click.option("--cosine", is_flag=True, help="Cosine instead of the dot product of vectors as they are."),
    click.option(
        "--markers",
        is_flag=True,
        help="Put the class of its task (by the name of its file) before a question.",
    ),
    click.option(
        "--query-experts", is_flag=True, help="Give each class of tasks an expert of its own for questions."
    ),
    click.option("--by-size", is_flag=True, help="Draw batches in proportion to the files' examples."),
    click.option(
        "--largest",
        type=click.IntRange(1),
        metavar="N",
        help="With --by-size: a file of more examples counts as N, so that it does not drown the others.",
    ),
    number("--steps", default=1100, text="Steps of training."),
    number(
        "--batch-size", default=16, least=2, text="Queries of a batch; each is of one skill and one file."
    ),
    number("--accumulate", default=1, text="Batches whose gradients make one step."),
    number("--negatives", default=1, text="Hard negatives of a query."),
    number("--spans", default=30, text="Spans of a text that are no entities."),
    number("--max-length", default=256, least=16, text="Wordpieces that the model reads at once."),
    number("--question-length", default=64, least=3, text="Wordpieces that are read of a question."),
    click.option(
        "--learning-rate",
        type=Finite(0, min_open=True),
        default=5e-5,
        show_default=True,
        help="Highest learning rate; ten times that for the span layer.",
    ),
    click.option(
        "--dropout",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.0,
        show_default=True,
        help="Dropout of the encoder in training.",
    ),
    number("--held-out", default=100, least=0, text="Held-out queries of each file, for validation."),
    number("--validate-every", default=200, text="Steps between validations."),
    click.option("--checkpoint-every", type=click.IntRange(1), default=200, hidden=True),
    number("--seed", default=13, least=0, most=HIGHEST_SEED, text="Seed of everything random."),
)
"""How one encoder is trained for several skills or tasks."""


@click.command("train-skills")
@recipe_options
@skill_options
@click.option("--output", required=True, type=folder_type, help="Folder for checkpoints and the model.")
@click.option(
    "--dev",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Validate on these tasks of KILT, over all passages of --index, instead: mean R-precision.",
)
@click.option("--index", type=folder_type, help="With --dev: the index folder.")
@end_options
def train_skills(
    texts: tuple[Path, ...],
    output: Path,
    batch_size: int,
    by_size: bool,
    largest: int | None,
    dev: tuple[Path, ...],
    index: Path | None,
    resume: bool,
    **given: Any,
) -> None:
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

    needed = [(option, "--by-size") for option in typed("largest") if not by_size]
    needed += [(option, "--index") for option in typed("dev") if not index]
    needed += [(option, "--dev") for option in typed("index") if not dev]
    needed += [(option, "--single") for option in typed("markers", "query_experts") if not given["single"]]
    needed += [(option, "--span") for option in typed("spans") if not given["span"]]
    needed += [(option, "held-out examples and not --dev") for option in typed("held_out") if dev]
    ranked = any(given[name] for name in _WHAT if name != "span")
    needed += [(option, "another skill than --span") for option in typed("negatives") if not ranked]
    refuse_unused([*needed, *without_experts(given)])
    files = _files({name: given.pop(name) for name in _WHAT})
    logging.getLogger("sparta").setLevel(logging.INFO)
    tasks = given["markers"] or given["query_experts"]
    sets = read_skill_sets(files, texts, batch_size, by_size=by_size, largest=largest, tasks=tasks)
    validation = None
    if index:
        from hybrid.replications.pool import IndexValidation, TaskPool

        validation = IndexValidation(TaskPool(index, dev))
    command = typed_command()
    report(train(sets, SkillRecipe(**given), output, resume=resume, command=command, validation=validation))


def without_experts(given: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the typed options of experts that have no effect, with what they need."""
    alone = given["placement"] == "none"
    return [(o, "another --placement than none") for o in typed("period", "assignment") if alone]


def _files(named: dict[str, tuple[str, ...]]) -> list[SkillFile]:
    from dense.training.skill_data import SkillFile
    from sparta.training.paragraphs import name_and_weight

    files = []
    for skill, names in named.items():
        for name in names:
            path, weight = name_and_weight(name, "FILE")
            files.append(SkillFile(skill, Path(path), weight))
    if not files:
        wanted = ", ".join(f"--{name}" for name in named)
        raise InputError(f"expected one of {wanted}, found none", remedy="name a file for at least one skill")
    return files
