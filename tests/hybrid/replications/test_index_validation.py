"""Training that validates over an index, and models that know tasks, measured on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dense.encoding.skills import Skills
from dense.models.bi_encoder import DenseModel
from hybrid.replications.pool import IndexValidation, TaskPool
from tests.hybrid.replications.conftest import Data
from tests.programs import dense

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread")]


def train(data: Data, encoder: Path, output: Path, *more: object) -> Any:
    command = ["train-skills", "--encoder", encoder, "--texts", data.corpus, "--output", output]
    command += ["--batch-size", 4, "--steps", 4, "--validate-every", 2, "--max-length", 32, *more]
    command += ["--single", data.folder / "fever.train.jsonl", "--single", data.folder / "trex.train.jsonl"]
    return dense(*command, "--device", "cpu")


@pytest.mark.slow
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
    assert "started training: validation" in " ".join(other.output.split())
    assert train(data, encoder_folder, tmp_path / "x", "--dev", dev[0]).exit_code != 0
    largest = train(data, encoder_folder, tmp_path / "x", "--largest", 5)
    assert "--largest needs --by-size" in largest.output


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


@pytest.mark.slow
def test_confounders_of_a_second_round(data: Data, encoder_folder: Path, tmp_path: Path) -> None:
    """§3.2: what the first model finds and is not the evidence stands behind what BM25 found."""
    index = shutil.copytree(data.index, tmp_path / "index")
    assert train(data, encoder_folder, tmp_path / "one", "--held-out", 2).exit_code == 0

    def run(*command: object) -> None:
        done = dense(*command, "--index", index)
        assert done.exit_code == 0, done.output

    run("index", "--model", tmp_path / "one")
    questions, first, second = data.folder / "fever.train.jsonl", tmp_path / "1.json", tmp_path / "2.json"
    common = ["--negatives", 3, "--with-answers", "--quiet"]
    run("mine", "--dataset", questions, "--output", first, "--channel", "bm25", *common)
    run("mine", "--dataset", first, "--output", second, "--channel", "dense", "--keep", *common)
    model = Skills.open(tmp_path / "one").model
    pool = TaskPool(data.index, [data.folder / "fever.dev.jsonl"])
    vectors = model.encode_passages(pool.passages, "fp32")[:, 0]
    for one, two in zip(json.loads(first.read_text()), json.loads(second.read_text()), strict=True):
        scores = model.encode_questions([two["question"]])[0] @ vectors.T
        score = {p.passage_id: float(s) for p, s in zip(pool.passages, scores, strict=True)}
        kept = [p["passage_id"] for p in one["hard_negative_ctxs"]]
        found = [p["passage_id"] for p in two["hard_negative_ctxs"]]
        assert found[: len(kept)] == kept
        gold = {p["passage_id"] for p in two["positive_ctxs"]}
        best = sorted((i for i in score if i not in gold), key=lambda i: -score[i])[:3]
        last = min(score[i] for i in best)
        assert all(score[i] > last - 0.05 * abs(last) for i in found[len(kept) :]), "as bf16 and fp16 tell"
        assert len(found) >= 3
    again = ["train-skills", "--encoder", encoder_folder, "--single", second, "--output", tmp_path / "two"]
    again += ["--steps", 1, "--batch-size", 4, "--max-length", 32, "--held-out", 2, "--device", "cpu"]
    done = dense(*again)
    assert done.exit_code == 0, done.output
