"""Encodes questions with NumPy alone, because importing torch takes longer than a search."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import batched
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from dense.models.blas import OneBlasThread
from dense.models.config import BY_SKILL, DenseConfig
from dense.models.skill_config import ATTENTION
from sparta.base.errors import ModelError, SpartaError
from sparta.models.query_encoder import load_tokenizer
from sparta.neural.stored import ROW_SCALE, is_plain_bert

_TOKENS_PER_BATCH = 256
"""Largest number of tokens per batch: the widest layer's activations then fit into a processor's cache."""

_one_blas_thread = OneBlasThread()


Floats = npt.NDArray[np.float32]


class QuestionEncoder(Protocol):
    """Encodes questions and queries into vectors."""

    def encode_questions(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, `(n, width) float32`."""


def open_question_encoder(folder: Path) -> QuestionEncoder:
    """Open the question encoder of a model: in NumPy for a plain BERT, else in torch.

    :raises ModelError: the folder holds no dense model, or a damaged one.
    """
    try:
        return BertQuestionEncoder(folder)
    except (OSError, ValueError, RecursionError, KeyError, TypeError, SafetensorError, SpartaError):
        from dense.models.bi_encoder import (
            DenseModel,  # supports more encoders, and its errors say what is wrong with the folder
        )
        from sparta.neural.encoding import pick_device

        return DenseModel.load(folder).to(pick_device())


class BertQuestionEncoder:
    """A BERT question encoder in NumPy. The vector is the state of [CLS] or the mean of the token states.

    A model with experts uses the expert for questions.

    :raises ValueError: the encoder is no plain BERT or has a learned router, or its weights have wrong
        shapes.
    """

    def __init__(self, folder: Path) -> None:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.config = DenseConfig.from_dict(raw.get("dense"), str(folder))
        longest = raw.get("max_position_embeddings", 0)
        if (
            not is_plain_bert(raw)
            or self.config.routing not in ("", "det", BY_SKILL)
            or self.config.question_length > longest
        ):
            raise ValueError("expected a plain BERT without a learned router")
        self.tokenizer = load_tokenizer(folder)
        self._heads, self._epsilon = raw["num_attention_heads"], raw["layer_norm_eps"]
        side = "passage" if self.config.shared else "question"
        with safe_open(str(folder / "model.safetensors"), framework="numpy") as stored:
            read = _Reader(stored, f"{side}_encoder.")
            width, self._vocabulary = raw["hidden_size"], raw["vocab_size"]
            self._words = read.rows("embeddings.word_embeddings.weight", raw["vocab_size"], width)
            self._positions = read("embeddings.position_embeddings.weight", longest, width)
            self._segment = read("embeddings.token_type_embeddings.weight", raw["type_vocab_size"], width)[0]
            self._norm = read.norm("embeddings.", width)
            self._layers = [
                self._layer(read, number, width, raw["intermediate_size"])
                for number in range(raw["num_hidden_layers"])
            ]
            self._scale = math.exp(float(stored.get_tensor("log_scale")) / 2) if self.config.cosine else 0.0

    def _layer(self, read: _Reader, number: int, width: int, inner_width: int) -> _Layer:
        prefix = f"encoder.layer.{number}."
        routed = bool(self.config.routing) and (number + 1) % self.config.period == 0
        has_attention_experts = (
            routed and self.config.skills is not None and self.config.skills.placement == ATTENTION
        )
        expert = f"experts.{self.config.question_expert()}." if has_attention_experts else ""
        projections = [
            read.linear(f"{prefix}attention.self.{name}.{expert}", width, width)
            for name in ("query", "key", "value")
        ]
        feed_prefix = (
            f"{prefix}output.experts.{self.config.question_expert()}."
            if routed and not has_attention_experts
            else prefix
        )
        return _Layer(
            _Linear(*(np.concatenate(arrays) for arrays in zip(*projections, strict=True))),
            read.linear(f"{prefix}attention.output.dense.{expert}", width, width),
            read.norm(f"{prefix}attention.output.", width),
            read.linear(f"{feed_prefix}intermediate.dense.", inner_width, width),
            read.linear(f"{feed_prefix}output.dense.", width, inner_width),
            read.norm(f"{feed_prefix}output.", width),
        )

    def encode_questions(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, `(n, width) float32`.

        A batch has texts of one length, so nothing is padded.

        Whole batches run in parallel, not the products within a batch: if other work keeps a processor busy,
        threads that wait for each other at every product take ten times as long.
        """
        ids = [self.config.question_input(text, self.tokenizer).ids for text in texts]
        numbers_by_length: dict[int, list[int]] = defaultdict(list)
        for number, text_ids in enumerate(ids):
            numbers_by_length[len(text_ids)].append(number)
        batches = [
            list(batch)
            for length, numbers in numbers_by_length.items()
            for batch in batched(numbers, max(1, _TOKENS_PER_BATCH // length))
        ]

        def encode(batch: list[int]) -> Floats:
            return self._pooled(self._states(np.array([ids[i] for i in batch])))

        vectors = np.empty((len(ids), len(self._segment)), np.float32)
        with _one_blas_thread, ThreadPoolExecutor(os.cpu_count()) as pool:
            for batch, batch_vectors in zip(batches, pool.map(encode, batches), strict=True):
                vectors[batch] = batch_vectors
        return vectors

    def _pooled(self, states: Floats) -> Floats:
        """Pool states `(n, length, width)` to vectors `(n, width)`. The mean leaves out [CLS] and [SEP]."""
        by_mean = self.config.pooling == "mean" and states.shape[1] > 2
        vectors = states[:, 1:-1].mean(1) if by_mean else states[:, 0]
        if not self.config.cosine:
            return vectors
        lengths: Floats = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors *= np.float32(self._scale) / np.maximum(lengths, np.float32(1e-12))
        return vectors

    def _states(self, ids: np.ndarray) -> Floats:
        """Return the last layer's states `(n, length, width)` of wordpieces `(n, length)`."""
        n, length = ids.shape
        if int(ids.max()) >= self._vocabulary:
            raise ModelError(
                f"the tokenizer returned wordpiece {int(ids.max()):,}, the model has {self._vocabulary:,}",
                remedy="copy the whole model folder again: its tokenizer and weights are of different models",
            )
        states = self._words(ids) + self._segment + self._positions[:length]
        states = self._normalized(states.reshape(n * length, -1), self._norm)
        for layer in self._layers:
            mixed = _attention(layer.heads(states).reshape(n, length, 3, self._heads, -1))
            states = self._normalized(layer.mix(mixed.reshape(n * length, -1)) + states, layer.mixed)
            wide = _gelu(layer.widen(states))
            states = self._normalized(layer.narrow(wide) + states, layer.fed)
        return states.reshape(n, length, -1)

    def _normalized(self, states: Floats, norm: _Norm) -> Floats:
        states -= states.mean(1, keepdims=True)
        deviation = np.sqrt(np.einsum("ij,ij->i", states, states) / states.shape[1] + self._epsilon)
        states /= deviation[:, None].astype(np.float32)
        states *= norm.weight
        states += norm.bias
        return states


class _Linear(NamedTuple):
    weight: Floats
    bias: Floats

    def __call__(self, states: Floats) -> Floats:
        outputs: Floats = states @ self.weight.T
        outputs += self.bias
        return outputs


class _Norm(NamedTuple):
    weight: Floats
    bias: Floats


class _Layer(NamedTuple):
    heads: _Linear
    mix: _Linear
    mixed: _Norm
    widen: _Linear
    narrow: _Linear
    fed: _Norm


class _Reader:
    """Reads an encoder's weights from a safetensors file, checking their shapes.

    8-bit rows become float32.
    """

    def __init__(self, stored: Any, prefix: str) -> None:
        self._stored, self._prefix = stored, prefix
        self._names = set(stored.keys())

    def __call__(self, name: str, *shape: int) -> Floats:
        numbers, scale = self._stored_array(name, shape)
        return numbers if scale is None else numbers * scale[:, None]

    def rows(self, name: str, *shape: int) -> Callable[[np.ndarray], Floats]:
        """Return a function that looks up rows of a matrix: a question needs few rows of the vocabulary."""
        numbers, scale = self._stored_array(name, shape)
        return lambda ids: numbers[ids] if scale is None else numbers[ids] * scale[ids][..., None]

    def linear(self, name: str, rows: int, columns: int) -> _Linear:
        """Read a linear layer."""
        return _Linear(self(f"{name}weight", rows, columns), self(f"{name}bias", rows))

    def norm(self, name: str, width: int) -> _Norm:
        """Read the weight and bias of a LayerNorm."""
        return _Norm(self(f"{name}LayerNorm.weight", width), self(f"{name}LayerNorm.bias", width))

    def _stored_array(self, name: str, shape: tuple[int, ...]) -> tuple[np.ndarray, Floats | None]:
        name = self._prefix + name
        numbers = self._stored.get_tensor(name)
        scale = self._stored.get_tensor(name + ROW_SCALE) if name + ROW_SCALE in self._names else None
        if numbers.shape != shape or numbers.dtype != (np.float32 if scale is None else np.int8):
            raise ValueError(
                f"expected {name} as {shape} float32 or 8-bit, found {numbers.shape} {numbers.dtype}"
            )
        return numbers, scale


def _attention(parts: Floats) -> Floats:
    """Apply attention to queries, keys and values `(n, length, 3, heads, size)`.

    Returns `(n, length, heads, size)`.
    """
    query, key, value = parts.transpose(2, 0, 3, 1, 4)
    scores = query @ key.swapaxes(2, 3)
    scores *= np.float32(parts.shape[-1] ** -0.5)
    scores -= scores.max(3, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(3, keepdims=True)
    return (scores @ value).transpose(0, 2, 1, 3)


_ERFC = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def _gelu(x: Floats) -> Floats:
    """`x · Φ(x)` = max(x, 0) − |x| · erfc(|x| / √2) / 2, to 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
    size = np.abs(x)
    t = size * np.float32(0.3275911 / math.sqrt(2))
    t += np.float32(1)
    np.reciprocal(t, out=t)
    tail = np.full_like(t, _ERFC[0])
    for factor in _ERFC[1:]:
        tail *= t
        tail += np.float32(factor)
    tail *= t
    tail *= size
    size *= size
    size *= np.float32(-0.5)
    tail *= np.exp(size, out=size)
    tail *= np.float32(0.5)
    np.maximum(x, 0, out=x)
    x -= tail
    return x
