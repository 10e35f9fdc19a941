"""Shares a batch among processes: each encodes a part, and all rank all candidates (DPR, §3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import distributed

from sparta.neural.processes import process_group


def read_in_shares[T](items: Sequence[T], read: Callable[[Sequence[T]], torch.Tensor]) -> torch.Tensor:
    """Apply `read` to all items, split among the processes, and return all rows in the items' order.

    All processes must call this with the same items. All compute the same loss from the result.
    """
    rank, processes = process_group()
    if processes == 1:
        return read(items)
    bounds = [len(items) * number // processes for number in range(processes + 1)]
    process_items = items[bounds[rank] : bounds[rank + 1]]
    rows = read(process_items or items[:1])[: len(process_items)]
    gathered: torch.Tensor = _Gathered.apply(rows, [b - a for a, b in pairwise(bounds)])
    return gathered


class _Gathered(torch.autograd.Function):
    """The rows of all processes.

    Each process receives its rows' gradient times the number of processes: the trainer averages gradients
    over the processes, but these must be summed.
    """

    @staticmethod
    def forward(ctx: Any, process_rows: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        rank, processes = process_group()
        ctx.own_rows, ctx.processes = slice(sum(counts[:rank]), sum(counts[: rank + 1])), processes
        padded = process_rows.new_zeros((max(counts), *process_rows.shape[1:]))
        padded[: len(process_rows)] = process_rows
        gathered = [torch.empty_like(padded) for _ in counts]
        distributed.all_gather(gathered, padded)
        return torch.cat([rows[:n] for rows, n in zip(gathered, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0][ctx.own_rows] * ctx.processes, None
