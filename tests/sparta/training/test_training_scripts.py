"""Scripts that make training data and draw trainings."""

from __future__ import annotations

import json
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
    command = [sys.executable, ROOT / "scripts" / "find_answers.py", "--corpus", tmp_path / "wiki.jsonl"]
    command += ["--questions", tmp_path / "asked.tsv", "--output", tmp_path / "pairs.jsonl"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
    assert "2 pairs of 3 questions" in done.stdout
    found = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert [(f["title"], f["positive"]) for f in found] == [
        ("Moon", "It goes around the earth in 27 days."),
        ("Google", "Larry Page founded Google."),
    ]
    assert all(f["context"][f["start"] : f["end"]] == f["positive"] for f in found)


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
        str(ROOT / "scripts" / "plot_training.py"),
        str(tmp_path),
        str(tmp_path / "p.png"),
    ]
    subprocess.run(command, check=True)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_two_models_are_averaged(make_tiny_model, tmp_path: Path) -> None:
    """The weights between both, the terms that are kept as they were, the form of the first."""
    import torch

    from sparta.models.sparse import SpartaModel

    first, further = make_tiny_model(seed=1), make_tiny_model(seed=2)
    first.save_pretrained(tmp_path / "first")
    torch.save({"model": further.state_dict()}, tmp_path / "state.pt")
    names = [str(tmp_path / name) for name in ("first", "state.pt", "out")]
    command = [sys.executable, str(ROOT / "scripts" / "average_models.py"), *names]
    subprocess.run([*command, "--share", "0.25", "--keep", "moon", "earth"], check=True)
    unknown = subprocess.run([*command, "--share", "1", "--keep", "moonly"], capture_output=True, text=True)
    assert unknown.returncode == 2
    assert "expected wordpieces of the model, found 'moonly'" in unknown.stderr
    made, one, other = SpartaModel.load(tmp_path / "out"), first.state_dict(), further.state_dict()
    kept = [made.tokenizer.token_to_id(term) for term in ("moon", "earth")]
    for name, value in made.state_dict().items():
        expected = 0.75 * one[name].float() + 0.25 * other[name].float()
        if name == "term_embeddings":
            assert not expected[kept].allclose(one[name][kept], atol=0.1)
            expected[kept] = one[name][kept]
        torch.testing.assert_close(value.float(), expected, atol=0.03, rtol=0.02)  # stored in 8 bits
    assert made.config == first.config
    further.add_query_weights()
    further.save_pretrained(tmp_path / "further")
    for pair in (("first", "further"), ("further", "first")):
        mixed = [sys.executable, command[1], *(str(tmp_path / name) for name in (*pair, "mixed"))]
        refused = subprocess.run([*mixed, "--share", "0.5"], capture_output=True, text=True)
        assert refused.returncode == 2
        assert f"found that only {tmp_path / 'further'} does" in refused.stderr
