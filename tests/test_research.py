"""Small cuts of what research/ trains, each by its one command (`make test-slow`; a network).

Only the check of the scripts' Python needs neither.
"""

from __future__ import annotations

import ast
import gzip
import importlib
import json
import os
import re
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


def test_the_python_in_the_scripts_names_what_exists() -> None:
    """A name that has moved would fail only after the hours of training before it."""
    imported = 0
    for script in sorted((ROOT / "research").glob("*.sh")):
        text = script.read_text(encoding="utf-8")
        sources = re.findall(r"<< ?'PYTHON'\n(.*?)^PYTHON$", text, re.DOTALL | re.MULTILINE)
        for source in [*sources, *re.findall(r"python -c '(.*?)'", text, re.DOTALL)]:
            nodes = [*ast.walk(ast.parse(source, script.name))]
            names = {
                alias.asname or alias.name: getattr(importlib.import_module(str(node.module)), alias.name)
                for node in nodes
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            for node in nodes:
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) in names:
                    assert hasattr(names[ast.unparse(node.value)], node.attr), f"{script.name}: {node.attr}"
            imported += len(names)
    assert imported
