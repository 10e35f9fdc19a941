"""One batch over several processes: each reads its share, all rank everything (DPR, §3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import distributed

from sparta.neural.processes import process_group


def read_in_shares[T](items: Sequence[T], read: Callable[[Sequence[T]], torch.Tensor]) -> torch.Tensor:
    """Return what `read` makes of all items, in their order, of which each process reads its share.

    All processes come here with the same items, and compute the same loss from what they get.
    """
    rank, processes = process_group()
    if processes == 1:
        return read(items)
    bounds = [len(items) * n // processes for n in range(processes + 1)]
    own = items[bounds[rank] : bounds[rank + 1]]
    rows = read(own or items[:1])[: len(own)]
    gathered: torch.Tensor = _Gathered.apply(rows, [b - a for a, b in pairwise(bounds)])
    return gathered


class _Gathered(torch.autograd.Function):
    """The rows of all processes. Each takes the gradient of its own, times the number of processes: the
    trainer averages over these what is to be summed.
    """

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        rank, processes = process_group()
        ctx.own, ctx.processes = slice(sum(counts[:rank]), sum(counts[: rank + 1])), processes
        padded = own.new_zeros((max(counts), *own.shape[1:]))
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in counts]
        distributed.all_gather(parts, padded)
        return torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0][ctx.own] * ctx.processes, None
