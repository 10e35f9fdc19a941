"""Trains one encoder for several skills, with the trainer of all models (Chain-of-Skills, §3.1 to §3.3)."""

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

from dense.encoding.skills import Skills
from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from dense.models.skill_checkpoints import begin_skills
from dense.models.skill_config import (
    ASSIGNMENTS,
    ATTENTION,
    ENCODER,
    LINK,
    NONE,
    RERANK,
    SINGLE,
    SKILLS,
    SPAN,
    SkillConfig,
)
from dense.training.skill_batches import TARGET_READER, BatchMaker, SkillBatch, query_reader
from dense.training.skill_examples import SkillSet, hold_out
from dense.training.skill_losses import SpanScores, ranking_loss, span_loss
from dense.training.skill_scores import SkillScores
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
"""Factors of the learning rate, by the prefix of a parameter's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRecipe(TrainSettings):
    """The options of training skills.

    A batch has one skill of one set, drawn by the sets' weights. A query's negatives are the other queries'
    positives and `negatives` hard negatives of its example. A text has `spans` spans that are no entities.
    `placement` says where the experts are, `assignment` which expert reads which input. With `markers`, the
    class of the task is put before a question. With `query_experts`, each class has a separate query encoder,
    with one shared passage encoder (Maillard et al., 2021, §3.1); they are experts at `placement`. With the
    placement encoder, all experts that the skills use are separate encoders: two for single retrieval. If all
    questions have a class, the class with the most questions also encodes questions without a class.
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

        :param general: the task whose query encoder encodes questions of all other tasks
        """
        if self.query_experts and self.placement == NONE:
            raise InputError(
                "query experts need a placement of experts, but the placement is none",
                remedy=remedy("omit {}, or omit {}", Option("query_experts"), Option("placement", NONE)),
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
                f"unknown assignment {self.assignment!r}; known assignments: {', '.join(ASSIGNMENTS)}"
            )
        skill_config = SkillConfig(tuple(skills), dict(ASSIGNMENTS[self.assignment]), self.placement)
        skill_config = skill_config.for_tasks(
            tasks, markers=self.markers, own_encoders=self.query_experts, general=general
        )
        if self.placement == ENCODER:  # an encoder that no skill reads would fill memory
            skill_config = skill_config.without_unread()
        model = begin_skills(self.encoder, plain.with_skills(skill_config, self.period))
        model.config = replace(model.config, question_length=self.question_length)
        for option in ("max_length", "question_length"):
            check_length(getattr(self, option), encoder_config(model.passage_encoder), option=option)
        return model.to(training_device(self.device))


class Validation(Protocol):
    """Measures a model during training, instead of held-out examples."""

    facts: Mapping[str, Any]
    """Facts that must be equal when a training is resumed."""

    def __call__(self, model: DenseModel) -> float:
        """Return the measure, between 0 and 1."""


def general_task(sets: Sequence[SkillSet]) -> str:
    """Return the task with the most questions if every question has a task, else "".

    This task's query encoder encodes the questions without a task.
    """
    sizes = Counter[str]()
    for data in sets:
        if data.skill == SINGLE:
            sizes[data.task] += len(data.examples)
    return "" if "" in sizes or not sizes else max(sorted(sizes), key=sizes.__getitem__)


class SkillTraining(TrainingRun[DenseModel]):
    """The training of skills: batches, losses and validation."""

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
                "no training file is named: training needs examples of a skill",
                remedy=remedy("name a training file, for example: {}", Option("single", "FILE")),
            )
        for data in sets:
            data.check()
        torch.manual_seed(recipe.seed)
        trained = {data.skill for data in sets}
        tasks = sorted({item.task for item in sets if item.task and item.skill == SINGLE})
        model = recipe.model([item for item in SKILLS if item in trained], tasks, general_task(sets))
        self.sets, self.held_out = hold_out(sets, 0 if validation else recipe.held_out)
        facts = {
            "model": model.config.as_dict(),
            **({"validation": dict(validation.facts)} if validation else {}),
            "sets": [
                [item.name, item.skill, item.fingerprint(), item.weight, item.batch_size, item.task]
                for item in self.sets
            ],
        }
        schedule, encoders = trainer_config(recipe, model.device), [model.passage_encoder]
        super().__init__(model, schedule, folder, recipe, facts, encoders=encoders, dropout=recipe.dropout)
        self.recipe, self.validation, self.skills = recipe, validation, Skills(model)
        self.scored = SkillScores(model, self.skills.experts)
        self.validated = tuple(data.name for data in self.held_out or self.sets)
        if validation or self.held_out:
            measure = validation.facts["measure"] if validation else MEASURE
            self.measured_on = f" ({measure}, in percent)"
        else:  # the last step is the model
            self.figure, self.validated = None, ()
        self.batches = BatchMaker(self.skills, recipe.negatives, recipe.spans)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the optimizer's groups. The scale and the span head have a higher learning rate."""

        def factor(name: str) -> float:
            return next((rate for start, rate in FASTER.items() if name.startswith(start)), 1.0)

        order = [1.0, *FASTER.values()]
        return rate_groups(
            sorted(self.model.named_parameters(), key=lambda named: order.index(factor(named[0]))), factor
        )

    # ------------------------------------------------------------------ batches and losses

    def batch(self, step: int) -> SkillBatch:
        """Return the batch of a step. It depends only on the seed and the step.

        All processes use the same set in a step, each with different examples.
        """
        shared_rng = random.Random(f"{self.recipe.seed} {step // self.processes}")
        chosen = shared_rng.choices(self.sets, [data.weight for data in self.sets])[0]
        return self.batches.draw(chosen, random.Random(f"{self.recipe.seed} batch {step}"))

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss of a step, and the loss as a number by the name of the skill, for the log."""
        batch = self.batch(step)
        loss = self.batch_loss(batch)
        return loss, {batch.skill: float(loss.detach())}

    def batch_loss(self, batch: SkillBatch) -> torch.Tensor:
        """Return the loss of a batch.

        Chain-of-Skills has it as eq. 1 for single and expanded queries, 2 and 3 for spans, 4 for links, 5 for
        pairs.
        """
        if batch.skill == SPAN:
            entities, thresholds = span_loss(self._span_scores(batch))
            return (entities + thresholds) / 2
        if batch.skill == RERANK:
            return ranking_loss(self.scored.pair_scores(batch.queries).view(-1, batch.width), batch.gold)
        return ranking_loss(self.scores(batch), batch.gold, batch.masked)

    def scores(self, batch: SkillBatch) -> torch.Tensor:
        """Return the dot products of a batch, `(n_queries, n_candidates)`."""
        if batch.skill == LINK:
            queries = self.scored.mentions(batch.queries)
        else:
            queries = self.scored.vectors(query_reader(self.skills, batch.skill, batch.task), batch.queries)
        targets = self.scored.vectors(TARGET_READER[batch.skill], batch.candidates)
        with torch.autocast(self.model.device.type, enabled=False):  # bf16 is too coarse for scores
            return queries.float() @ targets.float().T

    def _span_scores(self, batch: SkillBatch) -> list[SpanScores]:
        spans = [[*gold, *others] for gold, others in zip(batch.entities, batch.others, strict=True)]
        text_scores = self.scored.span_scores(batch.queries, spans)
        counts = [len(entities) for entities in batch.entities]
        return [SpanScores(s[:n], s[n:], t) for (s, t), n in zip(text_scores, counts, strict=True)]

    def validate(self) -> float:
        """Return `validation`'s result, or else the mean measure of the held-out sets.

        The measure is the reciprocal rank of the positive; for spans it is F1.
        """
        if self.validation:
            return self.validation(self.model)
        figures = [validate_set(self.skills, data) for data in self.held_out]
        for data, figure in zip(self.held_out, figures, strict=True):
            logger.info("%s (%s): %.3f", data.name, data.skill, figure)
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
    """Train one encoder for the skills of these sets. The best model and its card end in `output/best`.

    :param command: the command that the card shows; empty shows the recipe
    :param validation: measures the model, to choose the best; None uses held-out examples
    """
    output = check_output(output, resume=resume)
    rows = [
        (data.skill, data.name, f"{data.weight:g}", f"{len(data.examples):,}", f"`{data.fingerprint()}`")
        for data in sets
    ]
    table = [("skill", "set", "weight", "examples", "fingerprint"), *rows]
    training = SkillTraining(recipe, sets, output, validation)
    return training.train(recipe, table, resume=resume, command=command)
