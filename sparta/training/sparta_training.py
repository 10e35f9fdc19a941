"""SPARTA in training (§3.3): eq. 7 over sentences and paragraphs, and pressure on the vocabulary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.models.document_encoder import fit_quantizer
from sparta.models.sparse import SpartaModel
from sparta.neural.inputs import EncoderInput
from sparta.neural.pooling import mixed, occurrences, pad_inputs, pooled_positions, surroundings
from sparta.neural.trainer import TrainerState, mean_of_all, process_group
from sparta.training.negatives import Scorer
from sparta.training.paragraphs import ParagraphSet
from sparta.training.ranking import RankingConfig, RankingTraining, known_before
from sparta.training.teachers import Teacher

MINED_TERMS = 500
LEAST_PENALTY = 0.05
GENTLER = 100
CONTROL = 0.02
LEAST_AND_MOST = (math.log(1e-6), math.log(0.1))
"""How fast the pressure follows the number of terms, and the logarithms between which it stays."""
BEGUN_WITH, BEGUN_ON = 0.4, 6
"""What a term that begins anew weighs in the middle one of the texts of so many batches."""
MUTED, SHARPNESS = 0.3, 2.0
"""While terms are trained alone: what the others count at first, and softplus(2x) / 2 for ReLU(x)."""
PRUNED_SAMPLE = 4096
EDGE = 0.1
"""Terms by which the weight of the last one kept is estimated; how far around it half a term counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(RankingConfig):
    """What eq. 7 leaves open.

    `term_rate` multiplies the learning rate of the term embeddings, `scale_rate` that of scale and bias.
    `pressure` weighs the vocabulary penalty, estimated each step on `sampled_terms` random entries: squared
    mean weight of a term (it spreads terms over postings lists) plus mean weight; on whole paragraphs it
    counts `relief` as much. A term that the share `asked_share` of the training questions has is penalised
    half as much as one that none has, the most frequent ones `LEAST_PENALTY` as much; None: all alike. With
    `terms`, the pressure is raised and lowered until a paragraph has about that many terms. With `pruned_to`,
    `pruned_share` of the ranking loss is that of the scores which only so many strongest terms of each
    candidate give. With `only_terms`, ids of terms, nothing but their embeddings is trained, anew, and
    without a penalty: `pressure`, `terms` and `pruned_to` do nothing. `query_weights` is of `WeightTraining`.
    """

    term_rate: float = 5.0
    scale_rate: float = 100.0
    pressure: float = 0.001
    terms: int | None = None
    relief: float = 0.3
    asked_share: float | None = 0.01
    pruned_to: int | None = None
    pruned_share: float = 0.3
    sampled_terms: int = 700
    only_terms: tuple[int, ...] = ()
    query_weights: int = 0
    int8: bool = True

    def __post_init__(self) -> None:
        if self.asked_share is not None and self.asked_share <= 0:
            raise InputError(f"expected a share above 0, or None, found {self.asked_share}")


class AskedTerms(NamedTuple):
    """Questions as SPARTA sees them: distinct terms, and `(n_questions, n_terms)` how often each asks one."""

    terms: list[int]
    counts: torch.Tensor


class Read(NamedTuple):
    """Candidates and the contexts they stand in, as the encoder has read them.

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


def _greatest_products(read: Read, vectors: torch.Tensor) -> torch.Tensor:
    """`(n_vectors, width)` to `(n_inputs, n_vectors)`: eq. 4, before scale and bias, with gradients."""
    products = read.hidden @ vectors.T.to(read.hidden.dtype)
    return functional.embedding(read.positions, products).amax(dim=1).float()


class SpartaTraining(RankingTraining[SpartaModel, AskedTerms]):
    """One training run: SPARTA's score, the penalty on its vocabulary, and what is saved."""

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
        if config.only_terms:
            self._keep_the_rest()

    def run(self, *, resume: bool = False) -> TrainerState:
        """Train, keep the best by validation MRR in `folder/best`, and give it its quantizer."""
        if not self.further:
            self._start_scale()
        elif self.config.terms:
            self.memory["log_pressure"] -= math.log(GENTLER)
        state = super().run(resume=resume)
        if not process_group()[0]:
            self._finish()
        return state

    def scorer(self, candidates: Sequence[Passage]) -> Scorer:
        """Eq. 9, as an index of the 500 strongest terms would give it."""
        rows = self.model.encode_document(list(candidates), max_active_dims=MINED_TERMS)
        columns = rows.T.tocsr()
        return lambda asked: (self.model.encode_query(list(asked)) @ columns).toarray()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Encoder, what each term has (unless it is the encoder's), scale and bias."""
        if self.config.only_terms:
            return [{"params": [self.model.term_embeddings], "factor": self.config.term_rate}]
        terms = [p for n, p in self.model.named_parameters() if n in ("term_embeddings", "gains")]
        scalars = [self.model.scale, self.model.bias]
        known = {id(p) for p in [*terms, *scalars]}
        return [
            {"params": [p for p in self.model.parameters() if p.requires_grad and id(p) not in known]},
            {"params": terms, "factor": self.config.term_rate},
            {"params": scalars, "factor": self.config.scale_rate},
        ]

    def save_best(self) -> None:
        """Write the model, in full precision while it has no quantizer: that comes at the end."""
        int8 = self.config.int8 and self.model.config.quantizer is not None
        self.model.save_pretrained(self.folder / "best", int8=int8)

    def _keep_the_rest(self) -> None:
        """Let no gradient reach anything but the embeddings of `only_terms`."""
        trained = torch.zeros(len(self.model.term_matrix()), 1, device=self.device)
        trained[list(self.config.only_terms)] = 1
        for parameter in self.model.parameters():
            parameter.requires_grad_(parameter is self.model.term_embeddings)
        self.model.term_matrix().register_hook(lambda gradient: gradient * trained)

    @torch.no_grad()
    def _begin_terms(self) -> None:
        """Give `only_terms` one common start: the mean state of texts, as long as `BEGUN_WITH` asks.

        A term whose products are below the bias in all texts has no gradient, and would stay so.
        """
        reads = [self._read(self._whole(step)) for step in range(BEGUN_ON)]
        states = torch.cat([read.hidden[read.positions.unique()].float() for read in reads])
        mean = states.mean(0)
        middle = torch.cat([_greatest_products(read, mean[None]) for read in reads]).median()
        length = (math.expm1(BEGUN_WITH) - self.model.bias) / self.model.scale / middle
        self.model.term_matrix()[list(self.config.only_terms)] = length * mean

    def _whole(self, step: int) -> list[Passage]:
        return [paragraph.whole() for paragraph in self._draw(step)[0]]

    def asked_shares(self) -> torch.Tensor:
        """`(vocabulary,)`: the share of the training questions that has each term, by the weights of sets."""
        shares = torch.zeros(len(self.model.term_matrix()))
        for one in self.sets:
            each = one.weight / max(1, one.n_questions)
            for question in (question for p in one.paragraphs for question, _ in p.questions):
                shares[list(self.tokenizer.counts(question))] += each
        return shares / sum(one.weight for one in self.sets)

    def _penalty_weights(self) -> torch.Tensor:
        """`(vocabulary,)`: how much the penalty of each term counts, 1 for those that nobody asks for.

        FLOPS presses most on what many passages have. That "who" and "when" are of the kind is no fault: they
        are asked often, and earn their postings.
        """
        if self.config.asked_share is None:
            return torch.ones(len(self.model.term_matrix()))
        shares = self.asked_shares()
        return (self.config.asked_share / (self.config.asked_share + shares)).clamp_min(LEAST_PENALTY)

    @torch.no_grad()
    def _start_scale(self) -> None:
        """Scale and bias so that an untrained term's weight is neither dead nor saturated.

        Dot products get unit spread, half a spread below zero.
        """
        hidden = self._read(self._whole(0)).hidden
        products = hidden.float() @ self.model.term_matrix()[self.allowed[::37]].T
        self.model.scale.fill_(1 / float(products.std()))
        self.model.bias.fill_(-0.5)

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Eq. 7 over sentences and over paragraphs of this step's batch, plus the vocabulary penalty."""
        if self.config.only_terms:
            return self._loss_of_terms(step)
        batch = self.batch(step)
        asked = self.ask(batch.questions)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        sampled = self.allowed[
            torch.randint(len(self.allowed), (self.config.sampled_terms,), generator=generator)
        ]
        columns = torch.cat([torch.tensor(asked.terms, dtype=torch.long), sampled]).to(self.device)
        read = self._read(batch.candidates)
        weights = self._weights(read, columns)
        known = weights[:, : len(asked.terms)] + self._lexical(read, asked.terms)
        taught = self.taught(batch)
        ranking = self.ranking(self._sums(asked, known), batch, taught)
        if self.config.pruned_to:
            kept = known * torch.sigmoid((known - self._least_kept(read, generator)[:, None]) / EDGE)
            pruned = self.ranking(self._sums(asked, kept), batch, taught)
            ranking = ranking + self.config.pruned_share * (pruned - ranking)
        penalty, logs = self._penalty(
            weights[:, len(asked.terms) :], self.penalty_weights[sampled.to(self.device)], batch.n_sentences
        )
        ramp = min(1.0, 3 * self._done(step)) ** 2
        if self.further and self.config.terms:
            ramp = 1.0
        if self.config.terms and step % self._together() < process_group()[1]:
            self._move_pressure(mean_of_all(logs["paragraph_terms"], self.device), ramp)
        loss = ranking + ramp * self._pressure() * penalty
        logs["ranking"] = float(ranking.detach())
        return loss, logs

    def _together(self) -> int:
        """How many batches make one step of all processes."""
        return self.config.trainer.accumulate * process_group()[1]

    def _done(self, batch: int) -> float:
        """Return the share of the training that was over before the step that a batch belongs to."""
        return (batch - batch % self._together()) / max(1, self.config.trainer.batches)

    def _loss_of_terms(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Eq. 7 for `only_terms`, without a penalty: at first all other terms count `MUTED` as much.

        So these must tell by themselves which text is right. Up to the middle of the training, that becomes
        less of the loss, and the ranking as it will be more, then all. While the others are muted, softplus
        stands in place of these terms' ReLU: it is never quite 0, so that they can come back to a text.
        """
        if not self.memory.get("begun"):
            self._begin_terms()
            self.memory["begun"] = 1.0
        batch = self.batch(step)
        asked, read = self.ask(batch.questions), self._read(batch.candidates)
        columns = torch.tensor(asked.terms, dtype=torch.long, device=self.device)
        trained = torch.isin(columns, torch.tensor(self.config.only_terms, device=self.device))
        lexical, taught = self._lexical(read, asked.terms), self.taught(batch)
        products = self._products(read, columns)
        hard = torch.relu(products)
        soft = torch.where(trained, functional.softplus(products, SHARPNESS), hard)
        known = self._saturated(read, hard) + lexical
        muted = (self._saturated(read, soft) + lexical) * torch.where(trained, 1.0, MUTED)
        whole, alone = (self.ranking(self._sums(asked, own), batch, taught) for own in (known, muted))
        share = min(1.0, 2 * self._done(step))
        loss = share * whole + (1 - share) * alone
        return loss, {"ranking": float(whole.detach())}

    def ask(self, questions: Sequence[str]) -> AskedTerms:
        """Return the terms that the questions ask for, and how often."""
        bags = [self._occurring(question) for question in questions]
        terms = sorted({term for bag in bags for term in bag})
        column = {term: i for i, term in enumerate(terms)}
        counts = torch.zeros(len(bags), len(terms))
        for row, bag in enumerate(bags):
            for term, count in bag.items():
                counts[row, column[term]] = count
        return AskedTerms(terms, counts.to(self.device))

    def _occurring(self, question: str) -> dict[int, float]:
        """Return the terms of a question, and what each counts."""
        return self.tokenizer.bag(question)

    def score(self, asked: AskedTerms, candidates: Sequence[Passage]) -> torch.Tensor:
        """Eq. 6 for every pair."""
        columns = torch.tensor(asked.terms, dtype=torch.long, device=self.device)
        read = self._read(candidates)
        return self._sums(asked, self._weights(read, columns) + self._lexical(read, asked.terms))

    def _sums(self, asked: AskedTerms, weights: torch.Tensor) -> torch.Tensor:
        """Sum in float32: bf16 has too few digits to tell scores apart."""
        with torch.autocast(self.device.type, enabled=False):
            return asked.counts @ weights.float().T

    def facts(self) -> dict[str, Any]:
        """Layout and form of the model; how terms are trained alone."""
        alone = {"muted": MUTED, "sharpness": SHARPNESS} if self.config.only_terms else {}
        return {"model": known_before(self.model.config.as_dict()), **alone}

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
        logs = {"paragraph_terms": float(counts[n_sentences:].mean())}
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
        moved = self.memory["log_pressure"] + CONTROL * min(1.0, max(-1.0, error))
        self.memory["log_pressure"] = min(LEAST_AND_MOST[1], max(LEAST_AND_MOST[0], moved))

    def _read(self, candidates: Sequence[Passage]) -> Read:
        """Run the encoder over candidates, of each its first window, and over the contexts they stand in."""
        inputs = [self.layout.windows(one, self.model.tokenizer)[0] for one in candidates]
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
        return Read(everything, len(inputs), index, hidden, *places)

    def _mixed(self, read: Read, values: torch.Tensor) -> torch.Tensor:
        """`(n_inputs, n_columns)` to `(n_candidates, n_columns)`: with the share of each one's context."""
        n = read.n_candidates
        return mixed(values[:n], values[n:], read.context_of, self.model.config.context_share)

    def _weights(self, read: Read, columns: torch.Tensor) -> torch.Tensor:
        """`(n_candidates, n_columns)` term weights, eq. 4 to 6, with gradients."""
        return self._saturated(read, torch.relu(self._products(read, columns)))

    def _products(self, read: Read, columns: torch.Tensor) -> torch.Tensor:
        """`(n_inputs, n_columns)`: what the ReLU is applied to, with gradients."""
        pooled = _greatest_products(read, self.model.term_matrix()[columns])
        return pooled * self.model.scale + self.model.bias

    def _saturated(self, read: Read, above: torch.Tensor) -> torch.Tensor:
        """`(n_inputs, n_columns)`, none below 0, to `(n_candidates, n_columns)`: term weights."""
        return self._mixed(read, torch.log1p(above) * read.any_at_all[:, None])

    def _lexical(self, read: Read, terms: Sequence[int]) -> torch.Tensor:
        """`(n_candidates, n_terms)`: what is added for occurrences of some terms, ascending ones."""
        gains, lexical = self.model.lexical_gains(), self.model.config.lexical
        counts = torch.zeros(len(read.inputs), len(terms))
        if gains is None or lexical is None or not terms:
            return counts[: read.n_candidates].to(self.device)
        wanted = torch.tensor(terms)
        rows, found, saturated = occurrences(read.inputs, lexical)
        columns = torch.searchsorted(wanted, found).clamp_max(len(terms) - 1)
        asked = wanted[columns] == found
        counts[rows[asked], columns[asked]] = saturated[asked]
        return self._mixed(read, counts.to(self.device) * gains[wanted.to(self.device)])

    @torch.no_grad()
    def _least_kept(self, read: Read, generator: torch.Generator) -> torch.Tensor:
        """`(n_candidates,)`: what a term must weigh to be among the `pruned_to` strongest, estimated.

        Of a random sample of the vocabulary as large a share is taken as `pruned_to` is of all.
        """
        order = torch.randperm(len(self.allowed), generator=generator)[:PRUNED_SAMPLE]
        columns = self.allowed[order.sort().values]
        rank = round((self.config.pruned_to or 0) * len(columns) / len(self.allowed))
        weights = self._weights(read, columns.to(self.device)) + self._lexical(read, columns.tolist())
        return weights.topk(min(len(columns), max(1, rank)), dim=1).values[:, -1]

    def _finish(self) -> None:
        """Calibrate the best model's quantizer on held-out answers and save it so; once: int8 rounds."""
        best = SpartaModel.load(self.folder / "best")
        if best.config.quantizer:
            return
        paragraphs = [p for s in (self.validation or self.sets) for p in s.paragraphs[:100]]
        texts = [text for p in paragraphs for text in (*p.answers(), p.whole())]
        best.config = replace(best.config, quantizer=fit_quantizer(best, texts))
        best.save_pretrained(self.folder / "best", int8=self.config.int8)
