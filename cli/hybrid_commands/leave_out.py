"""`hybrid leave-out`: zero-shot and few-shot retrieval, task by task."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from cli._arguments import arguments, command, flag, folder_type, group, made, option, takes, whole
from cli._fusion_options import sample_option
from cli._options import device_option, form_option, index_option
from cli._output import notes, print_table
from cli.dense_commands.train_skills import SkillRecipeArguments
from sparta.base.checks import parse_numbers

if TYPE_CHECKING:
    from hybrid.replications.leave_out import Task


@arguments
class _LeaveOut:
    folders: tuple[Path, ...] = option(
        "Folder with NAME.dev.jsonl and NAME.train.jsonl, or KILT's NAME-dev-kilt.jsonl. Training files"
        " may lie in"
        " another folder, named first, and may come from dense mine (NAME.train.json).",
        "--data",
        required=True,
        type=folder_type,
    )
    names: tuple[str, ...] = option(
        "Task, such as fever or wow. Repeat the option for several.", "--task", required=True, metavar="NAME"
    )
    index: Path | None = index_option
    output: Path = option("Folder for all models and results.", required=True, type=folder_type)
    shots: str = option(
        "Numbers of examples for few-shot training; '' measures zero-shot only.",
        metavar="N,…",
        default="128,1024",
    )
    few_steps: int = whole(100, "Number of training steps on few examples.")
    vanilla: bool = option(
        "Do not train the plain encoder on few examples.", "--no-vanilla", flag_value=False, default=True
    )
    multi_task: bool = flag("Also train a model on all tasks.")
    single_task: bool = flag("Also train a model for each single task.")
    sample: int | None = sample_option
    recipe: SkillRecipeArguments = group(SkillRecipeArguments)
    device: str | None = device_option
    resume: bool = flag("Continue: keep finished models and results in --output.")
    form: str = form_option

    def tasks(self) -> list[Task]:
        """Return the tasks with their questions and training examples."""
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


@command("leave-out")
@takes(_LeaveOut)
def leave_out(chosen: _LeaveOut) -> None:
    """Measure zero-shot and few-shot retrieval, task by task.

    For each task, trains a retriever on all other tasks (zero-shot), then also on few examples of the task
    (few-shot), and measures both beside bm25, impact and taser-det-en: R-precision and Recall@20 of pages and
    passages (Maillard et al., Table 5). A task without training examples is measured zero-shot only. OUTPUT
    keeps all models and results, and --resume computes only the missing ones.

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
    shots = parse_numbers(chosen.shots, "shots", least=2) if chosen.shots.strip() else ()
    plan = made(LeaveOut, chosen, recipe=recipe, shots=shots)
    tasks = chosen.tasks()
    pool = TaskPool(chosen.index or default_index(), [task.dev for task in tasks], chosen.sample)
    results = leave_one_out(plan, tasks, pool, chosen.output)
    print_table(results_table(results, label="model"), chosen.form, notes(pool.sets, []))
