"""Reading the folder of a bi-encoder whose encoders are BERTs, for NumPy and for OpenVINO."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dense.models.config import BY_SKILL, DenseConfig
from dense.models.skill_config import ATTENTION
from sparta.neural.stored import is_plain_bert, read_json
from sparta.runtime.weights import Floats, Rename, StoredWeights


def read_config(folder: Path) -> tuple[dict[str, Any], DenseConfig]:
    """Return the content of config.json, and its `dense` object.

    :raises ValueError: the encoder is no plain BERT or has a learned router.
    :raises ModelError: the folder holds no dense model.
    """
    raw = read_json(folder / "config.json")
    config = DenseConfig.from_dict(raw.get("dense"), str(folder / "config.json"))
    if not is_plain_bert(raw) or config.routing not in ("", "det", BY_SKILL):
        raise ValueError("expected a plain BERT without a learned router")
    return raw, config


def expert_names(config: DenseConfig, expert: int) -> Rename:
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
