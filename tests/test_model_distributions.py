"""Every folder of models/ builds a distribution that commands find by the model's name (`make test-slow`)."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.environments import ROOT, UV, build_wheel, environment, run

COMMANDS = {
    "multi-task-bge-small-en": "dense index --model multi-task-bge-small-en --index {index}",
    "path-reader-bge-small-en": "sparta answer 'who founded google' --chain hop-read --index {index}"
    " --threshold 0",
    "reader-small-zh": "sparta answer 月亮绕着什么转 --index zh --reader reader-small-zh --threshold 0",
    "reranker-minilm-en": "sparta search 'who founded google' --rerank reranker-minilm-en --index {index}",
    "sparta-small-zh": "sparta index --corpus zh.jsonl --language zh --model sparta-small-zh --index zh",
    "taser-det-en": "dense index --model taser-det-en --index {index}",
}
"""By model: a command that needs it. The Chinese index is made before its reader reads it."""
LARGEST_WHEEL = 100_000_000


def test_every_model_has_a_command() -> None:
    assert {path.parent.name for path in (ROOT / "models").glob("*/pyproject.toml")} == {*COMMANDS}


@pytest.mark.release
@pytest.mark.jvm
@pytest.mark.skipif(UV is None, reason="uv is not installed")
def test_every_model_is_found_by_its_name(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path)
    assert wheel.stat().st_size < LARGEST_WHEEL
    programs = environment(tmp_path / "env", wheel, "[zh]")
    (tmp_path / "zh.jsonl").write_text('{"id": "1", "text": "月亮绕着地球转。"}\n', encoding="utf-8")
    lines = (ROOT / "examples" / "wiki.jsonl").read_text(encoding="utf-8").splitlines()[:30]
    (tmp_path / "c.jsonl").write_text("\n".join(lines), encoding="utf-8")
    made = run(programs / "sparta", "index", "--corpus", "c.jsonl", "--index", "ix", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    for name in sorted(COMMANDS, reverse=True):  # the Chinese model comes before the Chinese reader
        index = shutil.copytree(tmp_path / "ix", tmp_path / f"ix-{name}")
        command = (word.format(index=index.name) for word in shlex.split(COMMANDS[name]))
        program, *arguments = command
        missing = run(programs / program, *arguments, cwd=tmp_path)
        assert missing.returncode, (name, missing.stdout)
        assert f"pip install ./models/{name}" in missing.stderr
        source = shutil.copytree(
            ROOT / "models" / name, tmp_path / name, ignore=shutil.ignore_patterns("build")
        )
        build = (UV, "build", "--wheel", "--quiet", "--python", sys.executable, "--no-build-isolation")
        built = run(*build, "--out-dir", tmp_path / "wheels", source, cwd=tmp_path)
        assert built.returncode == 0, built.stderr
        [model] = (tmp_path / "wheels").glob(f"sparta_model_{name.replace('-', '_')}-*.whl")
        assert model.stat().st_size < LARGEST_WHEEL
        pip = (UV, "pip", "install", "--quiet", "--no-deps", "--python", programs / "python", model)
        installed = run(*pip, cwd=tmp_path)
        assert installed.returncode == 0, installed.stderr
        shutil.rmtree(source)
        ended = run(programs / program, *arguments, cwd=tmp_path)
        assert ended.returncode == 0, (name, ended.stdout, ended.stderr)
        print(f"{name}: {model.stat().st_size / 1e6:.1f} MB; {program} {shlex.join(arguments)}")
