"""The tables of Multi-task Retrieval: page and passage R-precision on KILT's tasks, downstream answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.replications.tables.experiment import Experiment
from hybrid.replications.tables.table import Figures, PaperTable, rows_of

if TYPE_CHECKING:
    from dense.training.skill_examples import SkillSet
    from dense.training.skill_train import SkillRecipe
    from hybrid.replications.pool import TaskPool

SHIPPED = "multi-task-bge-small-en"
TASKS = {
    "FEV": ("kilt-fever", "fever"),
    "AY2": ("kilt-linking", "linking", "aidayago2"),
    "T-REx": ("kilt-trex", "trex"),
    "zsRE": ("kilt-zsre", "zsre", "structured_zeroshot"),
    "NQ": ("kilt-nq", "nq"),
    "HoPo": ("kilt-hotpot", "multihop", "hotpotqa"),
    "TQA": ("kilt-trivia", "triviaqa"),
    "WoW": ("kilt-wow", "wow"),
}
"""The tasks: the name of the dev data, and the names of the training files."""
PAGE, PASSAGE = "page_Rprec", "passage_Rprec"
BATCH, SMALL_BATCH = 128, 16
LARGEST = 80_000
"""The largest number of examples of a task that weigh in a batch's draw (§4.1)."""
MOST_STEPS = 80 * 500_000 // BATCH


def retrieval(experiment: Experiment) -> None:
    """Measure table 3: R-precision of BM25, the shipped model, a multi-task model and single-task models.

    A model of a single task is measured on all tasks, so the table has its off-diagonal.
    """
    pool, label = _pool(experiment), _label(experiment)
    shipped = {"BM25": "bm25", "Multi-task, shipped model": SHIPPED}
    for name, model in shipped.items():
        experiment.row(name, label, partial(_measured, pool, model, experiment.device))
    sets = _training_sets(experiment)
    for name, chosen in {"Multi-task": list(sets.values()), **{k: [v] for k, v in sets.items()}}.items():

        def measure(name: str = name, chosen: Sequence[SkillSet] = chosen) -> Figures:
            folder = _trained(experiment, pool, name, chosen, _recipe(experiment))
            return _measured(pool, str(folder), experiment.device)

        experiment.row(name, label, measure)


def few_shots(experiment: Experiment) -> None:
    """Measure table 5: models trained on the other tasks, then on few examples of the task."""
    from hybrid.replications.leave_out import LeaveOut, Task, leave_one_out

    pool, label, sets = _pool(experiment), _label(experiment), _training_sets(experiment)
    columns = [column for column in TASKS if experiment.located(TASKS[column][0])]
    names = {"zero-shot": "Zero-shot", "bm25": "BM25"}
    for n in _shots(sets):
        names |= {f"{n} examples": f"Finetune ({n})", f"vanilla, {n} examples": f"Vanilla, finetune ({n})"}

    def measure() -> Mapping[str, Figures]:
        recipe = _recipe(experiment)
        plan = LeaveOut(recipe, shots=_shots(sets), few_steps=max(1, recipe.steps // 10), multi_task=True)
        tasks = [Task(column, experiment.path(TASKS[column][0]), sets.get(column)) for column in columns]
        figures: dict[str, dict[str, Any]] = {}
        results = leave_one_out(plan, tasks, pool, experiment.folder / "leave-out")
        for column, of_task in zip(columns, results, strict=True):
            for evaluation in of_task.evaluations:
                if evaluation.name in names:
                    row = figures.setdefault(names[evaluation.name], {})
                    row |= _cells(column, evaluation.per_query)
        return dict(figures)

    experiment.measure(list(names.values()), label, measure)


def _shots(sets: Mapping[str, SkillSet]) -> list[int]:
    """Return the paper's numbers of examples that some task has."""
    most = max((len(data.examples) for data in sets.values()), default=0)
    return [n for n in (128, 1024) if n <= most]


def variants(experiment: Experiment) -> None:
    """Measure table 6: one model for all tasks, with markers, and with a query encoder per class of tasks."""
    pool, label, sets = _pool(experiment), _label(experiment), _training_sets(experiment, tasks=True)
    changes: dict[str, dict[str, Any]] = {
        "Base": {},
        "Task markers": {"markers": True},
        "Task-spec. enc.": {"query_experts": True},
    }
    for name, change in changes.items():

        def measure(name: str = name, change: dict[str, Any] = change) -> Figures:
            folder = _trained(experiment, pool, name, list(sets.values()), _recipe(experiment, **change))
            return _measured(pool, str(folder), experiment.device)

        experiment.row(name, label, measure)


def confounders(experiment: Experiment) -> None:
    """Measure table 7: negatives of BM25, and further negatives that the first model ranks high."""
    from dense.training.skill_data import SkillFile, read_skill_sets

    pool, label = _pool(experiment), _label(experiment)

    def trained(name: str, files: Sequence[Path]) -> Path:
        skill_files = [SkillFile("single", path) for path in files]
        sets = read_skill_sets(skill_files, (), _batch(experiment), by_size=True, largest=LARGEST)
        return _trained(experiment, pool, name, sets, _recipe(experiment))

    def by_bm25() -> Path:
        return trained("BM25", _mined(experiment, "bm25", None))

    def measure_bm25() -> Figures:
        return _measured(pool, str(by_bm25()), experiment.device)

    def measure_both() -> Figures:
        folder = trained("BM25 + adv", _mined(experiment, "dense", by_bm25()))
        return _measured(pool, str(folder), experiment.device)

    experiment.row("BM25", label, measure_bm25)
    experiment.row("BM25 + adv", label, measure_both)


def _mined(experiment: Experiment, channel: str, model: Path | None) -> list[Path]:
    """Return the training files with mined negatives; the second mining keeps those of the first.

    The index gets the model's vectors.
    """
    from dense.channel.sync import build_dense
    from dense.training.mining import MiningOptions, mine_index
    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.question_mining import mining_questions
    from hybrid.replications.tables.collection import index_of, kilt_texts

    paths = [_sampled_file(experiment, path) for path in _training_files(experiment).values()]
    sets = [questions_of(path) for path in paths]
    index = index_of(experiment, "kilt", kilt_texts(experiment), sets, "bm25", part="training")
    if model:
        build_dense(index, str(model), overwrite=True, device=experiment.device)
    files = []
    for path in paths:
        first = experiment.folder / f"{path.name.partition('.')[0]}.bm25.train.json"
        mined = first.with_name(first.name.replace("bm25", channel))
        if not mined.exists():
            questions = mining_questions(path if channel == "bm25" else first, index)
            options = MiningOptions(channel=channel, depth=20, negatives=5, keep=bool(model))
            mine_index(index, questions, mined, options)
        files.append(mined)
    return files


def _sampled_file(experiment: Experiment, path: Path) -> Path:
    """Return a training file with the number of questions within the cut, of a file in KILT's format."""
    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.tables.collection import sampled
    from sparta.base.disk.streams import numbered_lines
    from sparta.base.files import atomic_write, plain_name

    if experiment.cut.questions is None:
        return path
    target = experiment.folder / plain_name(path.name)
    if not target.exists():
        kept = {query.query_id for query in sampled(questions_of(path), experiment).queries}
        lines = [line for _, line in numbered_lines(path) if str(json.loads(line)["id"]) in kept]
        atomic_write(target, b"".join(line.rstrip() + b"\n" for line in lines))
    return target


def downstream(experiment: Experiment) -> None:
    """Measure table 4: answers of a sequence-to-sequence model that reads the three best passages."""
    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.downstream import solve_task
    from hybrid.replications.solvers import open_solver
    from hybrid.replications.tables.collection import sampled
    from hybrid.retrieval.searcher import open_retriever

    pool = _pool(experiment)
    for column in TASKS:
        located = experiment.located(TASKS[column][0])
        if located is None:
            continue
        questions = sampled(questions_of(located.path), experiment)

        def measure(column: str = column, questions: Any = questions) -> Figures:
            with open_retriever(pool.index, "bm25") as retriever:
                solver = open_solver(retriever, "generated", experiment.encoder, experiment.device)
                output = experiment.folder / f"{column}.jsonl"
                results = solve_task(questions, pool.index, retriever, solver, output, resume=True)
            [evaluation] = results.evaluations
            return {f"{column} {name}": 100 * evaluation.mean(name) for name in ("accuracy", "EM", "F1")}

        experiment.row(f"BM25 + {Path(str(experiment.encoder)).name}", located.label, measure)


def _pool(experiment: Experiment) -> TaskPool:
    """Return the tasks of the data and the passages of KILT, within the cut."""
    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.pool import TaskPool
    from hybrid.replications.tables.collection import index_of, kilt_texts, sampled

    paths = [located.path for source, *_ in TASKS.values() if (located := experiment.located(source))]
    sets = [sampled(questions_of(path), experiment) for path in paths]
    index = index_of(experiment, "kilt", kilt_texts(experiment), sets, "bm25")
    return TaskPool(index, paths, experiment.cut.questions)


def _label(experiment: Experiment) -> str:
    located = (experiment.located(source) for source, *_ in TASKS.values())
    return "; ".join(item.label for item in located if item)


def _measured(pool: TaskPool, model: str, device: str | None) -> Figures:
    """Return page and passage R-precision of each task, as one cell as in the paper."""
    figures: dict[str, Any] = {}
    evaluations = pool.measured_as(model, device)
    for column, (_, *names) in TASKS.items():
        for task, evaluation in evaluations.items():
            if any(task.startswith(name) for name in names):
                figures |= _cells(column, evaluation.per_query)
    return figures


def _cells(column: str, per_query: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return one cell, `page/passage` in percent, from the measures of each query."""
    means = [
        f"{100 * sum(values.values()) / len(values):.2f}"
        for measure in (PAGE, PASSAGE)
        if (values := per_query.get(measure))
    ]
    return {column: "/".join(means)}


def _training_files(experiment: Experiment) -> dict[str, Path]:
    """Return the training files by column; a task without a file is missing."""
    from hybrid.replications.files import train_file

    folders = [experiment.data / "kilt", experiment.data]
    files: dict[str, Path] = {}
    for column, (_, *names) in TASKS.items():
        for name in names:
            if column not in files and (path := train_file(folders, name)):
                files[column] = path
    return files


def _training_sets(experiment: Experiment, *, tasks: bool = False) -> dict[str, SkillSet]:
    """Return the training examples by column."""
    from dense.training.skill_data import SkillFile, read_skill_sets
    from hybrid.replications.tables.collection import kilt_texts

    files = _training_files(experiment)
    sets = read_skill_sets(
        [SkillFile("single", path) for path in files.values()],
        kilt_texts(experiment),
        _batch(experiment),
        by_size=True,
        largest=LARGEST,
        tasks=tasks,
    )
    return dict(zip(files, sets, strict=True))


def _batch(experiment: Experiment) -> int:
    return SMALL_BATCH if experiment.cut.steps else BATCH


def _recipe(experiment: Experiment, **changes: Any) -> SkillRecipe:
    """Return the paper's recipe (§4.1): two separate encoders for queries and passages."""
    from dense.training.skill_train import SkillRecipe

    steps = experiment.cut.steps or MOST_STEPS
    return SkillRecipe(
        encoder=str(experiment.encoder),
        steps=steps,
        learning_rate=2e-5 if experiment.cut.steps is None else 1e-4,
        dropout=0.1,
        placement="encoder",
        validate_every=max(1, steps // 4),
        seed=experiment.seed,
        device=experiment.device,
        **changes,
    )


def _trained(
    experiment: Experiment, pool: TaskPool, name: str, sets: Sequence[SkillSet], recipe: SkillRecipe
) -> Path:
    """Train a model, or continue or keep a started training; return the folder of the best model.

    The best model has the highest mean R-precision of the tasks over all passages, as in the paper (§4.1).
    """
    from dense.training.skill_train import train_skills
    from hybrid.replications.pool import IndexValidation

    folder = experiment.folder / "models" / name.lower().replace(" ", "-")
    best = IndexValidation(pool)
    return experiment.parts.train(train_skills, sets, recipe, folder, validation=best)


_COLUMNS = ", ".join(TASKS)
_DEV_DATA = tuple(source for source, *_ in TASKS.values())
_CHOICE = "The questions of the table also choose the best checkpoint, as in the paper."
_EQUAL = (
    "A cut collection has few pages with two passages, so the figures of pages and passages are often equal."
    " Our data for AY2 name passages too."
)

TABLES = (
    PaperTable(
        name="multi-3",
        number="3",
        title="Page/passage R-precision of multi-task and single-task models",
        figures=rows_of(
            _COLUMNS,
            {
                "Multi-task": (
                    *("74.72/46.96", "83.78", "69.18/53.54", "77.23/41.70"),
                    *("61.51/28.80", "44.21/38.42", "61.95/24.56", "39.70/24.07"),
                ),
                "BM25": (
                    *("50.13/40.06", "3.47", "58.60/51.64", "66.43/52.98"),
                    *("25.83/14.20", "43.95/38.38", "29.44/16.16", "27.50/18.41"),
                ),
                "FEV": (
                    *("73.60/43.92", "5.62", "19.50/10.02", "42.88/19.98"),
                    *("36.69/18.05", "23.18/17.59", "45.08/22.24", "41.27/19.85"),
                ),
                "AY2": (
                    *("47.36/37.58", "81.77", "5.52/4.08", "8.94/5.50"),
                    *("10.22/6.77", "11.69/10.71", "15.11/8.47", "17.59/13.08"),
                ),
                "T-REx": (
                    *("45.63/25.22", "1.05", "69.08/58.54", "71.64/40.95"),
                    *("17.10/8.71", "22.31/15.63", "18.10/8.06", "4.02/1.83"),
                ),
                "zsRE": (
                    *("70.10/33.12", "0.42", "68.34/57.40", "97.74/78.81"),
                    *("25.98/13.81", "22.23/18.35", "28.68/14.44", "10.40/2.09"),
                ),
                "NQ": (
                    *("68.16/14.81", "1.44", "31.78/7.20", "61.12/12.92"),
                    *("63.24/28.13", "29.39/11.33", "48.39/14.42", "30.77/11.81"),
                ),
                "HoPo": (
                    *("56.18/40.03", "2.07", "35.76/27.62", "44.44/31.15"),
                    *("35.60/23.26", "46.63/43.47", "41.18/29.37", "23.51/16.02"),
                ),
                "TQA": (
                    *("70.06/10.68", "4.95", "32.22/12.52", "60.37/17.43"),
                    *("45.01/12.97", "32.62/13.05", "65.12/23.79", "41.17/8.11"),
                ),
                "WoW": (
                    *("59.16/42.79", "3.11", "20.92/18.52", "41.14/35.26"),
                    *("33.27/22.52", "20.36/17.66", "39.37/23.15", "40.32/20.73"),
                ),
            },
        ),
        measure=retrieval,
        sources=("kilt-passages",),
        any_of=_DEV_DATA,
        trains=True,
        gaps=(_CHOICE, _EQUAL),
    ),
    PaperTable(
        name="multi-4",
        number="4",
        title="Downstream: answers of a sequence-to-sequence model",
        figures=rows_of(
            "FEV accuracy, AY2 accuracy, zsRE accuracy, NQ EM, HoPo EM, TQA EM, WoW F1",
            {
                "Multi-task + BART": (86.32, 82.61, 57.95, 39.75, 31.77, 59.60, 15.33),
                "DPR + BART": (86.74, 75.49, 30.43, 41.27, 25.18, 58.55, 15.55),
                "RAG": (86.31, 72.62, 44.74, 44.39, 26.97, 71.27, 13.22),
                "T5": (76.30, 74.05, 9.02, 19.60, 12.64, 18.11, 13.49),
            },
        ),
        measure=downstream,
        sources=("kilt-passages",),
        any_of=_DEV_DATA,
        trains=True,
        gaps=("The encoder of this table is a sequence-to-sequence model, such as a fine-tuned BART.",),
    ),
    PaperTable(
        name="multi-5",
        number="5",
        title="Zero-shot and few-shot page/passage R-precision",
        figures=rows_of(
            _COLUMNS,
            {
                "BM25": (
                    *("50.13/40.06", "3.47", "58.60/51.64", "66.43/52.98"),
                    *("25.83/14.20", "43.95/38.38", "29.44/16.16", "27.50/18.41"),
                ),
                "Zero-shot": (
                    *("74.11/37.09", "4.16", "67.54/44.84", "73.42/32.65"),
                    *("47.23/21.50", "34.72/16.52", "49.08/28.06", "36.92/16.19"),
                ),
                "Finetune (128)": (
                    *("75.95/32.75", "32.38", "67.54/44.84", "73.41/32.65"),
                    *("47.48/14.98", "34.72/27.82", "54.71/19.82", "48.36/17.46"),
                ),
                "Finetune (1024)": (
                    *("73.08/40.83", "70.40", "67.54/44.84", "93.04/58.67"),
                    *("51.00/19.90", "39.19/35.43", "59.08/20.22", "47.65/19.75"),
                ),
                "Vanilla, finetune (128)": (
                    *("37.99/25.31", "26.23", "0.20/0.02", "0.16/0.00"),
                    *("20.92/9.52", "14.46/14.08", "26.85/10.54", "30.31/17.20"),
                ),
                "Vanilla, finetune (1024)": (
                    *("70.87/47.82", "72.49", "0.20/0.02", "90.33/80.20"),
                    *("43.43/19.81", "30.75/30.50", "52.50/17.33", "44.70/24.92"),
                ),
            },
        ),
        measure=few_shots,
        sources=("kilt-passages",),
        any_of=_DEV_DATA,
        trains=True,
        gaps=(
            "Held-out training questions choose the best checkpoint, except in trainings on few examples.",
            "Trainings on 128 and 1,024 examples take a tenth of the steps.",
            _EQUAL,
        ),
    ),
    PaperTable(
        name="multi-6",
        number="6",
        title="Variants of the multi-task model: page/passage R-precision",
        figures=rows_of(
            "FEV, NQ, TQA",
            {
                "Base": ("76.38/40.76", "60.91/24.50", "64.77/21.75"),
                "Task markers": ("75.84/40.79", "62.31/25.10", "64.04/20.86"),
                "Task-spec. enc.": ("73.53/40.02", "61.05/25.52", "64.17/21.23"),
            },
        ),
        measure=variants,
        sources=("kilt-passages",),
        any_of=_DEV_DATA,
        trains=True,
        gaps=(_CHOICE, _EQUAL, "Our task markers are words before the question, not new tokens."),
    ),
    PaperTable(
        name="multi-7",
        number="7",
        title="Adversarial confounders: page/passage R-precision",
        figures=rows_of(
            _COLUMNS,
            {
                "BM25": (
                    *("74.72/46.96", "83.78", "69.18/53.54", "77.23/41.70"),
                    *("61.51/28.80", "44.21/38.42", "61.95/24.56", "39.70/24.07"),
                ),
                "BM25 + adv": (
                    *("74.79/52.12", "84.86", "71.36/61.40", "80.04/54.08"),
                    *("59.25/40.11", "44.08/41.04", "59.19/34.17", "41.04/24.62"),
                ),
            },
        ),
        measure=confounders,
        sources=("kilt-passages",),
        any_of=_DEV_DATA,
        trains=True,
        gaps=(
            _CHOICE,
            _EQUAL,
            "With a cut, the models learn from as many questions per task as the cut says. Negatives are"
            " passages that these questions need, or that BM25 ranks best for them.",
        ),
    ),
)
