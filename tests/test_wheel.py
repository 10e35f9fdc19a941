"""The wheel in fresh environments: the base, which needs no torch, and the extras `dense` and `mcp`.

Before a release also the other extras, each in an environment of its own (test_extras.py).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import SEVERAL, as_json, done, separated
from tests.environments import ROOT, UV, built_wheel, environment, run
from tests.programs import sparta

NEURAL = ("torch", "transformers", "pyserini", "faiss", "matplotlib")
TEN_LINES = """
from sparta import Index
index = Index.create("ix", [{"id": "1", "text": "Bill Gates founded Microsoft."}])
for hit in index.search("who founded microsoft", k=3):
    print(hit.passage_id, hit.score, hit.text)
print(index.explain("who founded microsoft", "1"))
"""
DENSE = ROOT / "sparta" / "resources" / "models" / "taser-det-en"
MCP_CLIENT = """
import asyncio, sys
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

async def search(sparta, index):
    async with Client(StdioTransport(sparta, ["mcp", "--index", index])) as client:
        found = await client.call_tool("search", {"query": "who founded google", "k": 1})
        print(found.structured_content["result"][0]["title"])

asyncio.run(search(*sys.argv[1:]))
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.jvm,
    pytest.mark.usefixtures("own_logger"),
    pytest.mark.skipif(UV is None, reason="uv is not installed"),
]


@pytest.fixture(scope="module")
def wheel(made_once: Callable[..., Path]) -> Path:
    return built_wheel(made_once)


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("bare") / "env", wheel)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index made elsewhere: by this environment, which has everything."""
    folder = tmp_path_factory.mktemp("index")
    corpus = ROOT / "examples" / "wiki.jsonl"
    lines = corpus.read_text(encoding="utf-8").splitlines()[:30]
    (folder / "c.jsonl").write_text("\n".join(lines), encoding="utf-8")
    done(sparta("index", "--corpus", folder / "c.jsonl", "--index", folder / "ix", "--quiet"))
    return folder / "ix"


def test_searching_needs_nothing_neural(bare: Path, index: Path, tmp_path: Path) -> None:
    code = f"from importlib.util import find_spec; print([n for n in {NEURAL!r} if find_spec(n)])"
    assert run(bare / "python", "-c", code, cwd=tmp_path).stdout == "[]\n"
    search = ["search", "who founded google", "--json", "--index", index]
    assert run(bare / "sparta", *search, cwd=tmp_path).stdout == done(sparta(*search)).stdout
    reading = [
        [*search, "--channel", "bm25"],
        ["terms", "google", "--index", index],
        ["explain", "who founded google", "google", "--index", index],
    ]
    copy = shutil.copytree(index, tmp_path / "copy")
    commands = [
        *reading,
        ["export", "--format", "ciff", "--output", "postings.ciff", "--index", copy],
        ["delete", "google", "--index", copy],
    ]
    ended = run(bare / "python", "-c", SEVERAL, as_json(commands), cwd=tmp_path)
    for command, there in zip(commands, separated(ended, commands), strict=True):
        assert there.returncode == 0, there.stderr
        assert command not in reading or there.stdout == done(sparta(*command)).stdout
    assert (tmp_path / "postings.ciff").stat().st_size > 10_000
    doctor = run(bare / "sparta", "doctor", "--index", index, cwd=tmp_path)
    assert doctor.returncode == 0, doctor.stdout
    assert "summary: works: searching; indexing, answering and serving" in doctor.stdout


def test_ready_vectors_are_indexed_without_an_encoder(bare: Path, tmp_path: Path) -> None:
    vector = {"id": "1", "contents": "Bill Gates founded Microsoft.", "vector": {"founded": 90, "gates": 120}}
    (tmp_path / "v.jsonl").write_text(json.dumps(vector))
    (package,) = (bare.parent / "lib").glob("python*/site-packages/sparta")
    tokenizer = package / "resources" / "models" / "sparta-small-en"
    made = run(
        *(bare / "sparta", "index", "--vectors", "v.jsonl", "--tokenizer", tokenizer, "--index", "ix"),
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stderr
    hits = run(bare / "sparta", "search", "who founded", "--index", "ix", "--json", cwd=tmp_path)
    assert json.loads(hits.stdout)["score"] == 90


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (
            [
                "sparta",
                "train",
                "--encoder",
                "e",
                "--pairs",
                "pairs.jsonl",
                "--output",
                "m",
            ],
            "train",
        ),
        (["sparta", "mcp", "--index", "none"], "mcp"),
        (["sparta", "encode", "--corpus", "c.jsonl", "--output", "s", "--ray", "local"], "ray"),
    ],
)
def test_what_is_missing_is_named_with_its_extra(
    bare: Path, tmp_path: Path, command: list[str], extra: str
) -> None:
    (tmp_path / "c.jsonl").write_text('{"id": "1", "text": "the moon"}\n')
    pairs = ({"question": f"what orbits {i}", "positive": f"moon {i}"} for i in range(12))
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    result = run(bare / command[0], *command[1:], cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"→ pip install 'sparta-search[{extra}]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_ten_lines_of_python_run_from_the_wheel(bare: Path, tmp_path: Path) -> None:
    result = run(bare / "python", "-c", TEN_LINES, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    first, *rest = result.stdout.splitlines()
    passage_id, score, text = first.split(maxsplit=2)
    assert (passage_id, text) == ("1", "Bill Gates founded Microsoft.")
    assert float(score) > 0
    assert "founded" in "".join(rest)


def test_dense_brings_faiss(wheel: Path, index: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "env", wheel, "[dense]")
    copy = shutil.copytree(index, tmp_path / "ix")
    made = run(programs / "dense", "index", "--kind", "hnsw", "--model", DENSE, "--index", copy, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    found = run(programs / "hybrid", "search", "who founded google", "--index", copy, "--json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout.splitlines()[0])["title"] == "Google"
    assert run(programs / "python", "-c", "import torch", cwd=tmp_path).returncode == 1


def test_mcp_serves_a_search(wheel: Path, index: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "env", wheel, "[mcp]")
    (tmp_path / "client.py").write_text(MCP_CLIENT)
    found = run(programs / "python", "client.py", programs / "sparta", index, cwd=tmp_path)
    assert (found.returncode, found.stdout) == (0, "Google\n"), found.stderr
