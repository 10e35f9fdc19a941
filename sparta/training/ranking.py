"""The common part of all retrievers' trainings: batches, ranking loss, distillation, validation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sparta.base.records import Passage
from sparta.models.query_encoder import QueryTokenizer
from sparta.neural.inputs import InputLayout
from sparta.training.batches import Batch, make_batch
from sparta.training.negatives import (
    Bm25Vectorizer,
    Scorer,
    bag_matrix,
    mine,
    read_negatives,
    write_negatives,
)
from sparta.training.options import TrainerConfig, TrainerState
from sparta.training.paragraphs import Paragraph, ParagraphSet
from sparta.training.run import TrainingRun
from sparta.training.run import check_output as check_output
from sparta.training.teachers import Teacher, weight_hashes
from sparta.training.validation import RECIPROCAL, Measure, hold_out, measure_named, shown

VALIDATED_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingConfig:
    """The training settings that all retrievers share.

    `max_tokens` truncates training texts. A batch has at most `questions` questions of each paragraph.
    `mined` adds hard negatives from BM25; every `mine_every` steps the model itself mines new ones (0 means
    never). `taught` is the weight of the KL divergence from the teacher's scores in the loss. `dropout` is
    the encoder's dropout. The training validates on `held_out` questions and `candidates` training paragraphs
    of each set, by the measure `validate_by`: `rr`, `average-rank` or `recall@K`. With `gather`, the
    processes join their batches of a step: all questions rank all candidates.
    """

    trainer: TrainerConfig
    max_tokens: int = 192
    questions: int = 6
    mined: bool = True
    mine_every: int = 0
    taught: float = 0.5
    dropout: float = 0.0
    gather: bool = False
    held_out: int = 120
    candidates: int = 80
    validate_by: str = RECIPROCAL


class RankingTraining[M: nn.Module, Q](TrainingRun[M]):
    """The training of a retriever. A subclass defines how it scores candidates for questions.

    `M` is the model, `Q` the type of encoded questions. Mined negatives must score above `score_floor`.
    """

    score_floor = 0.0

    def __init__(
        self,
        model: M,
        encoders: Sequence[nn.Module],
        tokenizer: QueryTokenizer,
        sets: Sequence[ParagraphSet],
        config: RankingConfig,
        folder: Path,
        teacher: Teacher | None = None,
    ) -> None:
        super().__init__(model, config.trainer, folder, config, encoders=encoders, dropout=config.dropout)
        self.ranking_config, self.tokenizer, self.teacher = config, tokenizer, teacher
        self.measure = measure_named(config.validate_by)
        self.seed = config.trainer.seed
        self._mined_last = 0
        layout: InputLayout = cast("Any", model).config.layout
        longest = min(config.max_tokens, layout.max_length)
        self.layout = replace(layout, max_length=longest, overlap=0)
        sets, self.validation = hold_out([s.answerable(self._characters_read) for s in sets], config.held_out)
        self.validated = tuple(data.name for data in self.validation)
        self.figure = partial(shown, config.validate_by) if self.validated else None
        if self.validated:
            self.measured_on = f", on queries of {', '.join(self.validated)} that no step was trained on"
        self.together = self.processes if config.gather else 1
        sets = [replace(data, batch_size=data.batch_size * self.together) for data in sets]
        self.sets = [self._with_bm25_negatives(data) for data in sets] if config.mined else sets

    def _characters_read(self, paragraph: Paragraph) -> int:
        """Return how many characters of a paragraph fit into the model's first window."""
        return self.layout.first_window_holds(paragraph.whole(), self.tokenizer.tokenizer)

    def _with_bm25_negatives(self, data: ParagraphSet) -> ParagraphSet:
        texts = [f"{paragraph.title} {paragraph.text}" for paragraph in data.paragraphs]
        columns = Bm25Vectorizer(texts, self.tokenizer).weigh(texts).T.tocsr()
        return mine(data, lambda encoded: (bag_matrix(encoded, self.tokenizer) @ columns).toarray())

    # ------------------------------------------------------------------ for subclasses

    def encode_queries(self, questions: Sequence[str]) -> Q:
        """Return the encoded questions, which `score` takes."""
        raise NotImplementedError

    def score(self, queries: Q, candidates: Sequence[Passage]) -> torch.Tensor:
        """Return the scores, `(n_questions, n_candidates) float32`, with gradients."""
        raise NotImplementedError

    def scorer(self, candidates: Sequence[Passage]) -> Scorer:
        """Return a function that scores questions, `(n_questions, n_candidates)`, without gradients."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Return the settings, the model's configuration, the sets and the teacher."""
        dev = [[data.name, data.fingerprint(), data.weight] for data in self.validation if data.dev]
        return {
            **super().facts(),
            "model": cast("Any", self.model).config.as_dict(),
            "sets": [[data.name, data.fingerprint(), data.weight, data.batch_size] for data in self.sets],
            **({"dev": dev} if dev else {}),
            "teacher": self.teacher.name if self.teacher else None,
            "teacher_weights": weight_hashes(self.teacher),
        }

    # ------------------------------------------------------------------ training

    def run(self, *, resume: bool = False) -> TrainerState:
        """Train, and save the best model by validation."""
        if not (resume and (self.folder / "state.pt").exists()):
            for path in self.folder.glob("mined-*.json"):  # from a training without a checkpoint
                path.unlink(missing_ok=True)  # every process of torchrun runs this line
        return super().run(resume=resume)

    def begin_step(self) -> None:
        """Let the model mine hard negatives if due, and write them to a file for a resumed training."""
        every = self.ranking_config.mine_every
        due = self.state.step // every if every else 0
        if due == self._mined_last:
            return
        self._mined_last = due
        path = self.folder / f"mined-{due:04d}.json"
        if not path.exists():
            self.sets = [
                mine(data, self.scorer([p.whole() for p in data.paragraphs]), above=self.score_floor)
                for data in self.sets
            ]
            if not self.rank:
                write_negatives(path, self.sets)
            return
        stored = zip(self.sets, read_negatives(path), strict=True)
        self.sets = [replace(data, hard_negatives=negatives) for data, negatives in stored]

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss of a step, which depends only on seed and step, and figures to log."""
        batch = self.batch(step)
        scores = self.score(self.encode_queries(batch.questions), batch.candidates)
        loss = self.ranking_loss(scores, batch)
        return loss, {"ranking": float(loss.detach())}

    def batch(self, step: int) -> Batch:
        """Return the batch of a step: sentences, paragraphs and questions of one set."""
        chosen, rng = self._set_of(step // self.together)
        return make_batch(chosen.draw(rng), rng, self.ranking_config.questions, chosen.known)

    def _set_of(self, step: int) -> tuple[ParagraphSet, random.Random]:
        """Return the set of a step and a random generator; both depend only on seed and step."""
        rng = random.Random(self.seed * 7_919 + step)
        return rng.choices(self.sets, [data.weight for data in self.sets])[0], rng

    def draw(self, step: int) -> tuple[list[Paragraph], random.Random]:
        """Return the paragraphs of a step, from one set; they depend only on seed and step."""
        chosen, rng = self._set_of(step)
        return chosen.draw(rng), rng

    def ranking_loss(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the mean of the losses over sentences and over paragraphs.

        The loss is SPARTA's eq. 7, which is TASER's eq. 3.
        """
        n_sentences = batch.n_sentences
        teacher_scores = self.teacher_scores(batch)
        losses_by_kind = [
            self._loss_of_kind(scores[:, :n_sentences], teacher_scores, batch, batch.gold_sentence, 0),
            self._loss_of_kind(
                scores[:, n_sentences:], teacher_scores, batch, batch.gold_paragraph, n_sentences
            ),
        ]
        losses = [part for part in losses_by_kind if part is not None]
        return (
            torch.stack(losses).mean() if losses else scores.sum() * 0
        )  # a batch of one paragraph has nothing to rank

    def teacher_scores(self, batch: Batch) -> torch.Tensor | None:
        """Return the teacher's scores of a batch, `(n_questions, n_candidates)`; None without a teacher.

        Teachers add the scores of contexts to those of sentences. Beside sentences in contexts, a sentence
        that is a whole text is its own context: its score would be half as large otherwise.
        """
        if self.teacher is None:
            return None
        sentences, texts = batch.candidates[: batch.n_sentences], batch.candidates[batch.n_sentences :]
        if any(sentence.context for sentence in sentences):
            sentences = [_in_context(sentence) for sentence in sentences]
        device = self.device
        with torch.autocast(device.type, enabled=False):  # autocast is for the student only
            return self.teacher.scores(batch.questions, [*sentences, *texts]).to(device)

    def _loss_of_kind(
        self,
        scores: torch.Tensor,
        teacher_scores: torch.Tensor | None,
        batch: Batch,
        gold: Sequence[int],
        first: int,
    ) -> torch.Tensor | None:
        """Return the loss over candidates of one kind: cross entropy, and KL divergence from the teacher.

        The divergence is over the candidates that the teacher scored.

        :param scores: `(n_questions, n)`, scores of the candidates from number `first` on
        :returns: None if no question of the batch has a positive of this kind
        """
        rows = [i for i, g in enumerate(gold) if g >= 0]
        if not rows or scores.shape[1] < 2:
            return None
        scores = scores[rows]
        target = torch.tensor([gold[i] - first for i in rows], device=scores.device)
        columns = range(first, first + scores.shape[1])
        masked = torch.tensor([[c in batch.masked[i] for c in columns] for i in rows], device=scores.device)
        masked[torch.arange(len(rows)), target] = False
        scores = scores.masked_fill(masked, float("-inf"))
        loss = functional.cross_entropy(scores, target)
        if teacher_scores is None:
            return loss
        taught = teacher_scores[rows, first : first + scores.shape[1]]
        left_out = masked | taught.isnan()
        comparable = (~left_out).sum(1) > 1  # the questions with two candidates that the teacher scored
        if not comparable.any():
            return loss
        scores, taught, left_out = scores[comparable], taught[comparable], left_out[comparable]
        divergence = functional.kl_div(
            scores.masked_fill(left_out, float("-inf")).log_softmax(1).masked_fill(left_out, 0),
            taught.masked_fill(left_out, float("-inf")).softmax(1),
            reduction="batchmean",
        )
        return (1 - self.ranking_config.taught) * loss + self.ranking_config.taught * divergence

    # ------------------------------------------------------------------ validation

    @torch.no_grad()
    def validate(self) -> float:
        """Return the measure on held-out questions, averaged over sentences and paragraphs and over the sets.

        The average over the sets uses the sets' weights. The candidates are all held-out paragraphs and their
        sentences, and some training paragraphs. A dev set uses only its own paragraphs.
        """
        if not self.validation:
            return 0.0
        values = [self._of_set(held_out_set, self.measure) for held_out_set in self.validation]
        return float(np.average(values, weights=[held_out_set.weight for held_out_set in self.validation]))

    def _of_set(self, held_out: ParagraphSet, measure: Measure) -> float:
        others = held_out.distractors[: self.ranking_config.candidates]
        batch = make_batch(held_out.paragraphs, random.Random(0), 1_000, held_out.known, others)
        paragraphs = [*held_out.paragraphs, *others]
        sentences, whole = self._all_scores(batch.questions, paragraphs)
        values, n = [], batch.n_sentences
        with_sentence = [i for i, g in enumerate(batch.gold_sentence) if g >= 0]
        if with_sentence and sentences.shape[1] > len(paragraphs):
            gold = [batch.gold_sentence[i] for i in with_sentence]
            right = [frozenset(g for g in batch.masked[i] if g < n) for i in with_sentence]
            values.append(measure(sentences[with_sentence], gold, right))
        right = [frozenset(g - n for g in masked if g >= n) for masked in batch.masked]
        values.append(measure(whole, [g - n for g in batch.gold_paragraph], right))
        return float(np.mean(values))

    def _all_scores(
        self, questions: Sequence[str], paragraphs: Sequence[Paragraph]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of all sentences and of all paragraphs, in order."""
        bf16 = self.schedule.bf16
        order = sorted(range(len(paragraphs)), key=lambda i: len(paragraphs[i].text))
        columns: list[torch.Tensor] = [torch.empty(0)] * len(order)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=bf16):
            encoded = self.encode_queries(questions)
            for start in range(0, len(order), VALIDATED_AT_ONCE):
                chosen = order[start : start + VALIDATED_AT_ONCE]
                texts = [[*paragraphs[i].answers(), paragraphs[i].whole()] for i in chosen]
                flat = [text for paragraph_texts in texts for text in paragraph_texts]
                scores = self.score(encoded, flat).float().cpu()
                for i, paragraph_scores in zip(chosen, scores.split(list(map(len, texts)), 1), strict=True):
                    columns[i] = paragraph_scores
        return torch.cat([c[:, :-1] for c in columns], 1), torch.cat([c[:, -1:] for c in columns], 1)


def _in_context(sentence: Passage) -> Passage:
    """Return a sentence with its context, which is itself if it has none."""
    if sentence.context:
        return sentence
    return replace(sentence, context=sentence.text, start=0, end=len(sentence.text))


def table_of(sets: Sequence[ParagraphSet]) -> list[tuple[object, ...]]:
    """Return the model card's table of the sets."""
    rows = [
        (
            f"{data.name}{' (dev)' * data.dev}",
            f"{data.weight:g}",
            f"{len(data.paragraphs):,}",
            f"{data.n_questions:,}",
            f"`{data.fingerprint()}`",
        )
        for data in sets
    ]
    return [("set", "weight", "texts", "questions", "fingerprint"), *rows]
