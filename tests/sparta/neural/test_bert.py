"""Our BERT against transformers': the same names, the same states, the same training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, BertPreTrainedModel

from sparta.neural.backbones import blank_encoder, encoder_config, set_dropout
from sparta.neural.bert import Bert

SIZES = {"vocab_size": 90, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3}


@pytest.fixture
def theirs() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(**SIZES, intermediate_size=40, max_position_embeddings=32)
    model = BertModel(config, add_pooling_layer=False)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model.eval()


@pytest.fixture
def ours(theirs: BertModel) -> nn.Module:
    model = blank_encoder(encoder_config(theirs), "here")
    assert isinstance(model, Bert)
    model.load_state_dict(theirs.state_dict())
    return model.eval()


def inputs(padded: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    ids, segments = torch.randint(1, 90, (4, 20)), torch.randint(0, 2, (4, 20))
    mask = torch.ones_like(ids)
    if padded:
        for row, length in enumerate((20, 7, 1, 13)):
            mask[row, length:] = 0
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": segments}


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
def test_the_same_states(theirs: Any, ours: Any, kind: torch.dtype, padded: bool) -> None:
    given = inputs(padded)
    with torch.inference_mode(), torch.autocast("cpu", dtype=kind, enabled=kind != torch.float32):
        wanted, found = (m(**given).last_hidden_state for m in (theirs, ours))
    assert wanted.std() > 0.1
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6 if kind == torch.float32 else 1e-3)


def test_without_segments_all_are_the_first(theirs: Any, ours: Any) -> None:
    given = {k: v for k, v in inputs(padded=True).items() if k != "token_type_ids"}
    torch.testing.assert_close(ours(**given)[0], theirs(**given)[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dropout", [None, 0.4], ids=["of the configuration", "set"])
def test_the_same_dropout_and_gradients(theirs: Any, ours: Any, dropout: float | None) -> None:
    gradients = []
    for model in (theirs.train(), ours.train()):
        if dropout is not None:
            set_dropout(model, dropout)
        torch.manual_seed(2)
        model(**inputs(padded=True)).last_hidden_state.square().sum().backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    assert list(gradients[0]) == list(gradients[1])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-5, atol=1e-4)
    assert not gradients[1]["embeddings.word_embeddings.weight"][0].any(), "padding learns nothing"


@pytest.mark.parametrize("other", [{"hidden_act": "relu"}, {"is_decoder": True}], ids=str)
def test_what_differs_from_it_stays_transformers(theirs: Any, other: dict[str, Any]) -> None:
    assert isinstance(blank_encoder({**encoder_config(theirs), **other}, "here"), BertPreTrainedModel)
