"""Transformer blocks with several experts, and routers that choose the expert.

Feed-forward experts and routers follow TASER (§3.1), attention experts Chain-of-Skills (§3.2).
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dense.models.config import BY_SKILL, QUESTION
from dense.models.skill_config import ATTENTION, FEED_FORWARD
from sparta.base.errors import ModelError

ROUTINGS = ("det", "seq", "tok", BY_SKILL)


class Expert(nn.Module):
    """A feed-forward sub-layer with its LayerNorm: the part of a BERT layer after attention."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.intermediate = copy.deepcopy(layer.intermediate)
        self.output = copy.deepcopy(layer.output)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return new states `(n, length, width)` of the same shape."""
        return self.output(self.intermediate(states), states)


class Experts(nn.Module):
    """Several feed-forward experts and their router. Replaces `output` in a BERT layer.

    Routing `det` chooses by the side, question or passage (Det-R), and `skill` by the kind of input. `seq`
    chooses one expert per text, by a linear layer on the state of [CLS] (Seq-R); `tok` one per token (Tok-R).
    In training, a learned router samples with straight-through Gumbel softmax (eq. 4), and all experts
    compute, so that the loss reaches the router. Otherwise only the most likely expert computes. `entropy` is
    the entropy of the last batch's choices (eq. 5), with gradients. Padding, where `mask (n, length)` is 0,
    does not count.
    """

    def __init__(self, layer: Any, n_experts: int, routing: str) -> None:
        super().__init__()
        if routing not in ROUTINGS or n_experts < 2 or (routing == "det" and n_experts != 2):
            raise ModelError(
                f"routing det needs 2 experts, any other routing 2 or more; found {routing!r}"
                f" with {n_experts} experts"
            )
        self.experts = nn.ModuleList(Expert(layer) for _ in range(n_experts))
        self.routing = routing
        self.side = QUESTION
        width = layer.output.dense.out_features
        self.router = nn.Linear(width, n_experts) if routing in ("seq", "tok") else None
        self.entropy = torch.zeros(())
        self.mask: torch.Tensor | None = None

    def forward(self, _: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Return the layer's output states `(n, length, width)`.

        :param _: ignored: the states before the sub-layer, which BERT passes first
        :param states: the states after attention
        """
        if self.router is None:
            return self.experts[self.side](states)
        router_states = states[:, :1] if self.routing == "seq" else states
        logits = self.router(router_states).float()
        probabilities = logits.softmax(-1)
        self.entropy = self._mean_entropy(-(probabilities * probabilities.clamp_min(1e-9).log()).sum(-1))
        if not self.training:
            return self._apply_chosen(states, logits.argmax(-1))
        weights = functional.gumbel_softmax(logits, hard=True)
        outputs = torch.stack([expert(states) for expert in self.experts], -1)
        return (outputs * weights[:, :, None].to(outputs.dtype)).sum(-1)

    def _apply_chosen(self, states: torch.Tensor, choice: torch.Tensor) -> torch.Tensor:
        """Apply the chosen experts: `choice (n, 1)` per text, or `(n, length)` per token."""
        texts = states if self.routing == "seq" else states.flatten(0, 1)[:, None]
        outputs = torch.empty_like(texts)
        for number, expert in enumerate(self.experts):
            rows = (choice.flatten() == number).nonzero()[:, 0]
            if len(rows):
                outputs[rows] = expert(texts[rows]).to(outputs.dtype)
        return outputs.view_as(states)

    def _mean_entropy(self, entropies: torch.Tensor) -> torch.Tensor:
        """Return the mean of entropies `(n, choices)` over texts, or over tokens without padding."""
        if self.mask is None or entropies.shape[1] == 1:
            return entropies.mean()
        counts = self.mask.to(entropies.dtype)
        return (entropies * counts).sum() / counts.sum()


class Chosen(nn.Module):
    """Several copies of a linear layer or of an encoder, which replace it.

    `side` is the number of the copy that computes, and `config` an encoder's configuration.
    """

    router: nn.Linear | None = None

    def __init__(self, module: nn.Module, n_experts: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(copy.deepcopy(module) for _ in range(n_experts))
        self.config = getattr(module, "config", None)
        self.side = QUESTION
        self.entropy = torch.zeros(())
        self.mask: torch.Tensor | None = None

    def forward(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Apply the chosen copy."""
        return self.experts[self.side](*inputs, **named_inputs)

    def set_attn_implementation(self, name: str) -> None:
        """Choose the attention of all encoders, as transformers does."""
        encoders: Any = self.experts
        for encoder in encoders:
            encoder.set_attn_implementation(name)


Routed = Experts | Chosen


def specialize(
    encoder: nn.Module, n_experts: int, routing: str, period: int = 3, placement: str = FEED_FORWARD
) -> list[Routed]:
    """Give every `period`-th layer experts, as copies of its weights.

    Returns the new modules, bottom layer first.

    With 12 layers and a period of 3 (T = 2 shared layers between), layers 2, 5, 8 and 11 have experts,
    counted from 0. With a period of 2, layers 1, 3, 5 and so on. The experts are the layer's feed-forward, or
    with `placement` attention its query, key, value and output matrices.
    """
    layers = getattr(getattr(encoder, "encoder", None), "layer", None)
    if layers is None or not hasattr(layers[0], "intermediate"):
        raise ModelError("experts need a BERT-like encoder, whose layers have a feed-forward sub-layer")
    routed_modules: list[Routed] = []
    for number in range(period - 1, len(layers), period):
        layer = layers[number]
        if placement == ATTENTION:
            routed_modules += _attention_experts(layer, n_experts)
            continue
        layer.output = Experts(layer, n_experts, routing)
        layer.intermediate = nn.Identity()
        routed_modules.append(layer.output)
    if not routed_modules:
        raise ModelError(
            f"experts in every {period}th layer need at least {period} layers, found {len(layers)}"
        )
    return routed_modules


def _attention_experts(layer: Any, n_experts: int) -> list[Chosen]:
    heads, after = layer.attention.self, layer.attention.output
    for matrix in ("query", "key", "value"):
        setattr(heads, matrix, Chosen(getattr(heads, matrix), n_experts))
    after.dense = Chosen(after.dense, n_experts)
    return [heads.query, heads.key, heads.value, after.dense]


def set_side(experts: list[Routed], side: int) -> None:
    """Set the number of the expert that computes in modules without a router."""
    for module in experts:
        module.side = side


def set_mask(experts: list[Routed], mask: torch.Tensor) -> None:
    """Set the mask `(n, length)` of the next inputs, which is 0 for padding."""
    for module in experts:
        module.mask = mask
