"""What the commands of every day import: neither searching nor indexing needs torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.jvm

HEAVY = {"torch", "transformers", "scipy", "huggingface_hub", "ir_measures", "pyserini", "matplotlib"}
COMPILER = {"sympy", "torch._dynamo", "torch._inductor"}
DENSE = "sparta=1,dense=1"


def loaded(*command: object) -> set[str]:
    """Run a command in a fresh process; the names of all modules that it loaded."""
    code = (
        "import sys\nfrom importlib import import_module\ndel sys.argv[0]\n"
        "try:\n    import_module('cli._' + sys.argv[0]).main()\n"
        "finally:\n    print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, command)],
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
    modules = loaded("sparta", "index", "--corpus", corpus, "--model", tiny_model_folder, "--index", folder)
    assert "openvino" in modules
    assert modules & (HEAVY | COMPILER | {"openvino_telemetry"}) == set()
    tiny = make_tiny_model()
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig()).save_pretrained(corpus.parent / "dense")
    build_dense(folder, model=str(corpus.parent / "dense"))
    return folder


COMMANDS = {
    "sparta search": ["sparta", "search", "the moon"],
    "dense search": ["dense", "search", "the moon"],
    "hybrid search": ["hybrid", "search", "the moon", "--weights", DENSE],
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_searching_loads_no_torch(command: list[str], index: Path) -> None:
    modules = loaded(*command, "--index", index)
    assert {"numpy", "jnius"} <= modules
    assert modules & HEAVY == set()


@pytest.mark.slow
def test_dense_indexing_loads_no_transformers(index: Path, corpus: Path) -> None:
    modules = loaded("dense", "index", "--index", index, "--overwrite", "--model", corpus.parent / "dense")
    assert modules & {"torch", "transformers", "scipy"} == set()


@pytest.mark.slow
def test_evaluating_loads_no_torch(index: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.tsv"
    questions.write_text("who founded google\t['larry page']\nwhere is the moon\t['earth']\n")
    modules = loaded("hybrid", "eval", "--index", index, "--dataset", questions, "--weights", DENSE)
    assert modules & {"torch", "transformers"} == set()
