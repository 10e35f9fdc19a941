"""Scores entity spans by an anchor vector (Chain-of-Skills, §3.1, eq. 2 and 3)."""

from __future__ import annotations

import torch
from torch import nn

from dense.models.span_scores import SpanWeights


class SpanHead(nn.Module):
    """Scores a span: the dot product of the anchor and `tanh((h_i ⊕ h_j) W)` of its first and last state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(2 * width, width)
        self.anchor = nn.Parameter(torch.randn(width) / width**0.5)

    def scores(self, states: torch.Tensor, first: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Return the scores `(n,)` of the spans from `first (n,)` to `last (n,)` in one text.

        :param states: the text's token states `(length, width)`
        """
        span_vectors: torch.Tensor = torch.tanh(self.projection(torch.cat([states[first], states[last]], 1)))
        return span_vectors @ self.anchor

    def threshold(self, states: torch.Tensor) -> torch.Tensor:
        """Return the score of [CLS] in `states (…, length, width)`, shape `(…,)`.

        Entities must score higher.
        """
        return states[..., 0, :] @ self.anchor

    def without_torch(self) -> SpanWeights:
        """Return the weights as arrays."""
        tensors = self.projection.weight, self.projection.bias, self.anchor
        return SpanWeights(*(tensor.detach().float().cpu().numpy() for tensor in tensors))
