"""Selecting the encoder states of an answer, and counting its terms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Protocol

import numpy as np
import torch

from sparta.neural.inputs import EncoderInput, Lexical


def shared_inputs(inputs: Sequence[EncoderInput]) -> list[int]:
    """Return the encoder row of each input: neighboring inputs with the same tokens share a row."""
    rows = [0] * len(inputs)
    for i in range(1, len(inputs)):
        rows[i] = rows[i - 1] + (not inputs[i].shares_tokens(inputs[i - 1]))
    return rows


class Tokens(Protocol):
    """The input of a BERT encoder for one text: wordpiece ids, and a segment id for each wordpiece."""

    @property
    def ids(self) -> list[int]: ...  # noqa: D102
    @property
    def segments(self) -> list[int]: ...  # noqa: D102


def pad_inputs(inputs: Sequence[Tokens], length: int | None = None) -> tuple[torch.Tensor, ...]:
    """Return padded `(n, length)` ids, mask and segments.

    :param length: the padded length; None means the length of the longest input
    """
    lengths = np.array([len(i.ids) for i in inputs], np.int64)
    is_token = np.arange(length or lengths.max()) < lengths[:, None]
    tensors = []
    for rows in ([i.ids for i in inputs], [i.segments for i in inputs]):
        padded = np.zeros(is_token.shape, np.int64)
        padded[is_token] = np.fromiter(chain.from_iterable(rows), np.int64, lengths.sum())
        tensors.append(torch.from_numpy(padded))
    ids, segments = tensors
    return ids, torch.from_numpy(is_token.astype(np.int64)), segments


def pooled_positions(
    inputs: Sequence[EncoderInput], rows: Sequence[int], length: int, *, pool_special: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which of the flattened `(n_rows * length)` positions are in the maximum of each input.

    The result has `(n, longest)` positions, padded with a repeated position, so that the maximum needs no
    mask, and a `(n,) bool` array: whether an input has any position.

    :param rows: the encoder row of each input
    :param pool_special: include [CLS] and [SEP]
    """
    lead, start, end = np.array(
        [(0, 0, len(i.ids)) if pool_special else (i.lead, i.start, i.end) for i in inputs]
    ).T[:, :, None]
    sizes = lead + end - start
    column = np.arange(max(1, sizes.max()))
    first = np.where(lead > 0, 1, start) * (sizes > 0)  # an input without positions points to its [CLS]
    position_in_row = np.where(column < lead, 1 + column, start + column - lead)
    positions = np.where(column < sizes, position_in_row, first) + np.array(rows)[:, None] * length
    return torch.from_numpy(positions), torch.from_numpy(sizes[:, 0] > 0)


def surroundings(inputs: Sequence[EncoderInput]) -> tuple[list[EncoderInput], list[int]]:
    """Return the distinct contexts of the inputs, and the index of each input's context.

    The index -1 means that the input has no context besides its answer.
    """
    index_of_context: dict[tuple[int, ...], int] = {}
    contexts: list[EncoderInput] = []
    context_indexes: list[int] = []
    for item in inputs:
        around = item.around()
        if around == item:
            context_indexes.append(-1)
            continue
        context_indexes.append(index_of_context.setdefault((*item.ids, item.lead), len(contexts)))
        if context_indexes[-1] == len(contexts):
            contexts.append(around)
    return contexts, context_indexes


def mixed(answers: torch.Tensor, contexts: torch.Tensor, index: Sequence[int], share: float) -> torch.Tensor:
    """Mix the weights of answers with those of their contexts: `share` is the proportion of the context.

    :param answers: `(n, terms)`, the weights of the answers
    :param contexts: `(n_contexts, terms)`, the weights of the contexts
    :param index: the context of each answer, as `surroundings` returns it
    """
    if not len(contexts):
        return answers
    context_indexes = torch.tensor(index, device=answers.device)
    around = contexts[context_indexes.clamp_min(0)]
    return torch.where((context_indexes >= 0)[:, None], answers + share * (around - answers), answers)


def occurrences(
    inputs: Sequence[EncoderInput], lexical: Lexical
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the terms in the title and answer of each input, with saturated counts.

    The result has three arrays of the same length: input index, term id, and a count between 0 and 1.
    """
    token_ids = [[*i.ids[1 : 1 + i.lead], *i.ids[i.start : i.end]] for i in inputs]
    lengths = np.array([len(ids) for ids in token_ids], np.int64)
    terms = np.fromiter(chain.from_iterable(token_ids), np.int64, lengths.sum())
    size = terms.max(initial=0) + 1
    pairs, counts = np.unique(
        np.repeat(np.arange(len(token_ids)), lengths) * size + terms, return_counts=True
    )
    rows, terms = np.divmod(pairs, size)
    saturated = lexical.saturated(counts, lengths[rows]).astype(np.float32)
    return torch.from_numpy(rows), torch.from_numpy(terms), torch.from_numpy(saturated)
