"""Learned routers: what decides, and that the chosen expert alone computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel
from transformers.models.bert.modeling_bert import BertLayer

from dense.encoding.load import load_dense
from dense.encoding.question_encoder import open_question_encoder
from dense.encoding.stored_model import StoredDenseModel
from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from dense.models.experts import Experts
from sparta.base.records import Passage
from sparta.neural.inputs import InputLayout

WIDTH, EXPERTS = 16, 3


def made(routing: str) -> Experts:
    torch.manual_seed(3)
    config = BertConfig(
        hidden_size=WIDTH,
        num_attention_heads=2,
        intermediate_size=24,
        hidden_dropout_prob=0.0,
        attn_implementation="eager",
    )
    one = Experts(BertLayer(config), EXPERTS, routing).eval()
    with torch.no_grad():
        for number, expert in enumerate(one.experts):
            expert.output.dense.bias.add_(0.5 * number)
    return one


@pytest.mark.parametrize("routing", ["seq", "tok"])
def test_the_likeliest_expert_of_each_choice(routing: str) -> None:
    """Seq-R decides by the state of [CLS], the first; Tok-R by each token's own (TASER, §3.1)."""
    one = made(routing)
    states = torch.randn(12, 5, WIDTH)
    with torch.no_grad():
        found = one(states, states)
        assert one.router is not None
        likeliest = one.router(states).argmax(-1)
        chosen = likeliest[:, :1].expand_as(likeliest) if routing == "seq" else likeliest
        assert not torch.equal(likeliest[:, 0], likeliest[:, 1]), "another token would decide otherwise"
        every = torch.stack([expert(states) for expert in one.experts])
        for text in range(12):
            for token in range(5):
                expected = every[chosen[text, token], text, token]
                torch.testing.assert_close(found[text, token], expected)
    assert len(chosen.unique()) > 1


@pytest.mark.parametrize("routing", ["seq", "tok"])
def test_only_chosen_experts_compute(routing: str) -> None:
    one = made(routing)
    computed: list[int] = []
    for expert in one.experts:
        expert.register_forward_hook(lambda _, given, __: computed.append(given[0].shape[:2].numel()))
    states = torch.randn(8, 5, WIDTH)
    with torch.no_grad():
        one(states, states)
        assert sum(computed) == 8 * 5, "each token by one expert"
        computed.clear()
        one.train()
        one(states, states)
        assert sum(computed) == EXPERTS * 8 * 5, "in training the loss reaches the router through all"


@pytest.mark.parametrize("routing", ["seq", "tok"])
def test_entropy_is_that_of_the_choices(routing: str) -> None:
    one = made(routing)
    states = torch.randn(4, 3, WIDTH)
    with torch.no_grad():
        one(states, states)
        assert one.router is not None
        chances = one.router(states[:, :1] if routing == "seq" else states).softmax(-1)
        expected = torch.distributions.Categorical(chances).entropy().mean()
    torch.testing.assert_close(one.entropy, expected)


@pytest.mark.parametrize("routing", ["seq", "tok"])
def test_openvino_routes_as_torch_does(routing: str, tiny_tokenizer: Any, tmp_path: Path) -> None:
    torch.manual_seed(5)
    bert = BertConfig(
        vocab_size=tiny_tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=48,
    )
    config = DenseConfig(InputLayout(max_length=32, overlap=4), routing=routing, experts=3, period=2)
    model = DenseModel(BertModel(bert, add_pooling_layer=False), tiny_tokenizer, config).eval()
    with torch.no_grad():
        for name, parameter in model.passage_encoder.named_parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.3)
            elif ".experts." in name:
                parameter.normal_()
    model.save_pretrained(tmp_path)
    stored = load_dense(tmp_path, "cpu")
    assert isinstance(stored, StoredDenseModel)
    texts = ["the moon of the earth", "the king was born in paris", "larry page founded google", "the year"]
    passages = [Passage(str(i), text) for i, text in enumerate(texts)]
    right = model.encode_passages(passages, "fp32")
    np.testing.assert_allclose(stored.encode_passages(passages, "fp32"), right, atol=1e-4)
    np.testing.assert_allclose(stored.encode_questions(texts), model.encode_questions(texts), atol=1e-4)
    np.testing.assert_allclose(
        open_question_encoder(tmp_path).encode_questions(texts), model.encode_questions(texts), atol=1e-4
    )
    assert stored.arithmetic("auto") == "fp32", "fewer bits could change the choices"
