"""`sparta demo` builds the example index once, and leaves other indexes alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.start_commands import demo
from sparta.index.folder import IndexFolder, IndexState
from tests.cli.commands import done, hits_of, refused, written
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def few_passages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three passages take the place of the example corpus. Returns the working folder."""
    records = [json.loads(line) for line in (EXAMPLES / "wiki.jsonl").read_text().splitlines()]
    written(tmp_path / "wiki.jsonl", *sorted(records, key=lambda r: r["id"] != "google")[:3])
    monkeypatch.setattr(demo, "_corpus", lambda: tmp_path / "wiki.jsonl")
    monkeypatch.delenv("SPARTA_INDEX", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def next_commands(printed: str) -> list[str]:
    return [line.strip() for line in printed.partition("Next:")[2].splitlines() if line]


def test_the_installed_corpus_is_that_of_the_examples() -> None:
    installed = demo._corpus().parent  # noqa: SLF001 (what the command indexes)
    for name in ("wiki.jsonl", "questions.jsonl", "qrels.tsv"):
        assert (EXAMPLES / name).samefile(installed / name)


@pytest.mark.slow
def test_twice(few_passages: Path) -> None:
    first, second = done(sparta("demo")).stdout, done(sparta("demo")).stdout
    assert "sparta-index: 3 passages, " in first
    assert "sparta-index: up to date, 3 passages" in second
    for printed in (first, second):
        assert '$ sparta answer "who founded google"\n  Larry Page and Sergey Brin ' in printed
        shown = [command.split()[1] for command in next_commands(printed)]
        assert shown == ["search", "explain", "serve"]
    assert hits_of("who founded google", "--index", few_passages / "sparta-index")[0]["id"] == "google"


@pytest.mark.slow
def test_another_folder(few_passages: Path) -> None:
    printed = done(sparta("demo", "--index", "an index")).stdout
    assert {command.partition(" --index ")[2] for command in next_commands(printed)} == {'"an index"'}
    assert not (few_passages / "sparta-index").exists()


def test_another_index_stays_as_it_is(few_passages: Path) -> None:
    corpus = written(few_passages / "mine.jsonl", {"id": "1", "text": "google was founded by two students"})
    done(sparta("index", "--corpus", corpus, "--channels", "bm25"))
    before = (few_passages / "sparta-index" / "manifest.json").read_bytes()
    refused(
        sparta("demo"), 2, "an index of another input", "→ name a new folder: sparta demo --index demo-index"
    )
    assert (few_passages / "sparta-index" / "manifest.json").read_bytes() == before


@pytest.mark.slow
def test_an_interrupted_demo_continues(few_passages: Path) -> None:
    done(sparta("demo"))
    folder = IndexFolder(few_passages / "sparta-index")
    complete = folder.require_live()
    folder.write_state(IndexState(building=replace(complete, complete=False)))
    assert "3 passages" in done(sparta("demo")).stdout
    assert folder.require_live().complete
