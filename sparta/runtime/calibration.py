"""The ranges of an encoder's 8-bit inputs, measured once for each model on fixed texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from sparta.base.files import atomic_write
from sparta.neural.inputs import EncoderInput, special_frame
from sparta.runtime.cache import cache_path, cached, digest
from sparta.runtime.graph import AFTER_GELU, Graph, Ranges
from sparta.runtime.network import Network, arrays

FILE = "activations.npz"
"""The ranges of a shipped model, in its folder."""
_BATCH = 16
_MOST_UNKNOWN = 0.2
_FEWEST_LINES = 10
_KEY, _LARGEST = "key", 65_000.0


def fixed_lines(name: str) -> list[str]:
    """Return the lines of a file of fixed texts, without blank lines."""
    lines = (files("sparta.resources") / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip()]


def calibration_lines(tokenizer: Tokenizer) -> list[str]:
    """Return the fixed texts whose wordpieces a tokenizer mostly knows: English, and Chinese."""
    unknown = {tokenizer.token_to_id(token) for token in ("[UNK]", "<unk>")}
    known_lines, all_lines = [], []
    for name in ("calibration.txt", "calibration-zh.txt"):
        for line in fixed_lines(name):
            ids = tokenizer.encode(line, add_special_tokens=False).ids
            all_lines.append(line)
            if sum(i in unknown for i in ids) <= _MOST_UNKNOWN * len(ids):
                known_lines.append(line)
    return known_lines if len(known_lines) >= _FEWEST_LINES else all_lines


def ranges_of(
    build: Callable[[Graph], Any],
    tokenizer: Tokenizer,
    folder: Path,
    key: str,
    in_floats: Callable[[str], bool] = lambda name: name.endswith(AFTER_GELU),
) -> Ranges:
    """Return the ranges of a network's linear inputs: the model folder's, the cached, or newly measured ones.

    :param build: adds the network to a graph
    :param key: identifies the network's weights
    :param in_floats: returns whether a layer gets no ranges, and so is computed in floats
    """
    ranges = _all_ranges(build, tokenizer, folder, key)
    return {name: values for name, values in ranges.items() if not in_floats(name)}


def _all_ranges(build: Callable[[Graph], Any], tokenizer: Tokenizer, folder: Path, key: str) -> Ranges:
    try:
        shipped = _read((folder / FILE).read_bytes(), key)
    except OSError:
        shipped = None
    if shipped is not None:
        return shipped

    def make() -> bytes:
        return _bytes(measured(build, calibration_inputs(tokenizer)), key)

    return cached(cache_file(key), partial(_read, key=key), make)


def cache_file(key: str) -> Path | None:
    """Return the file of a network's measured ranges, in the user's cache folder, if there is one."""
    return cache_path("activations", key)


def write(path: Path, ranges: Ranges, key: str) -> None:
    """Write ranges atomically, with the digest of the key of the network that they belong to."""
    atomic_write(path, _bytes(ranges, key))


def _bytes(ranges: Ranges, key: str) -> bytes:
    buffer = BytesIO()
    content: dict[str, Any] = {name: values.astype(np.float16) for name, values in ranges.items()}
    content[_KEY] = np.frombuffer(digest(key).encode(), np.uint8)
    np.savez_compressed(buffer, **content)
    return buffer.getvalue()


def _read(content: bytes, key: str) -> Ranges | None:
    """Return stored ranges; None if they are damaged, or of another network."""
    try:
        with np.load(BytesIO(content), allow_pickle=False) as stored:
            if bytes(stored[_KEY]) != digest(key).encode():
                return None
            ranges = {name: stored[name].astype(np.float32) for name in stored.files if name != _KEY}
    except Exception:  # a damaged file makes several packages raise various errors; it is measured again
        return None
    return ranges if ranges and all(np.isfinite(values).all() for values in ranges.values()) else None


def calibration_inputs(tokenizer: Tokenizer) -> list[EncoderInput]:
    """Return the fixed texts as encoder inputs."""
    first, last = special_frame(tokenizer)
    inputs = []
    for text in calibration_lines(tokenizer):
        ids = [first, *tokenizer.encode(text, add_special_tokens=False).ids[:254], last]
        inputs.append(EncoderInput(ids, [0] * len(ids), 1, len(ids) - 1))
    return inputs


def measured(build: Callable[[Graph], Any], inputs: Sequence[EncoderInput]) -> Ranges:
    """Return the largest absolute value of each channel of each linear layer's input, over all tokens.

    Each text is read once with each segment.
    """
    graph = Graph()
    build(graph)
    inputs = [
        EncoderInput(ids := item.ids[: graph.n_positions], [segment] * len(ids), 1, len(ids) - 1)
        for item in inputs
        for segment in range(graph.n_segments)
    ]
    names = list(graph.linear_inputs)
    network = Network(graph.model([graph.linear_inputs[name] for name in names]), "fp32")
    ranges: dict[str, np.ndarray] = {}
    order = sorted(inputs, key=lambda item: len(item.ids))
    for start in range(0, len(order), _BATCH):
        batch = arrays(order[start : start + _BATCH])
        is_token = batch["mask"] == 0
        for name, states in zip(names, network(*graph.arguments(**batch)), strict=True):
            largest = np.abs(states[is_token]).max(0)
            ranges[name] = np.maximum(ranges[name], largest) if name in ranges else largest
    # As they are stored, so that the first process computes like all later ones.
    return {
        name: np.minimum(values, _LARGEST).astype(np.float16).astype(np.float32)
        for name, values in ranges.items()
    }
