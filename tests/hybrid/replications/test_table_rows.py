"""What the functions of tables measure, without models: rows, columns, data and trainings."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hybrid.evaluation.measures import Evaluation
from hybrid.evaluation.results import SetResults
from hybrid.replications.tables import collection, multi, sparta
from hybrid.replications.tables.catalog import TABLES
from hybrid.replications.tables.experiment import Experiment
from hybrid.replications.tables.table import Cut, Row

pytestmark = pytest.mark.usefixtures("own_logger")


@pytest.fixture
def experiment(tmp_path: Path) -> Callable[..., Experiment]:
    """An experiment on small files: a BEIR folder of sentences, training pairs, and open questions."""
    data = tmp_path / "data"
    folder = data / "reqa-squad-dev"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "p0", "title": "t", "text": "b"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q0", "text": "who", "answers": ["b"]}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tp0\t1\n")
    pairs = "".join(json.dumps({"question": f"q {n}", "positive": f"a text {n}"}) + "\n" for n in range(24))
    for name in ("train/squad_train_reqa.jsonl", "train/clapnq.jsonl"):
        (data / name).parent.mkdir(exist_ok=True)
        (data / f"{name}.gz").write_bytes(gzip.compress(pairs.encode()))
    (data / "wiki").mkdir()
    (data / "wiki" / "passages.jsonl.gz").write_text('{"_id": "w0", "title": "t", "text": "Lyon"}\n')
    for name in ("nq-dev.csv", "nq-test.csv"):
        (data / name).write_text("where\t['Lyon']\nwho\t['Ada']\n")
    (data / "kilt").mkdir()
    evidence = [{"passage_ids": ["w0"], "title": "t"}]
    for task in ("fever", "trex"):
        rows = [
            {"id": f"{task}{n}", "input": f"x {n}", "output": [{"answer": "y", "provenance": evidence}]}
            for n in range(9)
        ]
        for part in ("dev", "train"):
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (data / "kilt" / f"{task}.{part}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))

    def made(name: str, **cut: int) -> Experiment:
        return Experiment(
            table=TABLES[name], data=data, folder=tmp_path / "out" / name, cut=Cut(**cut), encoder="e"
        )

    return made


@pytest.mark.parametrize(("name", "sets"), [("sparta-4", [1]), ("sparta-5", [1, 2])])
def test_reqa_trains_on_each_choice_of_sets(
    name: str, sets: list[int], experiment: Callable[..., Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[tuple[str, int]] = []

    def train(data: Sequence[Any], recipe: Any, output: Path, *, resume: bool) -> Any:
        trained.append((output.name, len(data)))
        return SimpleNamespace(folder=output / "best")

    def evaluate_set(folder: Path, model: Any, *_: Any, dense: Sequence[Path], **options: Any) -> SetResults:
        means = {"impact": 0.5 if model is None else 0.8, "bm25": 0.3, **{str(path): 0.6 for path in dense}}
        return SetResults("x", [Evaluation(own, {"RR": {"q0": mean}}) for own, mean in means.items()])

    monkeypatch.setattr("sparta.training.train.train_model", train)
    monkeypatch.setattr("dense.training.train.train_dense", train)
    monkeypatch.setattr("sparta.models.load.load_model", lambda folder: folder)
    monkeypatch.setattr("hybrid.evaluation.evaluate.evaluate_set", evaluate_set)
    rows = {row.name: row for row in experiment(name).run()}
    suffixes = [""] if name == "sparta-4" else [" on SQuAD", " on SQuAD + NQ"]
    assert [n for _, n in trained] == [n for n in sets for _ in range(2)]
    assert len({folder for folder, _ in trained}) == len(trained), "each model has its folder"
    figures = {"BM25": 30.0, "SPARTA, shipped model": 50.0}
    figures |= {f"SPARTA{suffix}": 80.0 for suffix in suffixes}
    figures |= {f"Poly-Encoder{suffix}": 60.0 for suffix in suffixes}
    assert {own: row.figures["SQuAD"] for own, row in rows.items()} == pytest.approx(figures)
    last = rows[f"SPARTA{suffixes[-1]}"].data
    assert last.startswith("reqa-squad-dev for MultiReQA SQuAD; trained on train/squad_train_reqa.jsonl.gz")
    assert ("clapnq" in last) == (name == "sparta-5")


def test_sets_of_open_questions_share_one_collection(
    experiment: Callable[..., Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut collection has the passages of all sets, so no set is searched in the passages of another."""
    built: list[tuple[str, list[str], int]] = []

    def index_of(_: Any, name: str, corpora: Sequence[Path], sets: Sequence[Any], *more: Any) -> Path:
        built.append((name, [one.name for one in sets], len(corpora)))
        return Path("index")

    def answered(_: Path, questions: Any, column: str, language: str) -> dict[str, Any]:
        return {name: {f"{column} EM": float(len(questions.queries))} for name in ("SPARTA", "BM25")}

    monkeypatch.setattr(collection, "index_of", index_of)
    monkeypatch.setattr(sparta, "_answered", answered)
    rows: list[Row] = experiment("sparta-1", questions=1).run()
    assert built == [("NQ", ["nq-dev", "nq-test"], 1)] * 2
    assert [(row.name, row.figures) for row in rows] == [
        (name, {f"{column} EM": 1.0}) for column in ("NQ dev", "NQ test") for name in ("SPARTA", "BM25")
    ]


def test_confounders_are_mined_for_the_questions_within_the_cut(
    experiment: Callable[..., Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second mining reads the file of the first, from an index with the first model's vectors."""
    mined: list[tuple[str, str, int, bool]] = []
    vectors: list[str] = []
    trained: list[list[str]] = []

    def mine_index(index: Path, questions: Any, output: Path, *, channel: str, keep: bool, **_: Any) -> None:
        mined.append((channel, output.name, len(list(questions)), keep))
        output.write_text("[]")

    monkeypatch.setattr(multi, "_pool", lambda experiment: None)
    monkeypatch.setattr(multi, "_measured", lambda pool, model, device: {"FEV": model})
    monkeypatch.setattr(multi, "_recipe", lambda experiment: None)
    monkeypatch.setattr(multi, "_trained", lambda experiment, pool, name, sets, recipe: Path(name))
    monkeypatch.setattr(collection, "index_of", lambda *_, part, **more: Path(part))
    monkeypatch.setattr("dense.channel.sync.build_dense", lambda index, model, **_: vectors.append(model))
    monkeypatch.setattr("dense.training.mining.mine_index", mine_index)
    monkeypatch.setattr(
        "hybrid.replications.question_mining.mining_questions",
        lambda path, index: path.read_text().splitlines() if path.suffix == ".jsonl" else [path.name],
    )
    monkeypatch.setattr(
        "dense.training.skill_data.read_skill_sets",
        lambda files, *_, **more: trained.append([file.path.name for file in files]),
    )
    one = experiment("multi-7", questions=4)
    one.folder.mkdir(parents=True)
    multi.confounders(one)
    first, second = (
        [f"{task}.{channel}.train.json" for task in ("fever", "trex")] for channel in ("bm25", "dense")
    )
    assert trained == [first, first, second]
    assert vectors == ["BM25"]
    assert mined == [
        *(("bm25", name, 4, False) for name in first),
        *(("dense", name, 1, True) for name in second),
    ]
    assert [row.figures["FEV"] for row in one.rows()] == ["BM25", "BM25 + adv"]
