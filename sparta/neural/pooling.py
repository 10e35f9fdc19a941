"""Selecting the encoder states of an answer, and counting its terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional

from sparta.neural import batches
from sparta.neural.inputs import EncoderInput, Lexical


def pad_inputs(inputs: Sequence[batches.Tokens], length: int | None = None) -> tuple[torch.Tensor, ...]:
    """Return padded `(n, length)` ids, mask and segments.

    :param length: the padded length; None means the length of the longest input
    """
    ids, is_token, segments = batches.padded(inputs, length)
    return torch.from_numpy(ids), torch.from_numpy(is_token.astype(np.int64)), torch.from_numpy(segments)


def pooled_positions(
    inputs: Sequence[EncoderInput], rows: Sequence[int], length: int, *, pool_special: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `sparta.neural.batches.pooled_positions` as tensors."""
    positions, has_positions = batches.pooled_positions(inputs, rows, length, pool_special=pool_special)
    return torch.from_numpy(positions), torch.from_numpy(has_positions)


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


def occurrences(
    inputs: Sequence[EncoderInput], lexical: Lexical
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return `sparta.neural.batches.occurrences` as tensors."""
    rows, terms, counts = batches.occurrences(inputs, lexical)
    return torch.from_numpy(rows), torch.from_numpy(terms), torch.from_numpy(counts)
