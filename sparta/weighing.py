"""What the terms of a question count: learned for a model that stays as it is (decision 0019)."""

from __future__ import annotations

import hashlib
import logging
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch

from sparta.base.errors import InputError
from sparta.base.files import atomic_path
from sparta.models.resolve import QUERY_WEIGHTS
from sparta.models.sparse import SpartaModel
from sparta.neural.trainer import TrainerState, process_group, wait_for_all
from sparta.training.batches import Batch, make_batch
from sparta.training.paragraphs import Paragraph, ParagraphSet
from sparta.training.sparta_training import AskedTerms, SpartaTraining, TrainConfig
from sparta.training.teachers import Teacher

logger = logging.getLogger(__name__)

POOL = 700
"""Paragraphs of a set that a question's answer is looked for among."""
ASKED_AT_ONCE = 48
SHARPER = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
SHARPENED_ON = 16
"""Factors to choose from for all scores; how many steps' questions choose it."""
HELD_BACK = 1e-3
"""What it costs that a weight is 0 or 2 and not 1."""
READ_AT_ONCE = 256
STRETCHES, LEFT_OUT = 10, 0.25
"""How many stretches a set's questions are cut into; which share of all, with most of a term, is left out."""


class Pool(NamedTuple):
    """Paragraphs of a set, their sentences and questions, and the weights of the terms that questions ask.

    `columns (n_candidates, vocabulary) float32` holds these terms only, and is stored by columns.
    """

    batch: Batch
    columns: scipy.sparse.csc_matrix


def _tell_few(found: int, wanted: int) -> None:
    if not found:
        raise InputError(
            "expected questions that have words in common, found none that is asked in more than a quarter of"
            " the places",
            remedy="give more questions, of several topics, or leave --query-weights out",
        )
    logger.warning("only %d of %d terms are asked in more than a quarter of the places", found, wanted)


class WeightTraining(SpartaTraining):
    """Trains what each of the `query_weights` terms that questions commonly ask counts in a question.

    The texts' weights stay, so texts are read once: of each set a pool, among all of whose sentences, and
    all of whose paragraphs, each question's answer is ranked by eq. 7.
    """

    def __init__(
        self,
        model: SpartaModel,
        sets: Sequence[ParagraphSet],
        config: TrainConfig,
        folder: Path,
        teacher: Teacher | None = None,
    ) -> None:
        self.counting = model.query_term_weights is None
        if self.counting:
            model.add_query_weights()
        super().__init__(model, sets, config, folder, teacher)
        for parameter in model.parameters():
            parameter.requires_grad_(parameter is model.query_term_weights)
        shares = self.commonly_asked()
        most = shares.sort(descending=True, stable=True).indices[: config.query_weights]
        self.weighed = torch.zeros(len(shares), device=self.device)
        self.weighed[most[shares[most] > 0].to(self.device)] = 1
        if (found := int(self.weighed.sum())) < config.query_weights:
            _tell_few(found, config.query_weights)
        self.counted.register_hook(lambda gradient: gradient * self.weighed)
        self._pools: dict[int, Pool] = {}
        self._as_it_came = False

    @property
    def counted(self) -> torch.Tensor:
        """`(vocabulary,)`: what each term counts in a question."""
        weights = self.model.query_term_weights
        assert weights is not None
        return weights

    def run(self, *, resume: bool = False) -> TrainerState:
        """Train, and leave no pool behind: those are for a training that is resumed.

        A model whose questions had no weights is measured as it came, too: with them, a word counts once.
        """
        if not (resume and (self.folder / "state.pt").exists()):
            self._read_pools()
            if self.counting and not process_group()[0]:
                self._measure_as_it_came()
        state = super().run(resume=resume)
        if not process_group()[0]:  # the last step has averaged gradients: all processes have what they need
            if state.best < self.memory.get("as_it_came", -math.inf):
                logger.warning(
                    "validation was %.4f before questions had weights, and is %.4f at best with them:"
                    " the model that this training began with ranks better",
                    *(self.memory["as_it_came"], state.best),
                )
            for left in self.folder.glob("pool-*.npz"):
                left.unlink()
        return state

    def _read_pools(self) -> None:
        """Read the texts before the first step, each set in one of the processes that share the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        rank, processes = process_group()
        for one in self.sets[rank::processes]:
            self._pool(one)
        wait_for_all()

    def _measure_as_it_came(self) -> None:
        self._as_it_came = True
        self.memory["as_it_came"] = self.validate()
        self._as_it_came = False
        logger.info("without weights of questions: validation %.4f", self.memory["as_it_came"])

    @torch.no_grad()
    def commonly_asked(self) -> torch.Tensor:
        """`(vocabulary,)`: the share of the questions that has each term, without where it is asked most.

        A set's questions are cut into stretches, as they stand. Of all stretches, by the weights of sets, the
        quarter that has a term most is left out: "who" is asked everywhere, "chopin" where he is the topic.
        That takes sets in which the questions on one topic stand together.
        """
        shares, weights = [], []
        for one in self.sets:
            asked = [question for paragraph in one.paragraphs for question, _ in paragraph.questions]
            parts = np.array_split(np.array(asked, dtype=object), min(STRETCHES, len(asked)))
            for part in parts:
                terms = [term for question in part for term in self.tokenizer.counts(question)]
                counts = torch.tensor(terms, dtype=torch.long).bincount(minlength=len(self.counted))
                shares.append(counts / len(part))
                weights.append(one.weight / len(parts))
        ordered, order = torch.stack(shares).sort(dim=0, descending=True)
        each = torch.tensor(weights)[order]
        total = sum(weights)
        kept = (each.cumsum(0) - LEFT_OUT * total).clamp_min(0).minimum(each)
        return (ordered * kept).sum(0) / ((1 - LEFT_OUT) * total)

    def _penalty_weights(self) -> torch.Tensor:
        """None: there is no penalty."""
        return torch.ones(len(self.model.term_matrix()))

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the weights alone."""
        return [{"params": [self.counted], "factor": self.config.scale_rate}]

    def ask(self, questions: Sequence[str]) -> AskedTerms:
        """Return the terms that the questions ask for, 1 for each that a question has."""
        asked = super().ask(questions)
        if self._as_it_came:
            return asked
        return AskedTerms(asked.terms, (asked.counts > 0).float())

    def _occurring(self, question: str) -> dict[int, float]:
        """Those without weight too: they may get one."""
        return self.tokenizer.counts(question)

    def _sums(self, asked: AskedTerms, weights: torch.Tensor) -> torch.Tensor:
        """Let each term count its weight."""
        if self._as_it_came:
            return super()._sums(asked, weights)
        columns = torch.tensor(asked.terms, dtype=torch.long, device=self.device)
        counted = self.counted.clamp_min(0)[columns]
        return super()._sums(AskedTerms(asked.terms, asked.counts * counted), weights)

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Eq. 7 among all sentences of a pool, and among all its paragraphs; and what weights cost."""
        if "sharper" not in self.memory:
            self.memory["sharper"] = self._sharpest()
        ranking = self._ranked(step, self.memory["sharper"])
        held = HELD_BACK * ((self.counted - 1).square() * self.weighed).sum()
        return ranking + held, {"ranking": float(ranking.detach())}

    def _ranked(self, step: int, sharper: float) -> torch.Tensor:
        rng = random.Random(self.seed * 7_919 + step)
        pool = self._pool(rng.choices(self.sets, [s.weight for s in self.sets])[0])
        whole = pool.batch
        chosen = rng.sample(range(len(whole.questions)), min(ASKED_AT_ONCE, len(whole.questions)))
        batch = whole._replace(
            questions=[whole.questions[i] for i in chosen],
            gold_sentence=[whole.gold_sentence[i] for i in chosen],
            gold_paragraph=[whole.gold_paragraph[i] for i in chosen],
            right=[whole.right[i] for i in chosen],
        )
        asked = self.ask(batch.questions)
        weights = torch.from_numpy(pool.columns[:, asked.terms].toarray()).to(self.device)
        return self.ranking(sharper * self._sums(asked, weights), batch, None)

    @torch.no_grad()
    def _sharpest(self) -> float:
        """Return the factor with the least loss before the first step.

        What texts weigh fits the candidates that the model was trained with. Among others all scores may be
        too close or too far, which no question's weight should have to mend.
        """
        losses = [
            float(np.mean([float(self._ranked(step, factor)) for step in range(SHARPENED_ON)]))
            for factor in SHARPER
        ]
        return SHARPER[int(np.argmin(losses))]

    def _pool(self, one: ParagraphSet) -> Pool:
        """Return the pool of a set; its texts are read when it is first asked for."""
        if id(one) not in self._pools:
            batch = make_batch(self._chosen(one), random.Random(self.seed), 1_000_000)
            terms = sorted({t for question in batch.questions for t in self._occurring(question)})
            path = self.folder / f"pool-{self._of(batch, terms)}.npz"
            if not path.exists():
                logger.info("%s: reading %s sentences and paragraphs", one.name, f"{len(batch.candidates):,}")
                with atomic_path(path) as temporary, temporary.open("wb") as file:
                    scipy.sparse.save_npz(file, self._columns(batch, terms))
            self._pools[id(one)] = Pool(batch, scipy.sparse.load_npz(path).tocsc())
        return self._pools[id(one)]

    def _chosen(self, one: ParagraphSet) -> list[Paragraph]:
        """Paragraphs as batches draw them, neighbours and mined negatives together, each once."""
        rng = random.Random(self.seed)
        found: dict[int, Paragraph] = {}
        size = min(POOL, len(one.paragraphs))
        for _ in range(20 * size):
            if len(found) >= size:
                break
            found.update((id(paragraph), paragraph) for paragraph in one.draw(rng))
        return list(found.values())[:size]

    def _columns(self, batch: Batch, terms: Sequence[int]) -> scipy.sparse.csr_matrix:
        """`(n_candidates, vocabulary)`: eq. 4 to 6 for the terms that are asked."""
        kept = np.zeros(len(self.model.term_matrix()), dtype=np.float32)
        kept[list(terms)] = 1
        only = scipy.sparse.diags(kept, format="csr")
        candidates = batch.candidates
        order = sorted(range(len(candidates)), key=lambda i: candidates[i].context or candidates[i].text)
        parts = []
        for first in range(0, len(order), READ_AT_ONCE):
            texts = [candidates[i] for i in order[first : first + READ_AT_ONCE]]
            part = self.model.encode_document(texts) @ only
            part.eliminate_zeros()
            parts.append(part)
        rows = scipy.sparse.vstack(parts, format="csr")
        return rows[np.argsort(order)].astype(np.float32)

    def _of(self, batch: Batch, terms: Sequence[int]) -> str:
        """Name what columns are made of: texts, terms and the model that reads them."""
        digest = hashlib.sha256(repr((batch.candidates, terms, self.model.config)).encode())
        for name, tensor in self.model.state_dict().items():
            if name != QUERY_WEIGHTS:
                digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    def facts(self) -> dict[str, Any]:
        """And how terms are chosen, how large the pools are, what weights cost."""
        return {
            **super().facts(),
            "pool": POOL,
            "held_back": HELD_BACK,
            "asked_at_once": ASKED_AT_ONCE,
            "stretches": [STRETCHES, LEFT_OUT],
            "sharper": [list(SHARPER), SHARPENED_ON],
        }
