"""Training that validates over an index, and models that know tasks, measured on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli._dense import main as dense_main
from dense.models.bi_encoder import DenseModel
from dense.models.skills import Skills
from hybrid.tasks.pool import IndexValidation, TaskPool
from tests.hybrid.tasks.conftest import Data

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread")]


def train(data: Data, encoder: Path, output: Path, *more: object) -> Any:
    command = ["train-skills", "--encoder", encoder, "--texts", data.corpus, "--output", output]
    command += ["--batch-size", 4, "--steps", 4, "--validate-every", 2, "--max-length", 32, *more]
    command += ["--single", data.folder / "fever.train.jsonl", "--single", data.folder / "trex.train.jsonl"]
    return CliRunner().invoke(dense_main, [*map(str, command), "--device", "cpu"])


def test_the_best_by_an_index(data: Data, encoder_folder: Path, tmp_path: Path) -> None:
    """Each figure in the log is what the model then has on the tasks, and the best of them is kept."""
    dev = [data.folder / f"{name}.dev.jsonl" for name in ("fever", "wow")]
    given = ["--markers", "--learning-rate", "1e-3", "--index", data.index, "--dev", dev[0]]
    output = tmp_path / "out"
    done = train(data, encoder_folder, output, *given, "--dev", dev[1])
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    figures = [line["validation"] for line in lines if "validation" in line]
    assert len(figures) == 2
    model = DenseModel.load(output / "best")
    assert IndexValidation(TaskPool(data.index, dev))(model) == pytest.approx(max(figures), abs=1e-6)
    card = (output / "best" / "README.md").read_text()
    assert "(mean page_Rprec of 2 tasks, 40 passages, in percent)" in card
    other = train(data, encoder_folder, output, "--resume", *given)
    assert "found another validation" in " ".join(other.output.split())
    assert train(data, encoder_folder, tmp_path / "x", "--dev", dev[0]).exit_code != 0
    largest = train(data, encoder_folder, tmp_path / "x", "--largest", 5)
    assert "expected --by-size with --largest" in largest.output


def test_questions_are_read_as_those_of_their_task(data: Data, encoder_folder: Path, tmp_path: Path) -> None:
    assert train(data, encoder_folder, tmp_path / "out", "--markers", "--held-out", 2).exit_code == 0
    pool = TaskPool(data.index, [data.folder / "fever.dev.jsonl"])
    model = Skills.open(tmp_path / "out").model
    [run] = pool.runs(model).values()
    query = pool.sets[0].queries[0]
    asked = model.encode_questions([f"fact checking: {query.text}"])[0]
    vectors = model.encode_passages(pool.passages)[:, 0]
    best = max(range(40), key=lambda i: float(asked @ vectors[i]))
    assert run[query.query_id][0].passage_id == pool.passages[best].passage_id
    assert run[query.query_id][0].score == pytest.approx(float(asked @ vectors[best]), rel=1e-5)
