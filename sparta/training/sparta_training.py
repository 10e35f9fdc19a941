"""SPARTA's training (§3.3): eq. 7 over sentences and paragraphs, with a penalty on the vocabulary."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.models.document_encoder import fit_quantizer
from sparta.models.load import load_model
from sparta.models.sparta import SpartaModel
from sparta.neural.batches import occurrences, pooled_positions, surroundings
from sparta.neural.inputs import EncoderInput
from sparta.neural.pooling import mixed, pad_inputs, tensors
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
"""The smallest and the largest logarithm of the pressure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(RankingConfig):
    """The settings of SPARTA's training that eq. 7 leaves open.

    `term_rate` multiplies the learning rate of the term embeddings, `gain_rate` the learning rate of the
    gains, and `scale_rate` the learning rate of scale and bias.

    `pressure` is the weight of the vocabulary penalty, estimated each step on `sampled_terms` random terms.
    The penalty is a term's squared mean weight, which spreads terms over postings lists, plus its mean
    weight; whole paragraphs count `relief` as much. A term that occurs in the share `asked_share` of the
    training questions is penalized half as much as a term that occurs in none; the penalty never falls below
    `LEAST_PENALTY` of the full one. With None for `asked_share`, all terms are penalized equally. With
    `terms`, the pressure adapts until a paragraph has about this many terms. `negatives` is the number of
    negatives sampled per question, as in the paper; 0 means in-batch negatives. With `scaled`, the training
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
            raise InputError(f"asked_share must be above 0, or None, found {self.asked_share}")


class QueryTerms(NamedTuple):
    """The distinct terms of questions, and the terms' weights in each question, `(n_questions, n_terms)`."""

    terms: list[int]
    counts: torch.Tensor


class EncodedCandidates(NamedTuple):
    """The encoder's states of the candidates and of their contexts.

    `hidden (n_rows * length, width)` are the states. `positions (n_inputs, longest)` are each input's
    positions that its maximum covers, and `any_at_all (n_inputs,)` tells whether an input has any. The first
    `n_candidates` inputs are candidates, the others contexts. `context_of` is the index that `surroundings`
    returns.
    """

    inputs: list[EncoderInput]
    n_candidates: int
    context_of: list[int]
    hidden: torch.Tensor
    positions: torch.Tensor
    any_at_all: torch.Tensor


class SpartaTraining(RankingTraining[SpartaModel, QueryTerms]):
    """The training of a SPARTA model: its score, the vocabulary penalty, and the saved model."""

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
        sampled_sets = self.sets if config.negatives else []
        self.sampled_negatives = [SampledNegatives(data, config.negatives) for data in sampled_sets]
        model.scale.requires_grad_(config.scaled)

    def run(self, *, resume: bool = False) -> TrainerState:
        """Train, keep the model with the best validation MRR in `folder/best`, and fit its quantizer."""
        if not self.trained_before and self.config.scaled:
            self._start_scale()
        elif self.config.terms:
            self.memory["log_pressure"] -= math.log(START_DIVISOR)
        state = super().run(resume=resume)
        if not self.rank:
            self._quantize_best()
        return state

    def scorer(self, candidates: Sequence[Passage]) -> Scorer:
        """Return a scorer by eq. 9 over each candidate's 500 strongest terms, like a pruned index.

        The candidates are encoded as `sparta encode` would, which is faster on a CPU than the trained module.
        """
        with TemporaryDirectory() as folder:
            self.model.save_pretrained(folder)
            encoder = load_model(folder, device=str(self.device))
            rows = encoder.encode_document(list(candidates), max_active_dims=MINED_TERMS)
        columns = rows.T.tocsr()
        return lambda queries: (self.model.encode_query(list(queries)) @ columns).toarray()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return Adam's groups: encoder, separate term embeddings, gains, scale and bias."""
        rates = {
            "term_embeddings": self.config.term_rate,
            "gains": self.config.gain_rate,
            "scale": self.config.scale_rate,
            "bias": self.config.scale_rate,
        }
        trainable = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        groups_with_rates = [{"params": [p], "factor": rates[n]} for n, p in trainable if n in rates]
        return [{"params": [p for n, p in trainable if n not in rates]}, *groups_with_rates]

    def batch(self, step: int) -> Batch:
        """Return the batch of a step; the paper's recipe samples separate negatives for each question."""
        if not self.sampled_negatives:
            return super().batch(step)
        rng = random.Random(self.seed * 7_919 + step)
        number = rng.choices(range(len(self.sets)), [data.weight for data in self.sets])[0]
        return self.sampled_negatives[number].draw(rng, self.sets[number].batch_size)

    def question_shares(self) -> torch.Tensor:
        """Return the share of training questions that contain each term, `(vocabulary,)`, weighted by set."""
        shares = torch.zeros(len(self.model.term_matrix()))
        for data in self.sets:
            question_weight = data.weight / max(1, data.n_questions)
            for question in (
                question for paragraph in data.paragraphs for question, _ in paragraph.questions
            ):
                shares[list(self.tokenizer.counts(question))] += question_weight
        return shares / sum(data.weight for data in self.sets)

    def _penalty_weights(self) -> torch.Tensor:
        """Return each term's weight in the penalty, `(vocabulary,)`; 1 for terms that occur in no question.

        The penalty is strongest for terms that many passages have. Some of these terms, such as "who" and
        "when", also occur in many questions, so their postings are useful.
        """
        if self.config.asked_share is None:
            return torch.ones(len(self.model.term_matrix()))
        shares = self.question_shares()
        return (self.config.asked_share / (self.config.asked_share + shares)).clamp_min(LEAST_PENALTY)

    @torch.no_grad()
    def _start_scale(self) -> None:
        """Set scale and bias so that the weight of an untrained term is neither dead nor saturated.

        Dot products get a standard deviation of 1, and a mean half a standard deviation below zero.
        """
        hidden = self._encode([paragraph.whole() for paragraph in self.draw(0)[0]]).hidden
        products = hidden.float() @ self.model.term_matrix()[self.allowed[::37]].T
        self.model.scale.fill_(1 / float(products.std()))
        self.model.bias.fill_(-0.5)

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss of this step's batch, plus the penalty on the number of terms.

        The loss is SPARTA's eq. 7, over sentences and over paragraphs.
        """
        batch = self.batch(step)
        queries = self.encode_queries(batch.questions)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        sampled_terms = self.allowed[
            torch.randint(len(self.allowed), (self.config.sampled_terms,), generator=generator)
        ]
        columns = torch.cat([torch.tensor(queries.terms, dtype=torch.long), sampled_terms]).to(self.device)
        encoded = self._encode(batch.candidates)
        weights = self._weights(encoded, columns)
        query_term_weights = weights[:, : len(queries.terms)] + self._lexical(encoded, queries.terms)
        ranking = self.ranking_loss(self._sums(queries, query_term_weights), batch)
        penalty, logs = self._penalty(
            weights[:, len(queries.terms) :],
            self.penalty_weights[sampled_terms.to(self.device)],
            batch.n_sentences,
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
        """Return the share of the training that was done before the step of a batch."""
        per_step = self.batches_per_step
        return (batch - batch % per_step) / max(1, self.schedule.steps * per_step)

    def encode_queries(self, questions: Sequence[str]) -> QueryTerms:
        """Return the distinct terms of the questions, and the terms' weights in each question."""
        bags = [self.tokenizer.bag(question) for question in questions]
        terms = sorted({term for bag in bags for term in bag})
        column = {term: i for i, term in enumerate(terms)}
        counts = torch.zeros(len(bags), len(terms))
        for row, bag in enumerate(bags):
            for term, count in bag.items():
                counts[row, column[term]] = count * self.tokenizer.step
        return QueryTerms(terms, counts.to(self.device))

    def score(self, queries: QueryTerms, candidates: Sequence[Passage]) -> torch.Tensor:
        """Return eq. 6's score of every question and candidate."""
        columns = torch.tensor(queries.terms, dtype=torch.long, device=self.device)
        encoded = self._encode(candidates)
        return self._sums(queries, self._weights(encoded, columns) + self._lexical(encoded, queries.terms))

    def _sums(self, queries: QueryTerms, weights: torch.Tensor) -> torch.Tensor:
        """Return the summed scores in float32, because bf16 is too coarse to separate scores."""
        with torch.autocast(self.device.type, enabled=False):
            return queries.counts @ weights.float().T

    def _penalty(
        self, weights: torch.Tensor, term_penalties: torch.Tensor, n_sentences: int
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the vocabulary penalty and figures to log; paragraphs count less than sentences.

        The penalty is the squared mean weight of a term plus its mean weight, times the vocabulary size.

        :param weights: `(n_candidates, sampled)`, the weights of random terms
        :param term_penalties: `(sampled,)`, the weight of each term in the penalty
        """
        vocabulary = len(self.allowed)
        total = weights.new_zeros(())
        for kind_weights, share in (
            (weights[:n_sentences], 1.0),
            (weights[n_sentences:], self.config.relief),
        ):
            if len(kind_weights):
                mean = kind_weights.mean(0)
                total = total + share * vocabulary * (term_penalties * (mean.square() + 0.05 * mean)).mean()
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
        """Raise or lower the pressure slightly, identically in all processes.

        During the ramp the pressure is only lowered: a new model always has too many terms at first.

        :param terms: the mean number of terms of a paragraph in the step's first batches
        :param ramp: the fraction of the full penalty at this step
        """
        error = math.log(max(terms, 1.0) / (self.config.terms or 1))
        if ramp < 1:
            error = min(error, 0.0)
        log_pressure = self.memory["log_pressure"] + PRESSURE_STEP * min(1.0, max(-1.0, error))
        self.memory["log_pressure"] = min(LOG_PRESSURE[1], max(LOG_PRESSURE[0], log_pressure))

    def _encode(self, candidates: Sequence[Passage]) -> EncodedCandidates:
        """Run the encoder over the first window of each candidate, and over the candidates' contexts."""
        inputs = self.layout.first_windows(candidates, self.model.tokenizer)
        contexts, index = surroundings(inputs) if self.model.config.context_share else ([], [])
        all_inputs = [*inputs, *contexts]
        numbers: dict[tuple[int, ...], int] = {}
        rows = [numbers.setdefault((*i.ids, *i.segments), len(numbers)) for i in all_inputs]
        distinct = dict(zip(reversed(rows), reversed(all_inputs), strict=True))
        padded = pad_inputs([distinct[row] for row in range(len(numbers))])
        ids, mask, segments = (t.to(self.device) for t in padded)
        special = self.model.config.pool_special
        pooled = pooled_positions(all_inputs, rows, ids.shape[1], pool_special=special)
        hidden = self.model.hidden_states(ids, mask, segments).flatten(0, 1)
        pooling = (t.to(self.device) for t in tensors(pooled))
        return EncodedCandidates(all_inputs, len(inputs), index, hidden, *pooling)

    def _mixed(self, encoded: EncodedCandidates, values: torch.Tensor) -> torch.Tensor:
        """Return the values of candidates and their contexts, mixed, `(n_candidates, n_columns)`."""
        n = encoded.n_candidates
        return mixed(values[:n], values[n:], encoded.context_of, self.model.config.context_share)

    def _weights(self, encoded: EncodedCandidates, columns: torch.Tensor) -> torch.Tensor:
        """Return the term weights of eq. 4 to 6, `(n_candidates, n_columns)`, with gradients."""
        # The gradient of an index that repeats terms is summed in any order, that of an embedding in one.
        terms = functional.embedding(columns, self.model.term_matrix())
        products = encoded.hidden @ terms.T.to(encoded.hidden.dtype)
        pooled = functional.embedding(encoded.positions, products).amax(dim=1).float()
        above = torch.relu(pooled * self.model.scale + self.model.bias)
        return self._mixed(encoded, torch.log1p(above) * encoded.any_at_all[:, None])

    def _lexical(self, encoded: EncodedCandidates, terms: Sequence[int]) -> torch.Tensor:
        """Return the weights that occurrences of these terms add, `(n_candidates, n_terms)`.

        :param terms: term ids, ascending
        """
        gains, lexical = self.model.lexical_gains(), self.model.config.lexical
        counts = torch.zeros(len(encoded.inputs), len(terms))
        if gains is None or lexical is None or not terms:
            return counts[: encoded.n_candidates].to(self.device)
        term_ids = torch.tensor(terms)
        rows, occurring_terms, saturated = tensors(occurrences(encoded.inputs, lexical))
        columns = torch.searchsorted(term_ids, occurring_terms).clamp_max(len(terms) - 1)
        is_query_term = term_ids[columns] == occurring_terms
        counts[rows[is_query_term], columns[is_query_term]] = saturated[is_query_term]
        return self._mixed(encoded, counts.to(self.device) * gains[term_ids.to(self.device)])

    def _quantize_best(self) -> None:
        """Fit the best model's quantizer on held-out answers and save the model.

        A model that has a quantizer stays as it is: saving int8 weights twice would round twice.
        """
        best = SpartaModel.load(self.folder / "best")
        if best.config.quantizer:
            return
        paragraphs = [p for s in (self.validation or self.sets) for p in s.paragraphs[:100]]
        texts = [text for p in paragraphs for text in (*p.answers(), p.whole())]
        best.config = replace(best.config, quantizer=fit_quantizer(best, texts))
        best.save_pretrained(self.folder / "best", int8=self.config.int8)
