"""Entity spans are told from others by an anchor vector (Chain-of-Skills, §3.1, eq. 2 and 3)."""

from __future__ import annotations

import torch
from torch import nn

LONGEST_SPAN = 10
"""Wordpieces."""


class SpanHead(nn.Module):
    """`tanh((h_i ⊕ h_j) W)` of a span's first and last state, and the anchor that it is compared with."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(2 * width, width)
        self.anchor = nn.Parameter(torch.randn(width) / width**0.5)

    def scores(self, states: torch.Tensor, first: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """`(n,)`: of the spans from `first (n,)` to `last (n,)` in one text's `states (length, width)`."""
        found: torch.Tensor = torch.tanh(self.projection(torch.cat([states[first], states[last]], 1)))
        return found @ self.anchor

    def threshold(self, states: torch.Tensor) -> torch.Tensor:
        """`(…,)`: what a span must score above, that of [CLS], in `states (…, length, width)`."""
        return states[..., 0, :] @ self.anchor
