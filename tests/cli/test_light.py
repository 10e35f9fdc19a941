"""What the commands of every day import: neither searching nor indexing needs torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.jvm

HEAVY = {"torch", "transformers", "scipy", "huggingface_hub", "ir_measures", "pyserini", "matplotlib"}
COMPILER = {"sympy", "torch._dynamo", "torch._inductor"}
DENSE = "sparta=1,dense=1"


RUN = """
import json, sys
from importlib import import_module
for program, *arguments in json.loads(sys.argv[1]):
    import_module("cli._" + program).main(arguments, standalone_mode=False)
print(*sys.modules, sep="\\n")
"""


def loaded(*commands: Sequence[object]) -> set[str]:
    """Run commands in one fresh process; the names of all modules that they loaded."""
    texts = [[str(argument) for argument in command] for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(texts)],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split("\n"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, write_jsonl: Callable[..., Path]) -> Path:
    texts = ("google was founded by larry page", "the moon of the earth", "an old city")
    records = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    return write_jsonl(tmp_path_factory.mktemp("light") / "corpus.jsonl", records)


@pytest.fixture(scope="module")
def index(corpus: Path, tiny_model_folder: Path, make_tiny_model: Callable[..., Any]) -> Path:
    """An index that a fresh process made, with a dense channel."""
    from dense.channel.sync import build_dense
    from dense.models.bi_encoder import DenseModel
    from dense.models.config import DenseConfig

    folder = corpus.parent / "ix"
    modules = loaded(["sparta", "index", "--corpus", corpus, "--model", tiny_model_folder, "--index", folder])
    assert "openvino" in modules
    assert modules & (HEAVY | COMPILER | {"openvino_telemetry"}) == set()
    tiny = make_tiny_model()
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig()).save_pretrained(corpus.parent / "dense")
    build_dense(folder, model=str(corpus.parent / "dense"))
    return folder


@pytest.mark.slow
def test_searching_loads_no_torch(index: Path) -> None:
    modules = loaded(
        ["sparta", "search", "the moon", "--index", index],
        ["dense", "search", "the moon", "--index", index],
        ["hybrid", "search", "the moon", "--weights", DENSE, "--index", index],
    )
    assert {"numpy", "jnius"} <= modules
    assert modules & HEAVY == set()


@pytest.mark.slow
def test_dense_indexing_loads_no_transformers(index: Path, corpus: Path) -> None:
    modules = loaded(["dense", "index", "--index", index, "--overwrite", "--model", corpus.parent / "dense"])
    assert modules & {"torch", "transformers", "scipy"} == set()


@pytest.mark.slow
def test_evaluating_loads_no_torch(index: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.tsv"
    questions.write_text("who founded google\t['larry page']\nwhere is the moon\t['earth']\n")
    modules = loaded(["hybrid", "eval", "--index", index, "--dataset", questions, "--weights", DENSE])
    assert modules & {"torch", "transformers"} == set()
