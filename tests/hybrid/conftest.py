"""An index with all channels, made once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PASSAGES = [
    {"id": "google", "title": "Google", "text": "who founded google"},
    {"id": "moon", "title": "Moon", "text": "the moon of the earth"},
]


@pytest.fixture(scope="session")
def built_dense_index(
    tiny_model_folder: Path, make_tiny_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index of PASSAGES with all channels, which no test changes."""
    from dense.channel.sync import build_dense
    from dense.models.bi_encoder import DenseConfig, DenseModel
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index
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
