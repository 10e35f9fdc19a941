"""`hybrid leave-out`: retrievers for tasks that they were not trained on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli._arguments import arguments, flag, folder_type, group, made, option, takes, whole
from cli._fusion_options import notes, print_table, sample_option
from cli._options import device_option, form_option, index_option
from cli.dense_commands.train_skills import SkillRecipeArguments
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from hybrid.replications.leave_out import Task


@arguments
class _LeaveOut:
    folders: tuple[Path, ...] = option(
        "Folder with NAME.dev.jsonl and NAME.train.jsonl (or KILT's NAME-dev-kilt.jsonl); training files may"
        " lie in another, which comes first, and be what dense mine wrote (NAME.train.json).",
        "--data",
        required=True,
        type=folder_type,
    )
    names: tuple[str, ...] = option("A task, such as fever or wow.", "--task", required=True, metavar="NAME")
    index: Path | None = index_option
    output: Path = option("Folder for all models and measurements.", required=True, type=folder_type)
    shots: str = option(
        "How many few examples are; '' for zero-shot alone.", metavar="N,…", default="128,1024"
    )
    few_steps: int = whole(100, "Steps of training on few examples.")
    vanilla: bool = option("Not the encoder on few examples.", "--no-vanilla", flag_value=False, default=True)
    multi_task: bool = flag("Also a model that is trained on all tasks.")
    single_task: bool = flag("Also a model for each task alone.")
    sample: int | None = sample_option
    recipe: SkillRecipeArguments = group(SkillRecipeArguments)
    device: str | None = device_option
    resume: bool = flag("Go on with what --output has.")
    form: str = form_option

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of few examples."""
        parts = [part.strip() for part in self.shots.split(",") if part.strip()]
        if not all(part.isdecimal() and int(part) > 1 for part in parts):
            raise InputError(f"expected --shots as numbers from 2 on, as in 128,1024, found {self.shots!r}")
        return tuple(map(int, parts))

    def tasks(self) -> list[Task]:
        """Open the tasks."""
        from dense.training.skill_data import SkillFile, read_skill_sets
        from hybrid.replications.files import dev_file, train_file
        from hybrid.replications.leave_out import Task

        recipe = self.recipe
        dev = [dev_file(self.folders[-1], name) for name in self.names]
        train = {name: path for name in self.names if (path := train_file(self.folders, name))}
        sets = read_skill_sets(
            [SkillFile("single", path) for path in train.values()],
            recipe.texts,
            recipe.batch_size,
            by_size=recipe.by_size,
            largest=recipe.largest,
            tasks=recipe.markers or recipe.query_experts,
        )
        examples = dict(zip(train, sets, strict=True))
        return [Task(name, path, examples.get(name)) for name, path in zip(self.names, dev, strict=True)]


@click.command("leave-out")
@takes(_LeaveOut)
def leave_out(chosen: _LeaveOut) -> None:
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

    check_output(chosen.output, resume=chosen.resume)
    logging.getLogger("sparta").setLevel(logging.INFO)
    recipe = made(SkillRecipe, chosen.recipe, device=chosen.device)
    plan = made(LeaveOut, chosen, recipe=recipe, shots=chosen.numbers)
    tasks = chosen.tasks()
    pool = TaskPool(chosen.index or default_index(), [task.dev for task in tasks], chosen.sample)
    results = leave_one_out(plan, tasks, pool, chosen.output)
    print_table(results_table(results, label="model"), chosen.form, notes(pool.sets, []))
