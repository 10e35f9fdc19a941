"""OpenVINO graphs of transformer encoders, in float or in 8 bits with fixed scales.

In 8 bits, the input and the weights of a linear layer are integers. The scale of an input is fixed by
calibration (`sparta.runtime.calibration`), so a passage gets the same states in every batch, apart from the
rounding of sums. A layer without ranges is computed in floats. Before rounding, the channels of an input are
divided by smoothing factors, and the columns of the weights are multiplied by them (SmoothQuant, Xiao et al.,
2023, eq. 3 and 4). GELU's outputs are not smoothed: the channels with the largest values stay in floats, and
the others are rounded (as in LLM.int8(), Dettmers et al., 2022, §3.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparta.runtime.processor import runtime
from sparta.runtime.weights import (
    Encoder,
    FeedForward,
    Floats,
    Layer,
    Linear,
    Matrix,
    Norm,
    Router,
    check_wordpieces,
    row_scaled,
    stacked,
)

if TYPE_CHECKING:
    import openvino

SMOOTHING = 0.75
"""The exponent α of SmoothQuant's eq. 4: how far the channels of an input are made equally large."""
AFTER_GELU, AFTER_ATTENTION, BEFORE_ATTENTION = ".narrow", ".mix", ".heads"
"""The ends of the names of layers: those that read GELU's outputs, and the attention's outputs and inputs."""
LARGE_CHANNELS = 128
"""The number of GELU's channels that stay in floats; of small models, a quarter of the channels."""
LEAST_GELU, GELU_MARGIN = -0.17, 1.5
"""GELU's smallest value, and how much larger than in calibration a value may be before it is cut."""
TERM_CHUNK = 512
"""The number of terms whose products are computed at once, so that they fit into a processor's cache."""
HEAD = "head"
"""The name of the terms' product in the ranges."""
MASKED = -10_000.0
"""The number that is added to the attention scores of padding."""
Ranges = Mapping[str, Floats]
"""The largest absolute value of each channel of each linear layer's input, by the layer's name."""


class Graph:
    """Builds one graph; the methods add nodes and return them.

    :param ranges: compute the layers with these ranges in 8 bits; None computes all in floats
    :param converts_late: each product converts stored 8-bit weights to floats; else they are converted once
    """

    def __init__(self, ranges: Ranges | None = None, *, converts_late: bool = True) -> None:
        openvino = runtime()
        self.ranges = ranges
        self._converts_late = converts_late
        self.linear_inputs: dict[str, Any] = {}
        self.n_words = self.n_positions = 0
        self.n_segments = 1
        self._ops = openvino.opset13
        self._openvino = openvino
        self._parameters: dict[str, Any] = {}

    # ------------------------------------------------------------------ parts of any graph

    def constant(self, values: Any, dtype: Any = np.float32) -> Any:
        """Return a node with fixed values."""
        return self._ops.constant(np.asarray(values, dtype, order="C"))

    def parameter(self, shape: Sequence[int], dtype: Any, name: str) -> Any:
        """Return an input of the graph; -1 is a size that differs from call to call."""
        node = self._ops.parameter(list(shape), dtype, name=name)
        self._parameters[name] = node
        return node

    def arguments(self, **values: np.ndarray) -> list[np.ndarray]:
        """Return those of the values that are inputs of this graph, in the order of its inputs.

        :raises ModelError: a wordpiece has no embedding.
        """
        if "ids" in self._parameters:
            check_wordpieces(int(values["ids"].max()), self.n_words)
        return [values[name] for name in self._parameters]

    def model(self, outputs: Sequence[Any]) -> openvino.Model:
        """Return the graph with these outputs. Its inputs have the order in which they were made."""
        return self._openvino.Model(list(outputs), list(self._parameters.values()), "sparta")

    def reshape(self, node: Any, shape: Sequence[int]) -> Any:
        """Return a node with another shape; 0 keeps a size, -1 is the remaining size."""
        return self._ops.reshape(node, self.constant(shape, np.int64), True)

    def gather(self, node: Any, indexes: Any, axis: int = 0) -> Any:
        """Return the entries of a node with these indexes along an axis."""
        return self._ops.gather(node, indexes, self.constant(axis, np.int64))

    def maximum(self, node: Any, axis: int) -> Any:
        """Return the maximum along an axis, which disappears."""
        return self._ops.reduce_max(node, self.constant([axis], np.int64), False)

    def linear(self, states: Any, layer: Linear, name: str) -> Any:
        """Return the output of a linear layer, `(…, rows)`.

        :param name: the layer's name in the ranges
        """
        self.linear_inputs[name] = states
        if self.ranges is None or name not in self.ranges:
            weight = self._weight(layer)
        else:
            states, numbers, scale = self._rounded_linear(states, layer.weight, self.ranges[name])
            weight = self._scaled(numbers, scale)
        return self._ops.add(self._ops.matmul(states, weight, False, True), self.constant(layer.bias))

    def exact(self, states: Any, layer: Linear) -> Any:
        """Return the output of a small linear layer, computed without rounding to 8 bits."""
        product = self._ops.matmul(states, self.constant(layer.weight), False, True)
        return self._ops.add(product, self.constant(layer.bias))

    def _weight(self, layer: Linear) -> Any:
        """Return a weight in floats. Converting a stored 8-bit weight late saves memory."""
        stored = layer.stored
        if stored is None or stored.scale is None or self.ranges is not None or not self._converts_late:
            return self.constant(layer.weight)
        return self._scaled(stored.numbers, stored.scale)

    def _rounded_linear(self, states: Any, weight: Floats, largest: Floats) -> tuple[Any, np.ndarray, Floats]:
        """Return rounded states, 8-bit weights, and their row scales.

        :param largest: the largest absolute value of each channel of the states
        """
        factors = smoothing_factors(largest, weight)
        numbers, scale = row_scaled(weight * factors)
        smooth = self._ops.multiply(states, self.constant(1 / factors))
        limit = float((largest / factors).max())
        return self._rounded(smooth, -limit * 128 / 127, limit), numbers, scale

    def _rounded(self, states: Any, low: float, high: float) -> Any:
        """Return states rounded to one of 256 levels between two limits."""
        limits = self.constant(low), self.constant(high)
        return self._ops.fake_quantize(states, *limits, *limits, 256)

    def _scaled(self, numbers: np.ndarray, scale: Floats) -> Any:
        """Return an 8-bit matrix with its row scales, which OpenVINO keeps in 8 bits."""
        floats = self._ops.convert(self.constant(numbers, np.int8), np.float32)
        return self._ops.multiply(floats, self.constant(scale[:, None]))

    def normalized(self, states: Any, norm: Norm, epsilon: float) -> Any:
        """Return the LayerNorm of states along their last axis."""
        centered = self._ops.mvn(states, self.constant([-1], np.int64), True, epsilon, "inside_sqrt")
        return self._ops.add(
            self._ops.multiply(centered, self.constant(norm.weight)), self.constant(norm.bias)
        )

    def tanh(self, states: Any) -> Any:
        """Return the hyperbolic tangent."""
        return self._ops.tanh(states)

    def first_position(self, states: Any, axis: int = 1) -> Any:
        """Return the states of [CLS], `(n, 1, width)`, of states `(n, length, width)`.

        :param axis: the axis of the positions; the result has length 1 there
        """
        return self.gather(states, self.constant([0], np.int64), axis)

    def gelu(self, states: Any) -> Any:
        """Return GELU by the error function."""
        return self._ops.gelu(states, "erf")

    def sliced(self, table: Floats, length: Any) -> Any:
        """Return the first rows of a table; `length` is a node `(1,)`."""
        start = axis = self.constant([0], np.int64)
        step = self.constant([1], np.int64)
        return self._ops.slice(self.constant(table), start, length, step, axis)

    def maxima(self, states: Any, terms: Matrix) -> Any:
        """Return the maximum of the products with each term over the positions (SPARTA, eq. 4), `(n, terms)`.

        The terms are divided into chunks, so that the products of a chunk fit into the processor's cache.

        :param states: a node `(n, positions, width)`
        """
        self.linear_inputs[HEAD] = states
        if self.ranges is None:
            table = terms.floats()
        else:
            table = None
            states, numbers, scale = self._rounded_linear(states, terms.floats(), self.ranges[HEAD])
        chunks = []
        for start in range(0, len(terms.numbers), TERM_CHUNK):
            part = slice(start, start + TERM_CHUNK)
            weight = (
                self.constant(table[part]) if table is not None else self._scaled(numbers[part], scale[part])
            )
            chunks.append(self.maximum(self._ops.matmul(states, weight, False, True), 1))
        return self._ops.concat(chunks, 1)

    # ------------------------------------------------------------------ encoders

    def encoder(self, weights: Encoder, *, with_segments: bool, only_first: bool = False) -> Any:
        """Return the last hidden states `(n, length, width)` of a BERT or DistilBERT.

        Adds the parameters `ids (n, length) int32`, `mask (n, length) float32` with 0 for tokens and `MASKED`
        for padding, and with `with_segments` also `segments (n, length) int32`.

        :param only_first: return the states of [CLS] only, `(n, 1, width)`: most of the last layer is saved
        """
        states, mask = self._inputs(weights, with_segments=with_segments)
        scores_mask = self._ops.unsqueeze(mask, self.constant([1, 2], np.int64))
        for number, layer in enumerate(weights.layers):
            name = f"layer.{number}"
            parts = self.linear(states, stacked(layer.query, layer.key, layer.value), name + BEFORE_ATTENTION)
            query, key, value = self._heads(parts, weights)
            if only_first and number == len(weights.layers) - 1:
                states, query = self.first_position(states), self.first_position(query, axis=2)
            attended = self._attended([query, key, value], scores_mask, weights.width)
            states = self._after_attention(states, attended, layer, weights.epsilon, name)
        return states

    def fused_encoder(self, weights: Encoder, global_states: Floats) -> Any:
        """Return the last hidden states of a Fusion-in-Encoder (Chain-of-Skills, Appendix C).

        The texts of a call see each other through global tokens: a text's tokens attend to this text and to
        the global tokens, the global tokens to all tokens of all texts and to each other. Adds the parameters
        of `encoder` with segments.

        :param global_states: the first states of the global tokens, `(tokens, width)`
        """
        states, mask = self._inputs(weights, with_segments=True)
        shared = self.constant(global_states[None])
        n_texts = self.gather(self._ops.shape_of(mask), self.constant([0], np.int64))
        no_mask = self.constant(np.zeros((1, 1, 1, len(global_states))))
        text_mask = self._ops.unsqueeze(mask, self.constant([1, 2], np.int64))
        masks = [
            self._ops.concat([text_mask, self._repeated(no_mask, n_texts)], 3),
            self._ops.concat([self.reshape(mask, [1, 1, 1, -1]), no_mask], 3),
        ]
        for number, layer in enumerate(weights.layers):
            name = f"layer.{number}"
            inputs = stacked(layer.query, layer.key, layer.value)
            query, *of_texts = self._heads(self.linear(states, inputs, name + BEFORE_ATTENTION), weights)
            shared_query, *of_shared = self._heads(self.exact(shared, inputs), weights)
            for_texts = [
                self._ops.concat([own, self._repeated(common, n_texts)], 2)
                for own, common in zip(of_texts, of_shared, strict=True)
            ]
            for_shared = [
                self._ops.concat([self._side_by_side(own, weights), common], 2)
                for own, common in zip(of_texts, of_shared, strict=True)
            ]
            attended = self._attended([query, *for_texts], masks[0], weights.width)
            shared_attended = self._attended([shared_query, *for_shared], masks[1], weights.width)
            states = self._after_attention(states, attended, layer, weights.epsilon, name)
            shared = self._after_attention(shared, shared_attended, layer, weights.epsilon, f"{name}.shared")
        return states

    def _inputs(self, weights: Encoder, *, with_segments: bool) -> tuple[Any, Any]:
        """Add the parameters of an encoder; return the embedded texts and the mask."""
        ids = self.parameter([-1, -1], np.int32, "ids")
        mask = self.parameter([-1, -1], np.float32, "mask")
        return self._embedded(weights, ids, with_segments=with_segments), mask

    def _heads(self, parts: Any, weights: Encoder) -> list[Any]:
        """Divide queries, keys and values `(n, length, 3 · width)` into three `(n, heads, length, size)`."""
        order = self.constant([0, 2, 1, 3], np.int64)
        shape = [0, 0, weights.heads, weights.width // weights.heads]
        outputs = self._ops.split(parts, self.constant(2, np.int64), 3).outputs()
        return [self._ops.transpose(self.reshape(part, shape), order) for part in outputs]

    def _attended(self, heads: Sequence[Any], mask: Any, width: int) -> Any:
        """Return the output of attention with queries, keys and values, `(n, length, width)`."""
        attended = self._ops.scaled_dot_product_attention(*heads, mask)
        attended = self._ops.transpose(attended, self.constant([0, 2, 1, 3], np.int64))
        return self.reshape(attended, [0, 0, width])

    def _repeated(self, node: Any, number: Any) -> Any:
        """Return a node `(1, …)` of four axes, repeated along the first axis; `number` is a node `(1,)`."""
        return self._ops.tile(node, self._ops.concat([number, self.constant([1, 1, 1], np.int64)], 0))

    def _side_by_side(self, node: Any, weights: Encoder) -> Any:
        """Return keys or values of n texts `(n, heads, length, size)` as those of one long text."""
        swapped = self._ops.transpose(node, self.constant([1, 0, 2, 3], np.int64))
        return self.reshape(swapped, [1, weights.heads, -1, weights.width // weights.heads])

    def _after_attention(self, states: Any, attended: Any, layer: Layer, epsilon: float, name: str) -> Any:
        """Return a layer's output: residual connections, LayerNorms and the feed-forward."""
        mixed = self.linear(attended, layer.mix, name + AFTER_ATTENTION)
        states = self.normalized(self._ops.add(mixed, states), layer.mixed, epsilon)
        if layer.router is None:
            return self._fed(states, FeedForward(layer.widen, layer.narrow, layer.fed), epsilon, name)
        return self._routed(states, layer.router, epsilon, name)

    def _fed(self, states: Any, part: FeedForward, epsilon: float, name: str) -> Any:
        if self.ranges is not None and name + AFTER_GELU in self.ranges:
            narrow = self._narrow_in_8_bits(states, part, name)
        else:
            wide = self.gelu(self.linear(states, part.widen, f"{name}.widen"))
            narrow = self.linear(wide, part.narrow, name + AFTER_GELU)
        return self.normalized(self._ops.add(narrow, states), part.fed, epsilon)

    def _narrow_in_8_bits(self, states: Any, part: FeedForward, name: str) -> Any:
        """Return the feed-forward before its LayerNorm, with most of GELU's channels in 8 bits."""
        assert self.ranges is not None
        largest = self.ranges[name + AFTER_GELU]
        n_large = min(LARGE_CHANNELS, len(largest) // 4)
        order = np.argsort(-largest, kind="stable")
        large, small = np.sort(order[:n_large]), np.sort(order[n_large:])
        wide_large, wide_small = (
            self.gelu(self.linear(states, part.widen.rows(channels), f"{name}.widen"))
            for channels in (large, small)
        )
        in_floats = self._ops.matmul(wide_large, self.constant(part.narrow.weight[:, large]), False, True)
        rounded = self._rounded(wide_small, LEAST_GELU, GELU_MARGIN * float(largest[small].max()))
        numbers, scale = part.narrow.in_8_bits()
        in_8_bits = self._ops.matmul(rounded, self._scaled(numbers[:, small], scale), False, True)
        return self._ops.add(self._ops.add(in_8_bits, self.constant(part.narrow.bias)), in_floats)

    def _routed(self, states: Any, router: Router, epsilon: float, name: str) -> Any:
        """Return the output of the most likely expert of each text or token; all experts compute."""
        seen = states if router.by_token else self.first_position(states)
        most = self._ops.topk(
            self.exact(seen, router.scores), self.constant(1, np.int64), -1, "max", "none"
        ).output(1)
        outputs = None
        for number, expert in enumerate(router.experts):
            fed = self._fed(states, expert, epsilon, f"{name}.expert.{number}")
            is_chosen = self._ops.equal(most, self.constant(number, np.int32))
            outputs = fed if outputs is None else self._ops.select(is_chosen, fed, outputs)
        return outputs

    def _embedded(self, weights: Encoder, ids: Any, *, with_segments: bool) -> Any:
        self.n_words, self.n_positions = len(weights.words.numbers), len(weights.positions)
        states = self._words(weights.words, ids)
        shape = self._ops.shape_of(ids)
        length = self.gather(shape, self.constant([1], np.int64))
        positions, segments = weights.positions, weights.segments
        if segments is not None and len(segments) > 1 and with_segments:
            numbers, self.n_segments = self.parameter([-1, -1], np.int32, "segments"), len(segments)
            states = self._ops.add(states, self.gather(self.constant(segments), numbers))
        elif segments is not None:
            positions = positions + segments[0]
        states = self._ops.add(states, self.sliced(positions, length))
        return self.normalized(states, weights.norm, weights.epsilon)

    def _words(self, words: Matrix, ids: Any) -> Any:
        """Return the embeddings of wordpieces; an 8-bit table stays in 8 bits."""
        if words.scale is None:
            return self.gather(self.constant(words.numbers), ids)
        rows = self._ops.convert(self.gather(self.constant(words.numbers, np.int8), ids), np.float32)
        return self._ops.multiply(rows, self.gather(self.constant(words.scale[:, None]), ids))


def smoothing_factors(largest: Floats, weight: Floats) -> Floats:
    """Return SmoothQuant's factor of each input channel (eq. 4), `(columns,)`.

    :param largest: the largest absolute value of each channel
    """
    inputs, columns = np.maximum(largest, 1e-5), np.maximum(np.abs(weight).max(0), 1e-5)
    factors: Floats = (inputs**SMOOTHING / columns ** (1 - SMOOTHING)).astype(np.float32)
    return factors
