"""Learned routers: what decides, and that the chosen expert alone computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

from dense.models.experts import Experts

WIDTH, EXPERTS = 16, 3


def made(routing: str) -> Experts:
    torch.manual_seed(3)
    config = BertConfig(
        hidden_size=WIDTH, num_attention_heads=2, intermediate_size=24, hidden_dropout_prob=0.0
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
def test_only_chosen_experts_compute(routing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(routing)
    computed: list[int] = []
    for expert in one.experts:
        forward = expert.forward

        def counted(states: torch.Tensor, forward: Any = forward) -> torch.Tensor:
            computed.append(states.shape[0] * states.shape[1])
            return forward(states)

        monkeypatch.setattr(expert, "forward", counted)
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
