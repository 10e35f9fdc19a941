"""Which states of the encoder an answer is read from, and what stands in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Protocol

import numpy as np
import torch

from sparta.neural.inputs import EncoderInput, Lexical


def shared_inputs(inputs: Sequence[EncoderInput]) -> list[int]:
    """Which row of the encoder each input is read from: neighbours of the same tokens share one."""
    rows = [0] * len(inputs)
    for i in range(1, len(inputs)):
        rows[i] = rows[i - 1] + (not inputs[i].shares_tokens(inputs[i - 1]))
    return rows


class Tokens(Protocol):
    """What a BERT reads of one text: the ids of its wordpieces, and a segment for each."""

    @property
    def ids(self) -> list[int]: ...  # noqa: D102
    @property
    def segments(self) -> list[int]: ...  # noqa: D102


def pad_inputs(inputs: Sequence[Tokens], length: int | None = None) -> tuple[torch.Tensor, ...]:
    """Return padded `(n, length)` ids, mask and segments.

    `length` is that of the longest input unless it is given.
    """
    lengths = np.array([len(i.ids) for i in inputs], np.int64)
    there = np.arange(length or lengths.max()) < lengths[:, None]
    parts = []
    for own in ([i.ids for i in inputs], [i.segments for i in inputs]):
        padded = np.zeros(there.shape, np.int64)
        padded[there] = np.fromiter(chain.from_iterable(own), np.int64, lengths.sum())
        parts.append(torch.from_numpy(padded))
    ids, segments = parts
    return ids, torch.from_numpy(there.astype(np.int64)), segments


def pooled_positions(
    inputs: Sequence[EncoderInput], rows: Sequence[int], length: int, *, pool_special: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which of the flattened `(n_rows * length)` positions take part in each input's maximum.

    Returns `(n, longest)` positions, padded by repeating one that takes part, so that the maximum needs no
    mask, and `(n,) bool`: whether any does.
    """
    lead, start, end = np.array(
        [(0, 0, len(i.ids)) if pool_special else (i.lead, i.start, i.end) for i in inputs]
    ).T[:, :, None]
    sizes = lead + end - start
    column = np.arange(max(1, sizes.max()))
    first = np.where(lead > 0, 1, start) * (sizes > 0)  # where there is none, the input's own [CLS]
    own = np.where(column < lead, 1 + column, start + column - lead)
    positions = np.where(column < sizes, own, first) + np.array(rows)[:, None] * length
    return torch.from_numpy(positions), torch.from_numpy(sizes[:, 0] > 0)


def surroundings(inputs: Sequence[EncoderInput]) -> tuple[list[EncoderInput], list[int]]:
    """Return the contexts that inputs stand in, each once, and for each input which one it is.

    -1 stands for none: the input is all that is read.
    """
    numbers: dict[tuple[int, ...], int] = {}
    contexts: list[EncoderInput] = []
    index: list[int] = []
    for item in inputs:
        around = item.around()
        if around == item:
            index.append(-1)
            continue
        index.append(numbers.setdefault((*item.ids, item.lead), len(contexts)))
        if index[-1] == len(contexts):
            contexts.append(around)
    return contexts, index


def mixed(own: torch.Tensor, contexts: torch.Tensor, index: Sequence[int], share: float) -> torch.Tensor:
    """Return the weights of answers, of which `share` are those of the context that each stands in.

    `own (n, terms)`, `contexts (n_contexts, terms)`; `index` as `surroundings` gives it.
    """
    if not len(contexts):
        return own
    numbers = torch.tensor(index, device=own.device)
    around = contexts[numbers.clamp_min(0)]
    return torch.where((numbers >= 0)[:, None], own + share * (around - own), own)


def occurrences(
    inputs: Sequence[EncoderInput], lexical: Lexical
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return which terms stand in the title and in the answer of each input, and their saturated counts.

    Three of one length: number of the input, term, count between 0 and 1.
    """
    own = [[*i.ids[1 : 1 + i.lead], *i.ids[i.start : i.end]] for i in inputs]
    lengths = np.array([len(ids) for ids in own], np.int64)
    terms = np.fromiter(chain.from_iterable(own), np.int64, lengths.sum())
    size = terms.max(initial=0) + 1
    pairs, counts = np.unique(np.repeat(np.arange(len(own)), lengths) * size + terms, return_counts=True)
    rows, terms = np.divmod(pairs, size)
    saturated = lexical.saturated(counts, lengths[rows]).astype(np.float32)
    return torch.from_numpy(rows), torch.from_numpy(terms), torch.from_numpy(saturated)
