"""`sparta search --chain` and `sparta explain --chain`, on the question that the documents type."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import hybrid.multihop
from sparta.api import Index
from sparta.data.trec import read_run
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from tests.programs import sparta

pytestmark = pytest.mark.jvm
ROOT = Path(__file__).parents[2]
QUESTION = "In which town is the author of Frankenstein buried?"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example corpus for BM25 alone."""
    folder = tmp_path_factory.mktemp("examples")
    build_index(folder / "ix", ROOT / "examples" / "wiki.jsonl", options=IndexOptions(channels="bm25"))
    return folder / "ix"


def ran(index: Path, *command: object) -> Any:
    return sparta(*command, "--index", index)


def printed(index: Path, *command: object) -> str:
    result = ran(index, *command)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def typed(page: str, chain: str = "hop") -> list[list[str]]:
    """The commands of a page that ask for a chain."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    commands = [shlex.split(line) for line in lines if re.match(rf"sparta .*--chain {chain}( |$)", line)]
    assert commands
    return [command[1:] for command in commands]


@pytest.mark.parametrize("page", ["quickstart.md", "chains.md"])
def test_the_question_of_the_documents(index: Path, page: str) -> None:
    for command in typed(page):
        assert QUESTION in command
        shown = printed(index, *command)
        first, second = (line.strip() for line in shown.splitlines() if "→" in line)
        assert first.split("  ")[0] == "→ Frankenstein"
        assert second.split("  ")[0] == "→ Mary Shelley"
        assert "linked 1, second " in second
        assert second.endswith('"Mary Shelley")')
    single = json.loads(printed(index, "search", QUESTION, "--json", "-k", 2).splitlines()[1])
    assert single["id"] != "mary-shelley", "one retrieval does not find it"


@pytest.mark.slow
def test_the_shipped_reader_of_paths_answers_it(index: Path) -> None:
    commands = [one for one in typed("chains.md", "hop-read") if "--path-reader" not in one]
    assert [one[0] for one in commands] == ["answer", "search"]
    for command in commands:
        assert QUESTION in command
        shown = printed(index, *command)
        assert "Bournemouth" in shown.splitlines()[0]
        assert "Mary Shelley" in shown


def test_words_that_the_analyzer_leaves_out_are_not_marked(index: Path) -> None:
    shown = printed(index, *search("-k", "1"))
    assert "*author*" in shown
    assert not {"*is*", "*in*", "*the*", "*of*"} & set(shown.split())


def test_explained_is_the_best_path_that_holds_the_passage(index: Path) -> None:
    paths = [json.loads(line) for line in printed(index, *search(), "-k", 500, "--json").splitlines()]
    for passage_id in ("mary-shelley", "bournemouth"):
        best = next(path for path in paths if passage_id in [one["id"] for one in path["passages"]])
        assert json.loads(printed(index, "explain", QUESTION, passage_id, "--chain", "hop", "--json")) == best
    shown = printed(index, "explain", QUESTION, "mary-shelley", "--chain", "hop")
    assert shown.splitlines()[-1] == f"rank 1 of {len(paths)} paths"
    in_paths = {one["id"] for path in paths for one in path["passages"]}
    elsewhere = next(i for i in ("pi-number", "japan", "calculus") if i not in in_paths)
    shown = printed(index, "explain", QUESTION, elsewhere, "--chain", "hop")
    assert shown == f"{elsewhere} is in none of {len(paths)} paths\n"
    unknown = ran(index, "explain", QUESTION, "nobody", "--chain", "hop")
    assert (unknown.exit_code, "no passage with the id 'nobody'" in unknown.output) == (2, True)


@pytest.mark.slow
def test_sentences_are_read_in_their_passage(index: Path, tmp_path: Path) -> None:
    """By a reader of paths too; and a path holds a passage that it has a sentence of."""
    options = IndexOptions(channels="bm25", unit="sentence")
    build_index(tmp_path / "ix", ROOT / "examples" / "wiki.jsonl", options=options)
    given = json.loads(printed(tmp_path / "ix", "answer", QUESTION, "--chain", "hop-read", "--json"))
    with Index(index) as whole:
        passage = whole.passage(given["passage_id"].partition("#")[0])
    assert given["text"] == passage["text"]
    assert given["text"][given["start"] : given["end"]] == given["answer"]
    found = printed(tmp_path / "ix", "explain", QUESTION, "mary-shelley", "--chain", "hop")
    assert found.splitlines()[-1].startswith("rank ")


def search(*more: str) -> list[str]:
    return ["search", QUESTION, "--chain", "hop", *more]


def test_a_file_with_a_space_in_its_name_is_a_chain_too(index: Path, tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_text(f"1\t{QUESTION}\n2\twho founded google\n")
    shutil.copy(Path(hybrid.multihop.__file__).with_name("hop.toml"), tmp_path / "my hop.toml")
    given = ["search", "--queries", tmp_path / "q.tsv", "--chain", tmp_path / "my hop.toml", "-k", 5]
    printed(index, *given, "--output", tmp_path / "run.trec", "--threads", 2)
    printed(index, *given, "--output", tmp_path / "again.trec", "--threads", 1)
    lines = (tmp_path / "run.trec").read_text()
    assert {line.split()[-1] for line in lines.splitlines()} == {"sparta-my-hop"}
    assert lines == (tmp_path / "again.trec").read_text()


def test_many_questions_give_a_run(index: Path, tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_text(f"1\t{QUESTION}\n2\tzzz\n")
    output = tmp_path / "run.trec"
    printed(index, "search", "--queries", tmp_path / "q.tsv", "--output", output, "--chain", "hop", "-k", 5)
    run = read_run(output)
    assert [hit.passage_id for hit in run["1"]][:2] == ["frankenstein", "mary-shelley"]
    assert len(run["1"]) == 5
    assert "2" not in run
    assert (
        printed(index, "search", "zzz", "--chain", "hop")
        == "no path found: a step of the chain found no passage\n"
    )


def test_a_reader_reads_the_passages_of_the_paths(index: Path, encoder_folder: Path, tmp_path: Path) -> None:
    from sparta.reader.config import ReaderConfig
    from sparta.reader.span_reader import SpanReader

    SpanReader.from_encoder(encoder_folder, ReaderConfig()).save_pretrained(tmp_path / "reader")
    given = [
        "answer",
        QUESTION,
        "--chain",
        "hop",
        "--reader",
        tmp_path / "reader",
        "--depth",
        2,
        "-n",
        9,
        "--json",
    ]
    found = [json.loads(line) for line in printed(index, *given).splitlines()]
    assert found
    assert {one["passage_id"] for one in found} <= {"frankenstein", "mary-shelley"}


def test_another_channel_retrieves(index: Path) -> None:
    own, given = (printed(index, *search(*more)) for more in ((), ("--channel", "bm25")))
    assert own == given
    assert "impacts" in ran(index, *search("--channel", "impact")).output


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (search("--offset", "1"), "--chain cannot be combined with --offset"),
        (search("--filter", "lang=en"), "--chain cannot be combined with --filter"),
        (search("--hits", "chunks"), "--chain cannot be combined with --hits"),
        (["search", QUESTION, "--chain", ""], "the name of the chain is empty"),
        (["answer", QUESTION, "--chain", ""], "the name of the chain is empty"),
        (["search", QUESTION, "--chain", "{links}", "--channel", "bm25"], "channel bm25"),
        (["search", QUESTION, "--chain", "{two-lines}"], "name of a step must be one line"),
        (search("--k1", "2"), "--chain cannot be combined with --k1"),
        (search("--candidates", "9"), "--chain cannot be combined with --candidates"),
        (
            ["search", QUESTION, "--channel", "bm25", "--candidates", "9"],
            "--candidates has no effect",
        ),
        (["search", QUESTION, "--chain", "hop-read", "--threads", "2"], "--threads has no effect"),
        (["answer", QUESTION, "--chain", "hop-read", "--k1", "2"], "--chain cannot be combined with --k1"),
        (["answer", QUESTION, "--model", "skills"], "--model needs --chain"),
        (["search", QUESTION, "--model", "skills"], "--model needs --chain"),
        (search("--model", "skills"), "--model has no effect on the chain hop"),
        (search("--entities", "x"), "--entities has no effect on the chain hop"),
        (
            ["answer", QUESTION, "--chain", "named", "--model", "m"],
            "--model has no effect on the chain named",
        ),
        (["search", QUESTION, "--chain", "hopp"], "hop, hop-read, hotpot, named"),
        (["search", QUESTION, "--chain", "{circle}"], "b → a"),
        (["search", QUESTION, "--chain", "{unknown}"], "retrieve, expand, link, rerank"),
        (["search", QUESTION, "--chain", "{reranked}"], "--model"),
        (
            ["explain", QUESTION, "google", "--chain", "hop", "--filter", "a=b"],
            "--chain cannot be combined with --filter",
        ),
        (["explain", QUESTION, "google", "--entities", "x"], "--entities needs --chain"),
    ],
)
def test_refusals(index: Path, tmp_path: Path, command: list[str], said: str) -> None:
    steps = {
        "circle": [("a", "expand", ["b"]), ("b", "rerank", ["a"])],
        "unknown": [("a", "think", [])],
        "links": [("a", "link", []), ("b", "rerank", ["a"])],
        "two-lines": [("a\\nb", "retrieve", [])],
        "reranked": [("a", "retrieve", []), ("b", "rerank", ["a"])],
    }
    for name, own in steps.items():
        text = "".join(f'[[step]]\nname = "{n}"\nskill = "{s}"\nafter = {a}\n' for n, s, a in own)
        (tmp_path / f"{name}.toml").write_text(text)
    result = ran(
        index, *[part.format(**{name: tmp_path / f"{name}.toml" for name in steps}) for part in command]
    )
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_an_index_without_titles(tmp_path: Path) -> None:
    build_index(tmp_path / "ix", [{"id": "1", "text": "a moon"}], options=IndexOptions(channels="bm25"))
    result = ran(tmp_path / "ix", *search())
    assert result.exit_code == 2
    assert str(tmp_path / "ix") in result.output
    shutil.rmtree(tmp_path / "ix")
    assert ran(tmp_path / "ix", *search()).exit_code == 2


def test_a_row_leads_to_a_page(tmp_path: Path) -> None:
    pages = [
        {"id": "s", "title": "Prime Suspect", "text": "Lynda La Plante created this series."},
        {
            "id": "n",
            "title": "Robert",
            "text": "Robert is a name, and who played Robert in a series is not said.",
        },
    ]
    row = {
        "page_title": "Nonso Anozie",
        "section_title": "Television",
        "header": ["Series", "Role"],
        "cells": ["Prime Suspect", "Robert"],
        "links": [{"anchor": "Prime Suspect", "column": 0, "target_title": "Prime Suspect"}],
        "table_id": "Nonso_Anozie_1",
    }
    others = [{**row, "cells": ["Zulu", "Someone"], "links": []}] * 3
    build_index(tmp_path / "ix", [*pages, row, *others], options=IndexOptions(channels="bm25"))
    asked = "Who created the series in which Nonso Anozie played Robert?"
    [path] = [
        json.loads(x)
        for x in printed(tmp_path / "ix", "search", asked, "--chain", "tabletext", "--json").splitlines()
    ]
    assert [one["title"] for one in path["passages"]] == ["Nonso Anozie", "Prime Suspect"]
    assert path["passages"][1]["span"] == "Prime Suspect"
    (tmp_path / "q.tsv").write_text(f"1\t{asked}\n")
    printed(
        tmp_path / "ix",
        "search",
        "--queries",
        tmp_path / "q.tsv",
        "--output",
        tmp_path / "r",
        "--chain",
        "tabletext",
    )
    assert [hit.passage_id for hit in read_run(tmp_path / "r")["1"]] == ["s"], "a row is not evidence"
