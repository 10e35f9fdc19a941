"""The weights of a BERT or DistilBERT encoder, read from a model folder without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from sparta.base.errors import ModelError
from sparta.neural.stored import ROW_SCALE, is_plain_bert, is_plain_distilbert

Floats = npt.NDArray[np.float32]


class Matrix(NamedTuple):
    """A matrix as it is stored: float32, or 8-bit `numbers` with one `scale` for each row."""

    numbers: np.ndarray
    scale: Floats | None

    def floats(self) -> Floats:
        """Return the matrix in float32."""
        return self.numbers if self.scale is None else self.numbers * self.scale[:, None]

    def rows(self, ids: np.ndarray) -> Floats:
        """Return the rows with these numbers, in float32."""
        rows = self.numbers[ids]
        return rows if self.scale is None else rows * self.scale[ids][..., None]


class Linear(NamedTuple):
    """A linear layer: `weight (rows, columns)` and `bias (rows,)`; `stored` is the weight as it is stored."""

    weight: Floats
    bias: Floats
    stored: Matrix | None = None

    def rows(self, numbers: np.ndarray) -> Linear:
        """Return the layer with these rows only."""
        stored = None
        if self.stored is not None:
            scale = None if self.stored.scale is None else self.stored.scale[numbers]
            stored = Matrix(self.stored.numbers[numbers], scale)
        return Linear(self.weight[numbers], self.bias[numbers], stored)

    def in_8_bits(self) -> tuple[np.ndarray, Floats]:
        """Return the weight in 8 bits and its row scales, as they are stored or newly rounded."""
        if self.stored is None or self.stored.scale is None:
            return row_scaled(self.weight)
        return self.stored.numbers, self.stored.scale

    def __call__(self, states: Floats) -> Floats:
        """Return `states @ weight.T + bias`."""
        outputs: Floats = states @ self.weight.T
        outputs += self.bias
        return outputs


def row_scaled(weight: Floats) -> tuple[np.ndarray, Floats]:
    """Return a matrix in 8 bits and its row scales: the largest absolute value of a row becomes 127."""
    scale = np.maximum(np.abs(weight).max(1), 1e-12) / 127
    return np.rint(weight / scale[:, None]).astype(np.int8), scale.astype(np.float32)


def stacked(*layers: Linear) -> Linear:
    """Return one linear layer that computes the outputs of several layers, side by side."""
    stored = [layer.stored for layer in layers if layer.stored is not None and layer.stored.scale is not None]
    return Linear(
        np.concatenate([layer.weight for layer in layers]),
        np.concatenate([layer.bias for layer in layers]),
        Matrix(
            np.concatenate([matrix.numbers for matrix in stored]),
            np.concatenate([matrix.scale for matrix in stored if matrix.scale is not None]),
        )
        if len(stored) == len(layers)
        else None,
    )


class Norm(NamedTuple):
    """The scale and the shift of a LayerNorm, each `(width,)`."""

    weight: Floats
    bias: Floats


class FeedForward(NamedTuple):
    """The feed-forward part of a layer: two matrices and a LayerNorm."""

    widen: Linear
    narrow: Linear
    fed: Norm


class Router(NamedTuple):
    """Chooses one of several experts, which replace a layer's feed-forward (TASER, §3.1).

    `scores` gives each expert a score, from the state of [CLS] or, with `by_token`, of each token.
    """

    scores: Linear
    experts: list[FeedForward]
    by_token: bool


class Layer(NamedTuple):
    """One layer of BERT: the attention's four matrices, the feed-forward's two, and two LayerNorms.

    With a `router`, its experts replace the feed-forward.
    """

    query: Linear
    key: Linear
    value: Linear
    mix: Linear
    mixed: Norm
    widen: Linear
    narrow: Linear
    fed: Norm
    router: Router | None = None


def check_wordpieces(largest: int, n_known: int) -> None:
    """Check that a model has an embedding for the largest wordpiece of its tokenizer.

    :param n_known: the number of the model's embeddings of wordpieces
    :raises ModelError: the model lacks the embedding.
    """
    if largest >= n_known:
        raise ModelError(
            f"the tokenizer returned wordpiece {largest:,}, the model has {n_known:,}",
            remedy="copy the whole model folder again: its tokenizer and weights are of different models",
        )


class StoredWeights:
    """The tensors of a model folder's model.safetensors, with checks of their shapes.

    8-bit matrices become float32 when they are read. `unread` holds the names of tensors that were not read.

    :param source: the folder, or the tensors by name
    :param keeps_stored: keep 8-bit matrices beside their float32 (`Linear.stored`)

    :raises ValueError: the file cannot be read, or has number formats that NumPy lacks.
    """

    def __init__(self, source: Path | Mapping[str, np.ndarray], *, keeps_stored: bool = True) -> None:
        self._keeps_stored = keeps_stored
        if isinstance(source, Path):
            self._stored = safe_open(str(source / "model.safetensors"), framework="numpy")
            self._read: Callable[[str], np.ndarray] = self._stored.get_tensor
            self._names = set(self._stored.keys())
        else:
            self._read = source.__getitem__
            self._names = set(source)
        self.unread = set(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def check_all_read(self, part: str = "") -> None:
        """Raise if tensors were not read, of those whose names contain `part`.

        :raises ValueError: config.json describes fewer weights than the file holds.
        """
        if unread := sorted(name for name in self.unread if part in name):
            raise ValueError(f"config.json does not describe the weights {', '.join(unread[:3])}")

    def tensors(self) -> dict[str, np.ndarray]:
        """Return all tensors by name, as they are stored."""
        return {name: self._read(name) for name in sorted(self._names)}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self._read(name).shape

    def floats(self, name: str, *shape: int) -> Floats:
        """Return a tensor in float32; no shape means a scalar.

        :raises ValueError: the tensor is missing, or has another shape or number format.
        """
        return self.matrix(name, *shape).floats()

    def matrix(self, name: str, *shape: int) -> Matrix:
        """Return a tensor as it is stored.

        :raises ValueError: the tensor is missing, or has another shape or number format.
        """
        if name not in self._names:
            raise ValueError(f"expected the weights {name}, found none")
        self.unread -= {name, name + ROW_SCALE}
        numbers = self._read(name)
        scale = self._read(name + ROW_SCALE) if name + ROW_SCALE in self._names else None
        if scale is None and numbers.dtype == np.float16:
            numbers = numbers.astype(np.float32)
        if scale is not None and scale.shape != shape[:1]:
            raise ValueError(f"expected the row scales of {name} as {shape[:1]}, found {scale.shape}")
        if numbers.shape != shape or numbers.dtype != (np.float32 if scale is None else np.int8):
            raise ValueError(
                f"expected {name} as {shape} float32 or 8-bit, found {numbers.shape} {numbers.dtype}"
            )
        return Matrix(numbers, scale)

    def linear(self, name: str, rows: int, columns: int) -> Linear:
        """Return the linear layer whose tensors are `name.weight` and `name.bias`."""
        stored = self.matrix(f"{name}.weight", rows, columns)
        bias = self.floats(f"{name}.bias", rows)
        return Linear(stored.floats(), bias, stored if self._keeps_stored else None)

    def norm(self, name: str, width: int) -> Norm:
        """Return the LayerNorm whose tensors are `name.weight` and `name.bias`, or older names."""
        weight, bias = ("gamma", "beta") if f"{name}.gamma" in self._names else ("weight", "bias")
        return Norm(self.floats(f"{name}.{weight}", width), self.floats(f"{name}.{bias}", width))


class Encoder(NamedTuple):
    """The weights of an encoder.

    `positions (length, width)` and `segments (types, width)` are added to the words; DistilBERT has no
    segments (None). `heads` is the number of attention heads, `epsilon` the LayerNorms' constant.
    """

    words: Matrix
    positions: Floats
    segments: Floats | None
    norm: Norm
    layers: list[Layer]
    heads: int
    epsilon: float

    @property
    def width(self) -> int:
        """The size of a hidden state."""
        return len(self.norm.weight)


Rename = Callable[[int, str], str]
"""Returns the stored name of a part of a layer; the parts of experts have other names than BERT's."""


def is_supported(config: Mapping[str, Any]) -> bool:
    """Return whether `read_encoder` can read an encoder with this config.json."""
    return is_plain_bert(dict(config)) or is_plain_distilbert(dict(config))


def read_encoder(
    stored: StoredWeights, prefix: str, config: Mapping[str, Any], rename: Rename = lambda _, part: part
) -> Encoder:
    """Return the weights of an encoder.

    :param prefix: the prefix of the encoder's tensors, such as `bert.`
    :param config: the content of config.json
    :param rename: returns the name of a part (`attention.self.query`, …) of the layer with this number
    :raises ValueError: the encoder is neither a BERT nor a DistilBERT, or weights are missing.
    """
    if is_plain_bert(dict(config)):
        return _read_bert(stored, prefix, config, rename)
    if is_plain_distilbert(dict(config)):
        return _read_distilbert(stored, prefix, config)
    raise ValueError(f"expected a BERT or a DistilBERT, found {config.get('model_type')}")


def read_feed_forward(
    stored: StoredWeights, named: Callable[[str], str], width: int, inner_width: int
) -> FeedForward:
    """Return the feed-forward part of a layer of BERT.

    :param named: returns the name of a part, such as `output.dense`
    """
    return FeedForward(
        stored.linear(named("intermediate.dense"), inner_width, width),
        stored.linear(named("output.dense"), width, inner_width),
        stored.norm(named("output.LayerNorm"), width),
    )


def _read_bert(stored: StoredWeights, prefix: str, config: Mapping[str, Any], rename: Rename) -> Encoder:
    width, inner_width = config["hidden_size"], config["intermediate_size"]
    embeddings = f"{prefix}embeddings."

    def layer(number: int) -> Layer:
        def named(part: str) -> str:
            return f"{prefix}encoder.layer.{number}.{rename(number, part)}"

        return Layer(
            stored.linear(named("attention.self.query"), width, width),
            stored.linear(named("attention.self.key"), width, width),
            stored.linear(named("attention.self.value"), width, width),
            stored.linear(named("attention.output.dense"), width, width),
            stored.norm(named("attention.output.LayerNorm"), width),
            *read_feed_forward(stored, named, width, inner_width),
        )

    return Encoder(
        stored.matrix(f"{embeddings}word_embeddings.weight", config["vocab_size"], width),
        stored.floats(f"{embeddings}position_embeddings.weight", config["max_position_embeddings"], width),
        stored.floats(f"{embeddings}token_type_embeddings.weight", config["type_vocab_size"], width),
        stored.norm(f"{embeddings}LayerNorm", width),
        [layer(number) for number in range(config["num_hidden_layers"])],
        config["num_attention_heads"],
        float(config["layer_norm_eps"]),
    )


def _read_distilbert(stored: StoredWeights, prefix: str, config: Mapping[str, Any]) -> Encoder:
    width, inner_width = config["dim"], config["hidden_dim"]

    def layer(number: int) -> Layer:
        name = f"{prefix}transformer.layer.{number}."
        return Layer(
            stored.linear(f"{name}attention.q_lin", width, width),
            stored.linear(f"{name}attention.k_lin", width, width),
            stored.linear(f"{name}attention.v_lin", width, width),
            stored.linear(f"{name}attention.out_lin", width, width),
            stored.norm(f"{name}sa_layer_norm", width),
            stored.linear(f"{name}ffn.lin1", inner_width, width),
            stored.linear(f"{name}ffn.lin2", width, inner_width),
            stored.norm(f"{name}output_layer_norm", width),
        )

    return Encoder(
        stored.matrix(f"{prefix}embeddings.word_embeddings.weight", config["vocab_size"], width),
        stored.floats(
            f"{prefix}embeddings.position_embeddings.weight", config["max_position_embeddings"], width
        ),
        None,
        stored.norm(f"{prefix}embeddings.LayerNorm", width),
        [layer(number) for number in range(config["n_layers"])],
        config["n_heads"],
        1e-12,
    )
