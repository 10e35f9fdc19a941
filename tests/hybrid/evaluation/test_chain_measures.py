"""`hybrid eval --chain`: chains measured beside the channels of an index."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tqdm import tqdm

from hybrid.evaluation.measures import Evaluation, p_values
from hybrid.multihop.searcher import ChainSearcher
from sparta.data.trec import read_run
from sparta.data.units import chunk_unit
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from tests.programs import hybrid

pytestmark = pytest.mark.jvm
ROOT = Path(__file__).parents[3]
PASSAGES = [
    {"id": "book", "title": "Ulysses", "text": "Ulysses is a novel by James Joyce."},
    {"id": "writer", "title": "James Joyce", "text": "Dublin was home."},
    {"id": "film", "title": "Alien", "text": "Alien is a film by Ridley Scott about a ship."},
    {"id": "director", "title": "Ridley Scott", "text": "South Shields was home."},
    *(
        {"id": f"n{i}", "title": f"Novel {i}", "text": "a novel by a writer, born in a ship"}
        for i in range(30)
    ),
]
QUESTIONS = [
    ("q1", "where was the writer of Ulysses born", ["Dublin"], ["book", "writer"]),
    ("q2", "where is the director of the film Alien from", ["South Shields"], ["film", "director"]),
    ("q3", "what is Alien", ["a film"], ["film"]),
]


def kilt(query_id: str, text: str, answers: list[str], ids: list[str]) -> dict[str, Any]:
    provenance = [{"wikipedia_title": i, "passage_ids": [i]} for i in ids]
    return {
        "id": query_id,
        "input": text,
        "output": [{"answer": a, "provenance": provenance} for a in answers],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index for BM25, the questions in KILT's form, and as a BEIR folder."""
    folder = tmp_path_factory.mktemp("chains")
    build_index(folder / "ix", PASSAGES, options=IndexOptions(channels="bm25"))
    rows = "".join(json.dumps(kilt(*one)) + "\n" for one in QUESTIONS)
    (folder / "hops.jsonl").write_text(rows)
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    queries = [{"_id": q, "text": text} for q, text, _, _ in QUESTIONS]
    (beir / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    judged = [f"{q}\t{i}\t1\n" for q, _, _, ids in QUESTIONS for i in ids]
    (beir / "qrels" / "test.tsv").write_text("".join(["query-id\tcorpus-id\tscore\n", *judged]))
    return folder


def evaluated(folder: Path, dataset: str, *options: object, index: str = "ix") -> dict[str, dict[str, Any]]:
    given = [
        "eval",
        "--index",
        folder / index,
        "--dataset",
        folder / dataset,
        "--no-dense",
        "--format",
        "json",
    ]
    result = hybrid(*given, *options)
    assert result.exit_code == 0, result.output
    return {row["channel"]: row for row in json.loads(result.stdout)}


@pytest.mark.slow
def test_a_chain_stands_beside_the_channels(folder: Path, tmp_path: Path) -> None:
    written = ("--per-query", tmp_path / "each.jsonl", "--output-runs", tmp_path / "runs")
    rows = evaluated(folder, "hops.jsonl", "--chain", "hop", *written)
    assert list(rows) == ["bm25", "chain hop"]
    with ChainSearcher("hop", folder / "ix") as searcher:
        found = {q: searcher.find_paths(text, 100).paths for q, text, _, _ in QUESTIONS}
    assert [found[q][0].ids for q in ("q1", "q2")] == [("book", "writer"), ("film", "director")]
    chain = rows["chain hop"]
    assert chain["passage_EM"] == pytest.approx(200 / 3), "of q3 the best path has a passage too many"
    assert chain["path_recall@20"] == chain["passage_recall@20"] == chain["answer_recall@20"] == 100
    assert rows["bm25"]["passage_EM"] == pytest.approx(100 / 3)
    assert rows["bm25"]["path_recall@20"] is None
    assert chain["p (page_Rprec)"].endswith(("↑", "↓")) or float(chain["p (page_Rprec)"]) > 0.05
    each = [json.loads(line) for line in (tmp_path / "each.jsonl").read_text().splitlines()]
    of_chain = {one["query_id"]: one for one in each if one["ranking"] == "chain hop"}
    assert {q: one["passage_EM"] for q, one in of_chain.items()} == {"q1": 1, "q2": 1, "q3": 0}
    spent = [sum(one["ms"].values()) for one in of_chain.values()]
    assert chain["ms/query"] == pytest.approx(median(spent))
    assert [part.split()[0] for part in chain["ms/step"].split(" + ")] == list(of_chain["q1"]["ms"])
    run = read_run(tmp_path / "runs" / "hops-chain-hop.trec")
    assert [hit.passage_id for hit in run["q1"]][:2] == ["book", "writer"]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--chain", "hop", "--chain", "named"], (2 * len(QUESTIONS), None, 2 * len(QUESTIONS))),
        (["--chain", "hop", "--quiet"], (len(QUESTIONS), True, 0)),
        ([], (0, True, 0)),
    ],
)
def test_a_bar_of_the_questions_that_chains_are_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], shown: tuple[Any, ...]
) -> None:
    bars: list[Bar] = []

    class Bar(tqdm):  # type: ignore[type-arg]
        def __init__(self, **given: Any) -> None:
            self.given, self.on_a_terminal = given, given["disable"] is None
            super().__init__(**{**given, "disable": not self.on_a_terminal}, file=io.StringIO())
            bars.append(self)

    monkeypatch.setattr("tqdm.tqdm", Bar)
    evaluated(folder, "hops.jsonl", *options)
    assert [(bar.given["total"], bar.given["disable"], bar.n) for bar in bars] == [shown]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ["--measures", "P(rel=1,judged_only=True)@5,path_recall@5"],
            "the measure path_recall@5 applies only to chains: --chain is missing",
        ),
        (
            ["--measures", "path_recall@5"],
            "the measure path_recall@5 applies only to chains: --chain is missing",
        ),
        (["--measures", "path_recall@5", "--chain", "named"], "--measures passage_EM,path_recall@5"),
    ],
)
def test_channels_have_no_paths(folder: Path, more: list[str], said: str) -> None:
    given = ["eval", "--index", folder / "ix", "--dataset", folder / "beir", "--no-dense"]
    result = hybrid(*given, *more)
    assert result.exit_code == 2
    assert said in result.stderr
    remedy = result.stderr.split("→ ")[1].split()
    again = hybrid(*given, *remedy)
    assert again.exit_code == 0, again.output


def test_a_set_without_pages_needs_another_measure_of_channels(folder: Path) -> None:
    given = ["eval", "--index", folder / "ix", "--dataset", folder / "beir", "--no-dense", "--chain", "hop"]
    asked = ["--measures", "path_recall@5,page_Rprec"]
    result = hybrid(*given, *asked)
    assert "--measures path_recall@5," in result.stderr
    again = hybrid(*given, *result.stderr[result.stderr.index("--measures") :].split())
    assert again.exit_code == 0, again.output


def test_p_is_that_of_the_paired_test(folder: Path, tmp_path: Path) -> None:
    each = tmp_path / "each.jsonl"
    rows = evaluated(folder, "beir", "--chain", "hop", "--measures", "R@20,passage_EM", "--per-query", each)
    lines = [json.loads(line) for line in each.read_text().splitlines()]
    first = list(rows["bm25"])[2]
    values: dict[str, dict[str, float]] = {name: {} for name in rows}
    for one in lines:
        values[one["ranking"]][one["query_id"]] = one[first]
    own = {name: Evaluation(name, {first: found}) for name, found in values.items()}
    [p] = p_values(own["bm25"], [own["chain hop"]], first)
    assert rows["chain hop"][f"p ({first})"].startswith(f"{p:.3f}")
    assert rows["chain hop"]["passage_EM"] == pytest.approx(200 / 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--chain", "hop", "--chain", "hop"], "one name twice among hop, hop"),
        (["--chain", "nowhere.toml"], "no such file"),
        (["--chain", "hotpot"], "no dense channel"),
        (["--model", "skills"], "--model needs --chain"),
    ],
)
def test_refusals(folder: Path, options: list[str], said: str) -> None:
    given = ["eval", "--index", folder / "ix", "--dataset", folder / "hops.jsonl", "--no-dense", *options]
    result = hybrid(*given)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.slow
def test_a_kill_leaves_nothing_half_written(folder: Path, tmp_path: Path) -> None:
    """Killed while a chain is asked: no file is there, and the same command then writes all."""
    many = tmp_path / "many.jsonl"
    rows = [kilt(f"{q}-{n}", text, answers, ids) for n in range(2000) for q, text, answers, ids in QUESTIONS]
    many.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, began = tmp_path / "each.jsonl", tmp_path / "began"
    code = """
import pathlib, sys
from cli._hybrid import main
from hybrid.multihop.searcher import ChainSearcher
find_paths, began = ChainSearcher.find_paths, pathlib.Path(sys.argv.pop())
def told(*given):
    began.touch()
    return find_paths(*given)
ChainSearcher.find_paths = told
main(sys.argv[1:])
"""
    given = ["eval", "--index", folder / "ix", "--no-dense", "--chain", "hop", "--per-query", out]
    command = [sys.executable, "-c", code, *map(str, [*given, "--dataset", many, began])]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not began.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert began.exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["began", "many.jsonl"]
    evaluated(folder, "hops.jsonl", "--chain", "hop", "--per-query", out)
    assert len(out.read_text().splitlines()) == 2 * len(QUESTIONS)


def test_chains_on_documents_of_several_chunks(folder: Path) -> None:
    """A document that only the chain found is read, too, by its first chunk."""
    long = [{**one, "text": f"{one['text']} {' '.join(f'w{i}' for i in range(30))}"} for one in PASSAGES]
    options = IndexOptions(channels="bm25", unit=chunk_unit(10))
    build_index(folder / "chunks", long, options=options)
    rows = evaluated(folder, "hops.jsonl", "--chain", "hop", index="chunks")
    assert rows["chain hop"]["path_recall@20"] > 60
    assert rows["chain hop"]["answer_recall@20"] > 60
