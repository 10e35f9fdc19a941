"""Tables of the papers: the list, the data on disk, cuts, rows that are kept, and the page."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from hybrid.replications.tables.catalog import TABLES
from hybrid.replications.tables.experiment import Experiment, state_of, stored_rows
from hybrid.replications.tables.sources import SOURCES, locate
from hybrid.replications.tables.table import Cut, Figures, PaperTable, Row
from sparta.base.errors import InputError
from sparta.data.trec import read_qrels
from tests.programs import hybrid

ROOT = Path(__file__).parents[3]
PAPER: dict[str, Figures] = {"BM25": {"SQuAD": 58.0, "NQ": 19.7}, "SPARTA": {"SQuAD": 78.5}}


def table(measure=lambda experiment: None, **fields) -> PaperTable:
    return PaperTable(name="sparta-0", number="0", title="A table", figures=PAPER, measure=measure, **fields)


def test_the_list_names_all_tables_and_their_data(tmp_path: Path) -> None:
    (tmp_path / "dev-v1.1.json").write_text("{}")
    listed = hybrid("replicate", "--data", tmp_path, "--output", tmp_path / "out", "--format", "json")
    rows = {row["table"]: row for row in json.loads(listed.output)}
    assert list(rows) == list(TABLES)
    assert rows["sparta-7"]["state"] == "ready"
    assert rows["sparta-2"]["state"].startswith("needs Chinese Wikipedia; CMRC 2018 dev or DRCD dev")
    assert rows["taser-a3"]["data"] == "none"


def test_all_data_of_tables_are_known() -> None:
    assert {name for each in TABLES.values() for name in (*each.sources, *each.any_of)} <= SOURCES.keys()


def test_the_json_of_hotpotqa_serves_only_the_table_of_supporting_sentences(tmp_path: Path) -> None:
    """It names no gold passages, which only KILT's files do."""
    for name in ("hotpot_dev_fullwiki_v1.json", "hotpot_train_v1.1.json", "kilt/passages-w100.jsonl.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    states = {
        name: state_of(TABLES[name], tmp_path, tmp_path / "out") for name in ("cos-4", "cos-6", "cos-a3")
    }
    assert states == {
        "cos-4": "needs KILT hotpotqa",
        "cos-6": "needs KILT hotpotqa; KILT hotpotqa train",
        "cos-a3": "ready",
    }
    for part in ("dev", "train"):
        (tmp_path / "kilt" / f"hotpotqa-{part}-kilt.jsonl").touch()
    assert state_of(TABLES["cos-6"], tmp_path, tmp_path / "out") == "ready"


def test_an_unknown_table_and_missing_data_are_refused(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        ended = hybrid("replicate", *words, "--output", tmp_path / "out")
        assert ended.exit_code
        return ended.output

    data = ["--data", str(tmp_path)]
    assert "no table has the name 'sparta-3'" in run("sparta-3", *data)
    assert "--data is missing" in run("sparta-7")
    assert "no data of MultiReQA SQuAD" in run("sparta-7", *data)
    assert "trains models, but no encoder is named" in run("sparta-4", *data)
    assert "--steps needs TABLE" in run("--steps", "3")


def test_published_data_come_before_those_that_stand_for_them(tmp_path: Path) -> None:
    assert locate(tmp_path, "reqa-squad") is None
    (tmp_path / "reqa-squad-dev").mkdir()
    substitute = locate(tmp_path, "reqa-squad")
    assert substitute is not None
    assert substitute.label == "reqa-squad-dev for MultiReQA SQuAD"
    (tmp_path / "MultiReQA" / "SQuAD").mkdir(parents=True)
    published = locate(tmp_path, "reqa-squad")
    assert published is not None
    assert published.label == "MultiReQA SQuAD"


def test_our_rows_stand_below_the_papers_and_gaps_stay_visible() -> None:
    rows = [
        Row("SPARTA", {"SQuAD": 80.0}, "a", "", 1.0, 10),
        Row("SPARTA", {"NQ": 70.0}, "b", "5 questions", 2.0, 20),
        Row("new", {"terms": 3}, "a"),
    ]
    lines = [list(line) for line in table().compared(rows).rows]
    assert lines == [
        ["BM25", "paper", 58.0, 19.7, None, "", ""],
        ["BM25", "ours", "not measured", None, None, "", ""],
        ["SPARTA", "paper", 78.5, None, None, "", ""],
        ["SPARTA", "ours", 80.0, 70.0, None, "a; b; 5 questions", "3 s, 20 MB"],
        ["new", "ours", None, None, 3, "a", "0 s, 0 MB"],
    ]


def test_an_interrupted_experiment_measures_the_missing_rows(tmp_path: Path) -> None:
    measured: list[str] = []

    def measure(experiment: Experiment) -> None:
        for name in ("BM25", "SPARTA"):

            def figures(name: str = name) -> Figures:
                measured.append(name)
                if measured == ["BM25", "SPARTA"]:
                    raise KeyboardInterrupt
                return {"SQuAD": 1.0}

            experiment.row(name, "data", figures)

    each = table(measure)
    experiment = Experiment(table=each, data=tmp_path, folder=tmp_path / "out")
    assert state_of(each, tmp_path, tmp_path / "out") == "ready"
    with pytest.raises(KeyboardInterrupt):
        experiment.run()
    assert state_of(each, tmp_path, tmp_path / "out") == "interrupted after 1 rows"
    assert [row.name for row in experiment.run()] == ["BM25", "SPARTA"]
    assert measured == ["BM25", "SPARTA", "SPARTA"]
    assert state_of(each, tmp_path, tmp_path / "out") == "measured"
    other = Experiment(table=each, data=tmp_path, folder=tmp_path / "out", seed=14)
    with pytest.raises(InputError, match=r"seed \(14, was 13\)"):
        other.run()
    assert len(stored_rows(tmp_path / "out")) == 2


def test_rows_of_another_encoder_or_other_data_are_refused(tmp_path: Path) -> None:
    """Also if both have the same name: each training of ours writes a folder `best`."""
    for run, text in (("a", "1"), ("b", "2")):
        (tmp_path / run / "best").mkdir(parents=True)
        (tmp_path / run / "best" / "config.json").write_text(text)
    each = table(lambda _: None)
    first, other = (
        Experiment(table=each, data=tmp_path, folder=tmp_path / "out", encoder=str(tmp_path / run / "best"))
        for run in "ab"
    )
    first.run()
    first.run()
    with pytest.raises(InputError, match="encoder"):
        other.run()


def test_a_cut_keeps_the_judged_passages(tmp_path: Path) -> None:
    folder = tmp_path / "reqa-squad-dev"
    (folder / "qrels").mkdir(parents=True)
    corpus = [
        {"_id": f"p{n}", "title": "t", "text": "b", "context": "a b", "start": 2, "end": 3} for n in range(9)
    ]
    queries = [{"_id": f"q{n}", "text": "who", "answers": ["b"]} for n in range(4)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(p) + "\n" for p in corpus))
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    lines = ["query-id\tcorpus-id\tscore", *(f"q{n}\tp{8 - n}\t1" for n in range(4))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    each = table()
    cut = Cut(questions=2, passages=5)
    experiment = Experiment(table=each, data=tmp_path, folder=tmp_path / "out", cut=cut)
    opened = experiment.test_set("reqa-squad")
    assert opened
    questions, path, label = opened
    judged = {p for relevant in questions.qrels.values() for p in relevant}
    kept = [json.loads(line) for line in (path / "corpus.jsonl").read_text().splitlines()]
    assert (len(questions.queries), len(kept), label) == (2, 5, "reqa-squad-dev for MultiReQA SQuAD")
    assert judged <= {p["_id"] for p in kept}
    assert kept[0]["context"] == "a b"
    assert read_qrels(path / "qrels" / "test.tsv") == questions.qrels
    assert str(cut) == "2 questions, 5 passages"


def test_the_page_is_that_of_the_measured_rows() -> None:
    page = "".join(runpy.run_path(str(ROOT / "scripts" / "replications.py"))["page"]())
    shown = (ROOT / "docs" / "replications.md").read_text(encoding="utf-8")
    assert shown == page, "a table changed: python scripts/replications.py"
