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

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def open_domain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("open_domain", ROOT / "benchmarks" / "open_domain.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def finding(scores: dict[str, dict[str, float]]) -> Any:
    """A searcher that has these passages for each question; of equal scores, the first one first."""
    from sparta.search import Found

    def found(questions: list[str], k: int, threads: int) -> list[Found]:
        ranked = [sorted(scores[q].items(), key=lambda one: -one[1])[:k] for q in questions]
        return [Found([p for p, _ in own], list(range(len(own))), [s for _, s in own]) for own in ranked]

    return SimpleNamespace(found=found, num_docs=sum(map(len, scores.values())))


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


def test_complete_rankings_of_another_model_are_measured_as_they_are(open_domain, tmp_path: Path) -> None:
    """They are hours of work; those that are not complete would be mixed with today's model's."""
    path, facts = tmp_path / "sparta.json.gz", {"model": "m", "parts": 2}
    for number in range(2):
        assert open_domain.Rankings(path, facts).former == ""
        if number:
            with pytest.raises(SystemExit, match="found model m"):
                open_domain.Rankings(path, {**facts, "model": "new"})
        open_domain.Rankings(path, facts).add(number, finding({"q": {f"p{number}": 1.0}}), {"k": "q"}, 1.0)
    known = open_domain.Rankings(path, {**facts, "model": "new"})
    assert (known.former, known.found) == ("m", {"k": [("p0", 1.0), ("p1", 1.0)]})
    with pytest.raises(SystemExit, match="found model m, parts 2"):
        open_domain.Rankings(path, {"model": "new", "parts": 1})


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


@pytest.mark.slow
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
    assert "sparta" not in one.stdout
    both = run()
    assert both.returncode == 0, both.stderr
    assert "dense index" not in both.stderr, "what was encoded is not encoded again"
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in both.stdout.splitlines() if "|" in line
    ]
    for channel in ("bm25", "sparta", "dense", "sparta + "):
        assert any(channel in " ".join(row) for row in rows), (channel, both.stdout)
    assert "tune: 3 questions" in both.stdout
