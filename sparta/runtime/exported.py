"""Encoders of any architecture: torch exports their graphs once, OpenVINO runs them from the cache."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from sparta.base.errors import first_line_of
from sparta.base.extras import optional_packages
from sparta.neural.batches import Tokens, padded, rounded_length
from sparta.runtime.cache import cache_path, cached, digest
from sparta.runtime.network import Network
from sparta.runtime.processor import capabilities, core, runtime, without_module
from sparta.runtime.weights import Floats

if TYPE_CHECKING:
    from torch import nn

_TOLERANCE = 1e-3
_LEAST_COSINE = 0.999
"""The least cosine of a state in bf16 with that in float32, for an encoder that may compute in bf16."""
_NUMBERS = 45
"""Few wordpieces are enough for this, because only positions matter."""
_TELEMETRY = "openvino_telemetry"


class ExportedEncoder:
    """An encoder of any architecture, compiled: from texts to their last hidden states.

    :param content: a graph, as `exported` returns it
    :param arithmetic: `bf16` or `fp32`; bf16 only if the graph `fits_bf16`
    :param max_length: the largest length to which texts are padded
    """

    def __init__(self, content: bytes, arithmetic: str, max_length: int) -> None:
        model = _model(content)
        self._n_inputs, self._max_length = len(model.inputs), max_length
        self._network = Network(model, arithmetic)
        self.streams = self._network.streams

    def __call__(self, inputs: Sequence[Tokens]) -> Floats:
        """Return the states of texts, `(n, padded length, width)`."""
        length = rounded_length(max(len(text.ids) for text in inputs), self._max_length)
        ids, is_token, segments = padded(inputs, length)
        [states] = self._network(*(ids, is_token.astype(np.int64), segments)[: self._n_inputs])
        return states


def exported(key: str, longest: int, module: Callable[[], nn.Module]) -> bytes:
    """Return the graph of an encoder, from the cache or exported by torch.

    :param key: identifies the weights
    :param longest: the longest text in wordpieces
    :param module: returns the encoder as a torch module; only called without a cached graph
    :raises MissingPackageError: there is no cached graph, and torch is not installed.
    :raises ValueError: the graph computes other states than torch.
    :raises RuntimeError: OpenVINO cannot compute the graph, or has no space for its files.
    """

    def read(content: bytes) -> bytes | None:
        try:
            with np.load(BytesIO(content), allow_pickle=False) as stored:
                is_whole = bytes(stored["key"]) == digest(key).encode()
                is_whole &= all(stored[name].size > 0 for name in ("graph", "weights"))  # checks their sums
        except Exception:  # a damaged file makes several packages raise various errors
            return None
        return content if is_whole else None

    return cached(cache_path("graphs", key), read, lambda: _export(key, longest, module()))


def fits_bf16(content: bytes, longest: int) -> bool:
    """Return whether a graph has nearly the same states in bf16 as in float32.

    OpenVINO also rounds numbers of positions to bf16, which changes the states of some architectures. The
    export measures this, if its processor has bf16.

    :param longest: the longest text in wordpieces
    """
    with np.load(BytesIO(content), allow_pickle=False) as stored:
        if "bf16" in stored:
            return bool(stored["bf16"].all())
    return _measured_bf16(_model(content), longest)


def _measured_bf16(model: Any, longest: int) -> bool:
    """Compare the states of one text of the longest length, with random wordpieces."""
    ids = np.random.default_rng(longest).integers(5, _NUMBERS, (1, longest))
    inputs = [ids, np.ones_like(ids), np.zeros_like(ids)][: len(model.inputs)]
    [in_bf16], [in_floats] = (Network(model, arithmetic, 1)(*inputs) for arithmetic in ("bf16", "fp32"))
    return float(_cosines(in_bf16, in_floats).min()) >= _LEAST_COSINE


def _export(key: str, longest: int, encoder: nn.Module) -> bytes:
    """Return the graph of a torch module, after comparing its states with torch's."""
    import torch

    with optional_packages():
        from sparta.neural.export_module import StatesModule

    states = StatesModule(encoder.eval())
    model = _convert(states, states.example(2, 7))
    network = Network(model, "fp32", 1)
    for n, length in ((2, 7), (3, 16), (1, longest)):
        example = states.example(n, length)
        with torch.inference_mode():
            right = states(*example).numpy()
        [found] = network(*(tensor.numpy() for tensor in example))
        if np.abs(found - right).max() > _TOLERANCE * max(1, np.abs(right).max()):
            raise ValueError(f"OpenVINO computes other states than torch at {length} wordpieces")
    return _bytes(model, key, _measured_bf16(model, longest) if "bf16" in capabilities() else None)


def _cosines(a: Floats, b: Floats) -> Floats:
    """Return the cosine of each pair of states, `(…,)`."""
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosines: Floats = (a * b).sum(-1) / np.maximum(lengths, np.finfo(np.float32).tiny)
    return cosines


def _convert(module: nn.Module, example: tuple[Any, ...]) -> Any:
    """Return OpenVINO's model of a torch module. The converter runs without its telemetry.

    :raises ValueError: OpenVINO cannot convert the module.
    """
    import torch

    try:
        # Without its package of telemetry, the converter uses a stub.
        with without_module(_TELEMETRY), torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # tracing warns of each size that it reads; `_export` compares sizes
            return runtime().convert_model(module, example_input=example)
    except Exception as error:  # errors of torch, and of OpenVINO, which has classes of its own
        raise ValueError(f"OpenVINO cannot convert it: {first_line_of(error)}") from error


def _bytes(model: Any, key: str, fits_bf16: bool | None) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "encoder.xml"
        runtime().save_model(model, str(path), compress_to_fp16=False)
        graph, weights = path.read_bytes(), path.with_suffix(".bin").read_bytes()
    buffer = BytesIO()
    parts = {"key": digest(key).encode(), "graph": graph, "weights": weights}
    content: dict[str, Any] = {name: np.frombuffer(part, np.uint8) for name, part in parts.items()}
    if fits_bf16 is not None:
        content["bf16"] = np.array([fits_bf16])
    np.savez(buffer, **content)
    return buffer.getvalue()


def _model(content: bytes) -> Any:
    with np.load(BytesIO(content), allow_pickle=False) as stored:
        weights = runtime().Tensor(stored["weights"])
        return core().read_model(bytes(stored["graph"]), weights)
