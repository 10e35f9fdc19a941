"""Scripts that make training data and draw trainings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.jvm
def test_answers_are_found_in_a_corpus(tmp_path: Path) -> None:
    """Distant supervision: the best passage that holds an answer, and its sentence that shares most words."""
    passages = [
        {"id": "a", "title": "Moon", "text": "The moon is far. It goes around the earth in 27 days."},
        {
            "id": "b",
            "title": "Google",
            "text": "Google is large. Larry Page founded Google. Larry Page lives.",
        },
        {"id": "c", "title": "Sun", "text": "The sun is hot."},
    ]
    (tmp_path / "wiki.jsonl").write_text("".join(json.dumps(p) + "\n" for p in passages))
    (tmp_path / "asked.tsv").write_text(
        "who founded google\t['larry page']\n"
        "how long does the moon go around the earth\t['27 days', 'a month']\n"
        "what is cold\t['ice']\n"
    )
    command = [sys.executable, ROOT / "research" / "find_answers.py", "--corpus", tmp_path / "wiki.jsonl"]
    command += ["--questions", tmp_path / "asked.tsv", "--output", tmp_path / "pairs.jsonl"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
    assert "2 pairs of 3 questions" in done.stdout
    found = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert [(f["title"], f["positive"]) for f in found] == [
        ("Moon", "It goes around the earth in 27 days."),
        ("Google", "Larry Page founded Google."),
    ]
    assert all(f["context"][f["start"] : f["end"]] == f["positive"] for f in found)


@pytest.mark.slow
def test_a_training_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = [
        {"step": s, "loss": 2 / s, "ranking": 1 / s, "terms": 100.0, "paragraph_terms": 200.0}
        for s in range(1, 60)
    ]
    lines.append({"step": 59, "validation": 0.5})
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [
        sys.executable,
        str(ROOT / "research" / "plot_training.py"),
        str(tmp_path),
        str(tmp_path / "p.png"),
    ]
    subprocess.run(command, check=True)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_script_refuses_other_settings(tmp_path: Path) -> None:
    """A table would mix them with the finished results, which a script does not measure again."""
    encoders = [tmp_path / name for name in ("a", "b")]
    for folder in encoders:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"name": folder.name}))
    (tmp_path / "work").mkdir()

    def started(settings: str, encoder: Path) -> subprocess.CompletedProcess[str]:
        script = f'source research/settings.sh; same_settings "{tmp_path}/work" "{settings}" "{encoder}"'
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        return subprocess.run(
            ["bash", "-ec", script], cwd=ROOT, capture_output=True, text=True, check=False, env=environment
        )

    assert started("steps=300", encoders[0]).returncode == 0
    assert started("steps=300", encoders[0]).returncode == 0
    for settings, encoder in (("steps=600", encoders[0]), ("steps=300", encoders[1])):
        refused = started(settings, encoder)
        assert refused.returncode == 1
        assert "was started with:\n  steps=300" in refused.stderr
