"""The OpenVINO backend of sparse encoders, for CPUs (SPARTA, eq. 4 to 6)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import batched
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from sparta.base.errors import ModelError
from sparta.base.remedies import Option, remedy
from sparta.models.backends.base import Indexes
from sparta.models.config import SpartaConfig
from sparta.models.prune import SparseRows
from sparta.neural.batches import (
    CPU_TOKENS,
    LENGTH_STEP,
    distinct_inputs,
    occurrences,
    pooled_positions,
    rounded_length,
    surroundings,
)
from sparta.neural.inputs import EncoderInput
from sparta.runtime.calibration import ranges_of
from sparta.runtime.graph import Graph, Ranges
from sparta.runtime.network import EncoderNetwork, Network, in_threads
from sparta.runtime.weights import Encoder, Floats, Linear, Matrix, Norm

_INPUTS_PER_HEAD = 8
"""The number of inputs that are multiplied with the terms together, so that the terms are read once."""


@dataclass(frozen=True)
class TermWeights:
    """The weights that eq. 4 to 6 need.

    :param transform: a linear layer, GELU and LayerNorm between encoder and terms, as in masked language
        models; None without
    :param terms: the term embeddings `(vocabulary, width)`
    :param scale: multiplies the maximum of eq. 4
    :param bias: a scalar, or one number for each term
    :param gains: the weight of one occurrence of each term, `(vocabulary,)`; None without
    """

    encoder: Encoder
    transform: tuple[Linear, Norm] | None
    terms: Matrix
    scale: float
    bias: Floats
    gains: Floats | None

    def states(self, graph: Graph, *, with_segments: bool) -> Any:
        """Add the encoder to a graph, and return its states `(n, length, width)`."""
        states = graph.encoder(self.encoder, with_segments=with_segments)
        if self.transform is None:
            return states
        linear, norm = self.transform
        return graph.normalized(
            graph.gelu(graph.linear(states, linear, "transform")), norm, self.encoder.epsilon
        )

    def centered(self) -> TermWeights:
        """Return equal weights whose last LayerNorm neither scales nor shifts.

        A state is s = γ ∘ n + β, and the mean of n is 0. So for a term t,
        t · s = (γ ∘ t − mean(γ ∘ t)) · n + t · β. The last part moves into the bias. If all states share a
        large part, as in models that start from late interaction, the rest is much smaller, and its 8 bits
        have finer steps.
        """
        last = self.encoder.layers[-1]
        if self.transform is None and last.router is not None:
            return self
        norm = last.fed if self.transform is None else self.transform[1]
        plain = Norm(np.ones_like(norm.weight), np.zeros_like(norm.bias))
        table = self.terms.floats()
        shifts = table @ norm.bias
        table = table * norm.weight
        table -= table.mean(1, keepdims=True)
        centered = replace(self, terms=Matrix(table, None), bias=self.bias + np.float32(self.scale) * shifts)
        if self.transform is not None:
            return replace(centered, transform=(self.transform[0], plain))
        layers = [*self.encoder.layers[:-1], last._replace(fed=plain)]
        return replace(centered, encoder=self.encoder._replace(layers=layers))


class OpenVinoBackend:
    """Computes the weights of all terms for encoder inputs, on several processors at once.

    :param excluded: `(vocabulary,) bool`, the terms without impacts
    :param ranges: the calibrated ranges for int8; None for other arithmetics
    :param arithmetic: int8, bf16 or fp32
    """

    def __init__(
        self,
        weights: TermWeights,
        config: SpartaConfig,
        excluded: npt.NDArray[np.bool_],
        ranges: Ranges | None,
        arithmetic: str,
    ) -> None:
        weights = weights.centered()
        self.token_budget = CPU_TOKENS
        self._config, self._allowed = config, ~excluded
        self._scale, self._bias, self._gains = np.float32(weights.scale), weights.bias, weights.gains
        self._encoder = EncoderNetwork(
            lambda graph: weights.states(graph, with_segments=config.layout.marks_answers),
            arithmetic,
            ranges,
            config.layout.max_length,
        )
        # The head only multiplies and compares: bf16 between its nodes would cost time and precision.
        self._head = Network(_head(weights, ranges), arithmetic, between_nodes="fp32")

    def padded_length(self, length: int) -> int:
        """Return the length to which a text is padded."""
        return rounded_length(length, self._config.layout.max_length)

    def each[R](self, encode: Callable[[Indexes], R], batches: Sequence[Indexes]) -> Generator[R]:
        """Yield `encode(batch)` for each batch in order; each thread computes a different batch."""
        return in_threads(encode, batches, self._encoder.streams)

    def encode(self, inputs: Sequence[EncoderInput], top_k: int | None) -> SparseRows:
        """Return one row of term weights per input; with `top_k`, at least its strongest terms."""
        encoder_inputs, rows = distinct_inputs(inputs)
        states = self._encoder(encoder_inputs)
        share = self._config.context_share
        contexts, context_of = surroundings(inputs) if share else ([], [-1] * len(inputs))
        row_of = dict(zip(context_of, rows, strict=True))
        around = list(self._weights(states, contexts, [row_of[i] for i in range(len(contexts))]))
        sparse_rows = []
        for weights, number in zip(self._weights(states, inputs, rows), context_of, strict=True):
            if number >= 0:
                weights += share * (around[number] - weights)
            sparse_rows.append(_sparse(weights, top_k))
        return SparseRows.concatenate(sparse_rows)

    def _weights(
        self, states: Floats, inputs: Sequence[EncoderInput], rows: Sequence[int]
    ) -> Iterator[Floats]:
        """Yield the weights of all terms for each input, `(vocabulary,)`.

        Bias, ReLU and logarithm are monotone, so they come after the maximum.

        :param rows: the row of `states (n, length, width)` of each input
        """
        for group in batched(range(len(inputs)), _INPUTS_PER_HEAD):
            members = [inputs[i] for i in group]
            positions, has_positions = pooled_positions(
                members, [rows[i] for i in group], states.shape[1], pool_special=self._config.pool_special
            )
            missing = -positions.shape[1] % LENGTH_STEP
            # A position that is repeated changes no maximum.
            repeated = np.concatenate([positions, positions[:, :1].repeat(missing, 1)], 1)
            [best] = self._head(states, repeated.astype(np.int32))
            weights: Floats = best * self._scale
            weights += self._bias
            np.maximum(weights, 0, out=weights)
            for _ in range(self._config.log_count):
                np.log1p(weights, out=weights)
            if self._gains is not None and self._config.lexical is not None:
                numbers, terms, counts = occurrences(members, self._config.lexical)
                weights[numbers, terms] += self._gains[terms] * counts
            weights *= self._allowed
            weights[~has_positions] = 0
            yield from weights


def calibrated(
    weights: TermWeights, config: SpartaConfig, tokenizer: Tokenizer, folder: Path, key: str
) -> Ranges:
    """Return the ranges of a model for int8.

    :param folder: the model's folder, which may hold the ranges
    :param key: identifies the weights
    """

    def build(graph: Graph) -> None:
        centered = weights.centered()
        graph.maxima(centered.states(graph, with_segments=config.layout.marks_answers), centered.terms)

    return ranges_of(build, tokenizer, folder, f"{key} centered")


def _head(weights: TermWeights, ranges: Ranges | None) -> Any:
    """Return the graph of eq. 4: from states and pooled positions to maxima `(n, vocabulary)`."""
    graph, width = Graph(ranges), weights.encoder.width
    states = graph.parameter([-1, -1, width], np.float32, "states")
    positions = graph.parameter([-1, -1], np.int32, "positions")
    pooled = graph.gather(graph.reshape(states, [-1, width]), positions)
    return graph.model([graph.maxima(pooled, weights.terms)])


def _sparse(weights: Floats, top_k: int | None) -> SparseRows:
    """Return the non-zero weights as a row; with `top_k`, only weights at least as high as the k-th highest.

    :raises ModelError: a weight is infinite.
    """
    terms = np.flatnonzero(weights)
    if top_k is not None and top_k < len(terms):
        lowest_kept = np.partition(weights[terms], len(terms) - top_k)[len(terms) - top_k]
        terms = np.flatnonzero(weights >= lowest_kept)
    values = weights[terms]
    if not np.isfinite(values).all():
        raise ModelError(
            "the model gave infinite term weights",
            remedy=remedy("encode with {}, or copy the model folder again", Option("dtype", "fp32")),
        )
    return SparseRows(np.array([0, len(terms)], np.int64), terms.astype(np.int32), values)
