"""Checkpoints of Chain-of-Skills' code: `moe_query`, `moe_key`, `moe_value`, `moe_dense`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dense.encoding.skills import Skills
from dense.encoding.stored_model import StoredDenseModel
from dense.models.bi_encoder import DenseModel
from dense.models.skill_checkpoints import load_released
from sparta.base.errors import ModelError
from sparta.base.records import Passage
from tests.dense.models.skill_models import skill_config, skill_model
from tests.programs import dense

pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = {
    "query": "self.moe_query",
    "key": "self.moe_key",
    "value": "self.moe_value",
    "dense": "output.moe_dense",
}


def released(model: DenseModel) -> dict[str, torch.Tensor]:
    """A model's weights under the names of the original code, once for each side."""
    weights = {}
    for name, tensor in model.passage_encoder.state_dict().items():
        name = re.sub(
            r"(?:self|output)\.(query|key|value|dense)\.experts\.", lambda m: f"{NAMES[m[1]]}.", name
        )
        for side in ("question_model", "ctx_model"):
            weights[f"{side}.encoder.{name}"] = tensor
    for side in ("question_model", "ctx_model"):
        weights[f"{side}.encoder.embeddings.position_ids"] = torch.arange(512)[None]
        weights[f"{side}.encoder.pooler.dense.weight"] = torch.zeros(64, 64)
    if model.spans is not None:
        weights["span_proj.weight"] = model.spans.projection.weight.detach()
        weights["span_proj.bias"] = model.spans.projection.bias.detach()
        weights["span_query.weight"] = model.spans.anchor.detach()[None]
        weights["span_query.bias"] = torch.ones(1)
    return weights


@pytest.mark.slow
@pytest.mark.parametrize("experts", [4, 6])
def test_a_released_layout(experts: int, tiny_tokenizer: Any, tmp_path: Path) -> None:
    if experts == 6:
        original = skill_model(tiny_tokenizer, layers=6)
    else:
        config = skill_config(assignment="pretraining", skills=("single", "expanded", "link"))
        original = skill_model(tiny_tokenizer, config, layers=6)
    weights = released(original)
    assert "ctx_model.encoder.encoder.layer.5.attention.output.moe_dense.3.weight" in weights
    assert not any(".layer.4." in name and "moe" in name for name in weights)
    torch.save({"model_dict": weights, "epoch": 39}, tmp_path / "cos.ckpt")
    tiny_tokenizer.save(str(tmp_path / "tokenizer.json"))
    done = dense("convert", "--from", tmp_path / "cos.ckpt", "--output", tmp_path / "ours")
    assert done.exit_code == 0, done.output
    assert f"{experts} attention experts, period 2" in done.output
    found, own = Skills.open(tmp_path / "ours", dtype="fp32"), Skills(original, dtype="fp32")
    assert found.config.experts == original.config.skills.experts  # type: ignore[union-attr]
    asked = ["the moon"], [Passage("", "the king was born in paris", "King")]
    assert isinstance(found.model, StoredDenseModel)
    same = partial(np.testing.assert_allclose, atol=1e-5)
    same(found.encode_expanded(*asked), own.encode_expanded(*asked))
    same(found.encode_entities(asked[1]), own.encode_entities(asked[1]))
    same(found.encode_mentions(["the moon"], [(4, 8)]), own.encode_mentions(["the moon"], [(4, 8)]))
    if experts == 6:
        same(found.rerank(*asked), own.rerank(*asked), atol=1e-4)
        text = ["larry page and sergey brin founded google"]
        for ours, theirs in zip(found.find_spans(text), own.find_spans(text), strict=True):
            assert [span[:2] for span in ours] == [span[:2] for span in theirs]
            same([span.score for span in ours], [span.score for span in theirs], atol=1e-4)


def test_other_layouts_are_refused(tiny_tokenizer: Any, tmp_path: Path) -> None:
    weights = released(skill_model(tiny_tokenizer))
    tiny_tokenizer.save(str(tmp_path / "tokenizer.json"))
    file = tmp_path / "cos.ckpt"
    for name in ("span_proj.weight", "ctx_model.encoder.encoder.layer.1.attention.self.moe_key.0.weight"):
        torch.save({"model_dict": {k: v for k, v in weights.items() if k != name}}, file)
        with pytest.raises(ModelError, match="expected"):
            load_released(file, tmp_path)
    torch.save({"model_dict": {k: v for k, v in weights.items() if not re.search(r"moe_\w+\.5\.", k)}}, file)
    with pytest.raises(ModelError, match="found 5"):
        load_released(file, tmp_path)
