"""An index says what encoded it, in a place that older releases ignore, and warns if another one goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparta.index.folder import IndexFolder
from sparta.index.pipeline import IndexOptions, build_index

pytestmark = pytest.mark.jvm
RECORDS = [{"id": str(i), "text": text} for i, text in enumerate(("the moon of the earth", "an old city"))]


def test_another_arithmetic_warns(
    tiny_model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = IndexOptions(model=str(tiny_model_folder), device="cpu")
    build_index(tmp_path / "ix", RECORDS, options=options)
    manifest: dict[str, Any] = json.loads((tmp_path / "ix" / "manifest.json").read_text())
    assert manifest["arithmetic"] == {"live": "openvino fp32"}  # the tiny model gains nothing from 8 bits
    assert "arithmetic" not in manifest["live"]
    build_index(tmp_path / "ix", RECORDS[:1], "update", options)
    assert caplog.text == ""
    folder = IndexFolder(tmp_path / "ix")
    state = folder.state()
    assert state.live is not None
    folder.write_state(replace(state, live=replace(state.live, arithmetic="torch bf16")))
    build_index(tmp_path / "ix", RECORDS[:1], "update", options)
    assert "was encoded with torch bf16, this input with openvino fp32" in caplog.text
    assert folder.state().live == replace(folder.require_live(), arithmetic="torch bf16")
