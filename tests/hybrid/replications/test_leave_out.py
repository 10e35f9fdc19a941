"""Leave-one-out training: what is trained on what, one table, killed and resumed, bad input."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dense.models.bi_encoder import DenseModel
from dense.training.skill_examples import SkillExample, SkillSet
from dense.training.skill_train import SkillRecipe
from hybrid.evidence.measures import PAGE_PRECISION
from hybrid.replications.files import train_file
from hybrid.replications.leave_out import LeaveOut, Task, few_of
from hybrid.replications.pool import TaskPool
from sparta.base.errors import InputError
from sparta.base.records import Passage
from tests.hybrid.replications.conftest import TASKS, Data
from tests.moments import at, ctrl_c
from tests.programs import hybrid

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread")]


def arguments(where: Data, encoder: Path, output: Path, **changes: Any) -> list[str]:
    options = {
        "data": where.folder,
        "texts": where.corpus,
        "index": where.index,
        "encoder": encoder,
        "output": output,
        "shots": "4,8",
        "steps": 3,
        "few-steps": 2,
        "batch-size": 4,
        "held-out": 2,
        "max-length": 32,
        "learning-rate": "1e-3",
        "device": "cpu",
        "format": "csv",
        **changes,
    }
    tasks = [part for task in TASKS for part in ("--task", task)]
    return ["leave-out", *tasks, *(part for name, v in options.items() for part in (f"--{name}", str(v)))]


@pytest.mark.slow
def test_the_whole_table_and_resumed(
    data: Data, encoder_folder: Path, tmp_path: Path, calls: Callable[..., list[Any]]
) -> None:
    output = tmp_path / "out"
    command = arguments(data, encoder_folder, output)
    with at("write", "log.jsonl", ctrl_c, nth=2):  # within the first training, before a checkpoint
        assert hybrid(*command).exit_code != 0
    assert (output / "fever" / "zero-shot" / "log.jsonl").exists()
    assert hybrid(*command).exit_code != 0, "the folder is in use"
    seen = calls(TaskPool.measured)
    with at("rename", "measured.json", ctrl_c, nth=3):
        assert hybrid(*command, "--resume").exit_code != 0
    assert len(seen) == 3
    found = hybrid(*command, "--resume", catch_exceptions=False)
    assert found.exit_code == 0, found.output
    rows = list(csv.DictReader(io.StringIO(found.stdout)))
    few = ["4 examples", "vanilla, 4 examples", "8 examples", "vanilla, 8 examples"]
    expected = [("fever.dev", few), ("trex.dev", few), ("wow.dev", [])]
    assert [(r["set"], r["model"]) for r in rows if not r["set"].startswith("mean")] == [
        (name, model) for name, own in expected for model in ("bm25", "taser-det-en", "zero-shot", *own)
    ]
    means = {r["model"]: r["set"] for r in rows if r["set"].startswith("mean")}
    assert (means["zero-shot"], means["4 examples"]) == ("mean", "mean of fever.dev, trex.dev")
    assert len(seen) == 5 + 5 + 1 + 1, "nothing but what was killed is measured twice"
    again = hybrid(*command, "--resume")
    assert again.stdout == found.stdout
    assert len(seen) == 12
    card = (output / "fever" / "zero-shot" / "best" / "README.md").read_text()
    assert "trex.train.jsonl" in card
    assert "fever" not in card.split("    ", 1)[0], "it is left out"
    other = hybrid(*arguments(data, encoder_folder, output, steps=4), "--resume")
    assert other.exit_code != 0
    assert "started training: recipe.steps" in " ".join(other.output.split())
    dev = data.folder / "fever.dev.jsonl"
    kept = dev.read_text()
    dev.write_text(kept.replace('"input": "', '"input": "so ', 1))
    assert dev.read_text() != kept
    asked = hybrid(*command, "--resume")
    dev.write_text(kept)
    assert "started training: tasks" in " ".join(asked.output.split())


@pytest.mark.slow
def test_a_task_without_examples_is_what_the_multi_task_model_never_saw(
    data: Data, encoder_folder: Path, tmp_path: Path
) -> None:
    command = arguments(data, encoder_folder, tmp_path / "out", shots="")
    found = hybrid(*command, "--multi-task", catch_exceptions=False)
    rows = [one for one in csv.DictReader(io.StringIO(found.stdout)) if one["set"] == "wow.dev"]
    assert [one.pop("model") for one in rows] == ["bm25", "taser-det-en", "multi-task", "zero-shot"]
    multi, zero = ([one["page_Rprec"], one["passage_Rprec"]] for one in rows[2:])
    assert multi == zero
    assert not (tmp_path / "out" / "wow").exists(), "it is not trained twice"
    assert [path.name for path in (tmp_path / "out" / "fever").iterdir()] == ["zero-shot"]


def test_a_pool_ranks_as_brute_force(data: Data, encoder_folder: Path) -> None:
    pool = TaskPool(data.index, [data.folder / "fever.dev.jsonl"])
    model = DenseModel.from_encoder(encoder_folder)
    [run] = pool.runs(model).values()
    passages = model.encode_passages(pool.passages)[:, 0]
    right = 0
    for query in pool.sets[0].queries:
        scores = model.encode_questions([query.text])[0] @ passages.T
        best = [pool.passages[i].passage_id for i in np.argsort(-scores, kind="stable")]
        assert [hit.passage_id for hit in run[query.query_id]] == best
        right += int(best[0][1:]) // 2 == int(query.query_id[6:]) // 2
    [evaluation] = pool.measured("x", {"fever.dev": run}).values()
    assert evaluation.mean(PAGE_PRECISION) == right / 6


def test_the_index_is_that_of_the_variable(
    data: Data, encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = arguments(data, encoder_folder, tmp_path / "out")
    without = command[: (at := command.index("--index"))] + command[at + 2 :]
    monkeypatch.setenv("SPARTA_INDEX", "elsewhere")
    for one in (without, ["tasks", "--dataset", str(data.folder / "trex.dev.jsonl")]):
        refused = hybrid(*one)
        assert (refused.exit_code, "elsewhere: there is no index here" in refused.stderr) == (2, True)


def test_models_measured_by_the_command(
    data: Data, encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DenseModel.from_encoder(encoder_folder).save_pretrained(tmp_path / "model")
    monkeypatch.setenv("SPARTA_INDEX", str(data.index))
    command = ["tasks", "--model", str(tmp_path / "model"), "--format", "json"]
    command += ["--dataset", str(data.folder / "trex.dev.jsonl"), "--per-query", str(tmp_path / "q.jsonl")]
    found = hybrid(*command, catch_exceptions=False)
    bm25, model = json.loads(found.stdout)
    assert (bm25["model"], model["model"]) == ("bm25", str(tmp_path / "model"))
    assert bm25["page_Rprec"] > 90, "questions have words of their passages alone"
    lines = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    own = [one["page_Rprec"] for one in lines if one["ranking"] == "bm25"]
    assert 100 * np.mean(own) == pytest.approx(bm25["page_Rprec"])
    assert len(lines) == 12


def test_what_is_trained_on_what() -> None:
    def examples(name: str) -> SkillSet:
        own = tuple(SkillExample(f"{name} {i}", (Passage("", "a"),)) for i in range(20))
        return SkillSet(name, "single", own)

    tasks = [
        Task("a", Path("a"), examples("a")),
        Task("b", Path("b"), examples("b")),
        Task("c", Path("c"), None),
    ]
    plan = LeaveOut(SkillRecipe(encoder="e"), (4, 8), single_task=True)
    trainings = {one.name: one for one in plan.trainings(tasks[0], tasks)}
    assert [s.name for s in trainings["zero-shot"].sets] == ["b"]
    assert [s.name for s in trainings["single-task"].sets] == ["a"]
    four, eight = ({e.query for e in trainings[f"{n} examples"].sets[0].examples} for n in (4, 8))
    assert (len(four), len(eight), four < eight) == (4, 8, True)
    assert trainings["4 examples"].after == "zero-shot"
    assert trainings["vanilla, 4 examples"].after == ""
    assert [one.name for one in plan.trainings(tasks[2], tasks)] == ["zero-shot"]
    assert [s.name for s in next(iter(plan.trainings(tasks[2], tasks))).sets] == ["a", "b"]
    with pytest.raises(InputError, match="no task besides a"):
        list(plan.trainings(tasks[0], tasks[:1]))
    assert few_of(examples("a"), 50) == few_of(examples("a"), 20)
    more = LeaveOut(SkillRecipe(encoder="e"), (20, 21), vanilla=False)
    assert [one.name for one in more.trainings(tasks[0], tasks)] == ["zero-shot", "20 examples"], "not 21"


def test_files(data: Data, tmp_path: Path) -> None:
    (tmp_path / "fever.train.json").write_text("[]")
    assert train_file([tmp_path, data.folder], "fever") == tmp_path / "fever.train.json"
    assert train_file([tmp_path, data.folder], "trex") == data.folder / "trex.train.jsonl"
    assert train_file([data.folder], "wow") is None


def test_bad_input(data: Data, encoder_folder: Path, tmp_path: Path) -> None:
    def said(**changes: Any) -> str:
        found = hybrid(*arguments(data, encoder_folder, tmp_path / "out", **changes))
        assert found.exit_code != 0
        return " ".join(found.output.split())

    assert "hover.dev.jsonl" in said(task="hover")
    assert "whole numbers from 2 " in said(shots="many")
    alone = [*arguments(data, encoder_folder, tmp_path / "out"), "--multi-task"]
    at = [i for i, one in enumerate(alone) if one == "--task"]
    del alone[at[1] : at[-1] + 2]
    assert "has training examples" in hybrid(*alone).output
    assert not (tmp_path / "out" / "shipped").exists(), "refused before hours of work"
    other = tmp_path / "other" / "fever.dev.jsonl"
    other.parent.mkdir()
    other.write_text((data.folder / "fever.dev.jsonl").read_text().replace("fever-", "other-"))
    with pytest.raises(InputError, match=r"two tasks have the same name: fever\.dev, fever\.dev"):
        TaskPool(data.index, [data.folder / "fever.dev.jsonl", other])
    bare = tmp_path / "bare"
    bare.mkdir()
    for task in TASKS:
        row = {"id": "1", "input": "who", "output": [{"answer": "x"}]}
        (bare / f"{task}.dev.jsonl").write_text(json.dumps(row))
    assert "file of the task has no provenance" in said(data=bare)
    nowhere = {"id": "1", "input": "who", "output": [{"provenance": [{"passage_ids": []}]}]}
    (bare / "fever.dev.jsonl").write_text(json.dumps(nowhere))
    assert "expected wikipedia_id, wikipedia_title or passage_ids" in said(data=bare)
