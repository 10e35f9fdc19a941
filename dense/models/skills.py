"""A model with skills at work: expanded queries, entity spans, entity links, reranking.

Chain-of-Skills, §3.1. To single retrieval, a model with skills is a bi-encoder as all others.
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
from sparta.neural.encoding import arithmetic, length_sorted_batches, one_thread, pick_device
from sparta.neural.inputs import EncoderInput

TOKENS, INPUTS = 4096, 64
"""What a batch has at most: a chain asks for few at a time."""


class FoundSpan(NamedTuple):
    """An entity in a text: its characters, and how far it scores above the threshold."""

    start: int
    end: int
    score: float


class Skills:
    """The skills of a model. Methods that begin with `encode`, and `find_spans`, `rerank`, need no gradients.

    Threads may share one: as the experts are chosen for the whole model, one thread reads at a time.

    :param experts: experts that read other inputs than their own, as in Table 7: `{"question": 4}`
    :param dtype: arithmetic without gradients, as `pick_dtype` knows it
    :raises ModelError: the model has no skills, or not so many experts.
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
                remedy="train one: dense train-skills",
            )
        self.model, self.config, self.where, self.dtype = model, model.config.skills, where, dtype
        self._lock = threading.Lock()
        self.experts = {**self.config.experts, **(experts or {})}
        wrong = {name: n for name, n in self.experts.items() if not 0 <= n < self.config.count}
        if wrong or set(self.experts) != set(self.config.experts):
            raise ModelError(
                f"expected one of {self.config.count} experts for each of {', '.join(self.config.experts)},"
                f" found {wrong or dict(experts or {})}",
                where=where,
            )

    @staticmethod
    def open(name: str | Path, experts: Mapping[str, int] | None = None, dtype: str = "auto") -> Skills:
        """Return the skills of a model folder, or of one on the hub, on the best device."""
        folder = dense_model_folder(name)
        return Skills(DenseModel.load(folder).to(pick_device()), experts, str(folder), dtype)

    def check(self, skill: str) -> None:
        """Refuse a skill that the model lacks."""
        self.config.check(skill, self.where)

    # ------------------------------------------------------------------ with gradients

    def vectors(self, reader: str, inputs: Sequence[EncoderInput]) -> torch.Tensor:
        """`(n, width)`: texts as the expert of `question`, `expanded`, `passage` or `entity` reads them."""
        return self.model.vectors(self.experts[reader], inputs)

    def mentions(self, inputs: Sequence[EncoderInput]) -> torch.Tensor:
        """`(n, width)`: the mean of the states of a mention's first and last wordpiece."""
        states, rows = self.model.states(self.experts["mention"], inputs)
        row = torch.tensor(rows, device=states.device)
        first = torch.tensor([i.start for i in inputs], device=states.device)
        last = torch.tensor([i.end - 1 for i in inputs], device=states.device)
        return self.model.scaled((states[row, first] + states[row, last]) / 2)

    def pair_scores(self, pairs: Sequence[EncoderInput]) -> torch.Tensor:
        """`(n,)`: of each pair of question and passage the product of [CLS] and the first [SEP]."""
        states, rows = self.model.states(self.experts["rerank"], pairs)
        row = torch.tensor(rows, device=states.device)
        separators = torch.tensor([first_separator(p) for p in pairs], device=states.device)
        return (states[row, 0] * states[row, separators]).sum(1)

    def span_scores(
        self, inputs: Sequence[EncoderInput], spans: Sequence[Sequence[Span]]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of each text the scores `(n_spans,)` of its spans (first and last position), and its threshold."""
        states, rows = self.model.states(self.experts["span"], inputs)
        head, device, found = self._head, states.device, []
        with torch.autocast(device.type, enabled=False):  # bf16 has too few digits to tell scores apart
            for row, own in zip(rows, spans, strict=True):
                first = torch.tensor([a for a, _ in own], dtype=torch.long, device=device)
                last = torch.tensor([b for _, b in own], dtype=torch.long, device=device)
                found.append((head.scores(states[row], first, last), head.threshold(states[row])))
        return found

    @property
    def _head(self) -> SpanHead:
        if self.model.spans is None:
            raise lacks(SPAN, self.config.skills, self.where)
        return self.model.spans

    # ------------------------------------------------------------------ without

    def encode_questions(self, texts: Sequence[str], task: str = "") -> Vectors:
        """`(n, width) float32`; of a task that the model knows, as it reads its questions."""
        self.check(SINGLE)
        return self.encoded_by(self.config.reader(task), [self.question(text, task) for text in texts])

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """`(n, width) float32`: what single and expanded queries are compared with."""
        return self.encoded_by("passage", self.passages(passages))

    def encode_expanded(self, questions: Sequence[str], passages: Sequence[Passage]) -> Vectors:
        """`(n, width) float32`: each question with the passage that was found for it, as one query."""
        self.check(EXPANDED)
        return self.encoded_by(
            "expanded", [self.pair(q, p) for q, p in zip(questions, passages, strict=True)]
        )

    def encode_entities(self, passages: Sequence[Passage]) -> Vectors:
        """`(n, width) float32`: descriptions, which mentions are compared with."""
        self.check(LINK)
        return self.encoded_by("entity", self.passages(passages))

    def encode_mentions(self, texts: Sequence[str], spans: Sequence[Span]) -> Vectors:
        """`(n, width) float32`: of each text the mention at these characters."""
        self.check(LINK)
        inputs = [self.mention(text, span) for text, span in zip(texts, spans, strict=True)]
        return self.encoded(inputs, self.mentions)

    def rerank(self, questions: Sequence[str], passages: Sequence[Passage]) -> Vectors:
        """`(n,) float32`: how well each passage supports its question; comparable for one question."""
        self.check(RERANK)
        pairs = [self.pair(q, p) for q, p in zip(questions, passages, strict=True)]
        return self.encoded(pairs, self.pair_scores)

    def find_spans(self, texts: Sequence[str]) -> list[list[FoundSpan]]:
        """Return the entities of each text, in their order: spans that score above the text's [CLS].

        Of spans that overlap, the one with the highest score is taken.
        """
        self.check(SPAN)
        windows = [(number, w) for number, text in enumerate(texts) for w in self.windows(text)]
        found: list[list[FoundSpan]] = [[] for _ in texts]
        for chosen in length_sorted_batches([len(w.input.ids) for _, w in windows], TOKENS, 16):
            candidates = [windows[i][1].candidates() for i in chosen]
            with self._quiet(len(chosen)):
                scores = self.span_scores([windows[i][1].input for i in chosen], candidates)
            for i, spans, (own, threshold) in zip(chosen, candidates, scores, strict=True):
                number, window = windows[i]
                above = (own - threshold).float().cpu().numpy()
                best = disjoint(spans, above)
                found[number] += [FoundSpan(*window.characters(spans[k]), float(above[k])) for k in best]
        return [sorted(own) for own in found]

    # ------------------------------------------------------------------ inputs

    def question(self, text: str, task: str = "") -> EncoderInput:
        """Return a question, cut at the length that the model reads."""
        return self.model.config.question_input(text, self.model.tokenizer, task)

    def pair(self, question: str, passage: Passage) -> EncoderInput:
        """Return `[CLS] question [SEP] passage [SEP]`."""
        return pair_input(question, passage, self.model.tokenizer, self.model.config)

    def mention(self, text: str, span: Span) -> EncoderInput:
        """Return a text with a mention."""
        return mention_input(text, span, self.model.tokenizer, self.model.config.layout.max_length)

    def passages(self, passages: Sequence[Passage]) -> list[EncoderInput]:
        """Return passages or descriptions, of each what is read at once."""
        return self.model.config.layout.first_windows(passages, self.model.tokenizer)

    def windows(self, text: str) -> list[TextWindow]:
        """Return a text in the windows in which spans are looked for."""
        return text_windows(text, self.model.tokenizer, self.model.config.layout.max_length)

    def encoded_by(self, reader: str, inputs: Sequence[EncoderInput]) -> Vectors:
        """`(n, width) float32`: as `vectors`, of any number of inputs, without gradients."""
        return self.encoded(inputs, lambda batch: self.vectors(reader, batch))

    def encoded(
        self, inputs: Sequence[EncoderInput], read: Callable[[Sequence[EncoderInput]], torch.Tensor]
    ) -> Vectors:
        """Return what `read` gives of inputs, like lengths together; rows in the order of the inputs."""
        parts: list[Vectors] = []
        order: list[int] = []
        for chosen in length_sorted_batches([len(i.ids) for i in inputs], TOKENS, INPUTS):
            with self._quiet(len(inputs)):
                parts.append(read([inputs[i] for i in chosen]).float().cpu().numpy())
            order += chosen
        if not parts:
            return np.zeros((0,), np.float32)
        return np.ascontiguousarray(np.concatenate(parts)[np.argsort(order)])

    @contextmanager
    def _quiet(self, n: int) -> Iterator[None]:
        """Without gradients, in the fastest arithmetic, no other thread; a few texts take one processor."""
        with (
            self._lock,
            torch.inference_mode(),
            arithmetic(self.model.device, self.dtype),
            one_thread() if n <= FEW else nullcontext(),
        ):
            self.model.eval()
            yield


def disjoint(spans: Sequence[Span], above: np.ndarray) -> list[int]:
    """Return which spans are entities: those above 0, best first, without those that overlap a better one."""
    chosen: list[int] = []
    for i in np.argsort(-above, kind="stable"):
        if not above[i] > 0:  # nor is NaN
            break
        first, last = spans[i]
        if all(last < spans[k][0] or first > spans[k][1] for k in chosen):
            chosen.append(int(i))
    return chosen
