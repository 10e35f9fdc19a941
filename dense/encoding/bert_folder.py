"""Reading the folder of a bi-encoder whose encoders are BERTs, for NumPy and for OpenVINO."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dense.models.config import BY_SKILL, DenseConfig
from dense.models.skill_config import ATTENTION, ENCODER
from sparta.neural.stored import is_plain_bert, read_json
from sparta.runtime.weights import (
    Encoder,
    Floats,
    Layer,
    Rename,
    Router,
    StoredWeights,
    read_encoder,
    read_feed_forward,
)


def read_config(folder: Path) -> tuple[dict[str, Any], DenseConfig]:
    """Return the content of config.json, and its `dense` object.

    :raises ValueError: a model with experts is no plain BERT.
    :raises ModelError: the folder holds no dense model.
    """
    raw = read_json(folder / "config.json")
    config = DenseConfig.from_dict(raw.get("dense"), str(folder / "config.json"))
    if not is_plain_bert(raw) and config.routing:
        raise ValueError("expected a plain BERT, which alone may have experts")
    return raw, config


def has_router(config: DenseConfig) -> bool:
    """Return whether linear layers choose the experts (TASER's Seq-R and Tok-R)."""
    return config.routing not in ("", "det", BY_SKILL)


def read_side(
    stored: StoredWeights, config: DenseConfig, raw: dict[str, Any], side: str, expert: int
) -> Encoder:
    """Return the encoder of a side with this expert, or with all experts and their routers.

    :param side: `question` or `passage`; a shared encoder is stored as the passage's
    :raises ValueError: the weights do not fit config.json.
    """
    prefix = f"{'passage' if config.shared else side}_encoder."
    if config.skills and config.skills.placement == ENCODER:
        return read_encoder(stored, f"{prefix}experts.{expert}.", raw)
    encoder = read_encoder(stored, prefix, raw, _expert_names(config, 0 if has_router(config) else expert))
    if not has_router(config):
        return encoder
    width, inner_width = raw["hidden_size"], raw["intermediate_size"]

    def routed(number: int, layer: Layer) -> Layer:
        if (number + 1) % config.period:
            return layer
        name = f"{prefix}encoder.layer.{number}.output"
        experts = [
            read_feed_forward(stored, (f"{name}.experts.{expert}." + "{}").format, width, inner_width)
            for expert in range(config.experts)
        ]
        scores = stored.linear(f"{name}.router", config.experts, width)
        return layer._replace(router=Router(scores, experts, config.routing == "tok"))

    return encoder._replace(layers=[routed(number, layer) for number, layer in enumerate(encoder.layers)])


def _expert_names(config: DenseConfig, expert: int) -> Rename:
    """Return the function that names the weights of an expert in the layers that have experts."""

    def rename(number: int, part: str) -> str:
        if not config.routing or (number + 1) % config.period:
            return part
        if config.skills is not None and config.skills.placement == ATTENTION:
            is_expert = part.startswith("attention.self.") or part == "attention.output.dense"
            return f"{part}.experts.{expert}" if is_expert else part
        return part if part.startswith("attention.") else f"output.experts.{expert}.{part}"

    return rename


def vector_length(stored: StoredWeights, config: DenseConfig) -> float | None:
    """Return the length of a model's vectors, the root of its scale; None if vectors keep their lengths."""
    return math.exp(float(stored.floats("log_scale")) / 2) if config.cosine else None


def with_length(vectors: Floats, length: float | None) -> Floats:
    """Scale vectors `(…, width)` in place to a length, and return them; None leaves them unchanged."""
    if length is not None:
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        vectors *= np.float32(length) / np.maximum(lengths, np.float32(1e-12))
    return vectors
