"""Specialized Transformer blocks: several experts, and what picks one.

Feed-forward experts and routers are TASER's (§3.1), attention experts Chain-of-Skills' (§3.2).
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
    """One feed-forward sub-layer with its LayerNorm: what stands in a BERT layer after attention."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.intermediate = copy.deepcopy(layer.intermediate)
        self.output = copy.deepcopy(layer.output)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """`(n, length, width)` to the same."""
        return self.output(self.intermediate(states), states)


class Experts(nn.Module):
    """Several experts side by side; stands in a BERT layer in the place of `output`.

    Routing `det`: the side, question or passage, decides (Det-R); `skill`: what is read does. `seq`: a linear
    layer on the state of [CLS] does, for the whole text (Seq-R). `tok`: the same for each token (Tok-R). A
    learned router samples straight through Gumbel softmax in training (eq. 4), where all experts compute so
    that the retrieval loss reaches it; otherwise the likeliest expert is taken, which alone computes.
    `entropy` is that of the last batch's choices (eq. 5), with gradients; those of padding, where
    `mask (n, length)` is 0, are nobody's.
    """

    def __init__(self, layer: Any, n_experts: int, routing: str) -> None:
        super().__init__()
        if routing not in ROUTINGS or n_experts < 2 or (routing == "det" and n_experts != 2):
            raise ModelError(
                f"expected routing det with 2 experts, or another with 2 or more, found {routing!r}"
                f" with {n_experts}"
            )
        self.experts = nn.ModuleList(Expert(layer) for _ in range(n_experts))
        self.routing = routing
        self.side = QUESTION
        width = layer.output.dense.out_features
        self.router = nn.Linear(width, n_experts) if routing in ("seq", "tok") else None
        self.entropy = torch.zeros(())
        self.mask: torch.Tensor | None = None

    def forward(self, _: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """`states (n, length, width)` are the attention's; the first argument is what stood before them."""
        if self.router is None:
            return self.experts[self.side](states)
        seen = states[:, :1] if self.routing == "seq" else states
        logits = self.router(seen).float()
        chances = logits.softmax(-1)
        self.entropy = self._mean(-(chances * chances.clamp_min(1e-9).log()).sum(-1))
        if not self.training:
            return self._chosen(states, logits.argmax(-1))
        choice = functional.gumbel_softmax(logits, hard=True)
        outputs = torch.stack([expert(states) for expert in self.experts], -1)
        return (outputs * choice[:, :, None].to(outputs.dtype)).sum(-1)

    def _chosen(self, states: torch.Tensor, choice: torch.Tensor) -> torch.Tensor:
        """Let each expert compute what is its own: `choice (n, 1)` by text, or `(n, length)` by token."""
        texts = states if self.routing == "seq" else states.flatten(0, 1)[:, None]
        outputs = torch.empty_like(texts)
        for number, expert in enumerate(self.experts):
            own = (choice.flatten() == number).nonzero()[:, 0]
            if len(own):
                outputs[own] = expert(texts[own]).to(outputs.dtype)
        return outputs.view_as(states)

    def _mean(self, entropies: torch.Tensor) -> torch.Tensor:
        """Of `(n, choices)` those that stand for a token."""
        if self.mask is None or entropies.shape[1] == 1:
            return entropies.mean()
        counts = self.mask.to(entropies.dtype)
        return (entropies * counts).sum() / counts.sum()


class ChosenLinear(nn.Module):
    """Several linear layers in the place of one, each a copy of it: `side` says which one computes."""

    router: nn.Linear | None = None

    def __init__(self, linear: nn.Module, n_experts: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(copy.deepcopy(linear) for _ in range(n_experts))
        self.side = QUESTION
        self.entropy = torch.zeros(())
        self.mask: torch.Tensor | None = None

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """As the linear layer."""
        found: torch.Tensor = self.experts[self.side](states)
        return found


Routed = Experts | ChosenLinear


def specialize(
    encoder: nn.Module, n_experts: int, routing: str, period: int = 3, placement: str = FEED_FORWARD
) -> list[Routed]:
    """Give every `period`-th layer experts, each a copy of what it had; what routes, bottom first.

    With 12 layers and a period of 3 (T = 2 shared ones between) these are 2, 5, 8 and 11, counted from 0;
    with a period of 2 every other one, from 1 on. Experts are the layer's feed-forward, or with `placement`
    attention its query, key, value and output matrices.
    """
    layers = getattr(getattr(encoder, "encoder", None), "layer", None)
    if layers is None or not hasattr(layers[0], "intermediate"):
        raise ModelError("expected a BERT-like encoder with layers that have a feed-forward, found another")
    made: list[Routed] = []
    for number in range(period - 1, len(layers), period):
        layer = layers[number]
        if placement == ATTENTION:
            made += _attention_experts(layer, n_experts)
            continue
        layer.output = Experts(layer, n_experts, routing)
        layer.intermediate = nn.Identity()
        made.append(layer.output)
    if not made:
        raise ModelError(f"expected at least {period} layers, found {len(layers)}")
    return made


def _attention_experts(layer: Any, n_experts: int) -> list[ChosenLinear]:
    heads, after = layer.attention.self, layer.attention.output
    for part in ("query", "key", "value"):
        setattr(heads, part, ChosenLinear(getattr(heads, part), n_experts))
    after.dense = ChosenLinear(after.dense, n_experts)
    return [heads.query, heads.key, heads.value, after.dense]


def set_side(experts: list[Routed], side: int) -> None:
    """Say which expert computes where no router decides: that of questions, of passages, of a skill."""
    for one in experts:
        one.side = side


def set_mask(experts: list[Routed], mask: torch.Tensor) -> None:
    """Tell routers which tokens `(n, length)` of the next inputs are padding: those with 0."""
    for one in experts:
        one.mask = mask
