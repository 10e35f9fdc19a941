"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dense.models.bi_encoder import DenseConfig, DenseModel
from tests.dense.models.bi_encoders import LAYOUT


@pytest.fixture
def make(make_tiny_model: Callable[..., Any]) -> Callable[..., DenseModel]:
    def build(codes: int = 0, shared: bool = True, seed: int = 0) -> DenseModel:
        tiny = make_tiny_model(seed=seed)
        torch.manual_seed(seed)
        return DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(LAYOUT, codes, shared)).eval()

    return build
