"""Small cuts of what research/ trains, each by its one command (`make test-slow`; a network)."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest

from tests.environments import ROOT, run


@pytest.mark.release
def test_the_default_model_is_trained_from_nothing(tmp_path: Path) -> None:
    """200 questions, twice 20 steps: the start, both teachers, mined negatives and a model that loads."""
    from sparta.models.sparta import SpartaModel

    lines = (ROOT / "examples" / "wiki.jsonl").read_text(encoding="utf-8").splitlines()[:200]
    passages = [json.loads(line) for line in lines]
    with gzip.open(tmp_path / "squadshifts_new_wiki.jsonl.gz", "wt", encoding="utf-8") as data:
        for passage in passages:
            answer, _, _ = passage["text"].partition(". ")
            record = {
                "question": f"what is known about {passage['title']}",
                "positive": answer,
                "context": passage["text"],
                "start": 0,
                "end": len(answer),
                "title": passage["title"],
            }
            data.write(json.dumps(record) + "\n")
    script = ROOT / "research" / "default_model.sh"
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = run("bash", script, tmp_path, tmp_path / "work", "--small", cwd=ROOT, PATH=programs)
    assert done.returncode == 0, done.stderr[-2000:]
    folder = Path(done.stdout.splitlines()[-1].rpartition(" ")[2])
    log = [json.loads(line) for line in (folder.parent / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log if "validation" in line] == [0, 10, 20]
    [vector] = SpartaModel.load(folder).encode_document(["The moon orbits the earth."])
    assert 0 < vector.nnz < 2_000
