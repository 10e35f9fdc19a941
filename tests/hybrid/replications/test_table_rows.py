"""What the functions of tables measure, with small parts: rows, columns, data and trainings."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dense.models.bi_encoder import DenseConfig, DenseModel
from dense.training.mining import mine_index
from hybrid.evaluation.measures import Evaluation
from hybrid.evaluation.results import SetResults
from hybrid.replications.pool import TaskPool
from hybrid.replications.tables.catalog import TABLES
from hybrid.replications.tables.experiment import Experiment
from hybrid.replications.tables.parts import Parts
from hybrid.replications.tables.table import Cut, Row
from hybrid.replications.tables.two_hops import two_hops
from sparta.base.errors import InputError, ModelError
from sparta.index.inputs.options import IndexOptions
from sparta.index.reader import IndexReader
from sparta.neural.inputs import InputLayout
from sparta.reader.config import ReaderConfig
from sparta.reader.records import Span, Text

pytestmark = pytest.mark.usefixtures("own_logger")


def lines_of(records: Sequence[Any]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


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
    texts = ("where Lyon lies", "who Ada was", "what else there is")
    passages = [{"_id": f"w{n}", "title": "t", "text": text} for n, text in enumerate(texts)]
    (data / "wiki" / "passages.jsonl.gz").write_bytes(gzip.compress(lines_of(passages)))
    for name in ("nq-dev.csv", "nq-test.csv"):
        (data / name).write_text("where\t['Lyon']\nwho\t['Ada']\n")
    (data / "kilt").mkdir()
    evidence = [{"passage_ids": ["w0"], "title": "t"}]
    for task in ("fever", "trex"):
        rows = [
            {"id": f"{task}{n}", "input": f"who was {n}", "output": [{"answer": "y", "provenance": evidence}]}
            for n in range(9)
        ]
        for part in ("dev", "train"):
            (data / "kilt" / f"{task}.{part}.jsonl.gz").write_bytes(gzip.compress(lines_of(rows)))

    def made(name: str, parts: Parts, **cut: int) -> Experiment:
        folder = tmp_path / "out" / name
        return Experiment(
            table=TABLES[name], data=data, folder=folder, cut=Cut(**cut), encoder="e", parts=parts
        )

    return made


class SmallTrainings(Parts):
    """Trains nothing, and measures what the kind of model says."""

    def __init__(self) -> None:
        self.trained: list[tuple[str, int]] = []
        self.recipes: list[Any] = []
        self.sets: list[Any] = []

    def train(self, _training: Any, sets: Sequence[Any], recipe: Any, output: Path, **_: Any) -> Path:
        self.trained.append((output.name, len(sets)))
        self.recipes.append(recipe)
        self.sets += sets
        return output / "best"

    def mrr(self, _folder: Path, model: Path | None, dense: Sequence[Path]) -> SetResults:
        means = {"impact": 0.5 if model is None else 0.8, "bm25": 0.3, **{str(path): 0.6 for path in dense}}
        return SetResults("x", [Evaluation(own, {"RR": {"q0": mean}}) for own, mean in means.items()])


@pytest.mark.parametrize(("name", "sets"), [("sparta-4", [1]), ("sparta-5", [1, 2])])
def test_reqa_trains_on_each_choice_of_sets(
    name: str, sets: list[int], experiment: Callable[..., Experiment]
) -> None:
    parts = SmallTrainings()
    rows = {row.name: row for row in experiment(name, parts).run()}
    suffixes = [""] if name == "sparta-4" else [" on SQuAD", " on SQuAD + NQ"]
    assert [n for _, n in parts.trained] == [n for n in sets for _ in range(2)]
    assert len({folder for folder, _ in parts.trained}) == len(parts.trained), "each model has its folder"
    figures = {"BM25": 30.0, "SPARTA, shipped model": 50.0}
    figures |= {f"SPARTA{suffix}": 80.0 for suffix in suffixes}
    figures |= {f"Poly-Encoder{suffix}": 60.0 for suffix in suffixes}
    assert {own: row.figures["SQuAD"] for own, row in rows.items()} == pytest.approx(figures)
    last = rows[f"SPARTA{suffixes[-1]}"].data
    assert last.startswith("reqa-squad-dev for MultiReQA SQuAD; trained on train/squad_train_reqa.jsonl.gz")
    assert ("clapnq" in last) == (name == "sparta-5")


@pytest.mark.parametrize(
    ("cut", "lengths", "n_words"), [({}, (512, 512), 300), ({"steps": 4}, (256, 192), 128)]
)
def test_only_a_cut_training_has_shorter_inputs_than_the_papers(
    cut: dict[str, int], lengths: tuple[int, int], n_words: int, experiment: Callable[..., Experiment]
) -> None:
    parts = SmallTrainings()
    table = experiment("sparta-4", parts, **cut)
    pairs = [{"question": f"q {n}", "positive": f"This is sentence {n}."} for n in range(24)]
    pairs[0] |= {"context": " ".join(f"This is sentence {n}." for n in range(75)), "start": 0, "end": 19}
    table.path("squad-train").write_bytes(gzip.compress(lines_of(pairs)))
    table.run()
    assert {(recipe.max_length, recipe.train_length) for recipe in parts.recipes} == {lengths}
    longest = {max(len(text.text.split()) for text in data.paragraphs) for data in parts.sets}
    assert longest == {n_words}, "a longer text is split at its sentences"


def test_skills_train_for_the_papers_epochs_over_all_examples(
    experiment: Callable[..., Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Experiment, "period", lambda _, usual: usual)
    parts = SmallTrainings()
    table = experiment("cos-6", parts)
    evidence = [{"passage_ids": [name], "title": name} for name in ("w0", "w1")]
    output = [{"answer": "y", "provenance": evidence}]
    rows = [
        {"id": str(n), "input": f"who was {n}", "output": output, "meta": {"negatives": ["w2"]}}
        for n in range(9)
    ]
    for part in ("dev", "train"):
        path = table.data / "kilt" / f"multihop.{part}.jsonl.gz"
        path.write_bytes(gzip.compress(lines_of(rows)))
    with pytest.raises(ModelError):  # nothing was trained
        table.run()
    examples = [(data.skill, len(data.examples)) for data in parts.sets]
    assert examples == [("single", 9), ("expanded", 18), ("rerank", 9)]
    assert parts.recipes[0].steps == 40 * 36 // 192


class SmallModels(Parts):
    """Indexes of a small model, and a reader that takes the second word of each text."""

    config = ReaderConfig()

    def __init__(self, model: Path) -> None:
        self.model = model

    def build(self, path: Path, corpus: Path, options: IndexOptions) -> None:
        super().build(path, corpus, replace(options, model=str(self.model)))

    def reader(self, _language: str) -> Any:
        return self

    def read_all(
        self, _questions: Sequence[str], texts: Sequence[Sequence[Text]], _n: int
    ) -> Iterator[list[list[Span]]]:
        for texts_of_question in texts:
            words = [re.search(r" (\w+)", text.text) for text in texts_of_question]
            yield [[Span(i, *word.span(1), 1.0)] for i, word in enumerate(words) if word]


@pytest.mark.jvm
@pytest.mark.slow
def test_sets_of_open_questions_share_one_collection(
    experiment: Callable[..., Experiment], tiny_model_folder: Path
) -> None:
    """A cut collection has the passages of all sets, so no set is searched in the passages of another."""
    one = experiment("sparta-1", SmallModels(tiny_model_folder), questions=1, passages=2)
    for source, question in (("nq-dev", "where\t['Lyon']"), ("nq-test", "who\t['Ada']")):
        one.path(source).write_text(f"what\t['none']\n{question}\n")  # the cut keeps the second question
    rows: list[Row] = one.run()
    kept = [json.loads(line)["id"] for line in (one.folder / "NQ.jsonl").read_text().splitlines()]
    assert kept == ["w0", "w1"]
    assert [row.name for row in rows] == ["SPARTA", "BM25"] * 2
    figures = [row.figures for row in rows if row.name == "BM25"]
    assert figures == [
        {f"{column} {name}": 100.0 for name in ("EM", "F1", "answer recall@20")}
        for column in ("NQ dev", "NQ test")
    ]


@pytest.mark.jvm
def test_second_hops_need_questions_with_two_gold_passages(experiment: Callable[..., Experiment]) -> None:
    one = experiment("cos-6", Parts())
    shutil.copy(one.path("kilt-fever"), one.data / "kilt" / "multihop.dev.jsonl.gz")
    with pytest.raises(InputError, match="no question of 9 has two gold passages"):
        two_hops(one)


class GivenModels(Parts):
    """Trainings that come to a given model."""

    def __init__(self, model: Path) -> None:
        self.model, self.trained = model, list[list[tuple[str, int]]]()

    def train(self, _training: Any, sets: Sequence[Any], _recipe: Any, output: Path, **_: Any) -> Path:
        self.trained.append([(one.name, len(one.examples)) for one in sets])
        return Path(shutil.copytree(self.model, output, dirs_exist_ok=True))


@pytest.mark.jvm
@pytest.mark.slow
def test_confounders_are_mined_for_the_questions_within_the_cut(
    experiment: Callable[..., Experiment], make_tiny_model: Callable[..., Any], tmp_path: Path, calls: Any
) -> None:
    """The second mining reads the file of the first, from an index with the first model's vectors."""
    tiny = make_tiny_model()
    layout = InputLayout(use_title=True, use_context=True, answer_segment=0, max_length=64, overlap=8)
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout)).save_pretrained(tmp_path / "dense")
    parts = GivenModels(tmp_path / "dense")
    recorded = calls(TaskPool.measured_as, mine_index)
    one = experiment("multi-7", parts, questions=4)
    rows = one.run()
    first, second = (
        [(f"{task}.{channel}.train.json", 4) for task in ("fever", "trex")] for channel in ("bm25", "dense")
    )
    assert parts.trained == [first, first, second]
    models = [str(one.folder / "models" / name) for name in ("bm25", "bm25-+-adv")]
    assert [call["name"] for name, call in recorded if name == "measured_as"] == models
    mined = [call for name, call in recorded if name == "mine_index"]
    assert [(call["options"].channel, call["output"].name, call["options"].keep) for call in mined] == [
        *(("bm25", name, False) for name, _ in first),
        *(("dense", name, True) for name, _ in second),
    ]
    with IndexReader(mined[-1]["index"], channels=None) as reader, reader.snapshot() as snapshot:
        assert snapshot.channel("dense").model_name == models[0]
    assert [row.name for row in rows] == ["BM25", "BM25 + adv"]
    assert all("FEV" in row.figures for row in rows)
