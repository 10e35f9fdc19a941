"""Encodes questions: the first with NumPy, because a network takes longer to compile than a search."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import batched
from pathlib import Path
from typing import Protocol

import numpy as np

from dense.encoding.bert_folder import expert_names, has_router, read_config, vector_length, with_length
from dense.encoding.blas import OneBlasThread
from sparta.base.errors import ModelError
from sparta.models.query_encoder import load_tokenizer
from sparta.neural.devices import best_device
from sparta.neural.stored import is_plain_bert
from sparta.runtime.fallback import first_readable
from sparta.runtime.weights import Encoder, Floats, Norm, StoredWeights, read_encoder, stacked

logger = logging.getLogger(__name__)

_READ_BY_NUMPY = 256
"""The number of wordpieces that NumPy reads, about 20 questions, before OpenVINO takes over."""
_TOKENS_PER_BATCH = 256
"""Largest number of tokens per batch: the widest layer's activations then fit into a processor's cache."""

_one_blas_thread = OneBlasThread()


class QuestionEncoder(Protocol):
    """Encodes questions and queries into vectors."""

    def encode_questions(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, `(n, width) float32`."""


def open_question_encoder(folder: Path) -> QuestionEncoder:
    """Open the question encoder of a model: in NumPy for a plain BERT, else as `load_dense` opens it.

    :raises ModelError: the folder holds no dense model, or a damaged one.
    """
    return first_readable(folder, lambda: BertQuestionEncoder(folder), lambda: _network(folder))


def _network(folder: Path) -> QuestionEncoder:
    from dense.encoding.load import load_dense

    return load_dense(folder, best_device())


class BertQuestionEncoder:
    """A BERT question encoder in NumPy. The vector is the state of [CLS] or the mean of the token states.

    A model with experts uses the expert for questions.

    :raises ValueError: the encoder is no plain BERT or has a learned router, or its weights have wrong
        shapes.
    """

    def __init__(self, folder: Path) -> None:
        raw, self.config = read_config(folder)
        if not is_plain_bert(raw) or has_router(self.config):
            raise ValueError("expected a plain BERT without a learned router")
        if self.config.question_length > raw["max_position_embeddings"]:
            raise ValueError("expected questions that fit the encoder's positions")
        self.tokenizer, self._folder, self._n_read = load_tokenizer(folder), folder, 0
        self._lock, self._is_opened = threading.Lock(), False
        side = "passage" if self.config.shared else "question"
        stored = StoredWeights(folder, keeps_stored=False)
        encoder = read_encoder(
            stored, f"{side}_encoder.", raw, expert_names(self.config, self.config.question_expert())
        )
        self._current: _Bert | QuestionEncoder = _Bert(encoder)
        self._length = vector_length(stored, self.config)

    def encode_questions(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, `(n, width) float32`.

        NumPy encodes the first questions. OpenVINO encodes faster, but takes about half a second to begin: it
        takes over once NumPy has read as many wordpieces as it reads in that time.
        """
        ids = [self.config.question_input(text, self.tokenizer).ids for text in texts]
        self._n_read += sum(map(len, ids))
        encoder = self._current
        if isinstance(encoder, _Bert) and self._n_read > _READ_BY_NUMPY:
            encoder = self._taken_over(encoder)
        return self._by_numpy(encoder, ids) if isinstance(encoder, _Bert) else encoder.encode_questions(texts)

    def _taken_over(self, bert: _Bert) -> _Bert | QuestionEncoder:
        """Return the network of OpenVINO, which is opened once and releases NumPy's weights.

        Returns `bert` if OpenVINO cannot run the network.
        """
        with self._lock:
            if not self._is_opened:
                self._is_opened = True
                self._current = self._open() or bert
            return self._current

    def _open(self) -> QuestionEncoder | None:
        if not find_spec("openvino"):
            return None
        from dense.encoding.stored_model import StoredDenseModel

        try:
            network = StoredDenseModel(self._folder)
            network.encode_questions([""])  # compiles it
        except Exception as error:  # NumPy goes on, more slowly
            logger.warning("%s: NumPy encodes questions, because OpenVINO failed: %s", self._folder, error)
            return None
        return network

    def _by_numpy(self, bert: _Bert, ids: Sequence[list[int]]) -> Floats:
        """Return the vectors of wordpieces.

        A batch has texts of one length, so nothing is padded.

        Whole batches run in parallel, not the products within a batch: if other work keeps a processor busy,
        threads that wait for each other at every product take ten times as long.
        """
        numbers_by_length: dict[int, list[int]] = defaultdict(list)
        for number, text_ids in enumerate(ids):
            numbers_by_length[len(text_ids)].append(number)
        batches = [
            list(batch)
            for length, numbers in numbers_by_length.items()
            for batch in batched(numbers, max(1, _TOKENS_PER_BATCH // length))
        ]

        def encode(batch: list[int]) -> Floats:
            return self._pooled(bert.states(np.array([ids[i] for i in batch])))

        vectors = np.empty((len(ids), bert.width), np.float32)
        with _one_blas_thread, ThreadPoolExecutor(os.cpu_count()) as pool:
            for batch, batch_vectors in zip(batches, pool.map(encode, batches), strict=True):
                vectors[batch] = batch_vectors
        return vectors

    def _pooled(self, states: Floats) -> Floats:
        """Pool states `(n, length, width)` to vectors `(n, width)`. The mean leaves out [CLS] and [SEP]."""
        by_mean = self.config.pooling == "mean" and states.shape[1] > 2
        vectors = states[:, 1:-1].mean(1) if by_mean else states[:, 0]
        return with_length(vectors, self._length)


class _Bert:
    """The forward pass of BERT in NumPy."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self.width = encoder, encoder.width
        # One product with three matrices side by side is faster than three products.
        self._attention_inputs = [stacked(layer.query, layer.key, layer.value) for layer in encoder.layers]

    def states(self, ids: np.ndarray) -> Floats:
        """Return the last layer's states `(n, length, width)` of wordpieces `(n, length)`."""
        n, length = ids.shape
        encoder = self._encoder
        n_known = len(encoder.words.numbers)
        if int(ids.max()) >= n_known:
            raise ModelError(
                f"the tokenizer returned wordpiece {int(ids.max()):,}, the model has {n_known:,}",
                remedy="copy the whole model folder again: its tokenizer and weights are of different models",
            )
        segment = 0 if encoder.segments is None else encoder.segments[0]
        states = encoder.words.rows(ids) + segment + encoder.positions[:length]
        states = self._normalized(states.reshape(n * length, -1), encoder.norm)
        for layer, attention_input in zip(encoder.layers, self._attention_inputs, strict=True):
            parts = attention_input(states).reshape(n, length, 3, encoder.heads, -1)
            mixed = layer.mix(_attention(parts).reshape(n * length, -1))
            states = self._normalized(mixed + states, layer.mixed)
            states = self._normalized(layer.narrow(_gelu(layer.widen(states))) + states, layer.fed)
        return states.reshape(n, length, -1)

    def _normalized(self, states: Floats, norm: Norm) -> Floats:
        states -= states.mean(1, keepdims=True)
        variance = np.einsum("ij,ij->i", states, states) / states.shape[1]
        states /= np.sqrt(variance + self._encoder.epsilon)[:, None].astype(np.float32)
        states *= norm.weight
        states += norm.bias
        return states


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
