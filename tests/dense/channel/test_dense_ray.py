"""Vectors that workers of Ray write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cli._dense
from tests.dense.channel.channels import SIZE, N, done

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


def test_vectors_are_those_of_one_process(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    given = ["encode", "--corpus", corpus, "--model", model, "--shard-size", SIZE]
    said = [
        done(cli._dense.main, *given, "--output", tmp_path / name, *more)
        for name, more in (("one", []), ("two", ["--ray", "local", "--workers", 2]))
    ]
    assert f"encoded {N} passages" in said[0]
    assert said[1] == said[0].replace("/one", "/two")

    def contents(folder: Path) -> dict[str, Any]:
        return {p.name: p.read_bytes() for p in folder.iterdir()}

    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert len(contents(tmp_path / "one")) == 5
