"""Cross-encoders: a BERT reads a query and a passage together and gives the pair a score, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from tokenizers import Tokenizer

from sparta.base.errors import ModelError
from sparta.base.remedies import Option, remedy
from sparta.models.folders.pairs import SETTINGS, check_finite, check_kind, pair_tokenizer
from sparta.models.resolve import check_unchanged, default_name, hash_folder, named_or_shipped_folder
from sparta.neural.batches import length_sorted_batches
from sparta.neural.stored import read_json, read_settings
from sparta.runtime.calibration import ranges_of
from sparta.runtime.graph import AFTER_ATTENTION, AFTER_GELU, Graph
from sparta.runtime.network import EncoderNetwork, in_threads
from sparta.runtime.processor import pick_arithmetic
from sparta.runtime.weights import Floats, StoredWeights, read_encoder

_TOKENS_PER_BATCH = 1024
_LARGEST_BATCH = 32
_UNREADABLE = OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, SafetensorError
"""Errors of files that are missing or damaged, and of settings of a wrong type."""


class CrossEncoder:
    """Scores pairs of a query and a text, as sentence-transformers' CrossEncoder does.

    The folder is a `BertForSequenceClassification` with one label, with or without the files of
    sentence-transformers. A pair is `[CLS] query [SEP] text [SEP]`; the longer of the two is cut until the
    pair fits. sparta reads "[SEP]" and "[CLS]" in a query or text as ordinary characters, unlike
    sentence-transformers.

    :param dtype: int8, bf16, fp32 or auto: the fastest that the processor supports
    :raises ModelError: the folder holds no such cross-encoder.
    """

    def __init__(self, folder: Path, dtype: str = "auto") -> None:
        self.folder = folder
        if not (folder / "config.json").is_file():
            raise ModelError(
                "the folder has no config.json, so it holds no cross-encoder",
                where=str(folder),
                remedy=remedy("check the path of {}", Option("rerank")),
            )
        raw = read_json(folder / "config.json")
        try:
            check_kind(folder, raw)
            self._tokenizer = pair_tokenizer(folder, raw)
            self._has_sigmoid = _has_sigmoid(folder, raw)
            self._network = _network(folder, raw, self._tokenizer.tokenizer, dtype)
        except ModelError:
            raise
        except _UNREADABLE as error:
            raise ModelError(
                f"the cross-encoder cannot be read: {error}",
                where=str(folder),
                remedy="copy the complete model folder again, with its weights as model.safetensors",
            ) from error

    @classmethod
    def open(cls, name: str | Path | None, language: str = "en", dtype: str = "auto") -> CrossEncoder:
        """Open a folder, an installed model by its name, or with None the language's shipped reranker.

        :raises ModelError: there is no such model, or the folder holds no cross-encoder.
        """
        folder = named_or_shipped_folder(name, language, "reranker")
        if not folder.is_dir():
            raise ModelError(
                "no such folder of a cross-encoder",
                where=str(folder),
                remedy=remedy("check the path of {}", Option("rerank")),
            )
        return cls(folder, dtype)

    def scores(self, queries: Sequence[str], texts: Sequence[str]) -> Floats:
        """Return the score of each query with its text, `(n,) float32`: the logit or its sigmoid.

        :param texts: one text for each query
        :raises ModelError: a score is infinite or not a number.
        """
        logits = self.logits(queries, texts)
        return np.reciprocal(1 + np.exp(-logits), dtype=np.float32) if self._has_sigmoid else logits

    def logits(self, queries: Sequence[str], texts: Sequence[str]) -> Floats:
        """Return the logit of each query with its text, `(n,) float32`; see `scores`."""
        pairs = self._tokenizer.inputs(queries, texts)
        lengths = [len(pair.ids) for pair in pairs]
        batches = list(length_sorted_batches(lengths, _TOKENS_PER_BATCH, _LARGEST_BATCH))
        logits = np.empty(len(pairs), np.float32)

        def read(batch: Sequence[int]) -> Floats:
            return self._network([pairs[i] for i in batch])

        for batch, batch_logits in zip(
            batches, in_threads(read, batches, self._network.streams), strict=True
        ):
            logits[batch] = batch_logits[:, 0, 0]
        check_finite(self.folder, logits)
        return logits


def _has_sigmoid(folder: Path, raw: dict[str, Any]) -> bool:
    """Return whether a score is the sigmoid of the logit: sentence-transformers' default for one label.

    :raises ModelError: the model has another activation.
    """
    names = [
        read_settings(folder / SETTINGS).get("activation_fn"),
        (raw.get("sentence_transformers") or {}).get("activation_fn"),
        raw.get("sbert_ce_default_activation_function"),
    ]
    name = next((str(name) for name in names if name), "Sigmoid").rpartition(".")[2]
    if name not in ("Sigmoid", "Identity"):
        raise ModelError(
            f"the activation of a cross-encoder must be Sigmoid or Identity, found {name}",
            where=str(folder),
            remedy=remedy("name another cross-encoder with {}", Option("rerank", default_name("reranker"))),
        )
    return name == "Sigmoid"


def _network(folder: Path, raw: dict[str, Any], tokenizer: Tokenizer, dtype: str) -> EncoderNetwork:
    """Return the network of pairs: encoder, pooler and classifier, `(n, 1, 1)`."""
    arithmetic = pick_arithmetic(dtype, raw["hidden_size"])
    identity = hash_folder(folder) if arithmetic == "int8" else ""
    stored = StoredWeights(folder)
    encoder = read_encoder(stored, "bert.", raw)
    pooler = stored.linear("bert.pooler.dense", encoder.width, encoder.width)
    classifier = stored.linear("classifier", 1, encoder.width)
    stored.check_all_read(".layer.")

    def encode(graph: Graph) -> Any:
        return graph.encoder(encoder, with_segments=True)

    def build(graph: Graph) -> Any:
        first = graph.encoder(encoder, with_segments=True, only_first=True)
        return graph.exact(graph.tanh(graph.exact(first, pooler)), classifier)

    ranges = None
    if arithmetic == "int8":
        check_unchanged(folder, identity)
        ranges = ranges_of(encode, tokenizer, folder, identity, _needs_floats)
    return EncoderNetwork(build, arithmetic, ranges, raw["max_position_embeddings"])


def _needs_floats(name: str) -> bool:
    """Return whether a layer is computed in floats: the products that cause most of the error."""
    return name.endswith((AFTER_GELU, AFTER_ATTENTION))
