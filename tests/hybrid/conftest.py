"""An index with all channels, made once."""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

PASSAGES = [
    {"id": "google", "title": "Google", "text": "who founded google"},
    {"id": "moon", "title": "Moon", "text": "the moon of the earth"},
]


@pytest.fixture
def calls() -> Iterator[Callable[..., list[tuple[str, dict[str, Any]]]]]:
    """A function `(*functions) -> list`: name and arguments of each later call. The functions run as ever."""
    monitoring, tool = sys.monitoring, 4
    names: dict[CodeType, str] = {}
    recorded: list[tuple[str, dict[str, Any]]] = []

    def record(code: CodeType, _offset: int) -> None:
        here = inspect.currentframe()
        assert here is not None
        assert here.f_back is not None
        recorded.append((names[code], dict(here.f_back.f_locals)))

    def watch(*functions: Any) -> list[tuple[str, dict[str, Any]]]:
        for function in functions:
            code = inspect.unwrap(function).__code__
            names[code] = function.__name__
            monitoring.set_local_events(tool, code, monitoring.events.PY_START)
        return recorded

    monitoring.use_tool_id(tool, "calls")
    monitoring.register_callback(tool, monitoring.events.PY_START, record)
    yield watch
    for code in names:
        monitoring.set_local_events(tool, code, 0)
    monitoring.register_callback(tool, monitoring.events.PY_START, None)
    monitoring.free_tool_id(tool)


@pytest.fixture(scope="session")
def built_dense_index(
    tiny_model_folder: Path, make_tiny_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index of PASSAGES with all channels, which no test changes."""
    from dense.channel.sync import build_dense
    from dense.models.bi_encoder import DenseConfig, DenseModel
    from sparta.index.pipeline import IndexOptions, build_index
    from sparta.neural.inputs import InputLayout

    folder, tiny = tmp_path_factory.mktemp("all-channels"), make_tiny_model()
    layout = InputLayout(use_title=True, use_context=True, answer_segment=0, max_length=64, overlap=8)
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout)).save_pretrained(folder / "dense")
    build_index(folder / "ix", PASSAGES, "create", IndexOptions(model=str(tiny_model_folder), dtype="fp32"))
    build_dense(folder / "ix", str(folder / "dense"))
    return folder / "ix"


@pytest.fixture
def dense_index(built_dense_index: Path, tmp_path: Path) -> Path:
    """The same index, for a test that changes it."""
    return Path(shutil.copytree(built_dense_index, tmp_path / "ix"))
