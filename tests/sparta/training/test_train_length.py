"""Training texts are as long as one says: read, cut and encoded so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sparta.training.options import SpartaRecipe
from sparta.training.paragraphs import LONGEST_WORDS, longest_text, open_set, read_paragraphs
from sparta.training.train import train_model

pytestmark = pytest.mark.usefixtures("one_thread")


def test_longer_texts_are_read_where_they_are_wanted(tmp_path: Path) -> None:
    text = " ".join(f"word{i}" for i in range(400))
    (tmp_path / "p.jsonl").write_text(json.dumps({"question": "q", "positive": text}) + "\n")
    usual = next(iter(read_paragraphs(tmp_path / "p.jsonl", "passages")))
    longer = next(iter(read_paragraphs(tmp_path / "p.jsonl", "passages", longest=2 * LONGEST_WORDS)))
    assert (len(usual.text), len(longer.text)) == (1200, 2400)
    assert longest_text(LONGEST_WORDS) == 1200


@pytest.mark.parametrize(("train_length", "longest"), [(64, 64), (192, 192), (300, 256)])
def test_the_encoder_sees_texts_of_that_length(
    encoder_folder: Path, tmp_path: Path, train_length: int, longest: int
) -> None:
    """Up to what the model reads at once."""
    seen: list[int] = []

    def watch(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        if isinstance(module, torch.nn.Embedding) and module.training:
            seen.append(inputs[0].shape[1])

    text = " ".join(["the moon"] * 200)
    rows = [json.dumps({"question": f"q{i}", "positive": f"{text} {i}"}) for i in range(12)]
    (tmp_path / "p.jsonl").write_text("\n".join(rows))
    recipe = SpartaRecipe(encoder=str(encoder_folder), train_length=train_length, steps=1, device="cpu")
    sets = [open_set(str(tmp_path / "p.jsonl"), "pairs", 8, longest=LONGEST_WORDS * 2)]
    with torch.nn.modules.module.register_module_forward_pre_hook(watch):
        train_model(sets, recipe, tmp_path / "out")
    assert max(seen) == longest
