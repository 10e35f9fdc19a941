"""SPARTA in training (§3.3): eq. 7 over sentences and paragraphs, and pressure on the vocabulary."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.models.document_encoder import fit_quantizer
from sparta.models.sparta import SpartaModel
from sparta.neural.inputs import EncoderInput
from sparta.neural.pooling import mixed, occurrences, pad_inputs, pooled_positions, surroundings
from sparta.neural.processes import mean_of_all
from sparta.training.batches import Batch, SampledNegatives
from sparta.training.model_card import SPARTA
from sparta.training.negatives import Scorer
from sparta.training.options import TrainerState
from sparta.training.paragraphs import ParagraphSet
from sparta.training.ranking import RankingConfig, RankingTraining
from sparta.training.teachers import Teacher

MINED_TERMS = 500
LEAST_PENALTY = 0.05
START_DIVISOR = 100
PRESSURE_STEP = 0.02
LOG_PRESSURE = (math.log(1e-6), math.log(0.1))
"""How fast the pressure follows the number of terms, and the logarithms between which it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(RankingConfig):
    """What eq. 7 leaves open.

    `term_rate` multiplies the learning rate of the term embeddings, `gain_rate` that of the gains,
    `scale_rate` that of scale and bias.
    `pressure` weighs the vocabulary penalty, estimated each step on `sampled_terms` random entries: squared
    mean weight of a term (it spreads terms over postings lists) plus mean weight; on whole paragraphs it
    counts `relief` as much. A term that the share `asked_share` of the training questions has is penalised
    half as much as one that none has, the most frequent ones `LEAST_PENALTY` as much; None: all alike. With
    `terms`, the pressure is raised and lowered until a paragraph has about that many terms. With `negatives`
    so many are sampled for each question, as in the paper; with 0 they are in-batch negatives. `scaled`
    learns the scale of eq. 4's products.
    """

    term_rate: float = 5.0
    gain_rate: float = 5.0
    scale_rate: float = 100.0
    pressure: float = 0.001
    terms: int | None = None
    relief: float = 0.3
    asked_share: float | None = 0.01
    sampled_terms: int = 700
    int8: bool = True
    negatives: int = 0
    scaled: bool = True

    def __post_init__(self) -> None:
        if self.asked_share is not None and self.asked_share <= 0:
            raise InputError(f"expected a share above 0, or None, found {self.asked_share}")


class QueryTerms(NamedTuple):
    """Questions as bags of terms: all distinct terms, and `(n_questions, n_terms)` their weights in each."""

    terms: list[int]
    counts: torch.Tensor


class EncodedCandidates(NamedTuple):
    """Candidates and the contexts they stand in, with the states that the encoder gives them.

    `hidden (n_rows * length, width)` are the states; `positions (n_inputs, longest)` those that take part in
    each input's maximum, and `any_at_all (n_inputs,)` whether any does. The first `n_candidates` inputs are
    the candidates, the others contexts; `context_of` is the index that `surroundings` gives.
    """

    inputs: list[EncoderInput]
    n_candidates: int
    context_of: list[int]
    hidden: torch.Tensor
    positions: torch.Tensor
    any_at_all: torch.Tensor


class SpartaTraining(RankingTraining[SpartaModel, QueryTerms]):
    """One training run: SPARTA's score, the penalty on its vocabulary, and what is saved."""

    kind = SPARTA

    def __init__(
        self,
        model: SpartaModel,
        sets: Sequence[ParagraphSet],
        config: TrainConfig,
        folder: Path,
        teacher: Teacher | None = None,
    ) -> None:
        super().__init__(model, [model.encoder], model.query_tokenizer(), sets, config, folder, teacher)
        self.config = config
        self.allowed = (~model.excluded_terms()).nonzero().squeeze(1)
        self.penalty_weights = self._penalty_weights().to(self.device)
        self.memory["log_pressure"] = math.log(max(config.pressure, 1e-12))
        sampled = self.sets if config.negatives else []
        self.sampled_negatives = [SampledNegatives(data, config.negatives) for data in sampled]
        model.scale.requires_grad_(config.scaled)

    def run(self, *, resume: bool = False) -> TrainerState:
        """Train, keep the best by validation MRR in `folder/best`, and give it its quantizer."""
        if not self.trained_before and self.config.scaled:
            self._start_scale()
        elif self.config.terms:
            self.memory["log_pressure"] -= math.log(START_DIVISOR)
        state = super().run(resume=resume)
        if not self.rank:
            self._quantize_best()
        return state

    def scorer(self, candidates: Sequence[Passage]) -> Scorer:
        """Eq. 9, as an index of the 500 strongest terms would give it."""
        rows = self.model.encode_document(list(candidates), max_active_dims=MINED_TERMS)
        columns = rows.T.tocsr()
        return lambda queries: (self.model.encode_query(list(queries)) @ columns).toarray()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Encoder, term embeddings (unless they are the encoder's), gains, scale and bias."""
        rates = {
            "term_embeddings": self.config.term_rate,
            "gains": self.config.gain_rate,
            "scale": self.config.scale_rate,
            "bias": self.config.scale_rate,
        }
        named = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        own = [{"params": [p], "factor": rates[n]} for n, p in named if n in rates]
        return [{"params": [p for n, p in named if n not in rates]}, *own]

    def batch(self, step: int) -> Batch:
        """Return the batch of a step; of the paper's recipe, questions with their own negatives."""
        if not self.sampled_negatives:
            return super().batch(step)
        rng = random.Random(self.seed * 7_919 + step)
        number = rng.choices(range(len(self.sets)), [s.weight for s in self.sets])[0]
        return self.sampled_negatives[number].draw(rng, self.sets[number].batch_size)

    def question_shares(self) -> torch.Tensor:
        """`(vocabulary,)`: the share of the training questions that has each term, by the weights of sets."""
        shares = torch.zeros(len(self.model.term_matrix()))
        for one in self.sets:
            each = one.weight / max(1, one.n_questions)
            for question in (question for p in one.paragraphs for question, _ in p.questions):
                shares[list(self.tokenizer.counts(question))] += each
        return shares / sum(one.weight for one in self.sets)

    def _penalty_weights(self) -> torch.Tensor:
        """`(vocabulary,)`: the weight of each term in the penalty, 1 for those that no question has.

        The penalty presses most on terms that many passages have. Of these, "who" and "when" stand in many
        questions too, and earn their postings.
        """
        if self.config.asked_share is None:
            return torch.ones(len(self.model.term_matrix()))
        shares = self.question_shares()
        return (self.config.asked_share / (self.config.asked_share + shares)).clamp_min(LEAST_PENALTY)

    @torch.no_grad()
    def _start_scale(self) -> None:
        """Scale and bias so that an untrained term's weight is neither dead nor saturated.

        Dot products get unit spread, half a spread below zero.
        """
        hidden = self._encode([paragraph.whole() for paragraph in self._draw(0)[0]]).hidden
        products = hidden.float() @ self.model.term_matrix()[self.allowed[::37]].T
        self.model.scale.fill_(1 / float(products.std()))
        self.model.bias.fill_(-0.5)

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Eq. 7 over sentences and over paragraphs of this step's batch, plus the vocabulary penalty."""
        batch = self.batch(step)
        queries = self.encode_queries(batch.questions)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        sampled = self.allowed[
            torch.randint(len(self.allowed), (self.config.sampled_terms,), generator=generator)
        ]
        columns = torch.cat([torch.tensor(queries.terms, dtype=torch.long), sampled]).to(self.device)
        encoded = self._encode(batch.candidates)
        weights = self._weights(encoded, columns)
        known = weights[:, : len(queries.terms)] + self._lexical(encoded, queries.terms)
        ranking = self.ranking_loss(self._sums(queries, known), batch)
        penalty, logs = self._penalty(
            weights[:, len(queries.terms) :], self.penalty_weights[sampled.to(self.device)], batch.n_sentences
        )
        ramp = min(1.0, 3 * self._progress(step)) ** 2
        if self.trained_before and self.config.terms:
            ramp = 1.0
        if self.config.terms and step % self.batches_per_step < self.processes:
            self._move_pressure(mean_of_all(logs["paragraph_terms"], self.device), ramp)
        loss = ranking + ramp * self._pressure() * penalty
        logs["ranking"] = float(ranking.detach())
        return loss, logs

    def _progress(self, batch: int) -> float:
        """Return the share of the training that was over before the step that a batch belongs to."""
        per_step = self.batches_per_step
        return (batch - batch % per_step) / max(1, self.schedule.steps * per_step)

    def encode_queries(self, questions: Sequence[str]) -> QueryTerms:
        """Return the terms of the questions, and their weights in each."""
        bags = [self.tokenizer.bag(question) for question in questions]
        terms = sorted({term for bag in bags for term in bag})
        column = {term: i for i, term in enumerate(terms)}
        counts = torch.zeros(len(bags), len(terms))
        for row, bag in enumerate(bags):
            for term, count in bag.items():
                counts[row, column[term]] = count * self.tokenizer.step
        return QueryTerms(terms, counts.to(self.device))

    def score(self, queries: QueryTerms, candidates: Sequence[Passage]) -> torch.Tensor:
        """Eq. 6 for every pair."""
        columns = torch.tensor(queries.terms, dtype=torch.long, device=self.device)
        encoded = self._encode(candidates)
        return self._sums(queries, self._weights(encoded, columns) + self._lexical(encoded, queries.terms))

    def _sums(self, queries: QueryTerms, weights: torch.Tensor) -> torch.Tensor:
        """Sum in float32: bf16 has too few digits to tell scores apart."""
        with torch.autocast(self.device.type, enabled=False):
            return queries.counts @ weights.float().T

    def _penalty(
        self, weights: torch.Tensor, counted: torch.Tensor, n_sentences: int
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """Squared mean weight of a term plus its mean weight, times the vocabulary; paragraphs count less.

        `weights (n_candidates, sampled)` are those of random terms, `counted (sampled,)` how much they count.
        """
        vocabulary = len(self.allowed)
        total = weights.new_zeros(())
        for part, share in ((weights[:n_sentences], 1.0), (weights[n_sentences:], self.config.relief)):
            if len(part):
                mean = part.mean(0)
                total = total + share * vocabulary * (counted * (mean.square() + 0.05 * mean)).mean()
        counts = (weights > 0).float().mean(1) * vocabulary
        logs = {}
        if len(counts) > n_sentences:
            logs["paragraph_terms"] = float(counts[n_sentences:].mean())
        if n_sentences:
            logs["terms"] = float(counts[:n_sentences].mean())
        return total, logs

    def _pressure(self) -> float:
        """Return the weight of the penalty."""
        return math.exp(self.memory["log_pressure"]) if self.config.terms else self.config.pressure

    def _move_pressure(self, terms: float, ramp: float) -> None:
        """Make the penalty a little heavier or lighter than at the step before, for all processes alike.

        `terms` are those of the step's first batches. While the penalty is still being raised it gets no
        heavier: there are too many terms at first anyway.
        """
        error = math.log(max(terms, 1.0) / (self.config.terms or 1))
        if ramp < 1:
            error = min(error, 0.0)
        moved = self.memory["log_pressure"] + PRESSURE_STEP * min(1.0, max(-1.0, error))
        self.memory["log_pressure"] = min(LOG_PRESSURE[1], max(LOG_PRESSURE[0], moved))

    def _encode(self, candidates: Sequence[Passage]) -> EncodedCandidates:
        """Run the encoder over candidates, of each its first window, and over the contexts they stand in."""
        inputs = self.layout.first_windows(candidates, self.model.tokenizer)
        contexts, index = surroundings(inputs) if self.model.config.context_share else ([], [])
        everything = [*inputs, *contexts]
        numbers: dict[tuple[int, ...], int] = {}
        rows = [numbers.setdefault((*i.ids, *i.segments), len(numbers)) for i in everything]
        distinct = dict(zip(reversed(rows), reversed(everything), strict=True))
        padded = pad_inputs([distinct[row] for row in range(len(numbers))])
        ids, mask, segments = (t.to(self.device) for t in padded)
        special = self.model.config.pool_special
        positions, any_at_all = pooled_positions(everything, rows, ids.shape[1], pool_special=special)
        hidden = self.model.hidden_states(ids, mask, segments).flatten(0, 1)
        places = (positions.to(self.device), any_at_all.to(self.device))
        return EncodedCandidates(everything, len(inputs), index, hidden, *places)

    def _mixed(self, encoded: EncodedCandidates, values: torch.Tensor) -> torch.Tensor:
        """`(n_inputs, n_columns)` to `(n_candidates, n_columns)`: with the share of each one's context."""
        n = encoded.n_candidates
        return mixed(values[:n], values[n:], encoded.context_of, self.model.config.context_share)

    def _weights(self, encoded: EncodedCandidates, columns: torch.Tensor) -> torch.Tensor:
        """`(n_candidates, n_columns)` term weights, eq. 4 to 6, with gradients."""
        products = encoded.hidden @ self.model.term_matrix()[columns].T.to(encoded.hidden.dtype)
        pooled = functional.embedding(encoded.positions, products).amax(dim=1).float()
        above = torch.relu(pooled * self.model.scale + self.model.bias)
        return self._mixed(encoded, torch.log1p(above) * encoded.any_at_all[:, None])

    def _lexical(self, encoded: EncodedCandidates, terms: Sequence[int]) -> torch.Tensor:
        """`(n_candidates, n_terms)`: what is added for occurrences of some terms, ascending ones."""
        gains, lexical = self.model.lexical_gains(), self.model.config.lexical
        counts = torch.zeros(len(encoded.inputs), len(terms))
        if gains is None or lexical is None or not terms:
            return counts[: encoded.n_candidates].to(self.device)
        wanted = torch.tensor(terms)
        rows, found, saturated = occurrences(encoded.inputs, lexical)
        columns = torch.searchsorted(wanted, found).clamp_max(len(terms) - 1)
        queries = wanted[columns] == found
        counts[rows[queries], columns[queries]] = saturated[queries]
        return self._mixed(encoded, counts.to(self.device) * gains[wanted.to(self.device)])

    def _quantize_best(self) -> None:
        """Calibrate the best model's quantizer on held-out answers and save it so; once: int8 rounds."""
        best = SpartaModel.load(self.folder / "best")
        if best.config.quantizer:
            return
        paragraphs = [p for s in (self.validation or self.sets) for p in s.paragraphs[:100]]
        texts = [text for p in paragraphs for text in (*p.answers(), p.whole())]
        best.config = replace(best.config, quantizer=fit_quantizer(best, texts))
        best.save_pretrained(self.folder / "best", int8=self.config.int8)
