"""Sparse encoders of a model folder, read without torch, for CPUs."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from sparta.models.config import SpartaConfig
from sparta.models.model import SparseModel
from sparta.models.openvino_backend import OpenVinoBackend, TermWeights
from sparta.models.query_encoder import load_tokenizer
from sparta.neural.batches import GPU_TOKENS
from sparta.neural.stored import check_length
from sparta.runtime.processor import pick_arithmetic
from sparta.runtime.weights import StoredWeights, is_supported, read_encoder

QUERY_WEIGHTS = "query_term_weights"


class StoredModel(SparseModel):
    """A sparse encoder whose passages OpenVINO encodes on a CPU.

    :param folder: the model's folder
    :param weights: the weights that encode passages
    :param query_weights: the weight of each query term, or None
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        config: SpartaConfig,
        weights: TermWeights,
        query_weights: npt.NDArray[np.float32] | None,
    ) -> None:
        self.folder, self.tokenizer, self.config = folder, tokenizer, config
        self.name = self.identity = ""
        self._weights, self._query_weights = weights, query_weights
        self._backends: dict[str, OpenVinoBackend] = {}
        self.check_vocabulary()

    @property
    def n_terms(self) -> int:
        """The number of term embeddings."""
        return len(self._weights.terms.numbers)

    @property
    def query_weights(self) -> npt.NDArray[np.float32] | None:
        """The weight of each query term, or None."""
        return self._query_weights

    @property
    def device_name(self) -> str:
        """The name of the model's device."""
        return "cpu"

    def on_device(self, device: str | None) -> SparseModel:
        """Return this model for a CPU, or a torch model for another device."""
        if device in (None, "cpu"):
            return self
        from sparta.models.load import load_module

        module = load_module(self.folder, bits=self.config.quantizer.bits if self.config.quantizer else None)
        module.name, module.identity = self.name, self.identity
        return module.on_device(device)

    def arithmetic(self, dtype: str) -> str:
        """Return the arithmetic of `dtype` on this processor: int8, bf16, fp16 or fp32."""
        return pick_arithmetic(dtype, self._weights.encoder.width)

    def backend(self, dtype: str = "auto", token_budget: int = GPU_TOKENS) -> OpenVinoBackend:
        """Return the OpenVINO backend, which is compiled once for each arithmetic.

        :param token_budget: has no effect on a CPU
        """
        arithmetic = self.arithmetic(dtype)
        if arithmetic not in self._backends:
            self._backends[arithmetic] = OpenVinoBackend(
                self._weights,
                self.config,
                self.tokenizer,
                self._excluded,
                self.folder,
                self.identity,
                arithmetic,
            )
        return self._backends[arithmetic]

    @cached_property
    def _excluded(self) -> npt.NDArray[np.bool_]:
        return self.excluded()

    def __deepcopy__(self, memo: dict[int, Any]) -> StoredModel:
        """Return this model: its weights never change."""
        return self


def open_stored(folder: Path) -> StoredModel:
    """Read a SPARTA model's folder.

    :raises ValueError: the folder has another format, or its encoder is neither a BERT nor a DistilBERT.
    :raises ModelError: the configuration is invalid.
    """
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not isinstance(raw, dict) or "sparta" not in raw or not is_supported(raw):
        raise ValueError("expected a SPARTA model of a BERT or a DistilBERT")
    config = SpartaConfig.from_dict(raw["sparta"], str(folder / "config.json"))
    check_length(config.layout.max_length, raw, str(folder))
    stored = StoredWeights(folder)
    encoder = read_encoder(stored, "encoder.", raw)
    n_terms = len(encoder.words.numbers)
    terms = encoder.words if config.tied else stored.matrix("term_embeddings", n_terms, encoder.width)
    weights = TermWeights(
        encoder,
        None,
        terms,
        float(stored.floats("scale")),
        stored.floats("bias"),
        np.maximum(stored.floats("gains", n_terms), 0) if config.lexical else None,
    )
    query_weights = np.maximum(stored.floats(QUERY_WEIGHTS, n_terms), 0) if config.weighted_queries else None
    return StoredModel(folder, load_tokenizer(folder), config, weights, query_weights)
