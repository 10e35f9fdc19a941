"""Trains bi-encoders (DPR, eq. 2; TASER, eq. 3) with SPARTA's trainer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from dense.models.bi_encoder import DenseModel
from dense.models.checkpoints import begin_from
from dense.models.config import DenseConfig
from dense.training.gather import read_in_shares
from dense.training.teacher import open_bi_encoder
from sparta.base.records import Passage
from sparta.models.query_encoder import QueryTokenizer
from sparta.neural.backbones import encoder_config
from sparta.neural.inputs import CONTEXT, InputLayout
from sparta.neural.processes import training_device
from sparta.neural.stored import check_length
from sparta.training.model_card import DENSE
from sparta.training.negatives import Scorer
from sparta.training.options import TrainOptions, TrainResult, fields_of
from sparta.training.paragraphs import NEGATIVES, ParagraphSet
from sparta.training.ranking import RankingConfig, RankingTraining, table_of
from sparta.training.run import check_output, layer_factors, rate_groups, trainer_config
from sparta.training.teachers import Teacher, open_teacher
from sparta.training.validation import RECIPROCAL

SCALE_RATE = 100.0
ENTROPY_WEIGHT = 0.01
_OF_PAPERS: dict[str, dict[str, Any]] = {
    "dpr": {"shared": False, "learning_rate": 1e-5},
    "taser": {"routing": "det", "learning_rate": 3e-5},
}
PAPER_RECIPES: dict[str, dict[str, Any]] = {
    name: {
        "pooling": "cls",
        "cosine": False,
        "separate_title": True,
        "context": False,
        "mined": False,
        "negatives": 1,
        "questions": 1,
        "train_length": 256,
        "dropout": 0.1,
        "validate_by": "average-rank",
        **settings,
    }
    for name, settings in _OF_PAPERS.items()
}
"""The settings of DPR (§5, appendix) and TASER (§3, appendix C), by the names of `Recipe`'s fields.

One hard negative per question comes from the training file (BM25's best passage without an answer). Questions
share the negatives of their batch of 128. TASER chooses 3e-5 or 5e-5 as its learning rate.
"""
PAPER_BATCH, PAPER_EPOCHS = 128, 40
"""The questions of a batch and the epochs, in both papers."""


def layer_groups(named: Iterable[tuple[str, nn.Parameter]], decay: float) -> list[dict[str, Any]]:
    """Return the optimizer's groups by layer, the highest factor first. Without decay there is one group."""
    named = list(named)
    factor = layer_factors([name for name, _ in named], decay)
    return rate_groups(sorted(named, key=lambda pair: -factor(pair[0])), factor)


def exact_scorer(model: DenseModel, candidates: Sequence[Passage]) -> Scorer:
    """Return a function that scores all candidates for questions. Each candidate is encoded once."""
    vectors = torch.from_numpy(model.encode_passages(candidates))

    def scores(queries: Sequence[str]) -> npt.NDArray[np.float32]:
        encoded = torch.from_numpy(model.encode_questions(queries))
        return model.score(encoded, vectors).numpy()

    return scores


class DenseTraining(RankingTraining[DenseModel, torch.Tensor]):
    """A training run of a bi-encoder or a Poly-Encoder."""

    kind, score_floor = DENSE, -math.inf

    def __init__(
        self,
        model: DenseModel,
        sets: Sequence[ParagraphSet],
        config: RankingConfig,
        folder: Path,
        teacher: Teacher | None = None,
        *,
        entropy: float = ENTROPY_WEIGHT,
        layer_decay: float = 1.0,
    ) -> None:
        encoders = [model.passage_encoder, model.question_encoder]
        super().__init__(model, encoders, QueryTokenizer(model.tokenizer), sets, config, folder, teacher)
        self.entropy, self.layer_decay = entropy, layer_decay
        self.negatives = sets[0].negatives

    def encode_queries(self, questions: Sequence[str]) -> torch.Tensor:
        """Return the vectors of questions, `(n, width)`."""
        return self._read_items(questions, self.model.questions)

    def score(self, queries: torch.Tensor, candidates: Sequence[Passage]) -> torch.Tensor:
        """Return the dot products of queries and candidates (eq. 3), `(n_queries, n_candidates)`."""
        inputs = self.layout.first_windows(candidates, self.model.tokenizer)
        numbers: dict[tuple[int, ...], int] = {}
        rows = [numbers.setdefault(tuple(i.ids), len(numbers)) for i in inputs]
        order = sorted(range(len(inputs)), key=lambda i: rows[i])  # makes equal inputs adjacent
        vectors = self._read_items([inputs[i] for i in order], self.model.passages)
        inverse_order = torch.tensor(order, device=vectors.device).argsort()
        with torch.autocast(self.device.type, enabled=False):  # bf16 is too coarse to rank close scores
            return self.model.score(queries.float(), vectors[inverse_order].float())

    def _read_items[T](self, items: Sequence[T], read: Callable[[Sequence[T]], torch.Tensor]) -> torch.Tensor:
        """Apply `read` to items.

        If a batch is shared, each process reads a part; validation runs in one process.
        """
        gather = self.ranking_config.gather and self.model.training
        return read_in_shares(items, read) if gather else read(items)

    def facts(self) -> dict[str, Any]:
        """Return the facts of the training, including entropy, layer decay and negatives if not default."""
        defaults = {"entropy": ENTROPY_WEIGHT, "layer_decay": 1.0, "negatives": NEGATIVES}
        values = {"entropy": self.entropy, "layer_decay": self.layer_decay, "negatives": self.negatives}
        return {**super().facts(), **dict(values.items() - defaults.items())}

    def scorer(self, candidates: Sequence[Passage]) -> Scorer:
        """Return an exact scorer of the candidates."""
        return exact_scorer(self.model, candidates)

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the ranking loss minus the weighted entropy of learned routers, and both for the log.

        These are TASER's eq. 3, and its eq. 5 and 6.

        The entropy must rise, so that routers do not send all inputs to one expert (§3.1). It is therefore
        subtracted, as in the released code; eq. 6 as printed would lower it.
        """
        batch = self.batch(step)
        queries = self.encode_queries(batch.questions)
        entropy = self.model.entropy()
        ranking = self.ranking_loss(self.score(queries, batch.candidates), batch)
        entropy = (entropy + self.model.entropy()) / 2
        logs = {"ranking": float(ranking.detach()), "entropy": float(entropy.detach())}
        return ranking - self.entropy * entropy, logs

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the optimizer's groups: encoder layers, codes, and the scale, which learns faster."""
        scale = self.model.log_scale
        named = [(name, p) for name, p in self.model.named_parameters() if p is not scale]
        return [*layer_groups(named, self.layer_decay), {"params": [scale], "factor": SCALE_RATE}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(TrainOptions):
    """The options of training a bi-encoder: TASER with `routing`, DPR without `shared`.

    By default an answer is encoded inside its context, as in SPARTA, and its tokens are pooled into a vector.
    Without `context`, and always with `pooling` cls, a sentence is encoded with its title only;
    `separate_title` puts [SEP] between them, as in DPR. `entropy` is the β of eq. 6 (TASER). `layer_decay`
    multiplies the learning rate once for every layer below the highest. `question_length` is the number of
    wordpieces of a question that are encoded, in training and in search; None keeps the start model's, or 64
    for a new model. A batch has at most `negatives` hard negatives per positive: DPR and TASER have one. With
    `gather`, the processes of torchrun share one batch, so that each question is ranked against the
    candidates of all processes.
    """

    codes: int = 0
    shared: bool = True
    routing: str = ""
    experts: int = 2
    period: int = 3
    pooling: str = "mean"
    cosine: bool = True
    separate_title: bool = False
    entropy: float = ENTROPY_WEIGHT
    layer_decay: float = 1.0
    negatives: int = NEGATIVES
    questions: int = 6
    question_length: int | None = None
    dropout: float = 0.0
    gather: bool = False
    validate_by: str = RECIPROCAL
    held_out: int = 120
    candidates: int = 80
    checkpoint_every: int = 200

    def model(self) -> DenseModel:
        """Return the untrained model, on its device."""
        context = self.context and self.pooling != "cls"
        layout = InputLayout(
            use_title=True,
            use_context=context,
            answer_segment=CONTEXT,
            share_context=context,
            max_length=self.max_length,
            overlap=self.max_length // 8,
            separate_title=self.separate_title and not context,
        )
        form = ("codes", "shared", "routing", "experts", "period", "pooling", "cosine")
        config = DenseConfig(layout, **{name: getattr(self, name) for name in form})
        model = begin_from(self.encoder, config).to(training_device(self.device))
        if self.question_length:
            model.config = replace(model.config, question_length=self.question_length)
        encoder = encoder_config(model.passage_encoder)
        check_length(self.max_length, encoder, option="max_length")
        check_length(model.config.question_length, encoder, option="question_length")
        return model

    def training(self, sets: Sequence[ParagraphSet], folder: Path) -> DenseTraining:
        """Return the training of a new model in a folder. The model depends only on `seed`."""
        torch.manual_seed(self.seed)
        model = self.model()
        config = RankingConfig(
            trainer=trainer_config(self, model.device),
            max_tokens=self.train_length,
            **fields_of(self, RankingConfig),
        )
        tokenizer = QueryTokenizer(model.tokenizer)
        sets = [replace(data, negatives=self.negatives) for data in sets]
        teacher = open_teacher(self.teachers, sets, tokenizer, str(model.device), [open_bi_encoder])
        training = DenseTraining(
            model, sets, config, folder, teacher, entropy=self.entropy, layer_decay=self.layer_decay
        )
        training.encoder = self.encoder
        return training


def train_dense(
    sets: Sequence[ParagraphSet],
    recipe: Recipe,
    output: str | Path,
    *,
    resume: bool = False,
    command: str = "",
) -> TrainResult:
    """Train a bi-encoder. The best model by validation ends in `output/best`, with its model card.

    :param command: the command that the card shows; empty shows the recipe
    """
    output = check_output(output, resume=resume)
    training = recipe.training(sets, output)
    return training.train(recipe, table_of(sets), resume=resume, command=command)
