"""`sparta info`, hits of many queries as JSON, standard output as a file, and what is said before torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import sparta

pytestmark = pytest.mark.jvm
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def index(tmp_path_factory, tiny_model_folder) -> Path:
    folder = tmp_path_factory.mktemp("info")
    records = [
        {"id": "a", "title": "Moon", "text": "the moon of the earth", "year": 1969},
        {"id": "b", "text": "king of germany"},
    ]
    (folder / "c.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (folder / "q.tsv").write_text("q1\tmoon\nq2\tking\n")
    given = [
        "--corpus",
        folder / "c.jsonl",
        "--model",
        tiny_model_folder,
        "--index",
        folder / "ix",
        "--quiet",
    ]
    assert sparta("index", *given).exit_code == 0
    return folder / "ix"


def test_info(index: Path) -> None:
    found = json.loads(sparta("info", "--index", index, "--json").stdout)
    assert (found["passages"], found["unit"], found["codec"], found["generation"]) == (
        2,
        "passage",
        "fast",
        1,
    )
    lucene = index / "sparta-000001"
    assert found["bytes"] == {"impact,bm25": sum(p.stat().st_size for p in lucene.iterdir())}
    shown = sparta("info", "--index", index).stdout
    assert "passages    2\n" in shown
    assert f"source      {index.parent / 'c.jsonl'}" in shown
    assert sparta("info", "--index", index / "none").exit_code == 2


def test_hits_of_many_queries_as_json(index: Path, tmp_path: Path) -> None:
    output = tmp_path / "hits.jsonl"
    queries = index.parent / "q.tsv"
    given = ["search", "--queries", queries, "--index", index, "-k", "1", "--json"]
    assert sparta(*given, "--output", output).exit_code == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(r["query_id"], r["rank"], r["id"]) for r in rows] == [("q1", 1, "a"), ("q2", 1, "b")]
    assert (rows[0]["title"], rows[0]["text"], rows[0]["metadata"]) == (
        "Moon",
        "the moon of the earth",
        {"year": 1969},
    )
    assert sparta(*given, "--output", "-").stdout == output.read_text()


def test_a_run_on_standard_output(index: Path, tmp_path: Path) -> None:
    given = ["search", "--queries", index.parent / "q.tsv", "--index", index]
    assert sparta(*given, "--output", tmp_path / "run.trec").exit_code == 0
    result = sparta(*given, "--output", "-")
    assert result.stdout == (tmp_path / "run.trec").read_text()
    assert not Path("-").exists()
    exported = sparta("export", "--format", "pyserini-json", "--output", "-", "--index", index)
    assert [json.loads(line)["id"] for line in exported.stdout.splitlines()[:2]] == ["a", "b"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["encode", "--corpus", "c.jsonl", "--output", "there"], "output folder already contains files"),
        (["encode", "--corpus", "gone.jsonl", "--output", "new"], "no such file"),
        (["eval", "there"], "expected a BEIR folder"),
        (["eval", "c.csv"], "found c.csv"),
    ],
)
def test_what_a_look_at_a_path_tells_is_said_before_torch(
    tmp_path: Path, command: list[str], said: str
) -> None:
    (tmp_path / "c.jsonl").write_text('{"id": "a", "text": "moon"}\n')
    (tmp_path / "c.csv").write_text("id,text\n")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "manifest.json").write_text("{}")
    code = "import sys, cli._sparta as c\ntry: c.main()\nfinally: print('torch' in sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code, *command],
        cwd=tmp_path,
        env={**__import__("os").environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, said in ended.stderr, ended.stdout) == (2, True, "False\n"), ended.stderr
