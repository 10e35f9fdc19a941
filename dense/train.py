"""Training bi-encoders (DPR, eq. 2; TASER, eq. 3) on the trainer that SPARTA uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dense.encoders import DenseConfig, DenseModel
from sparta.base.records import Passage
from sparta.inputs import CONTEXT, InputLayout
from sparta.neural.encoding import pick_dtype
from sparta.neural.trainer import TrainerConfig, training_device
from sparta.ranking import RankingConfig, RankingTraining, check_length, check_output
from sparta.teachers import Teacher, open_teacher
from sparta.tokenize import QueryTokenizer
from sparta.train import TrainResult
from sparta.traindata import ParagraphSet, Scorer

SCALE_RATE = 100.0
ENTROPY_WEIGHT = 0.01


class DenseTraining(RankingTraining[DenseModel, torch.Tensor]):
    """One training run of a dual encoder or a Poly-Encoder."""

    def __init__(
        self,
        model: DenseModel,
        sets: Sequence[ParagraphSet],
        config: RankingConfig,
        folder: Path,
        teacher: Teacher | None = None,
    ) -> None:
        encoders = [model.passage_encoder, model.question_encoder]
        super().__init__(model, encoders, QueryTokenizer(model.tokenizer), sets, config, folder, teacher)
        longest = min(config.max_tokens, model.config.layout.max_length)
        self.layout = replace(model.config.layout, max_length=longest, overlap=0)

    def ask(self, questions: Sequence[str]) -> torch.Tensor:
        """`(n, width)`."""
        return self.model.questions(questions)

    def score(self, asked: torch.Tensor, candidates: Sequence[Passage]) -> torch.Tensor:
        """Eq. 3: the dot product."""
        inputs = [self.layout.windows(c, self.model.tokenizer)[0] for c in candidates]
        numbers: dict[tuple[int, ...], int] = {}
        rows = [numbers.setdefault(tuple(i.ids), len(numbers)) for i in inputs]
        order = sorted(range(len(inputs)), key=lambda i: rows[i])  # those of the same tokens side by side
        vectors = self.model.passages([inputs[i] for i in order])
        back = torch.tensor(order, device=vectors.device).argsort()
        with torch.autocast(self.device.type, enabled=False):  # bf16 has too few digits to tell scores apart
            return self.model.score(asked.float(), vectors[back].float())

    def facts(self) -> dict[str, Any]:
        """Layout and form of the model."""
        return {"model": asdict(self.model.config)}

    def scorer(self, candidates: Sequence[Passage]) -> Scorer:
        """Exact search in NumPy."""
        vectors = torch.from_numpy(self.model.encode_passages(candidates))

        def scores(asked: Sequence[str]) -> npt.NDArray[np.float32]:
            return self.model.score(torch.from_numpy(self.model.encode_questions(asked)), vectors).numpy()

        return scores

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Eq. 3 over sentences and paragraphs; learned routers are kept from one choice (eq. 5, 6).

        §3.1 wants the entropy to keep inputs from all going to one expert, so it is raised: it is subtracted
        here, as in the released code, where eq. 6 as printed would lower it.
        """
        batch = self.batch(step)
        asked = self.ask(batch.questions)
        entropy = self.model.entropy()
        ranking = self.ranking(self.score(asked, batch.candidates), batch)
        entropy = (entropy + self.model.entropy()) / 2
        logs = {"ranking": float(ranking.detach()), "entropy": float(entropy.detach())}
        return ranking - ENTROPY_WEIGHT * entropy, logs

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Encoders and codes; the scale, which is one number, learns faster."""
        scale = self.model.log_scale
        return [
            {"params": [p for p in self.model.parameters() if p is not scale]},
            {"params": [scale], "factor": SCALE_RATE},
        ]

    def save_best(self) -> None:
        """Write the model in full precision."""
        self.model.save_pretrained(self.folder / "best")


def train_dense(
    sets: Sequence[ParagraphSet],
    *,
    encoder: str,
    output: Path,
    steps: int,
    learning_rate: float,
    validate_every: int,
    seed: int,
    codes: int = 0,
    shared: bool = True,
    routing: str = "",
    experts: int = 2,
    period: int = 3,
    pooling: str = "mean",
    cosine: bool = True,
    alone: bool = False,
    accumulate: int = 1,
    max_length: int = 256,
    mined: bool = True,
    mine_every: int = 0,
    teachers: Sequence[str] = (),
    resume: bool = False,
    device: str | None = None,
) -> TrainResult:
    """Train a bi-encoder from a pretrained encoder; the best by validation MRR ends in `output/best`.

    Answers are read inside their context, as SPARTA reads them: the same tokens, pooled into vectors. With
    `alone`, and always with `pooling` cls, a sentence is read with its title and without the context.
    """
    check_output(output, resume=resume)
    torch.manual_seed(seed)
    alone = alone or pooling == "cls"
    layout = InputLayout(
        use_title=True,
        use_context=not alone,
        answer_segment=CONTEXT,
        share_context=not alone,
        max_length=max_length,
        overlap=max_length // 8,
    )
    config = DenseConfig(layout, codes, shared, routing, experts, period, pooling, cosine)
    model = DenseModel.from_encoder(encoder, config).to(training_device(device))
    check_length(model.passage_encoder, max_length)
    trainer = TrainerConfig(
        steps=steps,
        learning_rate=learning_rate,
        clip=2.0,
        accumulate=accumulate,
        bf16=pick_dtype("auto", model.device) == torch.bfloat16,
        seed=seed,
        validate_every=validate_every,
    )
    teacher = open_teacher(teachers, sets, QueryTokenizer(model.tokenizer), str(model.device))
    training = DenseTraining(
        model, sets, RankingConfig(trainer=trainer, mined=mined, mine_every=mine_every), output, teacher
    )
    state = training.run(resume=resume)
    return TrainResult(output / "best", state.best, state.best_step)
