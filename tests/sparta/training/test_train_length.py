"""Training texts are as long as one says: read, cut and encoded so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparta.training.options import SpartaRecipe
from sparta.training.paragraphs import LONGEST_WORDS, longest_text, open_set, read_paragraphs

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
    encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_length: int, longest: int
) -> None:
    """Up to what the model reads at once."""
    import sparta.training.train as module

    seen: dict[str, Any] = {}

    class StoppedError(Exception):
        pass

    def stop(model: Any, sets: Any, config: Any, *rest: Any) -> Any:
        seen["longest"] = min(config.max_tokens, model.config.layout.max_length)
        raise StoppedError

    monkeypatch.setattr(module, "SpartaTraining", stop)
    rows = [json.dumps({"question": f"q{i}", "positive": f"the moon {i}"}) for i in range(12)]
    (tmp_path / "p.jsonl").write_text("\n".join(rows))
    recipe = SpartaRecipe(encoder=str(encoder_folder), train_length=train_length, device="cpu")
    sets = [open_set(str(tmp_path / "p.jsonl"), "pairs", 8)]
    with pytest.raises(StoppedError):
        module.train_model(sets, recipe, tmp_path / "out")
    assert seen["longest"] == longest
