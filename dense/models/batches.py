"""Encoding whole collections of passages into vectors, in batches, independent of what computes them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from sparta.base.records import Advance, Passage
from sparta.neural.batches import LARGEST_BATCH, length_sorted_batches, shared_inputs
from sparta.neural.inputs import EncoderInput, InputLayout

Vectors = npt.NDArray[np.float32]
OnRead = Callable[[int, int, int], object]
"""Called once for a collection, with the number of passages longer than one window, the number of wordpieces
in all first windows, and the number of wordpieces of all passages.
"""

Places = Callable[[EncoderInput], Sequence[int]]
"""Returns positions of a text."""


def padded_places(inputs: Sequence[EncoderInput], places: Places, most: int) -> npt.NDArray[np.int64]:
    """Return the positions of each text, `(n, most)`; missing positions are 0."""
    padded = np.zeros((len(inputs), most), np.int64)
    for row, item in enumerate(inputs):
        positions = places(item)
        padded[row, : len(positions)] = positions
    return padded


def dot_products(questions: Vectors, passages: Vectors) -> Vectors:
    """Return the scores `(n_questions, n_passages)` of vectors `(n, width)` and `(n, vectors, width)`.

    The dot products with several vectors of a passage are summed, weighted by their softmax.
    """
    if passages.shape[1] == 1:
        return questions @ passages[:, 0].T
    products = np.einsum("qw,pvw->qpv", questions, passages, optimize=True)
    weights = np.exp(products - products.max(2, keepdims=True))
    scores: Vectors = (weights * products).sum(2) / weights.sum(2)
    return scores


def first_windows(
    passages: Sequence[Passage], layout: InputLayout, tokenizer: Tokenizer, on_read: OnRead | None = None
) -> list[EncoderInput]:
    """Return the first window of each passage; the other windows of long passages are only counted."""
    inputs, n_cut, n_wordpieces = [], 0, 0
    for first, *others in layout.windows_of(passages, tokenizer):
        inputs.append(first)
        n_cut += bool(others)
        n_wordpieces += sum(window.end - window.start for window in (first, *others))
        n_wordpieces -= layout.overlap_of(first.end - first.start) * len(others)
    if on_read:
        on_read(n_cut, sum(item.end - item.start for item in inputs), n_wordpieces)
    return inputs


def encoded_inputs(
    inputs: Sequence[EncoderInput],
    shape: tuple[int, int],
    token_budget: int,
    encode_batches: Callable[[Sequence[Sequence[EncoderInput]]], Generator[Vectors]],
    advance: Advance | None = None,
) -> Vectors:
    """Return the vectors of inputs, `(n, vectors, width) float32`.

    :param shape: the number of vectors of an input, and their width
    :param token_budget: the maximum number of tokens in a batch
    :param encode_batches: yields the vectors of each batch; neighbors with the same tokens share a batch
    :param advance: called with the number of passages of each batch
    """
    rows = np.array(shared_inputs(inputs))
    groups = np.split(np.arange(len(inputs)), np.flatnonzero(np.diff(rows)) + 1) if inputs else []
    lengths = [len(inputs[group[0]].ids) for group in groups]
    group_batches = length_sorted_batches(lengths, token_budget, LARGEST_BATCH)
    batches = [np.concatenate([groups[i] for i in chosen]) for chosen in group_batches]
    all_vectors = np.zeros((len(inputs), *shape), np.float32)
    with closing(encode_batches([[inputs[i] for i in batch] for batch in batches])) as encoded:
        for batch, vectors in zip(batches, encoded, strict=True):
            all_vectors[batch] = vectors
            if advance:
                advance(len(batch))
    return all_vectors
