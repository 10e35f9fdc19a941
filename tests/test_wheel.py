"""The wheel in a fresh environment: indexing, searching and answering need no torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UV = shutil.which("uv", path=str(Path(sys.executable).parent))
BUILD = (UV, "build", "--wheel", "--quiet", "--python", sys.executable)
NEURAL = ("torch", "transformers", "pyserini", "faiss", "matplotlib")
TEN_LINES = """
from sparta import Index
index = Index.create("ix", [{"id": "1", "text": "Bill Gates founded Microsoft."}])
for hit in index.search("who founded microsoft", k=3):
    print(hit.passage_id, hit.score, hit.text)
print(index.explain("who founded microsoft", "1"))
"""
pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.skipif(UV is None, reason="uv is not installed")]


def run(*command: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SPARTA", "VIRTUAL"))}
    variables = {"UV_PYTHON_DOWNLOADS": "never", **variables}
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    built = run(*BUILD, "--out-dir", folder, source, cwd=folder)
    if built.returncode and "pypi" in built.stderr:
        pytest.skip(f"no package registry: {built.stderr}")
    assert built.returncode == 0, built.stderr
    (made,) = folder.glob("*.whl")
    shutil.rmtree(source)
    return made


def environment(folder: Path, wheel: Path, extras: str = "") -> Path:
    """Make an environment with the wheel, of the locked versions; return its bin folder."""
    made = run(UV, "venv", "--quiet", "--python", sys.executable, folder, cwd=folder.parent)
    assert made.returncode == 0, made.stderr
    constraints = ("--constraint", ROOT / "requirements.lock")
    python = ("--python", folder / "bin" / "python")
    installed = run(
        *(UV, "pip", "install", "--quiet", "--link-mode", "symlink", *python, *constraints),
        f"sparta-search{extras} @ file://{wheel}",
        cwd=folder.parent,
    )
    assert installed.returncode == 0, installed.stderr
    return folder / "bin"


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
    sparta = (sys.executable, "-m", "cli._sparta", "index", "--corpus", "c.jsonl", "--index", "ix", "--quiet")
    made = run(*sparta, cwd=folder, PYTHONPATH=str(ROOT))
    assert made.returncode == 0, made.stderr
    return folder / "ix"


def test_searching_needs_nothing_neural(bare: Path, index: Path, tmp_path: Path) -> None:
    code = f"from importlib.util import find_spec; print([n for n in {NEURAL!r} if find_spec(n)])"
    assert run(bare / "python", "-c", code, cwd=tmp_path).stdout == "[]\n"
    here = [sys.executable, "-m", "cli._sparta"]
    for command in (
        ["search", "who founded google", "--json"],
        ["search", "who founded google", "--channel", "bm25", "--json"],
        ["terms", "google"],
        ["explain", "who founded google", "google"],
    ):
        given = [*command, "--index", index]
        there = run(bare / "sparta", *given, cwd=tmp_path)
        assert there.returncode == 0, there.stderr
        assert there.stdout == run(*here, *given, cwd=ROOT).stdout
    for command in (
        ["export", "--format", "ciff", "--output", "postings.ciff"],
        ["delete", "google"],
    ):
        there = run(bare / "sparta", *command, "--index", index, cwd=tmp_path)
        assert there.returncode == 0, there.stderr
    assert (tmp_path / "postings.ciff").stat().st_size > 10_000
    doctor = run(bare / "sparta", "doctor", "--index", index, cwd=tmp_path)
    assert doctor.returncode == 0, doctor.stdout
    assert "sparta-search[dense]" in doctor.stdout


def test_ready_vectors_are_indexed_without_an_encoder(bare: Path, tmp_path: Path) -> None:
    vector = {"id": "1", "contents": "Bill Gates founded Microsoft.", "vector": {"founded": 90, "gates": 120}}
    (tmp_path / "v.jsonl").write_text(json.dumps(vector))
    (package,) = (bare.parent / "lib").glob("python*/site-packages/sparta")
    tokenizer = package / "resources" / "models" / "sparta-bge-small-en"
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
