"""A command does not write over what it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import Program, dense, hybrid, sparta

SEARCH = ["search", "--queries", "q.tsv", "--output", "./q.tsv"]
COMMANDS = [
    (sparta, SEARCH, "--queries"),
    (dense, SEARCH, "--queries"),
    (hybrid, SEARCH, "--queries"),
    (sparta, ["answer", "--queries=q.tsv", "--output=q.tsv"], "--queries"),
    (sparta, ["eval", "--run", "b.run", "--qrels", "q.tsv", "--per-query", "q.tsv"], "--qrels"),
    (sparta, ["eval", "beir", "--per-query", "beir/queries.jsonl"], "an argument"),
    (hybrid, ["eval", "--dataset", "beir", "--per-query", "beir/qrels/test.tsv"], "--dataset"),
    (hybrid, ["eval", "--dataset", "beir/queries.jsonl", "--plot", "link.tsv"], "--dataset"),
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("beir/qrels").mkdir(parents=True)
    for name in ("q.tsv", "b.run", "beir/queries.jsonl", "beir/qrels/test.tsv"):
        Path(name).write_text("mine")
    Path("link.tsv").symlink_to("beir/queries.jsonl")


@pytest.mark.parametrize(("program", "arguments", "other"), COMMANDS)
def test_what_is_read_is_not_written_over(program: Program, arguments: list[str], other: str) -> None:
    result = program(*arguments)
    assert result.exit_code == 2
    assert f"names the same file as {other}" in result.stderr
    assert Path("q.tsv").read_text() == Path("beir/qrels/test.tsv").read_text() == "mine"


def test_other_files_are_no_matter() -> None:
    """A new file, one of an earlier run, and a question that no file can be called."""
    for given in (["x" * 5000, "--output", "q.tsv"], ["--queries", "q.tsv", "--output", "b.run"]):
        result = sparta("search", *given)
        assert "names the same file as" not in result.stderr
