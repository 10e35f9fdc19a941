"""Trains retrievers on all other tasks, then on few examples of a task (Maillard et al., Table 5)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dense.models.resolve import DEFAULT_DENSE_MODEL
from hybrid.evaluation.measures import Evaluation
from hybrid.evaluation.results import SetResults
from hybrid.replications.pool import TaskPool
from sparta.base.errors import InputError
from sparta.base.files import atomic_write, by_hash
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.training.options import check_same, settings_of

if TYPE_CHECKING:
    from dense.training.skill_examples import SkillSet
    from dense.training.skill_train import SkillRecipe

logger = logging.getLogger("sparta.hybrid")
MULTI, ZERO_SHOT, SINGLE, VANILLA = "multi-task", "zero-shot", "single-task", "vanilla"
DONE = "measured.json"


class Task(NamedTuple):
    """A task: its name, its dev file, and its training examples (None without)."""

    name: str
    dev: Path
    train: SkillSet | None


class Training(NamedTuple):
    """A training: its name in the table, its sets, and `after`, the training whose model it starts from."""

    name: str
    sets: Sequence[SkillSet]
    recipe: SkillRecipe
    after: str = ""

    @property
    def folder(self) -> str:
        """The name of the training's folder."""
        return self.name.replace(", ", "-").replace(" ", "-")

    def facts(self) -> dict[str, Any]:
        """Return the settings that must be equal for a stored measurement to be reused."""
        return {
            "recipe": settings_of(self.recipe),
            "sets": [[s.name, s.fingerprint(), s.weight] for s in self.sets],
        }


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """The trainings for each task.

    For each task: a model trained on all other tasks, that model trained further on `shots` examples of the
    task, and, with `vanilla`, the plain encoder trained on the same examples. `multi_task` adds one model for
    all tasks; it is also the zero-shot model of tasks without training examples. `single_task` adds a model
    for each single task (Table 3). All trainings share `recipe`; trainings on few examples take `few_steps`
    steps.
    """

    recipe: SkillRecipe
    shots: Sequence[int] = (128, 1024)
    few_steps: int = 100
    vanilla: bool = True
    multi_task: bool = False
    single_task: bool = False

    def trainings(self, task: Task, tasks: Sequence[Task]) -> Iterator[Training]:
        """Yield the trainings for a task, in order."""
        others = [other.train for other in tasks if other.name != task.name and other.train is not None]
        if not others:
            raise InputError(f"no task besides {task.name} has training examples", remedy="name more tasks")
        yield Training(ZERO_SHOT, others, self.recipe)
        if task.train is None:
            return
        if self.single_task:
            yield Training(SINGLE, [task.train], self.recipe)
        few_shot_recipe = replace(
            self.recipe, steps=self.few_steps, held_out=0, validate_every=self.few_steps
        )
        for n in self.shots:
            if n > len(task.train.examples):
                logger.warning(
                    "the task %s has only %d examples, fewer than the %d shots",
                    task.name,
                    len(task.train.examples),
                    n,
                )
                continue
            sets = [few_of(task.train, n)]
            yield Training(f"{n} examples", sets, few_shot_recipe, after=ZERO_SHOT)
            if self.vanilla:
                yield Training(f"{VANILLA}, {n} examples", sets, few_shot_recipe)


def few_of(examples: SkillSet, n: int) -> SkillSet:
    """Return a fixed sample of a task's examples; a larger sample contains the smaller one."""
    ordered = by_hash(examples.examples, key=lambda example: example.query)
    return replace(examples, examples=tuple(ordered[:n]))


def leave_one_out(plan: LeaveOut, tasks: Sequence[Task], pool: TaskPool, output: Path) -> list[SetResults]:
    """Train and measure all models, and measure bm25, impact and taser-det-en; return a result per task.

    `output/TASK/TRAINING` holds each model and its measures. Finished models are kept, and an interrupted
    training continues.

    :param pool: the passages and questions on which the models are measured
    :raises InputError: the output holds models of other settings
    """
    # These two lines raise for bad settings and for a missing encoder now, not after hours.
    trainings_by_task = [list(plan.trainings(task, tasks)) for task in tasks]
    load_tokenizer(plan.recipe.encoder)
    shared_evaluations = [
        _kept(output / "shipped" / name, pool.facts, partial(pool.measured_as, name, plan.recipe.device))
        for name in (*pool.channels(), DEFAULT_DENSE_MODEL)
    ]
    if plan.multi_task:
        multi_task = Training(
            MULTI, [questions.train for questions in tasks if questions.train is not None], plan.recipe
        )
        shared_evaluations.append(_measured(output / MULTI, multi_task, pool))
    results = []
    for task, questions, trainings in zip(tasks, pool.sets, trainings_by_task, strict=True):
        evaluations = [measured[questions.name] for measured in shared_evaluations]
        for training in trainings:
            if plan.multi_task and task.train is None:  # zero-shot is then the multi-task model
                evaluations.append(replace(evaluations[-1], name=training.name))
                continue
            folder = output / task.name / training.folder
            evaluations.append(_measured(folder, training, pool, questions.name)[questions.name])
        results.append(SetResults(questions.name, evaluations))
    return results


def _measured(folder: Path, training: Training, pool: TaskPool, only: str = "") -> dict[str, Evaluation]:
    """Return the stored evaluations of a training, or train and measure its model now."""
    return _kept(folder, {**pool.facts, **training.facts()}, partial(_trained, folder, training, pool, only))


def _trained(folder: Path, training: Training, pool: TaskPool, only: str) -> Mapping[str, Evaluation]:
    """Train a model in `folder` and measure it on all tasks, or on the task `only`."""
    from dense.training.skill_train import train_skills

    logger.info("%s", folder)
    recipe = training.recipe
    if training.after:
        recipe = replace(recipe, encoder=str(folder.parent / training.after / "best"))
    train_skills(training.sets, recipe, folder, resume=True)
    evaluations = pool.measured_as(str(folder), recipe.device, only)
    return {task: replace(evaluation, name=training.name) for task, evaluation in evaluations.items()}


def _kept(
    folder: Path, facts: Mapping[str, Any], measure: Callable[[], Mapping[str, Evaluation]]
) -> dict[str, Evaluation]:
    """Return the evaluations by task from the folder's file; if the file is missing, measure and write it.

    :param facts: settings that must equal the settings in the file
    """
    path = folder / DONE
    facts = json.loads(json.dumps(facts))
    if not path.exists():
        evaluations = measure()
        folder.mkdir(parents=True, exist_ok=True)
        tasks = {
            task: {"name": evaluation.name, "per_query": evaluation.per_query}
            for task, evaluation in evaluations.items()
        }
        atomic_write(path, json.dumps({"facts": facts, "tasks": tasks}).encode())
    stored = json.loads(path.read_text(encoding="utf-8"))
    check_same(stored["facts"], facts, path)
    return {
        task: Evaluation(evaluation["name"], evaluation["per_query"])
        for task, evaluation in stored["tasks"].items()
    }
