"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.dense.training.recipes import questions_on


@pytest.fixture
def encoder(make_tiny_model: Callable[..., Any], tiny_tokenizer: Any, tmp_path: Path) -> str:
    folder = tmp_path / "encoder"
    make_tiny_model().encoder.save_pretrained(folder)
    tiny_tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


@pytest.fixture
def words(tiny_vocabulary: list[str]) -> list[str]:
    return [t for t in tiny_vocabulary if t.isascii() and t.isalpha() and len(t) > 3]


@pytest.fixture
def pairs(words: list[str], write_jsonl: Callable[..., Path], tmp_path: Path) -> Path:
    records = [
        {"question": p.questions[0][0], "positive": p.text} for p in questions_on(words, n=40).paragraphs
    ]
    return write_jsonl(tmp_path / "pairs.jsonl", records)
