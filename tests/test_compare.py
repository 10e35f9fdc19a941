"""`hybrid` on an index: channels, their fusion, tuning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli._hybrid import main
from cli._sparta import main as sparta_main
from hybrid.fusion import Fusion
from sparta.base.records import ScoredPassage
from sparta.base.trec import read_run, write_run
from sparta.search import Searcher

pytestmark = pytest.mark.jvm

PASSAGES = {
    "google": "larry page and sergey brin founded google in a small house",
    "moon": "the moon of the earth",
    "king": "the king of germany was west of the sun",
    "city": "paris is a large city",
    "house": "a small house in the city of the king",
}
QUESTIONS = [
    {"_id": "1", "text": "who founded google", "answers": ["Larry Page"]},
    {"_id": "2", "text": "the earth and the moon", "answers": ["of the earth"]},
    {"_id": "3", "text": "king of the city", "answers": ["nowhere"]},
    {"_id": "4", "text": "not asked"},
]
QRELS = "query-id\tcorpus-id\tscore\n1\tgoogle\t1\n2\tmoon\t1\n3\thouse\t1\n"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def folder(tmp_path: Path, write_jsonl: Callable[..., Path], tiny_model_folder: Path) -> Path:
    """A corpus with questions beside it, and its index."""
    write_jsonl(tmp_path / "wiki.jsonl", [{"id": i, "text": t} for i, t in PASSAGES.items()])
    write_jsonl(tmp_path / "questions.jsonl", QUESTIONS)
    (tmp_path / "qrels.tsv").write_text(QRELS)
    arguments = ["index", "--corpus", tmp_path / "wiki.jsonl", "--index", tmp_path / "index", "--quiet"]
    arguments += ["--model", tiny_model_folder]
    result = CliRunner().invoke(sparta_main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return tmp_path


def rankings(folder: Path, question: str) -> dict[str, list[ScoredPassage]]:
    found = {}
    for channel in ("sparta", "bm25"):
        with Searcher(folder / "index", channel=channel) as searcher:
            found[channel] = [ScoredPassage(h.docid, h.score) for h in searcher.search(question, 100)]
    return found


def test_eval_with_the_questions_beside_the_corpus(folder: Path) -> None:
    result = run("eval", "--alpha", "1.2", "--index", folder / "index", "--format", "json")
    assert result.exit_code == 0, result.output
    rows = {row["channel"]: row for row in json.loads(result.stdout)}
    assert list(rows) == ["sparta", "bm25", "hybrid"]
    right = {"1": "google", "2": "moon", "3": "house"}
    for name, row in rows.items():
        ranks = []
        for question in QUESTIONS[:3]:
            found = rankings(folder, question["text"])
            fused = Fusion.with_alpha("sparta", 1.2).fuse(found)
            order = [p.passage_id for p in (fused if name == "hybrid" else found[name])]
            gold = right[question["_id"]]
            ranks.append(1 / (1 + order.index(gold)) if gold in order else 0)
        assert row["RR"] == pytest.approx(100 * sum(ranks) / 3)
        assert row["answer_recall@20"] == pytest.approx(200 / 3)
        assert row["ms a question"] > 0
    text = run("eval", "--alpha", "1.2", "--index", folder / "index").stdout
    assert text.splitlines()[-1].startswith("score = sparta + 1.2·bm25; scores min-max centred")


def test_an_index_without_questions(folder: Path) -> None:
    (folder / "questions.jsonl").unlink()
    result = run("eval", "--alpha", "1.2", "--index", folder / "index")
    assert result.exit_code == 2
    assert "--dataset" in result.stderr
    result = run("eval", "--index", folder / "none")
    assert result.exit_code == 2


def test_a_dataset_is_named(folder: Path, tmp_path: Path, write_jsonl: Callable[..., Path]) -> None:
    other = tmp_path / "beir"
    (other / "qrels").mkdir(parents=True)
    (other / "qrels" / "test.tsv").write_text(QRELS)
    write_jsonl(other / "queries.jsonl", [{"_id": q["_id"], "text": q["text"]} for q in QUESTIONS])
    result = run(
        "eval", "--dataset", other, "--index", folder / "index", "--format", "csv", "--method", "rrf"
    )
    assert result.exit_code == 0, result.output
    header, *rows = result.stdout.splitlines()
    assert header == "set,channel,RR,nDCG@10,p,ms a question"
    assert len(rows) == 3
    mixed = run("eval", "--dataset", tmp_path, "--dataset", other, "--index", folder / "index")
    assert mixed.exit_code == 0, mixed.output
    assert "answer_recall@20" in mixed.stdout.splitlines()[0]
    (other / "queries.jsonl").unlink()
    assert "found neither" in run("eval", "--dataset", other, "--index", folder / "index").stderr


def test_runs_are_fused(folder: Path, tmp_path: Path) -> None:
    paths = []
    for channel in ("sparta", "bm25"):
        paths.append(tmp_path / f"{channel}.trec")
        found = [(q["_id"], rankings(folder, q["text"])[channel]) for q in QUESTIONS[:3]]
        write_run(paths[-1], found)
    given = ["--run", paths[0], "--run", paths[1], "--qrels", folder / "qrels.tsv"]
    result = run("eval", *given, "--alpha", "0.7", "--format", "json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["channel"] for row in rows] == ["sparta", "bm25", "hybrid"]
    runs = {p.stem: read_run(p) for p in paths}
    fused = Fusion({"sparta": 1.0, "bm25": 0.7}).fuse_runs(runs)
    right = {"1": "google", "2": "moon", "3": "house"}
    ranks = [1 / (1 + [p.passage_id for p in fused[q]].index(gold)) for q, gold in right.items()]
    assert rows[2]["RR"] == pytest.approx(100 * sum(ranks) / 3)
    foreign = tmp_path / "foreign.trec"
    write_run(foreign, [("x", [ScoredPassage("moon", 1.0)])])
    named = paths[0].rename(tmp_path / "hybrid.trec")
    for wrong in (
        ["--run", paths[1], "--qrels", folder / "qrels.tsv"],
        ["--run", named, "--run", paths[1]],
        ["--qrels", folder / "qrels.tsv"],
        ["--run", named, "--run", paths[1], "--qrels", folder / "qrels.tsv"],
        ["--run", paths[1], "--run", paths[1], "--qrels", folder / "qrels.tsv"],
        ["--run", paths[1], "--run", foreign, "--qrels", folder / "qrels.tsv"],
    ):
        result = run("eval", *wrong)
        assert (result.exit_code, "→" in result.stderr) == (2, True)


def test_search(folder: Path) -> None:
    result = run("search", "who founded google", "--index", folder / "index", "-k", "2", "--json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    found = rankings(folder, "who founded google")
    fused = Fusion.with_alpha("sparta", 1.0).fuse(found, 2)
    assert [(r["docid"], r["score"]) for r in rows] == [(p.passage_id, pytest.approx(p.score)) for p in fused]
    assert rows[0]["ranks"] == {"sparta": 1, "bm25": 1}
    assert rows[0]["text"] == PASSAGES["google"]
    assert "score = sparta + bm25" in run("search", "moon", "--index", folder / "index").stdout


def test_tune(folder: Path) -> None:
    result = run("tune", "--index", folder / "index", "--format", "json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["alpha"] for row in rows] == [f"{0.5 + 0.1 * i:.1f}" for i in range(16)]
    best = [row for row in rows if row[""] == "best"]
    assert len(best) == 1
    assert best[0]["RR"] == max(row["RR"] for row in rows)
    (folder / "qrels.tsv").unlink()
    assert "expected judged passages to tune on" in run("tune", "--index", folder / "index").stderr
