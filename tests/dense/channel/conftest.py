"""Fixtures of the tests in this folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dense.channel.sync import build_dense
from dense.models.bi_encoder import DenseConfig, DenseModel
from tests.dense.channel.channels import LAYOUT, N, done
from tests.programs import sparta


@pytest.fixture(scope="module")
def make_dense(make_tiny_model: Callable[..., Any], tmp_path_factory: Any) -> Callable[..., Path]:
    def make(seed: int = 0, **config: Any) -> Path:
        import torch

        tiny = make_tiny_model(seed=seed)
        torch.manual_seed(seed)
        folder = tmp_path_factory.mktemp("dense") / "model"
        DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(LAYOUT, **config)).save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="module")
def model(make_dense: Callable[..., Path]) -> Path:
    return make_dense()


@pytest.fixture(scope="module")
def corpus(make_records: Any, write_jsonl: Any, tmp_path_factory: Any) -> Path:
    return write_jsonl(
        tmp_path_factory.mktemp("corpus") / "corpus.jsonl", make_records(N, seed=1, prefix="n")
    )


@pytest.fixture(scope="module")
def plain_index(corpus: Path, tiny_model_folder: Path, tmp_path_factory: Any) -> Path:
    """An index without a dense channel. Do not write into it."""
    index = tmp_path_factory.mktemp("plain") / "index"
    done(sparta, "index", "--corpus", corpus, "--model", tiny_model_folder, "--index", index)
    return index


@pytest.fixture
def index(plain_index: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(plain_index, tmp_path / "index"))


@pytest.fixture
def made(index: Path, model: Path) -> Path:
    build_dense(index, str(model))
    return index
