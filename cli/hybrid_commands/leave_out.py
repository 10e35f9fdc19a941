"""`hybrid leave-out`: retrievers for tasks that they were not trained on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._arguments import filled, folder_type, number
from cli._fusion_options import notes, print_table, sample_option
from cli._options import form_option, index_option
from cli.dense_commands.train_skills import SkillRecipeArguments, recipe_options
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from hybrid.replications.leave_out import Task


@click.command("leave-out")
@click.option(
    "--data",
    "folders",
    multiple=True,
    required=True,
    type=folder_type,
    help="Folder with NAME.dev.jsonl and NAME.train.jsonl (or KILT's NAME-dev-kilt.jsonl); training files may"
    " lie in another, which comes first, and be what dense mine wrote (NAME.train.json).",
)
@click.option(
    "--task", "names", multiple=True, required=True, metavar="NAME", help="A task, such as fever or wow."
)
@index_option
@click.option("--output", required=True, type=folder_type, help="Folder for all models and measurements.")
@click.option(
    "--shots",
    metavar="N,…",
    default="128,1024",
    show_default=True,
    help="How many few examples are; '' for zero-shot alone.",
)
@number("--few-steps", default=100, text="Steps of training on few examples.")
@click.option(
    "--no-vanilla", "vanilla", flag_value=False, default=True, help="Not the encoder on few examples."
)
@click.option("--multi-task", is_flag=True, help="Also a model that is trained on all tasks.")
@click.option("--single-task", is_flag=True, help="Also a model for each task alone.")
@sample_option
@recipe_options
@click.option("--device", metavar="NAME", help="Device [default: the best there is].")
@click.option("--resume", is_flag=True, help="Go on with what --output has.")
@form_option
def leave_out(
    folders: tuple[Path, ...],
    names: tuple[str, ...],
    index: Path | None,
    output: Path,
    resume: bool,
    form: str,
    **given: Any,
) -> None:
    """Train a retriever without each task, then on few examples of it, and measure all on the task.

    Zero-shot and few-shot retrieval (Maillard et al., Table 5), beside bm25, impact and
    taser-det-en: R-precision and Recall@20 of pages and of passages. A task without training examples is
    measured zero-shot. Everything is kept in OUTPUT, and --resume does only what is not there.

    \b
    hybrid leave-out --data kilt --task fever --task trex --task wow --texts passages.jsonl \\
        --index sparta-index --encoder bert-base-uncased --output table5
    """  # noqa: D301 (click looks for the backspace)
    from dense.training.skill_train import SkillRecipe
    from hybrid.evaluation.results import results_table
    from hybrid.replications.leave_out import LeaveOut, leave_one_out
    from hybrid.replications.pool import TaskPool
    from sparta.index.folder import default_index
    from sparta.training.ranking import check_output

    filled(SkillRecipeArguments, given)  # its rules hold
    check_output(output, resume=resume)
    logging.getLogger("sparta").setLevel(logging.INFO)
    sample, shots = given.pop("sample"), _numbers(given.pop("shots"))
    own = {name: given.pop(name) for name in ("few_steps", "vanilla", "multi_task", "single_task")}
    tasks = _tasks(folders, names, given)
    plan = LeaveOut(SkillRecipe(**given), shots, **own)
    pool = TaskPool(index or default_index(), [task.dev for task in tasks], sample)
    found = leave_one_out(plan, tasks, pool, output)
    print_table(results_table(found, label="model"), form, notes(pool.sets, []))


def _tasks(folders: tuple[Path, ...], names: tuple[str, ...], given: dict[str, Any]) -> list[Task]:
    """Open the tasks; options that are theirs are taken out."""
    from dense.training.skill_data import SkillFile, read_skill_sets
    from hybrid.replications.files import dev_file, train_file
    from hybrid.replications.leave_out import Task

    chosen = {name: given.pop(name) for name in ("batch_size", "by_size", "largest")}
    texts = given.pop("texts")
    dev = [dev_file(folders[-1], name) for name in names]
    train = {name: path for name in names if (path := train_file(folders, name))}
    files = [SkillFile("single", path) for path in train.values()]
    tasks = given["markers"] or given["query_experts"]
    sets = dict(zip(train, read_skill_sets(files, texts, tasks=tasks, **chosen), strict=True))
    return [Task(name, path, sets.get(name)) for name, path in zip(names, dev, strict=True)]


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) > 1 for part in parts):
        raise InputError(f"expected --shots as numbers from 2 on, as in 128,1024, found {text!r}")
    return tuple(map(int, parts))
