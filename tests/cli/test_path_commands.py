"""From questions with evidence to a reader of paths, and to chains that read, by the commands."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from sparta.api import Index
from sparta.data.answers import token_f1
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from tests.programs import Program, hybrid, sparta

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
ROOT = Path(__file__).parents[2]
QUESTION = "In which town is the author of Frankenstein buried?"
READ = ("--chain", "hop-read", "--path-reader")


def printed(program: Program, *command: object) -> str:
    result = program(*command)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example corpus for BM25 alone."""
    folder = tmp_path_factory.mktemp("examples")
    build_index(folder / "ix", ROOT / "examples" / "wiki.jsonl", options=IndexOptions(channels="bm25"))
    return folder / "ix"


def row(number: int, question: str, answer: str, *needed: str, bleu: float = 1.0) -> dict[str, Any]:
    places = [{"wikipedia_title": one, "passage_ids": [one], "bleu_score": bleu} for one in needed]
    return {"id": str(number), "input": question, "output": [{"answer": answer, "provenance": places}]}


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In KILT's form; of the last three, two were mapped badly and one names a passage that is nowhere."""
    rows = [row(i, QUESTION, "Bournemouth", "frankenstein", "mary-shelley") for i in range(6)]
    rows = [{**one, "input": f"{one['input']} {i}"} for i, one in enumerate(rows)]
    mixed = row(23, "Who wrote the tale?", "Mary Shelley", "frankenstein", "mary-shelley")
    mixed["output"][0]["provenance"][1]["bleu_score"] = 0.1
    rows += [
        row(20, "Is Mary Shelley the author of Frankenstein?", "yes", "frankenstein", "mary-shelley"),
        row(21, "Who wrote it?", "Mary Shelley", "frankenstein", bleu=0.1),
        mixed,
        row(22, "Who wrote it?", "Mary Shelley", "frankenstein", "nowhere"),
    ]
    path = tmp_path_factory.mktemp("questions") / "multihop.train.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def mined(index: Path, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("mined") / "paths.jsonl"
    said = sparta("mine-paths", "--dataset", questions, "--index", index, "--output", output, "--quiet")
    assert said.exit_code == 0, said.output
    assert "7 questions of 10 with their passages" in said.output
    return output


@pytest.fixture(scope="module")
def reader(mined: Path, encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("reader") / "own"
    sizes = ("--steps", 4, "--batch-size", 2, "--held-out", 2, "--validate-every", 2, "--max-length", 128)
    own = ("--data", mined, "--output", output, "--encoder", encoder_folder, "--device", "cpu")
    printed(sparta, "train-paths", *own, *sizes)
    return output


def test_what_is_mined(mined: Path) -> None:
    lines = [json.loads(line) for line in mined.read_text().splitlines()]
    for line in lines:
        gold = [one["title"] for one in line["passages"] if one["gold"]]
        assert sorted(gold) == ["Frankenstein", "Mary Shelley"]
        assert len({one["text"] for one in line["passages"]}) == len(line["passages"]) <= 22
    assert lines[-1]["answers"] == ["yes"]


def test_sentences_are_mined_in_their_passages(index: Path, questions: Path, tmp_path: Path) -> None:
    options = IndexOptions(channels="bm25", unit="sentence")
    build_index(tmp_path / "ix", ROOT / "examples" / "wiki.jsonl", options=options)
    output = tmp_path / "paths.jsonl"
    printed(sparta, "mine-paths", "--dataset", questions, "--index", tmp_path / "ix", "--output", output)
    with Index(index) as whole:
        texts = {whole.passage(i)["text"] for i in ("frankenstein", "mary-shelley")}
    for line in map(json.loads, output.read_text().splitlines()):
        assert {one["text"] for one in line["passages"] if one["gold"]} == texts


def test_search_explain_and_answer_read_paths(index: Path, reader: Path, tmp_path: Path) -> None:
    own = (*READ, reader, "--index", index)
    paths = [
        json.loads(line)
        for line in printed(sparta, "search", QUESTION, *own, "-k", 30, "--json").splitlines()
    ]
    read = [path for path in paths if "answer" in path]
    assert len(read) == 20
    assert read == paths[:20], "paths that were not read come behind"
    assert all(a["score"] >= b["score"] for a, b in itertools.pairwise(paths))
    said = read[0]["answer"]
    for one in read[0]["passages"]:
        assert "read" in one["steps"]
        if one["id"] == said["passage_id"]:
            assert one["text"][said["start"] : said["end"]] == said["answer"]
    shown = printed(sparta, "search", QUESTION, *own, "-k", 1)
    assert said["answer"] in shown.splitlines()[0]
    assert "read " in shown
    best = json.loads(printed(sparta, "explain", QUESTION, read[0]["passages"][0]["id"], *own, "--json"))
    assert best == read[0]
    [answer] = [json.loads(line) for line in printed(sparta, "answer", QUESTION, *own, "--json").splitlines()]
    assert answer["answer"] == said["answer"]
    assert said["answer"] in printed(sparta, "answer", QUESTION, *own)
    (tmp_path / "q.tsv").write_text(f"1\t{QUESTION}\n2\tzzz\n")
    printed(
        sparta, "answer", "--queries", tmp_path / "q.tsv", "--output", tmp_path / "a.jsonl", "-n", 2, *own
    )
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["query_id"] for line in lines] == ["1", "1", "2"]
    assert lines[0]["answer"] == said["answer"]
    assert lines[2]["answer"] == "", "no path, no answer"


def test_answers_of_paths_are_measured(index: Path, reader: Path, questions: Path, tmp_path: Path) -> None:
    command = ("eval", "--index", index, "--no-dense", "--dataset", questions, "--chain", "hop")
    options = ("--answers", "--format", "json", "--output-answers", tmp_path / "a.jsonl")
    rows = json.loads(printed(hybrid, *command, *READ, reader, *options))
    assert {"bm25", "chain hop", "chain hop-read"} <= {one["channel"] for one in rows}
    own = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    measured = {one["channel"]: one for one in rows}["chain hop-read"]
    read = [one for one in own if one["ranking"] == "chain hop-read"]
    expected = dict.fromkeys(map(str, range(6)), "Bournemouth") | {"20": "yes"}
    expected |= dict.fromkeys(("21", "22", "23"), "Mary Shelley")
    f1 = [token_f1(one["answer"], [expected[one["query_id"]]]) for one in read]
    assert measured["F1"] == pytest.approx(100 * sum(f1) / len(expected))
    assert len(read) == len(expected)
    [first] = [one for one in own if (one["query_id"], one["ranking"]) == ("0", "chain hop-read")]
    [path] = printed(
        sparta, "search", f"{QUESTION} 0", *READ, reader, "--index", index, "-k", 1, "--json"
    ).splitlines()
    assert first["answer"] == json.loads(path)["answer"]["answer"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("search", "q", "--chain", "hop", "--path-reader", "x"),
            "--path-reader has no effect on the chain hop",
        ),
        (("search", "q", "--path-reader", "x"), "--path-reader needs --chain"),
        (("search", "q", *READ, "nowhere"), "no such folder of a path reader"),
        (("answer", "q", *READ, "READER", "--depth", 5), "--depth has no effect"),
        (("answer", "q", *READ, "READER", "--reader", "x"), "--reader has no effect"),
        (("mine-paths", "--dataset", "QUESTIONS", "--output", "a.jsonl.gz"), "must end in .jsonl"),
        (("mine-answers", "--dataset", "QUESTIONS", "--output", "a.jsonl.gz"), "must end in .jsonl"),
        (
            ("mine-paths", "--dataset", "QUESTIONS", "--chain", "none", "--output", "a.jsonl"),
            "a file of steps",
        ),
    ],
)
def test_what_does_not_go_together(
    index: Path, reader: Path, questions: Path, command: tuple[object, ...], said: str
) -> None:
    places = {"READER": reader, "QUESTIONS": questions}
    result = sparta(*(places.get(str(one), one) for one in command), "--index", index)
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())


def test_without_evidence_nothing_is_written(index: Path, tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_text("who\t['x']\n")
    result = sparta(
        "mine-paths",
        "--dataset",
        tmp_path / "q.tsv",
        "--index",
        index,
        "--output",
        tmp_path / "a.jsonl",
    )
    assert result.exit_code != 0
    assert "no question has an answer and evidence" in result.output
    assert not (tmp_path / "a.jsonl").exists()
