"""Specialized Transformer blocks: several feed-forward experts, and a router that picks one (TASER, §3.1)."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dense.models.config import QUESTION
from sparta.base.errors import ModelError

ROUTINGS = ("det", "seq", "tok")


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

    Routing `det`: the side, question or passage, decides (Det-R). `seq`: a linear layer on the state of
    [CLS] does, for the whole text (Seq-R). `tok`: the same for each token (Tok-R). A learned router samples
    straight through Gumbel softmax in training (eq. 4), where all experts compute so that the retrieval loss
    reaches it; otherwise the likeliest expert is taken, which alone computes. `entropy` is that of the last
    batch's choices (eq. 5), with gradients; those of padding, where `mask (n, length)` is 0, are nobody's.
    """

    def __init__(self, layer: Any, n_experts: int, routing: str) -> None:
        super().__init__()
        if routing not in ROUTINGS or n_experts < 2 or (routing == "det" and n_experts != 2):
            raise ModelError(
                f"expected routing det with 2 experts, or seq or tok with 2 or more, found {routing!r}"
                f" with {n_experts}"
            )
        self.experts = nn.ModuleList(Expert(layer) for _ in range(n_experts))
        self.routing = routing
        self.side = QUESTION
        width = layer.output.dense.out_features
        self.router = nn.Linear(width, n_experts) if routing != "det" else None
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


def specialize(encoder: nn.Module, n_experts: int, routing: str, period: int = 3) -> list[Experts]:
    """Give every `period`-th layer experts, each a copy of its feed-forward; the layers, bottom first.

    With 12 layers and a period of 3 (T = 2 shared ones between) these are 2, 5, 8 and 11, counted from 0.
    """
    layers = getattr(getattr(encoder, "encoder", None), "layer", None)
    if layers is None or not hasattr(layers[0], "intermediate"):
        raise ModelError("expected a BERT-like encoder with layers that have a feed-forward, found another")
    made = []
    for number in range(period - 1, len(layers), period):
        layer = layers[number]
        layer.output = Experts(layer, n_experts, routing)
        layer.intermediate = nn.Identity()
        made.append(layer.output)
    if not made:
        raise ModelError(f"expected at least {period} layers, found {len(layers)}")
    return made


def set_side(experts: list[Experts], side: int) -> None:
    """Tell deterministic routers whether questions or passages come."""
    for one in experts:
        one.side = side


def set_mask(experts: list[Experts], mask: torch.Tensor) -> None:
    """Tell routers which tokens `(n, length)` of the next inputs are padding: those with 0."""
    for one in experts:
        one.mask = mask
