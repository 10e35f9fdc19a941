"""Short texts in NumPy: a process that encodes a few does not wait for a network to be compiled."""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import batched
from pathlib import Path

import numpy as np

from sparta.runtime.blas import OneBlasThread
from sparta.runtime.memory import return_freed_memory
from sparta.runtime.network import in_threads
from sparta.runtime.processor import threads
from sparta.runtime.weights import Encoder, Floats, Norm, check_wordpieces, stacked

logger = logging.getLogger(__name__)

_READ_BY_NUMPY = 256
"""The number of wordpieces that NumPy reads, about 20 questions, before OpenVINO takes over."""
_TOKENS_PER_BATCH = 256
"""Largest number of tokens per batch: the widest layer's activations then fit into a processor's cache."""

_one_blas_thread = OneBlasThread()

Encode = Callable[[Sequence[str], Sequence[Sequence[int]]], Floats]
"""Returns a row of numbers for each text: of texts, and of their wordpieces."""


class FirstInNumpy:
    """Encodes short texts: the first with NumPy, later texts with OpenVINO, which needs time to begin.

    OpenVINO encodes faster, but takes about half a second to begin: it takes over once NumPy has read as many
    wordpieces as it reads in that time. It reads the model's folder again; if this now has other files, NumPy
    goes on, because the vectors of an index belong to the model that was opened.

    :param encoder: the weights of a BERT or DistilBERT
    :param pool: turns states `(n, length, width)` of texts of one length into rows `(n, numbers)`
    :param n_numbers: the length of a row
    :param open_network: opens the network of OpenVINO, compiled
    :param folder: the model's folder, for warnings
    """

    def __init__(
        self,
        encoder: Encoder,
        pool: Callable[[Floats], Floats],
        n_numbers: int,
        open_network: Callable[[], Encode],
        folder: Path,
    ) -> None:
        self._network: Encode | None = None
        self._in_numpy: tuple[NumpyBert, Callable[[Floats], Floats]] | None = (NumpyBert(encoder), pool)
        self._n_numbers, self._folder = n_numbers, folder
        self._open_network: Callable[[], Encode] | None = open_network
        self._files = _files(folder)
        self._n_read, self._is_opened, self._lock = 0, False, threading.Lock()

    def __call__(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> Floats:
        """Return a row of numbers for each text, `(n, n_numbers) float32`.

        :param ids: the wordpieces of each text, with [CLS] and [SEP]
        """
        self._n_read += sum(map(len, ids))
        if self._n_read > _READ_BY_NUMPY and not self._is_opened:
            self._take_over()
        in_numpy = self._in_numpy  # read first: another thread sets the network, then releases these weights
        if self._network is not None:
            return self._network(texts, ids)
        assert in_numpy is not None
        return self._by_numpy(*in_numpy, ids)

    def _take_over(self) -> None:
        """Open the network of OpenVINO once, and release NumPy's weights. If it fails, NumPy goes on."""
        with self._lock:
            if self._is_opened:
                return
            if find_spec("openvino") and self._open_network:
                try:
                    if _files(self._folder) != self._files:
                        raise ValueError("the files of the model have changed")
                    self._network = self._open_network()
                    self._in_numpy = self._open_network = None
                    return_freed_memory()
                except Exception as error:  # NumPy goes on, more slowly
                    logger.warning(
                        "%s: NumPy still encodes questions, slower than OpenVINO: %s",
                        self._folder,
                        error,
                    )
            self._is_opened = True

    def _by_numpy(
        self, bert: NumpyBert, pool: Callable[[Floats], Floats], ids: Sequence[Sequence[int]]
    ) -> Floats:
        """Return the rows of wordpieces.

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
            return pool(bert.states(np.array([ids[i] for i in batch])))

        rows = np.empty((len(ids), self._n_numbers), np.float32)
        with _one_blas_thread:
            for batch, batch_rows in zip(batches, in_threads(encode, batches, threads()), strict=True):
                rows[batch] = batch_rows
        return rows


def _files(folder: Path) -> list[tuple[str, int, int]]:
    """Return the weights and settings in a model's folder, with what changes if a file changes."""
    paths = [path for path in folder.glob("*") if path.suffix in (".safetensors", ".json")]
    return sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths)


class NumpyBert:
    """The forward pass of BERT or DistilBERT in NumPy, without segments and padding."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self.width = encoder, encoder.width
        # One product with three matrices side by side is faster than three products.
        self._attention_inputs = [stacked(layer.query, layer.key, layer.value) for layer in encoder.layers]

    def states(self, ids: np.ndarray) -> Floats:
        """Return the last layer's states `(n, length, width)` of wordpieces `(n, length)`."""
        n, length = ids.shape
        encoder = self._encoder
        check_wordpieces(int(ids.max()), len(encoder.words.numbers))
        segment = 0 if encoder.segments is None else encoder.segments[0]
        states = encoder.words.rows(ids) + segment + encoder.positions[:length]
        states = normalized(states.reshape(n * length, -1), encoder.norm, encoder.epsilon)
        for layer, attention_input in zip(encoder.layers, self._attention_inputs, strict=True):
            parts = attention_input(states).reshape(n, length, 3, encoder.heads, -1)
            mixed = layer.mix(_attention(parts).reshape(n * length, -1))
            states = normalized(mixed + states, layer.mixed, encoder.epsilon)
            states = normalized(layer.narrow(gelu(layer.widen(states))) + states, layer.fed, encoder.epsilon)
        return states.reshape(n, length, -1)


def normalized(states: Floats, norm: Norm, epsilon: float) -> Floats:
    """Apply a LayerNorm in place to states `(n, width)`, and return them."""
    states -= states.mean(1, keepdims=True)
    variance = np.einsum("ij,ij->i", states, states) / states.shape[1]
    states /= np.sqrt(variance + epsilon)[:, None].astype(np.float32)
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


def gelu(x: Floats) -> Floats:
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
