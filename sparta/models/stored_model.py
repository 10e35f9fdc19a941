"""Sparse encoders of a model folder, read without torch, for CPUs."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from sparta.base.checks import check_vocabulary
from sparta.models.backends.openvino import OpenVinoBackend, TermWeights, calibrated
from sparta.models.config import SpartaConfig
from sparta.models.folders.kinds import Kind, kind_of
from sparta.models.folders.sparse_folder import read_beir_folder, read_sparse_folder
from sparta.models.folders.tokenizer import shared_tokenizer
from sparta.models.model import SparseModel
from sparta.models.resolve import QUERY_WEIGHTS, check_unchanged
from sparta.neural.batches import GPU_TOKENS
from sparta.neural.devices import uses_cpu
from sparta.neural.stored import check_length, read_json
from sparta.runtime.graph import Ranges
from sparta.runtime.processor import mixed_with, pick_arithmetic
from sparta.runtime.weights import StoredWeights, is_supported, read_encoder


class StoredModel(SparseModel):
    """A sparse encoder whose passages OpenVINO encodes on a CPU.

    Once a network is compiled, the model releases its weights, and reads them again for another arithmetic.

    :param folder: the model's folder
    :param weights: the weights that encode passages
    :param query_weights: the weight of each query term, or None
    :param has_query_network: whether a network encodes queries
    """

    runtime = "openvino"

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        config: SpartaConfig,
        weights: TermWeights,
        query_weights: npt.NDArray[np.float32] | None,
        *,
        has_query_network: bool = False,
    ) -> None:
        self.folder, self.tokenizer, self.config = folder, tokenizer, config
        self.name = self.identity = ""
        self._weights: TermWeights | None = weights
        self._width, self._n_terms = weights.encoder.width, len(weights.terms.numbers)
        self._query_weights, self._has_folder = query_weights, True
        self.has_query_network = has_query_network
        wordpieces = check_vocabulary(tokenizer, str(folder))
        self._compiled: tuple[str, OpenVinoBackend] | None = None
        self._lock = threading.Lock()
        self._ranges: Ranges | None = None
        self.check_vocabulary(wordpieces)

    @property
    def n_terms(self) -> int:
        """The number of term embeddings."""
        return self._n_terms

    @property
    def device_name(self) -> str:
        """The name of the model's device."""
        return "cpu"

    def on_device(self, device: str | None) -> SparseModel:
        """Return this model for a CPU, or a torch model for another device."""
        return self if device is None or uses_cpu(device) else self.as_module().on_device(device)

    def as_module(self) -> SparseModel:
        """Return this model as a torch module, on the CPU."""
        from sparta.models.load import NO_NETWORK, load_module

        self._check_unchanged()
        bits = self.config.quantizer.bits if self.config.quantizer else None
        query_encoder = None if self.has_query_network else NO_NETWORK
        module = load_module(self.folder, bits=bits, query_encoder=query_encoder)
        self._check_unchanged()
        module.name = self.name
        return module

    def arithmetic(self, dtype: str) -> str:
        """Return the arithmetic of `dtype` on this processor: int8, bf16 or fp32."""
        return pick_arithmetic(dtype, self._width)

    def runtime_name(self, dtype: str) -> str:
        """Return the runtime and the arithmetic of `dtype`, such as `openvino int8+bf16`."""
        return super().runtime_name(dtype) + mixed_with(self.arithmetic(dtype))

    def backend(self, dtype: str = "auto", token_budget: int = GPU_TOKENS) -> OpenVinoBackend:
        """Return the OpenVINO backend; only the backend of the last arithmetic stays compiled.

        :param token_budget: has no effect on a CPU
        """
        arithmetic = self.arithmetic(dtype)
        with self._lock:
            if self._compiled is None or self._compiled[0] != arithmetic:
                ranges = self._calibrated() if arithmetic == "int8" else None
                backend = OpenVinoBackend(
                    self._term_weights(), self.config, self._excluded, ranges, arithmetic
                )
                self._compiled = arithmetic, backend
                if self._has_folder:
                    self._weights = None
            return self._compiled[1]

    def _calibrated(self) -> Ranges:
        if self._ranges is None:
            self._ranges = calibrated(
                self._term_weights(), self.config, self.tokenizer, self.folder, self.identity
            )
        return self._ranges

    def _term_weights(self) -> TermWeights:
        """Return the weights; read them again if they were released."""
        weights = self._weights  # read once: another thread may release them
        if weights is None:
            self._check_unchanged()
            weights = open_stored(self.folder)._term_weights()
            self._check_unchanged()
        return weights

    def _check_unchanged(self) -> None:
        """Raise if the model's folder has other files than when it was opened.

        :raises ModelError: it has other files.
        """
        if self._has_folder and self.identity:
            check_unchanged(self.folder, self.identity)

    @cached_property
    def _excluded(self) -> npt.NDArray[np.bool_]:
        return self.excluded()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: everything but the compiled network.

        Another machine may lack the folder, so the weights and the ranges are included.
        """
        if self.arithmetic("auto") == "int8":
            self._calibrated()
        return {
            **vars(self),
            "_weights": self._term_weights(),
            "_has_folder": False,
            "_compiled": None,
            "_lock": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __deepcopy__(self, memo: dict[int, Any]) -> StoredModel:
        """Return this model: its weights never change."""
        return self


def open_stored(folder: Path) -> StoredModel:
    """Read the folder of a sparse model.

    :raises ValueError: the encoder is neither a BERT nor a DistilBERT.
    :raises ModelError: the folder is of no known kind, or the configuration is invalid.
    """
    kind = kind_of(folder)
    if kind not in (Kind.SPARTA, Kind.BEIR):
        read = read_sparse_folder(folder)
        return StoredModel(
            folder,
            read.tokenizer,
            read.config,
            language_model(read.network),
            read.query_weights,
            has_query_network=read.query_network is not None,
        )
    raw = read_json(folder / "config.json")
    if not is_supported(raw):
        raise ValueError("expected a BERT or a DistilBERT")
    return _sparta(folder, raw) if kind is Kind.SPARTA else _plain_encoder(folder, raw)


def _sparta(folder: Path, raw: dict[str, Any]) -> StoredModel:
    config = SpartaConfig.from_dict(raw["sparta"], str(folder / "config.json"))
    check_length(config.layout.max_length, raw, folder)
    stored = StoredWeights(folder)
    encoder = read_encoder(stored, "encoder.", raw)
    n_terms = len(encoder.words.numbers)
    weights = TermWeights(
        encoder,
        None,
        encoder.words if config.tied else stored.matrix("term_embeddings", n_terms, encoder.width),
        float(stored.floats("scale")),
        stored.floats("bias"),
        np.maximum(stored.floats("gains", n_terms), 0) if config.lexical else None,
    )
    query_weights = np.maximum(stored.floats(QUERY_WEIGHTS, n_terms), 0) if config.weighted_queries else None
    stored.check_all_read()
    return StoredModel(folder, shared_tokenizer(folder), config, weights, query_weights)


def _plain_encoder(folder: Path, raw: dict[str, Any]) -> StoredModel:
    """Read a plain encoder: its terms have its word embeddings and no bias."""
    read, stored = read_beir_folder(folder, raw), StoredWeights(folder)
    encoder = read_encoder(stored, _prefix(stored, raw["model_type"]), raw)
    weights = TermWeights(encoder, None, encoder.words, 1.0, np.zeros((), np.float32), None)
    return StoredModel(folder, read.tokenizer, read.config, weights, None)


def language_model(folder: Path, *, keeps_stored: bool = True) -> TermWeights:
    """Return the weights of a masked language model: its decoder holds the terms.

    :param keeps_stored: keep 8-bit matrices beside their float32
    :raises ValueError: the encoder is neither a BERT nor a DistilBERT, or weights are missing.
    """
    raw, stored = read_json(folder / "config.json"), StoredWeights(folder, keeps_stored=keeps_stored)
    encoder = read_encoder(stored, _prefix(stored, str(raw.get("model_type"))), raw)
    n_terms, width = encoder.words.numbers.shape
    names = _DECODERS[raw["model_type"]]
    ties = raw.get("tie_word_embeddings", True)
    is_tied = names.terms not in stored and ties
    bias_beside_terms = names.terms.removesuffix("weight") + "bias"  # transformers 5 uses it if untied
    bias = names.bias if ties or bias_beside_terms not in stored else bias_beside_terms
    return TermWeights(
        encoder,
        (stored.linear(names.dense, width, width), stored.norm(names.norm, width)),
        encoder.words if is_tied else stored.matrix(names.terms, n_terms, width),
        1.0,
        stored.floats(bias, n_terms),
        None,
    )


class _Decoder(NamedTuple):
    """The names of the weights between a language model's encoder and its logits."""

    dense: str
    norm: str
    terms: str
    bias: str


_DECODERS = {
    "bert": _Decoder(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder.weight",
        "cls.predictions.bias",
    ),
    "distilbert": _Decoder(
        "vocab_transform", "vocab_layer_norm", "vocab_projector.weight", "vocab_projector.bias"
    ),
}


def _prefix(stored: StoredWeights, model_type: str) -> str:
    """Return the prefix of an encoder's weights: models with a head have one, plain encoders have none."""
    return f"{model_type}." if f"{model_type}.embeddings.word_embeddings.weight" in stored else ""
