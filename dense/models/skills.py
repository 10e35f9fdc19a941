"""Runs the skills of a model: expanded queries, entity spans, entity links, reranking.

Chain-of-Skills, §3.1. For single retrieval, a model with skills works like any bi-encoder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from dense.models.bi_encoder import FEW, DenseModel, Vectors
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
from dense.models.span_head import SpanHead
from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.neural.batches import length_sorted_batches
from sparta.neural.encoding import arithmetic, one_thread, pick_device
from sparta.neural.inputs import EncoderInput

TOKENS, INPUTS = 4096, 64
"""Largest number of tokens and of inputs per batch."""


class FoundSpan(NamedTuple):
    """An entity in a text: its characters (`end` is exclusive), and its score above the threshold."""

    start: int
    end: int
    score: float


class Skills:
    """Runs the skills of a model. `find_spans`, `rerank` and the `encode…` methods compute no gradients.

    Threads may share an object. A lock lets one thread encode at a time, because experts are chosen for the
    whole model.

    :param experts: experts that replace the configured ones, as in Table 7: `{"question": 4}`
    :param dtype: arithmetic without gradients, as `pick_dtype` takes it
    :raises ModelError: the model has no skills, or `experts` names an unknown input or expert.
    """

    def __init__(
        self,
        model: DenseModel,
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
    def open(name: str | Path, experts: Mapping[str, int] | None = None, dtype: str = "auto") -> Skills:
        """Open the skills of a model folder or hub id, on the best device."""
        folder = dense_model_folder(name)
        return Skills(DenseModel.load(folder).to(pick_device()), experts, str(folder), dtype)

    def check(self, skill: str) -> None:
        """Raise a ModelError if the model lacks a skill."""
        self.config.check(skill, self.where)

    # ------------------------------------------------------------------ with gradients

    def vectors(self, reader: str, inputs: Sequence[EncoderInput]) -> torch.Tensor:
        """Return the vectors `(n, width)` of texts, from the expert that `reader` names, such as `entity`."""
        return self.model.vectors(self.experts[reader], inputs)

    def mentions(self, inputs: Sequence[EncoderInput]) -> torch.Tensor:
        """Return the vectors of mentions, `(n, width)`: the mean of the first and last wordpieces' states."""
        states, rows = self.model.states(self.experts["mention"], inputs)
        row = torch.tensor(rows, device=states.device)
        first = torch.tensor([i.start for i in inputs], device=states.device)
        last = torch.tensor([i.end - 1 for i in inputs], device=states.device)
        return self.model.scaled((states[row, first] + states[row, last]) / 2)

    def pair_scores(self, pairs: Sequence[EncoderInput]) -> torch.Tensor:
        """Return the score of each pair of question and passage, `(n,)`: [CLS] times the first [SEP]."""
        states, rows = self.model.states(self.experts["rerank"], pairs)
        row = torch.tensor(rows, device=states.device)
        separators = torch.tensor([first_separator(p) for p in pairs], device=states.device)
        return (states[row, 0] * states[row, separators]).sum(1)

    def span_scores(
        self, inputs: Sequence[EncoderInput], spans: Sequence[Sequence[Span]]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return each text's span scores `(n_spans,)` and threshold. Spans are first and last positions."""
        states, rows = self.model.states(self.experts["span"], inputs)
        head, device, text_scores = self._head, states.device, []
        with torch.autocast(device.type, enabled=False):  # bf16 is too coarse to rank close scores
            for row, text_spans in zip(rows, spans, strict=True):
                first = torch.tensor([a for a, _ in text_spans], dtype=torch.long, device=device)
                last = torch.tensor([b for _, b in text_spans], dtype=torch.long, device=device)
                text_scores.append((head.scores(states[row], first, last), head.threshold(states[row])))
        return text_scores

    @property
    def _head(self) -> SpanHead:
        if self.model.spans is None:
            raise lacks(SPAN, self.config.skills, self.where)
        return self.model.spans

    # ------------------------------------------------------------------ without

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
        return self.encoded(inputs, self.mentions)

    def rerank(self, questions: Sequence[str], passages: Sequence[Passage]) -> Vectors:
        """Return how well each passage supports its question, `(n,) float32`.

        Scores are comparable per question only.
        """
        self.check(RERANK)
        pairs = [self.pair(q, p) for q, p in zip(questions, passages, strict=True)]
        return self.encoded(pairs, self.pair_scores)

    def find_spans(self, texts: Sequence[str]) -> list[list[FoundSpan]]:
        """Return the entities of each text, by start: the spans that score above the text's [CLS].

        Of overlapping spans, the span with the highest score is kept.
        """
        self.check(SPAN)
        windows = [(number, w) for number, text in enumerate(texts) for w in self.windows(text)]
        found_spans: list[list[FoundSpan]] = [[] for _ in texts]
        for chosen in length_sorted_batches([len(w.input.ids) for _, w in windows], TOKENS, 16):
            candidates = [windows[i][1].candidates() for i in chosen]
            with self._inference(len(chosen)):
                scores = self.span_scores([windows[i][1].input for i in chosen], candidates)
            for i, spans, (text_scores, threshold) in zip(chosen, candidates, scores, strict=True):
                number, window = windows[i]
                margins = (text_scores - threshold).float().cpu().numpy()
                best = disjoint(spans, margins)
                found_spans[number] += [
                    FoundSpan(*window.characters(spans[k]), float(margins[k])) for k in best
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
        """Return the vectors of many inputs, `(n, width) float32`, without gradients; see `vectors`."""
        return self.encoded(inputs, lambda batch: self.vectors(reader, batch))

    def encoded(
        self, inputs: Sequence[EncoderInput], read: Callable[[Sequence[EncoderInput]], torch.Tensor]
    ) -> Vectors:
        """Apply a function to batches of inputs of similar length, without gradients.

        Returns the results in the order of the inputs.
        """
        parts: list[Vectors] = []
        order: list[int] = []
        for batch in length_sorted_batches([len(i.ids) for i in inputs], TOKENS, INPUTS):
            with self._inference(len(inputs)):
                parts.append(read([inputs[i] for i in batch]).float().cpu().numpy())
            order += batch
        if not parts:
            return np.zeros((0,), np.float32)
        return np.ascontiguousarray(np.concatenate(parts)[np.argsort(order)])

    @contextmanager
    def _inference(self, n: int) -> Iterator[None]:
        """Run the block without gradients, in the fastest arithmetic, under the lock.

        Few texts use one thread.
        """
        with (
            self._lock,
            torch.inference_mode(),
            arithmetic(self.model.device, self.dtype),
            one_thread() if n <= FEW else nullcontext(),
        ):
            self.model.eval()
            yield


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
