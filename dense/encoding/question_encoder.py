"""Encodes questions: the first with NumPy, because a network takes longer to compile than a search."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from dense.encoding.bert_folder import has_router, read_config, read_side, vector_length, with_length
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.neural.devices import best_device
from sparta.neural.stored import is_plain_bert
from sparta.runtime.fallback import first_readable
from sparta.runtime.first_in_numpy import Encode, FirstInNumpy
from sparta.runtime.weights import Floats, StoredWeights


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
        self.tokenizer = load_tokenizer(folder)
        stored = StoredWeights(folder, keeps_stored=False)
        encoder = read_side(stored, self.config, raw, "question", self.config.question_expert())
        length = vector_length(stored, self.config)
        pool = partial(_pooled, by_mean=self.config.pooling == "mean", length=length)
        self._encode = FirstInNumpy(encoder, pool, encoder.width, partial(_compiled, folder), folder)

    def encode_questions(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, `(n, width) float32`. NumPy encodes the first, OpenVINO the others."""
        return self._encode(texts, [self.config.question_input(text, self.tokenizer).ids for text in texts])


def _compiled(folder: Path) -> Encode:
    """Return the network of OpenVINO."""
    from dense.encoding.stored_model import StoredDenseModel

    network = StoredDenseModel(folder)
    network.encode_questions([""])  # compiles it
    return lambda texts, _ids: network.encode_questions(texts)


def _pooled(states: Floats, *, by_mean: bool, length: float | None) -> Floats:
    """Pool states `(n, length, width)` to vectors `(n, width)`. The mean leaves out [CLS] and [SEP]."""
    by_mean = by_mean and states.shape[1] > 2
    vectors = states[:, 1:-1].mean(1) if by_mean else states[:, 0]
    return with_length(vectors, length)
