"""A tiny reader with random weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sparta.reader.config import ReaderConfig, ReaderLayout
from sparta.reader.span_reader import SpanReader

LAYOUT = ReaderLayout(max_length=48, overlap=16, longest_question=12, longest_answer=6)


@pytest.fixture
def tiny_reader(encoder_folder: Path) -> SpanReader:
    """Untrained, on the tiny encoder."""
    torch.manual_seed(4)
    return SpanReader.from_encoder(encoder_folder, ReaderConfig(LAYOUT)).eval()
