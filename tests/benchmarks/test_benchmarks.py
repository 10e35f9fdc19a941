"""What the benchmarks compute by themselves."""

from __future__ import annotations

import gzip
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sparta.base.errors import InputError

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def open_domain() -> ModuleType:
    return script("open_domain")


def finding(scores: dict[str, dict[str, float]]) -> Any:
    """A searcher that has these passages for each question; of equal scores, the first one first."""
    from sparta.base.records import Ranking as Columns

    def found(questions: list[str], page: Any, threads: int) -> list[Columns]:
        ranked = [sorted(scores[q].items(), key=lambda one: -one[1])[: page.k] for q in questions]
        return [Columns([p for p, _ in own], list(range(len(own))), [s for _, s in own]) for own in ranked]

    return SimpleNamespace(rank=found, num_docs=sum(map(len, scores.values())))


def test_rankings_of_parts_are_those_of_the_whole(open_domain, tmp_path: Path) -> None:
    """Equal scores in the order of the corpus, also when the work is taken up again."""
    import random

    draw = random.Random(3)
    depth = open_domain.DEPTH
    whole = {q: {f"{q}{i}": float(draw.randrange(90)) for i in range(3 * depth)} for q in "ab"}
    questions = {open_domain.key_of(q): q for q in whole}
    expected = {
        open_domain.key_of(q): sorted(own.items(), key=lambda one: -one[1])[:depth]
        for q, own in whole.items()
    }
    path = tmp_path / "r" / "sparta.json.gz"
    for number in range(4):
        rankings = open_domain.Rankings(path, {"model": "m"})  # as a new process would open it
        assert sorted(map(int, rankings.parts)) == list(range(number))
        part = {q: dict(list(own.items())[number * 75 : (number + 1) * 75]) for q, own in whole.items()}
        rankings.add(number, finding(part), questions, 1.5)
    assert open_domain.Rankings(path, {"model": "m"}).found == expected
    assert rankings.parts["3"] == {"passages": 150, "seconds": 1.5}
    with pytest.raises(SystemExit, match=r"sparta\.json\.gz: expected .*'other'.*found model m"):
        open_domain.Rankings(path, {"model": "other"})


FACTS = {
    "Google": "Google was founded by Larry Page and Sergey Brin in 1998.",
    "Yellowstone": "Yellowstone National Park lies in Wyoming, Montana and Idaho.",
    "Mercury": "Mercury is the smallest planet of the solar system.",
    "Hamlet": "Hamlet is a tragedy that William Shakespeare wrote.",
    "Nile": "The Nile flows north through Egypt into the Mediterranean Sea.",
    "Tea": "Tea is a drink made from the leaves of Camellia sinensis.",
}
ASKED = {
    "who founded google": "Larry Page",
    "which planet is the smallest": "Mercury",
    "who wrote hamlet": "Shakespeare",
    "where is yellowstone park": "Wyoming",
}


@pytest.mark.release
@pytest.mark.jvm
def test_open_domain_questions_in_parts(tmp_path: Path) -> None:
    """As the script's own help has it: what is missing is done, in as many runs as it takes."""
    with gzip.open(tmp_path / "corpus.jsonl.gz", "wt", encoding="utf-8") as lines:
        for i, (title, text) in enumerate(FACTS.items()):
            lines.write(json.dumps({"_id": str(i), "title": title, "text": text}) + "\n")
    questions = [f"{question}\t{[answer]!r}\n" for question, answer in ASKED.items()]
    (tmp_path / "tune.tsv").write_text("".join(questions[:3]))
    (tmp_path / "test.tsv").write_text("".join(questions[1:]))
    (tmp_path / "curated.tsv").write_text(
        json.dumps({"question": "who founded google", "answer": ["La(rr|r)y Pa?ge"]}) + "\n"
    )

    def run(*options: object) -> subprocess.CompletedProcess[str]:
        command = [
            *(
                sys.executable,
                ROOT / "benchmarks" / "open_domain.py",
                "--corpus",
                tmp_path / "corpus.jsonl.gz",
            ),
            *("--tune", tmp_path / "tune.tsv", "--test", tmp_path / "test.tsv"),
            *("--regex", tmp_path / "curated.tsv", "--work", tmp_path / "work", "--parts", "2"),
            *("--rankings", tmp_path / "rankings", *options),
        ]
        return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=600)

    begun = run("--minutes", 0)
    assert begun.returncode == 3, begun.stderr
    assert not (tmp_path / "rankings").exists()
    one = run("--channels", "dense")
    assert one.returncode == 0, one.stderr
    assert (tmp_path / "rankings" / "dense.json.gz").exists()
    assert "impact" not in one.stdout
    both = run()
    assert both.returncode == 0, both.stderr
    assert "dense index" not in both.stderr, "what was encoded is not encoded again"
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in both.stdout.splitlines() if "|" in line
    ]
    for channel in ("bm25", "impact", "dense", "impact + "):
        assert any(channel in " ".join(row) for row in rows), (channel, both.stdout)
    assert "tune: 3 questions" in both.stdout


class Ranked:
    """Channels of an index whose rankings are known, in place of those that are opened."""

    def __init__(self, index: Path, names: list[str]) -> None:
        self.found = {name: RANKED[index.name][name] for name in names}
        self.searchers = dict.fromkeys(names, SimpleNamespace(language="en", unit="passage"))

    def batch_search(self, queries: list[str], k: int, threads: int = 1) -> Any:
        from sparta.base.records import Ranking as Columns

        best = {name: [list(own[q].items())[:k] for q in queries] for name, own in self.found.items()}
        return {
            name: [Columns([p for p, _ in own], list(range(len(own))), [s for _, s in own]) for own in found]
            for name, found in best.items()
        }

    def __enter__(self) -> Ranked:
        return self

    def __exit__(self, *_: object) -> None:
        pass


RANKED = {
    "i1": {
        "bm25": {"one": {"a": 10.0, "b": 9.0, "c": 1.0}, "two": {"d": 5.0, "e": 1.0}},
        "dense": {"one": {"b": 1.0, "a": 0.5, "c": 0.0}, "two": {"e": 1.0, "d": 0.1}},
    },
    "i2": {
        "bm25": {"three": {"a": 10.0, "b": 1.0}, "one": {"a": 10.0, "b": 9.0}},
        "dense": {"three": {"b": 1.0, "a": 0.9}, "one": {"b": 1.0, "a": 0.0}},
    },
    "i3": {"bm25": {"four": {"x": 10.0, "y": 1.0}}, "dense": {"four": {"y": 1.0, "x": 0.9, "z": 0.0}}},
}


def test_what_is_tuned_on_one_set_is_measured_on_the_others(tmp_path, monkeypatch, capsys) -> None:
    """Where questions are shared no p is told. bm25 is right on s1, dense on s2, and bm25 on s3."""
    module = script("tuned_elsewhere")
    monkeypatch.setattr(module, "Channels", Ranked)
    right = {"s1": {"one": "a", "two": "d"}, "s2": {"three": "b", "one": "b"}, "s3": {"four": "x"}}
    pairs = []
    for number, (name, judged) in enumerate(right.items(), 1):
        (tmp_path / name / "qrels").mkdir(parents=True)
        questions = [json.dumps({"_id": q, "text": q}) for q in judged]
        (tmp_path / name / "queries.jsonl").write_text("\n".join(questions))
        lines = ["query-id\tcorpus-id\tscore", *(f"{q}\t{p}\t1" for q, p in judged.items())]
        (tmp_path / name / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
        pairs.append(f"i{number}={tmp_path / name}")

    def table(*options: str) -> list[list[str]]:
        module.main([*pairs, *options])
        *rows, _, formula = capsys.readouterr().out.splitlines()
        assert formula.startswith("score = dense + α·bm25, α of 0.")
        assert "over each channel's best candidates" in formula
        return [[cell.strip() for cell in row.split("|")[1:-1]] for row in (rows[0], *rows[2:])]

    header, *rows = table("--alphas", "0.05,2", "--candidates", "2,100")
    assert header == ["", "α", "candidates", "s1", "s2", "s3", "cross-validated"]
    assert rows[:2] == [
        ["dense alone", "", "", "50.00", "100.00", "50.00", ""],
        ["bm25 alone", "", "", "100.00", "50.00", "100.00", ""],
    ]
    by_set = {row[0].removeprefix("tuned on "): row[1:] for row in rows[2:]}
    assert by_set["s1"][:4] == ["2", "2", "[100.00]", "[50.00]"], "they share a question"
    assert by_set["s2"][:4] == ["0.05", "2", "[50.00]", "[100.00]"]
    assert by_set["s3"][0] == "2"
    assert by_set["s3"][2].startswith("100.00 (")
    assert by_set["s3"][3].startswith("50.00 (")
    assert by_set["s3"][4] == "[100.00]"
    with pytest.raises(InputError, match="expected INDEX=SET, each set once"):
        module.sets_of([pairs[0], pairs[0]])
