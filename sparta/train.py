"""Training SPARTA (§3.3): eq. 7 over sentences and paragraphs, and pressure on the vocabulary."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from sparta.base.errors import IndexStateError
from sparta.base.records import Passage
from sparta.inputs import ANSWER, CONTEXT, InputLayout
from sparta.model import SpartaConfig, SpartaModel, fit_quantizer, pad_inputs, pooled_positions
from sparta.neural.encoding import pick_device, pick_dtype
from sparta.neural.trainer import Trainer, TrainerConfig, TrainerState, set_dropout
from sparta.teachers import Teacher, open_teacher
from sparta.traindata import Bm25, Paragraph, ParagraphSet, bag_matrix, hold_out, mine

logger = logging.getLogger(__name__)

CONTROL = 0.02
LEAST_AND_MOST = (math.log(1e-6), math.log(0.1))
"""How fast the pressure follows the number of terms, and the logarithms between which it stays."""


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """What eq. 7 leaves open.

    `term_rate` multiplies the learning rate of the term embeddings. `pressure` weighs the vocabulary penalty,
    estimated each step on `sampled_terms` random entries: squared mean weight of a term (it spreads terms
    over postings lists) plus mean weight; on whole paragraphs it counts `relief` as much. With `terms`, the
    pressure is raised and lowered until a paragraph has about that many terms. `max_tokens` cuts training
    texts. Of a paragraph, `questions` at most are asked in one step. `mined` puts paragraphs into a
    batch that BM25 takes for each other's questions. `taught` is the share of the teacher's scores in the
    loss. `dropout` is the encoder's. `held_out` questions and `candidates` training paragraphs of each
    set validate.
    """

    trainer: TrainerConfig
    term_rate: float = 5.0
    scale_rate: float = 100.0
    pressure: float = 0.001
    terms: int | None = None
    relief: float = 0.3
    sampled_terms: int = 700
    max_tokens: int = 192
    questions: int = 3
    mined: bool = True
    taught: float = 0.5
    dropout: float = 0.0
    held_out: int = 200
    candidates: int = 150
    int8: bool = True


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Where the best model lies and how well it validated."""

    folder: Path
    validation: float
    step: int


def train_model(
    sets: Sequence[ParagraphSet],
    *,
    encoder: str,
    output: Path,
    steps: int,
    learning_rate: float,
    pressure: float,
    validate_every: int,
    seed: int,
    max_length: int = 256,
    alone: bool = False,
    segments: bool = False,
    terms: int | None = None,
    mined: bool = True,
    teachers: Sequence[str] = (),
    tied: bool = False,
    full_precision: bool = False,
    resume: bool = False,
    device: str | None = None,
) -> TrainResult:
    """Train a model from a pretrained encoder; the best by validation MRR ends in `output/best`.

    An answer is read inside its context, once for all answers in it; with `segments` as in SPARTA, §4, where
    segment 1 marks the answer; with `alone` it is read without context. `max_length` is the longest text, in
    wordpieces, that the model will read at once.
    """
    if not resume and output.exists() and any(output.iterdir()):
        raise IndexStateError(
            "expected an empty or a new folder, found one that holds files",
            where=str(output),
            remedy="continue with --resume, or choose another --output",
        )
    torch.manual_seed(seed)
    layout = InputLayout(
        use_title=True,
        use_context=not alone,
        answer_segment=ANSWER if segments else CONTEXT,
        share_context=not alone and not segments,
        max_length=max_length,
        overlap=max_length // 8,
    )
    model = SpartaModel.from_encoder(encoder, SpartaConfig(layout, tied=tied)).to(pick_device(device))
    config = TrainConfig(
        TrainerConfig(
            steps=steps,
            learning_rate=learning_rate,
            clip=2.0,
            bf16=pick_dtype("auto", model.device) == torch.bfloat16,
            seed=seed,
            validate_every=validate_every,
        ),
        pressure=pressure,
        terms=terms,
        mined=mined,
        int8=not full_precision,
    )
    teacher = open_teacher(teachers, sets, model.query_tokenizer(), str(model.device))
    state = SpartaTraining(model, sets, config, output, teacher).run(resume=resume)
    return TrainResult(output / "best", state.best, state.best_step)


class Batch(NamedTuple):
    """Candidates of a step, and for each question its bag of terms and its answer among the candidates.

    The first `n_sentences` candidates are sentences, the others whole paragraphs. `gold_sentence` is -1 where
    only the whole paragraph answers.
    """

    candidates: list[Passage]
    n_sentences: int
    questions: list[str]
    gold_sentence: list[int]
    gold_paragraph: list[int]


def make_batch(paragraphs: Sequence[Paragraph], rng: random.Random, each: int) -> Batch:
    """Return sentences and paragraphs as candidates, and at most `each` questions a paragraph."""
    sentences: list[Passage] = []
    questions: list[str] = []
    gold_sentence: list[int] = []
    gold_paragraph: list[int] = []
    for number, paragraph in enumerate(paragraphs):
        first = len(sentences)
        sentences += paragraph.answers()
        asked = paragraph.questions
        for question, sentence in rng.sample(asked, min(each, len(asked))):
            questions.append(question)
            gold_sentence.append(first + sentence if sentence >= 0 else -1)
            gold_paragraph.append(number)
    whole = [paragraph.whole() for paragraph in paragraphs]
    gold_paragraph = [len(sentences) + number for number in gold_paragraph]
    return Batch(sentences + whole, len(sentences), questions, gold_sentence, gold_paragraph)


class SpartaTraining:
    """One training run: the loss at a step, validation, and what is saved."""

    def __init__(
        self,
        model: SpartaModel,
        sets: Sequence[ParagraphSet],
        config: TrainConfig,
        folder: Path,
        teacher: Teacher | None = None,
    ) -> None:
        self.model, self.config, self.folder, self.teacher = model, config, folder, teacher
        set_dropout(model, config.dropout)
        self.tokenizer = model.query_tokenizer()
        sets, self.validation = hold_out(sets, config.held_out)
        self.sets = [self._mined(one) for one in sets] if config.mined else sets
        self.layout = replace(model.config.layout, max_length=config.max_tokens, overlap=0)
        self.allowed = (~model.excluded_terms()).nonzero().squeeze(1)
        self.seed = config.trainer.seed
        self.memory = {"log_pressure": math.log(max(config.pressure, 1e-12))}

    def _mined(self, one: ParagraphSet) -> ParagraphSet:
        texts = [f"{p.title} {p.text}" for p in one.paragraphs]
        asked = bag_matrix([q for p in one.paragraphs for q, _ in p.questions], self.tokenizer)
        return mine(one, (asked @ Bm25(texts, self.tokenizer).weigh(texts).T).tocsr())

    def run(self, *, resume: bool = False) -> TrainerState:
        """Train, keep the best by validation MRR in `folder/best`, and give it its quantizer."""
        self._start_scale()
        terms = [p for n, p in self.model.named_parameters() if n == "term_embeddings"]
        scalars = [self.model.scale, self.model.bias]
        known = {id(p) for p in [*terms, *scalars]}
        rest = [p for p in self.model.parameters() if id(p) not in known]
        groups: list[dict[str, Any]] = [
            {"params": rest},
            {"params": terms, "factor": self.config.term_rate},
            {"params": scalars, "factor": self.config.scale_rate},
        ]
        trainer = Trainer(
            self.model,
            [g for g in groups if g["params"]],
            self.loss,
            self.mean_reciprocal_rank,
            self._save_best,
            self.config.trainer,
            self.folder,
            {
                **asdict(self.config),
                "sets": [[s.name, s.n_questions, s.weight, s.batch_size] for s in self.sets],
                "teacher": self.teacher.name if self.teacher else None,
            },
            self.memory,
        )
        state = trainer.run(resume=resume)
        self._finish()
        return state

    @torch.no_grad()
    def _start_scale(self) -> None:
        """Scale and bias so that an untrained term's weight is neither dead nor saturated.

        Dot products get unit spread, half a spread below zero.
        """
        paragraphs, _ = self._draw(0)
        hidden, _, _ = self._hidden([p.whole() for p in paragraphs])
        products = hidden.flatten(0, 1).float() @ self.model.term_matrix()[self.allowed[::37]].T
        self.model.scale.fill_(1 / float(products.std()))
        self.model.bias.fill_(-0.5)

    # ------------------------------------------------------------------ loss

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Eq. 7 over sentences and over paragraphs of this step's batch, plus the vocabulary penalty."""
        paragraphs, rng = self._draw(step)
        batch = make_batch(paragraphs, rng, self.config.questions)
        bags = [self.tokenizer.bag(question) for question in batch.questions]
        asked = sorted({term for bag in bags for term in bag})
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        sampled = self.allowed[
            torch.randint(len(self.allowed), (self.config.sampled_terms,), generator=generator)
        ]
        columns = torch.cat([torch.tensor(asked), sampled]).to(self.model.device)
        weights = self._weights(batch.candidates, columns)
        scores = self._counts(bags, asked) @ weights[:, : len(asked)].T
        taught = self._taught(batch)
        n = batch.n_sentences
        parts = [
            self._ranking(scores[:, :n], taught, batch, batch.gold_sentence, 0),
            self._ranking(scores[:, n:], taught, batch, batch.gold_paragraph, n),
        ]
        losses = [part for part in parts if part is not None]
        ranking = torch.stack(losses).mean()
        penalty, logs = self._penalty(weights[:, len(asked) :], n)
        ramp = min(1.0, step / max(1, self.config.trainer.steps / 3)) ** 2
        loss = ranking + ramp * self._pressure(logs["paragraph_terms"]) * penalty
        logs["ranking"] = float(ranking.detach())
        return loss, logs

    def _taught(self, batch: Batch) -> torch.Tensor | None:
        if self.teacher is None:
            return None
        device = self.model.device
        with torch.autocast(device.type, enabled=False):  # the student's arithmetic is not the teacher's
            return self.teacher.scores(batch.questions, batch.candidates).to(device)

    def _ranking(
        self,
        scores: torch.Tensor,
        taught: torch.Tensor | None,
        batch: Batch,
        gold: Sequence[int],
        first: int,
    ) -> torch.Tensor | None:
        """Cross entropy of the answer among candidates of one kind, and divergence from the teacher's scores.

        A candidate with the same text as the answer is not counted against it. None when no question of the
        batch has an answer of this kind.
        """
        rows = [i for i, g in enumerate(gold) if g >= 0]
        if not rows or scores.shape[1] < 2:
            return None
        scores = scores[rows]
        target = torch.tensor([gold[i] - first for i in rows], device=scores.device)
        texts = [c.text for c in batch.candidates[first : first + scores.shape[1]]]
        same = torch.tensor([[t == texts[g] for t in texts] for g in target.tolist()], device=scores.device)
        same[torch.arange(len(rows)), target] = False
        scores = scores.masked_fill(same, float("-inf"))
        loss = functional.cross_entropy(scores, target)
        if taught is None:
            return loss
        goal = taught[rows, first : first + scores.shape[1]].masked_fill(same, float("-inf"))
        divergence = functional.kl_div(
            scores.log_softmax(1).masked_fill(same, 0), goal.softmax(1), reduction="batchmean"
        )
        return (1 - self.config.taught) * loss + self.config.taught * divergence

    def _penalty(self, weights: torch.Tensor, n_sentences: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Squared mean weight of a term plus its mean weight, times the vocabulary; paragraphs count less.

        `weights (n_candidates, sampled)` are those of random terms.
        """
        vocabulary = len(self.allowed)
        total = weights.new_zeros(())
        for part, share in ((weights[:n_sentences], 1.0), (weights[n_sentences:], self.config.relief)):
            if len(part):
                flops = part.mean(0).square().mean() * vocabulary
                total = total + share * (flops + 0.05 * part.mean() * vocabulary)
        counts = (weights > 0).float().mean(1) * vocabulary
        logs = {"paragraph_terms": float(counts[n_sentences:].mean())}
        if n_sentences:
            logs["terms"] = float(counts[:n_sentences].mean())
        return total, logs

    def _pressure(self, terms: float) -> float:
        """Return the weight of the penalty; with a target, a little more or less than at the step before."""
        if self.config.terms is None:
            return self.config.pressure
        error = math.log(max(terms, 1.0) / self.config.terms)
        moved = self.memory["log_pressure"] + CONTROL * min(1.0, max(-1.0, error))
        self.memory["log_pressure"] = min(LEAST_AND_MOST[1], max(LEAST_AND_MOST[0], moved))
        return math.exp(self.memory["log_pressure"])

    def _draw(self, step: int) -> tuple[list[Paragraph], random.Random]:
        """The paragraphs of a step, from one set, as a function of seed and step alone."""
        rng = random.Random(self.seed * 7_919 + step)
        chosen = rng.choices(self.sets, [s.weight for s in self.sets])[0]
        return chosen.draw(rng), rng

    def _hidden(self, documents: Sequence[Passage]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """States `(rows, length, width)`; positions of each document's maximum; whether it has any."""
        inputs = [self.layout.windows(document, self.model.tokenizer)[0] for document in documents]
        numbers: dict[tuple[int, ...], int] = {}
        rows = [numbers.setdefault((*i.ids, *i.segments), len(numbers)) for i in inputs]
        distinct = dict(zip(reversed(rows), reversed(inputs), strict=True))
        padded = pad_inputs([distinct[row] for row in range(len(numbers))])
        ids, mask, segments = (t.to(self.model.device) for t in padded)
        special = self.model.config.pool_special
        positions, any_at_all = pooled_positions(inputs, rows, ids.shape[1], pool_special=special)
        hidden = self.model.hidden_states(ids, mask, segments)
        return hidden, positions.to(self.model.device), any_at_all.to(self.model.device)

    def _weights(self, documents: Sequence[Passage], columns: torch.Tensor) -> torch.Tensor:
        """`(n_documents, n_columns)` term weights, eq. 4 to 6, with gradients."""
        hidden, positions, any_at_all = self._hidden(documents)
        terms = self.model.term_matrix()[columns]
        products = (hidden.flatten(0, 1) @ terms.T.to(hidden.dtype)).float()
        pooled = functional.embedding(positions, products).amax(dim=1)
        weights = torch.log1p(torch.relu(pooled * self.model.scale + self.model.bias))
        return torch.where(any_at_all[:, None], weights, torch.zeros_like(weights))

    def _counts(self, bags: Sequence[dict[int, float]], asked: Sequence[int]) -> torch.Tensor:
        column = {term: i for i, term in enumerate(asked)}
        counts = torch.zeros(len(bags), len(asked))
        for row, bag in enumerate(bags):
            for term, count in bag.items():
                counts[row, column[term]] = count
        return counts.to(self.model.device)

    # ------------------------------------------------------------------ validation

    @torch.no_grad()
    def mean_reciprocal_rank(self) -> float:
        """MRR of the held-out questions, mean over the sets and over sentences and paragraphs of each.

        Candidates are all held-out paragraphs, and their sentences, and some of training.
        """
        return float(np.mean([self._set_mrr(s) for s in self.validation])) if self.validation else 0.0

    def _set_mrr(self, held: ParagraphSet) -> float:
        training = next(s for s in self.sets if s.name == held.name)
        paragraphs = [*held.paragraphs, *training.paragraphs[: self.config.candidates]]
        rng = random.Random(0)
        asked = make_batch(held.paragraphs, rng, 1_000)
        bags = [self.tokenizer.bag(question) for question in asked.questions]
        terms = sorted({term for bag in bags for term in bag})
        sentences, whole = self._all_weights(paragraphs, torch.tensor(terms, device=self.model.device))
        counts = self._counts(bags, terms).cpu()
        figures = []
        with_sentence = [i for i, g in enumerate(asked.gold_sentence) if g >= 0]
        if with_sentence and len(sentences) > len(paragraphs):
            gold = [asked.gold_sentence[i] for i in with_sentence]
            figures.append(_mrr(counts[with_sentence] @ sentences.T, gold))
        gold = [g - asked.n_sentences for g in asked.gold_paragraph]
        figures.append(_mrr(counts @ whole.T, gold))
        return float(np.mean(figures))

    def _all_weights(
        self, paragraphs: Sequence[Paragraph], columns: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights of all sentences and of all paragraphs, in order."""
        sentences: list[torch.Tensor] = []
        whole: list[torch.Tensor] = []
        with torch.autocast(self.model.device.type, dtype=torch.bfloat16, enabled=self.config.trainer.bf16):
            order = sorted(range(len(paragraphs)), key=lambda i: len(paragraphs[i].text))
            rows: list[tuple[torch.Tensor, torch.Tensor]] = [(torch.empty(0), torch.empty(0))] * len(order)
            for start in range(0, len(order), 16):
                chosen = order[start : start + 16]
                texts = [[*paragraphs[i].answers(), paragraphs[i].whole()] for i in chosen]
                weights = self._weights([t for one in texts for t in one], columns).float().cpu()
                for i, part in zip(chosen, weights.split([len(one) for one in texts]), strict=True):
                    rows[i] = (part[:-1], part[-1:])
        sentences, whole = [r[0] for r in rows], [r[1] for r in rows]
        return torch.cat(sentences), torch.cat(whole)

    def _save_best(self) -> None:
        self.model.save_pretrained(self.folder / "best")

    def _finish(self) -> None:
        """Calibrate the best model's quantizer on held-out answers and save it so; once: int8 rounds."""
        best = SpartaModel.load(self.folder / "best")
        if best.config.quantizer:
            return
        paragraphs = [p for s in (self.validation or self.sets) for p in s.paragraphs[:100]]
        texts = [text for p in paragraphs for text in (*p.answers(), p.whole())]
        best.config = replace(best.config, quantizer=fit_quantizer(best, texts))
        best.save_pretrained(self.folder / "best", int8=self.config.int8)


def _mrr(scores: torch.Tensor, gold: Sequence[int]) -> float:
    """Of equal scores the last place, and none without a score: a dead model gains nothing."""
    own = scores[torch.arange(len(gold)), torch.tensor(gold)]
    ranks = (scores >= own[:, None]).sum(1)
    return float(((own > 0) / ranks).mean())
