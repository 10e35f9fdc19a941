"""Runs the skills of a model: expanded queries, entity spans, entity links, reranking.

Chain-of-Skills, §3.1. For single retrieval, a model with skills works like any bi-encoder.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from tokenizers import Tokenizer

from dense.encoding.load import load_dense
from dense.models.batches import Places, Vectors
from dense.models.config import DenseConfig
from dense.models.resolve import dense_model_folder
from dense.models.skill_config import EXPANDED, LINK, RERANK, SINGLE, SPAN, lacks
from dense.models.skill_inputs import (
    Span,
    TextWindow,
    first_separator,
    mention_input,
    pair_input,
    text_windows,
)
from dense.models.span_scores import SpanWeights
from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.neural.batches import length_sorted_batches
from sparta.neural.devices import best_device
from sparta.neural.inputs import EncoderInput

TOKENS, INPUTS = 4096, 16
"""Largest number of tokens and of texts whose states are kept at once, to find spans."""


class SkillModel(Protocol):
    """A model with skills: a `StoredDenseModel` on a CPU, or a `DenseModel` in torch."""

    config: DenseConfig
    tokenizer: Tokenizer

    @property
    def width(self) -> int:
        """The size of a vector."""

    def encode_inputs(self, expert: int, inputs: Sequence[EncoderInput], dtype: str = "auto") -> Vectors:
        """Return the vectors of texts from this expert, `(n, width)`."""

    def encode_states(
        self, expert: int, inputs: Sequence[EncoderInput], places: Places, dtype: str = "auto"
    ) -> Vectors:
        """Return the states at some positions of each text from this expert, `(n, most, width)`."""

    def scaled_vectors(self, vectors: Vectors) -> Vectors:
        """Scale vectors to the model's length, if it has one."""

    def span_weights(self) -> SpanWeights | None:
        """Return the weights that score entity spans."""


class FoundSpan(NamedTuple):
    """An entity in a text: its characters (`end` is exclusive), and its score above the threshold."""

    start: int
    end: int
    score: float


class Skills:
    """Runs the skills of a model, without gradients.

    Threads may share an object. A lock lets one thread encode at a time, because experts are chosen for the
    whole model.

    :param experts: experts that replace the configured ones, as in Table 7: `{"question": 4}`
    :param dtype: bf16, fp32, fp16 (not on a CPU), or auto: the fastest of them
    :raises ModelError: the model has no skills, or `experts` names an unknown input or expert.
    """

    def __init__(
        self,
        model: SkillModel,
        experts: Mapping[str, int] | None = None,
        where: str = "",
        dtype: str = "auto",
    ) -> None:
        if model.config.skills is None:
            raise ModelError(
                "expected a model with skills, found a plain bi-encoder",
                where=where,
                remedy="train a model with skills: dense train-skills",
            )
        self.model, self.config, self.where, self.dtype = model, model.config.skills, where, dtype
        self._lock = threading.Lock()
        self.experts = {**self.config.experts, **(experts or {})}
        wrong = {name: n for name, n in self.experts.items() if not 0 <= n < self.config.count}
        if wrong or set(self.experts) != set(self.config.experts):
            raise ModelError(
                f"each of {', '.join(self.config.experts)} needs one of {self.config.count} experts,"
                f" found {wrong or dict(experts or {})}",
                where=where,
            )

    @staticmethod
    def open(
        name: str | Path,
        experts: Mapping[str, int] | None = None,
        dtype: str = "auto",
        *,
        device: str | None = None,
    ) -> Skills:
        """Open the skills of a model folder or hub id.

        :param device: `cpu`, `cuda:0` or another device of torch; None means a GPU if there is one
        """
        folder = dense_model_folder(name)
        return Skills(load_dense(folder, device or best_device()), experts, str(folder), dtype)

    def check(self, skill: str) -> None:
        """Raise a ModelError if the model lacks a skill."""
        self.config.check(skill, self.where)

    # ------------------------------------------------------------------ vectors, scores and spans

    def encode_questions(self, texts: Sequence[str], task: str = "") -> Vectors:
        """Return the vectors of questions, `(n, width) float32`.

        :param task: the task of the questions, if the model knows tasks
        """
        self.check(SINGLE)
        return self.encoded_by(self.config.reader(task), [self.question(text, task) for text in texts])

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Return the vectors of passages, `(n, width) float32`, for single and expanded queries."""
        return self.encoded_by("passage", self.passages(passages))

    def encode_expanded(self, questions: Sequence[str], passages: Sequence[Passage]) -> Vectors:
        """Return the vectors of expanded queries (a question and a passage), `(n, width) float32`."""
        self.check(EXPANDED)
        return self.encoded_by(
            "expanded", [self.pair(q, p) for q, p in zip(questions, passages, strict=True)]
        )

    def encode_entities(self, passages: Sequence[Passage]) -> Vectors:
        """Return the vectors of entity descriptions, `(n, width) float32`, to compare with mentions."""
        self.check(LINK)
        return self.encoded_by("entity", self.passages(passages))

    def encode_mentions(self, texts: Sequence[str], spans: Sequence[Span]) -> Vectors:
        """Return the vectors of mentions, `(n, width) float32`: the span of characters in each text."""
        self.check(LINK)
        inputs = [self.mention(text, span) for text, span in zip(texts, spans, strict=True)]
        return self.encoded_mentions(inputs)

    def rerank(self, questions: Sequence[str], passages: Sequence[Passage]) -> Vectors:
        """Return how well each passage supports its question, `(n,) float32`.

        Scores are comparable per question only.
        """
        self.check(RERANK)
        pairs = [self.pair(q, p) for q, p in zip(questions, passages, strict=True)]
        states = self._states("rerank", pairs, lambda pair: (0, first_separator(pair)))
        scores: Vectors = np.einsum("nw,nw->n", states[:, 0], states[:, 1])
        return scores

    def find_spans(self, texts: Sequence[str]) -> list[list[FoundSpan]]:
        """Return the entities of each text, by start: the spans that score above the text's [CLS].

        Of overlapping spans, the span with the highest score is kept.
        """
        self.check(SPAN)
        head = self.model.span_weights()
        if head is None:
            raise lacks(SPAN, self.config.skills, self.where)
        windows = [(number, w) for number, text in enumerate(texts) for w in self.windows(text)]
        found_spans: list[list[FoundSpan]] = [[] for _ in texts]
        for chosen in length_sorted_batches([len(w.input.ids) for _, w in windows], TOKENS, INPUTS):
            states = self._states(
                "span", [windows[i][1].input for i in chosen], lambda item: range(len(item.ids))
            )
            for i, text_states in zip(chosen, states, strict=True):
                number, window = windows[i]
                spans = window.candidates()
                margins = head.margins(text_states, spans)
                found_spans[number] += [
                    FoundSpan(*window.characters(spans[k]), float(margins[k]))
                    for k in disjoint(spans, margins)
                ]
        return [sorted(text_scores) for text_scores in found_spans]

    # ------------------------------------------------------------------ inputs

    def question(self, text: str, task: str = "") -> EncoderInput:
        """Return the encoder input of a question, cut at the model's question length."""
        return self.model.config.question_input(text, self.model.tokenizer, task)

    def pair(self, question: str, passage: Passage) -> EncoderInput:
        """Return the encoder input `[CLS] question [SEP] passage [SEP]`."""
        return pair_input(question, passage, self.model.tokenizer, self.model.config)

    def mention(self, text: str, span: Span) -> EncoderInput:
        """Return the encoder input of a text with a mention."""
        return mention_input(text, span, self.model.tokenizer, self.model.config.layout.max_length)

    def passages(self, passages: Sequence[Passage]) -> list[EncoderInput]:
        """Return the encoder input of each passage or description: its first window."""
        return self.model.config.layout.first_windows(passages, self.model.tokenizer)

    def windows(self, text: str) -> list[TextWindow]:
        """Return the windows of a text in which spans are searched."""
        return text_windows(text, self.model.tokenizer, self.model.config.layout.max_length)

    def encoded_by(self, reader: str, inputs: Sequence[EncoderInput]) -> Vectors:
        """Return the vectors `(n, width)` of texts, from the expert that `reader` names, such as `entity`."""
        with self._lock:
            return self.model.encode_inputs(self.experts[reader], inputs, self.dtype)

    def encoded_mentions(self, inputs: Sequence[EncoderInput]) -> Vectors:
        """Return the vectors of mentions, `(n, width)`: the mean of the first and last wordpieces' states."""
        states = self._states("mention", inputs, lambda item: (item.start, item.end - 1))
        return self.model.scaled_vectors(states.mean(1))

    def _states(self, reader: str, inputs: Sequence[EncoderInput], places: Places) -> Vectors:
        with self._lock:
            return self.model.encode_states(self.experts[reader], inputs, places, self.dtype)


def disjoint(spans: Sequence[Span], margins: np.ndarray) -> list[int]:
    """Return the places of the spans that are entities: margins above 0, best first, without overlaps.

    :param margins: each span's score above the threshold
    """
    chosen: list[int] = []
    for i in np.argsort(-margins, kind="stable"):
        if not margins[i] > 0:  # nor is NaN
            break
        first, last = spans[i]
        if all(last < spans[k][0] or first > spans[k][1] for k in chosen):
            chosen.append(int(i))
    return chosen
