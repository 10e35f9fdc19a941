"""Forming batches of encoder inputs: lengths, pooled positions, and counts of terms. All in NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sparta.neural.inputs import EncoderInput, Lexical

Integers = npt.NDArray[np.int64]

CPU_TOKENS = 1024
"""The maximum number of tokens in a CPU thread's batch: more tokens would not fit its cache."""
GPU_TOKENS = 32768
"""The maximum number of tokens in a GPU's batch: 1.4 GiB with 12 layers of 384 dimensions (decision 0028)."""
OTHER_TOKENS = 4096
"""The maximum number of tokens in other devices' batches, and of tokens pooled at once on a CPU."""
LARGEST_BATCH = 1024
"""The maximum number of texts in a batch."""


LENGTH_STEP = 16
"""Padded lengths are multiples of this number."""


class Tokens(Protocol):
    """The input of a BERT encoder for one text: wordpiece ids, and a segment id for each wordpiece."""

    @property
    def ids(self) -> list[int]: ...  # noqa: D102
    @property
    def segments(self) -> list[int]: ...  # noqa: D102


def padded(
    inputs: Sequence[Tokens], length: int | None = None
) -> tuple[Integers, npt.NDArray[np.bool_], Integers]:
    """Return padded ids, whether each position is a token, and segments, each `(n, length)`.

    :param length: the padded length; None means the length of the longest input
    """
    lengths = np.array([len(i.ids) for i in inputs], np.int64)
    is_token = np.arange(length or lengths.max()) < lengths[:, None]
    ids, segments = np.zeros(is_token.shape, np.int64), np.zeros(is_token.shape, np.int64)
    ids[is_token] = np.fromiter(chain.from_iterable(i.ids for i in inputs), np.int64, lengths.sum())
    segments[is_token] = np.fromiter(chain.from_iterable(i.segments for i in inputs), np.int64, lengths.sum())
    return ids, is_token, segments


def rounded_length(length: int, max_length: int) -> int:
    """Return the length to which a text is padded: a multiple of `LENGTH_STEP`, but at most `max_length`.

    OpenVINO prepares its kernels for each new length, which takes as long as encoding a text. Torch's
    attention in 16 bits gives the same bits for any padding only over whole vectors of 16 numbers.
    """
    return max(length, min(-(-length // LENGTH_STEP) * LENGTH_STEP, max_length))


def length_sorted_batches(lengths: Sequence[int], token_budget: int, max_batch: int) -> Iterator[list[int]]:
    """Group items into batches of similar length; yield the indices of each batch, longest items first.

    A batch holds at most `max_batch` items and, padded to its longest item, at most `token_budget` tokens
    (but at least one item). Batches depend only on `lengths`, so a shard is always batched in the same way.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    start = 0
    while start < len(order):
        size = max(1, min(max_batch, token_budget // max(1, lengths[order[start]])))
        yield order[start : start + size]
        start += size


def shared_inputs(inputs: Sequence[EncoderInput]) -> list[int]:
    """Return the encoder row of each input: neighboring inputs with the same tokens share a row."""
    rows = [0] * len(inputs)
    for i in range(1, len(inputs)):
        rows[i] = rows[i - 1] + (not inputs[i].shares_tokens(inputs[i - 1]))
    return rows


def distinct_inputs(inputs: Sequence[EncoderInput]) -> tuple[list[EncoderInput], list[int]]:
    """Return the inputs without repetitions of neighbors' tokens, and the row of each input among them."""
    rows = shared_inputs(inputs)
    return [item for i, item in enumerate(inputs) if i == 0 or rows[i] != rows[i - 1]], rows


def pooled_positions(
    inputs: Sequence[EncoderInput], rows: Sequence[int], length: int, *, pool_special: bool
) -> tuple[Integers, npt.NDArray[np.bool_]]:
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
    return positions, sizes[:, 0] > 0


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


def occurrences(
    inputs: Sequence[EncoderInput], lexical: Lexical
) -> tuple[Integers, Integers, npt.NDArray[np.float32]]:
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
    return rows, terms, saturated
