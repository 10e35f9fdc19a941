"""Training one encoder for several skills, on the trainer of all models (Chain-of-Skills, §3.1 to §3.3)."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from dense.models.skill_checkpoints import begin_skills
from dense.models.skill_config import (
    ASSIGNMENTS,
    ATTENTION,
    LINK,
    NONE,
    RERANK,
    SINGLE,
    SKILLS,
    SPAN,
    SkillConfig,
)
from dense.models.skills import Skills
from dense.training.skill_batches import TARGET_READER, BatchMaker, SkillBatch, query_reader
from dense.training.skill_examples import SkillSet, hold_out
from dense.training.skill_losses import SpanScores, ranking_loss, span_loss
from dense.training.skill_validation import validate_set
from dense.training.train import SCALE_RATE
from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy
from sparta.neural.backbones import encoder_config
from sparta.neural.inputs import InputLayout
from sparta.neural.processes import training_device
from sparta.neural.stored import check_length
from sparta.training.model_card import SKILLS as SKILLS_CARD
from sparta.training.options import TrainResult, TrainSettings
from sparta.training.run import TrainingRun, check_output, rate_groups, trainer_config

logger = logging.getLogger("sparta.dense")
MEASURE = "mean over the sets of reciprocal rank, of spans F1"
FASTER = {"log_scale": SCALE_RATE, "spans.": 10.0}
"""Factors of the learning rate, by how parameters' names begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRecipe(TrainSettings):
    """How skills are trained.

    A batch is of one skill of one set, drawn by the sets' weights. Queries have the positives of the others
    as negatives, and `negatives` hard ones of their own; a text has `spans` spans that are no entities.
    `placement` says where the experts are, `assignment` which of them reads what. With `markers` the class of
    a task stands before its questions, with `query_experts` each class has a query encoder of its own, beside
    one passage encoder (Maillard et al., 2021, §3.1): experts where `placement` has them. Where every
    question is of a class, that of the class with most of them reads other questions too.
    """

    encoder: str
    placement: str = ATTENTION
    assignment: str = "paper"
    period: int = 2
    markers: bool = False
    query_experts: bool = False
    pooling: str = "cls"
    cosine: bool = False
    separate_title: bool = True
    max_length: int = 256
    question_length: int = 64
    negatives: int = 1
    spans: int = 30
    dropout: float = 0.0
    held_out: int = 100
    checkpoint_every: int = 200

    def model(self, skills: Sequence[str], tasks: Sequence[str] = (), general: str = "") -> DenseModel:
        """Return the untrained model for these skills and tasks, on its device.

        :param general: the task whose query encoder, if each has one, reads all other questions
        """
        if self.query_experts and self.placement == NONE:
            raise InputError(
                "expected experts in attention or feed-forward with query experts, found none",
                remedy=remedy("leave out {}, or {}", Option("query_experts"), Option("placement", NONE)),
            )
        layout = InputLayout(
            use_title=True,
            answer_segment=0,
            max_length=self.max_length,
            overlap=0,
            separate_title=self.separate_title,
        )
        plain = DenseConfig(
            layout, pooling=self.pooling, cosine=self.cosine, question_length=self.question_length
        )
        if self.assignment not in ASSIGNMENTS:
            raise InputError(
                f"expected an assignment among {', '.join(ASSIGNMENTS)}, found {self.assignment!r}"
            )
        wanted = SkillConfig(tuple(skills), dict(ASSIGNMENTS[self.assignment]), self.placement)
        wanted = wanted.for_tasks(
            tasks, markers=self.markers, own_encoders=self.query_experts, general=general
        )
        model = begin_skills(self.encoder, plain.with_skills(wanted, self.period))
        model.config = replace(model.config, question_length=self.question_length)
        for option in ("max_length", "question_length"):
            check_length(getattr(self, option), encoder_config(model.passage_encoder), option=option)
        return model.to(training_device(self.device))


class Validation(Protocol):
    """Measures a model in training by other means than held-out examples."""

    facts: Mapping[str, Any]
    """What must be the same for a training to be continued."""

    def __call__(self, model: DenseModel) -> float:
        """Return the figure, between 0 and 1."""


def general_task(sets: Sequence[SkillSet]) -> str:
    """The task with most questions, where each question is of a task: what reads those of no task then."""
    sizes = Counter[str]()
    for one in sets:
        if one.skill == SINGLE:
            sizes[one.task] += len(one.examples)
    return "" if "" in sizes or not sizes else max(sorted(sizes), key=sizes.__getitem__)


class SkillTraining(TrainingRun[DenseModel]):
    """The training of skills: batches, losses, validation."""

    kind = SKILLS_CARD

    def __init__(
        self,
        recipe: SkillRecipe,
        sets: Sequence[SkillSet],
        folder: Path,
        validation: Validation | None = None,
    ) -> None:
        if not sets:
            raise InputError(
                "expected examples of a skill, found none",
                remedy=remedy("name a file: {}", Option("single", "FILE")),
            )
        for each in sets:
            each.check()
        torch.manual_seed(recipe.seed)
        trained = {each.skill for each in sets}
        tasks = sorted({s.task for s in sets if s.task and s.skill == SINGLE})
        model = recipe.model([s for s in SKILLS if s in trained], tasks, general_task(sets))
        self.sets, self.held_out = hold_out(sets, 0 if validation else recipe.held_out)
        facts = {
            "model": model.config.as_dict(),
            **({"validation": dict(validation.facts)} if validation else {}),
            "sets": [[s.name, s.skill, s.fingerprint(), s.weight, s.batch_size, s.task] for s in self.sets],
        }
        schedule, encoders = trainer_config(recipe, model.device), [model.passage_encoder]
        super().__init__(model, schedule, folder, recipe, facts, encoders=encoders, dropout=recipe.dropout)
        self.recipe, self.validation, self.skills = recipe, validation, Skills(model)
        self.validated = tuple(each.name for each in self.held_out or self.sets)
        measure = validation.facts["measure"] if validation else MEASURE
        self.measured_on = f" ({measure}, in percent)"
        self.batches = BatchMaker(self.skills, recipe.negatives, recipe.spans)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The encoder; the scale and the span head learn faster."""

        def factor(name: str) -> float:
            return next((rate for start, rate in FASTER.items() if name.startswith(start)), 1.0)

        order = [1.0, *FASTER.values()]
        return rate_groups(
            sorted(self.model.named_parameters(), key=lambda named: order.index(factor(named[0]))), factor
        )

    # ------------------------------------------------------------------ batches and losses

    def batch(self, step: int) -> SkillBatch:
        """Return the batch of a step, a function of seed and step alone.

        Processes of one step take the same set, and examples of their own.
        """
        together = random.Random(f"{self.recipe.seed} {step // self.processes}")
        chosen = together.choices(self.sets, [s.weight for s in self.sets])[0]
        return self.batches.draw(chosen, random.Random(f"{self.recipe.seed} batch {step}"))

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss of the step's skill, which is also what is logged, by its name."""
        batch = self.batch(step)
        loss = self.batch_loss(batch)
        return loss, {batch.skill: float(loss.detach())}

    def batch_loss(self, batch: SkillBatch) -> torch.Tensor:
        """Eq. 1 for single and expanded queries, 2 and 3 for spans, 4 for links, 5 for reranking."""
        if batch.skill == SPAN:
            entities, thresholds = span_loss(self._span_scores(batch))
            return (entities + thresholds) / 2
        if batch.skill == RERANK:
            return ranking_loss(self.skills.pair_scores(batch.queries).view(-1, batch.width), batch.gold)
        return ranking_loss(self.scores(batch), batch.gold, batch.masked)

    def scores(self, batch: SkillBatch) -> torch.Tensor:
        """`(n_queries, n_candidates)`: dot products."""
        if batch.skill == LINK:
            queries = self.skills.mentions(batch.queries)
        else:
            queries = self.skills.vectors(query_reader(self.skills, batch.skill, batch.task), batch.queries)
        targets = self.skills.vectors(TARGET_READER[batch.skill], batch.candidates)
        with torch.autocast(self.model.device.type, enabled=False):  # bf16 has too few digits for scores
            return queries.float() @ targets.float().T

    def _span_scores(self, batch: SkillBatch) -> list[SpanScores]:
        spans = [[*own, *others] for own, others in zip(batch.entities, batch.others, strict=True)]
        found = self.skills.span_scores(batch.queries, spans)
        counts = [len(own) for own in batch.entities]
        return [SpanScores(s[:n], s[n:], t) for (s, t), n in zip(found, counts, strict=True)]

    def validate(self) -> float:
        """Mean over the held-out sets: reciprocal rank of the positive, of spans F1; or `validation`."""
        if self.validation:
            return self.validation(self.model)
        figures = [validate_set(self.skills, each) for each in self.held_out]
        for each, figure in zip(self.held_out, figures, strict=True):
            logger.info("%s (%s): %.3f", each.name, each.skill, figure)
        return float(np.mean(figures)) if figures else 0.0


def train_skills(
    sets: Sequence[SkillSet],
    recipe: SkillRecipe,
    output: str | Path,
    *,
    resume: bool = False,
    command: str = "",
    validation: Validation | None = None,
) -> TrainResult:
    """Train one encoder for the skills of these sets; the best ends in `output/best`, with its card.

    :param command: what the card names as the command; otherwise the recipe
    :param validation: chooses the best model; without it, held-out examples do
    """
    output = check_output(output, resume=resume)
    rows = [
        (each.skill, each.name, f"{each.weight:g}", f"{len(each.examples):,}", f"`{each.fingerprint()}`")
        for each in sets
    ]
    table = [("skill", "set", "weight", "examples", "fingerprint"), *rows]
    training = SkillTraining(recipe, sets, output, validation)
    return training.train(recipe, table, resume=resume, command=command)
