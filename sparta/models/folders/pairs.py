"""The folder of a cross-encoder: its kind, its tokenizer of pairs, and a check of its scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from sparta.base.errors import ModelError
from sparta.base.remedies import Option, remedy
from sparta.models.folders.tokenizer import fitting_tokenizer
from sparta.models.resolve import default_name
from sparta.neural.inputs import EncoderInput
from sparta.neural.stored import is_plain_bert, read_settings

CROSS_ENCODER = "BertForSequenceClassification"
"""The architecture of a cross-encoder in its config.json."""
SETTINGS = "config_sentence_transformers.json"
_WITH_SEGMENTS = {
    f"{name}Tokenizer"
    for name in (
        *("Bert", "ConvBert", "DPRContextEncoder", "DPRQuestionEncoder", "Electra"),
        *("LayoutLM", "Lxmert", "MobileBert", "SqueezeBert"),
    )
}
"""Classes of transformers that pass a pair's segments to the model, unless the settings say otherwise."""


def check_kind(folder: Path, raw: dict[str, Any], option: str = "rerank") -> None:
    """Refuse a folder that is no cross-encoder of BERT with one label.

    :param option: the option that names the folder, for the error
    """
    architectures = raw.get("architectures")
    found = str(architectures[0]) if isinstance(architectures, list) and architectures else "no architecture"
    if found == CROSS_ENCODER and not is_plain_bert(raw):
        found = f"a {CROSS_ENCODER} whose encoder is not a plain BERT"
    n_labels = len(raw.get("id2label") or ()) or raw.get("num_labels", 2)
    if found == CROSS_ENCODER and n_labels != 1:
        found = f"{n_labels} labels"
    if found != CROSS_ENCODER:
        raise ModelError(
            f"expected a cross-encoder, a {CROSS_ENCODER} with one label; found {found}",
            where=str(folder),
            remedy=remedy("name a cross-encoder with {}", Option(option, default_name("reranker"))),
        )
    settings = read_settings(folder / SETTINGS)
    if settings.get("default_prompt_name"):
        raise ModelError("the model adds prompts to texts, which sparta does not support", where=str(folder))


def check_finite(folder: Path, logits: npt.NDArray[np.float32]) -> None:
    """Refuse logits that are infinite or not numbers."""
    if not np.isfinite(logits).all():
        raise ModelError(
            "the cross-encoder computes scores that are infinite or not numbers",
            where=str(folder),
            remedy="copy the complete model folder again, or name another cross-encoder",
        )


@dataclass(frozen=True, slots=True)
class PairTokenizer:
    """The tokenizer of pairs, which cuts them to the model's length.

    Without `has_segments`, the model reads query and text as one segment.
    """

    tokenizer: Tokenizer
    has_segments: bool

    def inputs(self, queries: Sequence[str], texts: Sequence[str]) -> list[EncoderInput]:
        """Return the encoder's input for each query with its text."""
        inputs = []
        for encoding in self.tokenizer.encode_batch(list(zip(queries, texts, strict=True))):
            n = len(encoding.ids)
            segments = encoding.type_ids if self.has_segments else [0] * n
            inputs.append(EncoderInput(encoding.ids, segments, 0, n))
        return inputs


def pair_tokenizer(folder: Path, raw: dict[str, Any]) -> PairTokenizer:
    """Return the tokenizer of pairs of a model folder.

    :param raw: the model's config.json
    """
    settings = read_settings(folder / "tokenizer_config.json")
    limits = [
        read_settings(folder / "sentence_bert_config.json").get("max_seq_length"),
        settings.get("model_max_length"),
        raw["max_position_embeddings"],
    ]
    tokenizer = fitting_tokenizer(folder, raw["vocab_size"])
    tokenizer.enable_truncation(int(min(limit for limit in limits if limit)))
    if len(tokenizer.encode("a", "a").ids) < 5 or max(tokenizer.encode("a", "a").type_ids) > 1:
        raise ValueError("the tokenizer makes no pairs as BERT's does")
    return PairTokenizer(tokenizer, _has_segments(settings, raw))


def _has_segments(settings: dict[str, Any], raw: dict[str, Any]) -> bool:
    """Return whether transformers passes the segments of a pair to the model.

    :param settings: the model's tokenizer_config.json
    """
    names = settings.get("model_input_names")
    if names is not None:
        return "token_type_ids" in names
    kind = settings.get("tokenizer_class", raw.get("tokenizer_class"))
    return kind is None or str(kind).removesuffix("Fast") in _WITH_SEGMENTS
