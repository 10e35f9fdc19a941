"""What the benchmarks compute by themselves."""

from __future__ import annotations

import importlib.util
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
