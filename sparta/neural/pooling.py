"""Batches as tensors, and mixing the weights of answers with those of their contexts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from sparta.neural.batches import Tokens, padded


def tensors(arrays: Iterable[npt.NDArray[Any]]) -> tuple[torch.Tensor, ...]:
    """Return arrays as tensors, which share their memory."""
    return tuple(map(torch.from_numpy, arrays))


def pad_inputs(inputs: Sequence[Tokens], length: int | None = None) -> tuple[torch.Tensor, ...]:
    """Return padded `(n, length)` ids, mask and segments.

    :param length: the padded length; None means the length of the longest input
    """
    ids, is_token, segments = padded(inputs, length)
    return tensors((ids, is_token.astype(np.int64), segments))


def mixed(answers: torch.Tensor, contexts: torch.Tensor, index: Sequence[int], share: float) -> torch.Tensor:
    """Mix the weights of answers with those of their contexts: `share` is the proportion of the context.

    :param answers: `(n, terms)`, the weights of the answers
    :param contexts: `(n_contexts, terms)`, the weights of the contexts
    :param index: the context of each answer, as `surroundings` returns it
    """
    if not len(contexts):
        return answers
    context_indexes = torch.tensor(index, device=answers.device)
    around = functional.embedding(context_indexes.clamp_min(0), contexts)  # its gradient has one order
    return torch.where((context_indexes >= 0)[:, None], answers + share * (around - answers), answers)
