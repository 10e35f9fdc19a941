"""The common part of all readers' trainings: options, epochs, learning rates by layer, loss of spans."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy
from sparta.reader.path_model import PathModel
from sparta.reader.span_reader import SpanReader
from sparta.reader.windows import Window
from sparta.training.options import TrainSettings
from sparta.training.run import TrainingRun, layer_factors, rate_groups, trainer_config

HEAD_RATE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRecipe(TrainSettings):
    """The options of all readers' trainings.

    A batch has `batch_size` questions. Each layer of the encoder has `layer_decay` times the learning rate of
    the layer above, unless the layers share their weights, as in ALBERT.
    """

    batch_size: int
    layer_decay: float = 1.0
    held_out: int
    dropout: float = 0.0


class ReadingTraining[M: SpanReader | PathModel, E](TrainingRun[M]):
    """The training of a reader on examples of type `E`.

    Parameters whose names start with one of `heads` have a higher learning rate; lower layers have lower
    rates.
    """

    heads: tuple[str, ...] = ("spans.",)

    def __init__(
        self,
        recipe: ReadingRecipe,
        model: M,
        examples: Sequence[E],
        held_out: Sequence[E],
        folder: Path,
        fingerprint: str,
    ) -> None:
        schedule = trainer_config(recipe, model.device, clip=1.0, checkpoint_every=recipe.validate_every)
        encoders, facts = [model.encoder], {"examples": fingerprint}
        super().__init__(model, schedule, folder, recipe, facts, encoders=encoders, dropout=recipe.dropout)
        self.examples, self.held_out = examples, held_out
        self.measured_on = f", on {len(held_out)} held-out questions"
        self._epoch: tuple[int, list[list[int]]] = (-1, [])

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return Adam's groups: the heads, and the encoder by layer."""
        named = list(self.model.named_parameters())
        layer_factor = layer_factors([name for name, _ in named], self.settings.layer_decay)
        return rate_groups(
            named, lambda name: HEAD_RATE if name.startswith(self.heads) else layer_factor(name)
        )

    def numbers(self, step: int) -> tuple[list[int], random.Random]:
        """Return the numbers of a step's examples and a random generator, both set by seed and step alone."""
        size = self.settings.batch_size
        epoch, batch_number = divmod(step, len(self.examples) // size)
        if self._epoch[0] != epoch:
            draw = random.Random(f"{self.schedule.seed} epoch {epoch}")
            shuffled = draw.sample(range(len(self.examples)), len(self.examples))
            self._epoch = epoch, self.cut(shuffled, size, draw)
        return self._epoch[1][batch_number], random.Random(f"{self.schedule.seed} {step}")

    def cut(self, order: Sequence[int], size: int, draw: random.Random) -> list[list[int]]:
        """Split an epoch's examples into batches."""
        return [[*order[i : i + size]] for i in range(0, len(order) - size + 1, size)]


def check_enough(examples: Sequence[Any], batch_size: int) -> None:
    """Raise if there are fewer examples than a batch has."""
    if len(examples) < batch_size:
        raise InputError(
            f"a batch needs {batch_size} training questions, found {len(examples)}",
            remedy=remedy("add data, or set a smaller {} or {}", Option("batch_size"), Option("held_out")),
        )


def check_different(files: Sequence[Path]) -> None:
    """Raise if a file occurs twice."""
    if len({path.resolve() for path in files}) < len(files):
        raise InputError("the same file is named twice", remedy="name each file once")


def targets(window: Window, spans: Sequence[tuple[int, int]], longest: float = inf) -> list[tuple[int, int]]:
    """Return the first and last window position of each answer that lies completely in the window.

    Tokenizers drop some characters, such as control characters, so an answer may begin or end without a
    wordpiece. Such an answer is complete if the window has a wordpiece before it and a wordpiece after it.

    :param longest: the number of wordpieces that an answer may have
    """
    positions, offsets = [], window.offsets
    for start, end in spans:
        inside = [i for i, (a, b) in enumerate(offsets) if max(a, start) < min(b, end)]
        if not inside:
            continue
        first, last = inside[0], inside[-1]
        has_start = first > 0 or offsets[first][0] <= start
        has_end = last < len(offsets) - 1 or offsets[last][1] >= end
        if has_start and has_end and last - first < longest:
            positions.append((window.text_start + first, window.text_start + last))
    return positions


def span_loss(
    scores: torch.Tensor, spans: Sequence[Sequence[tuple[int, int]]], *, no_answer: bool = True
) -> torch.Tensor:
    """Return the loss of scores `(2, windows, length)`: minus the log-likelihood of right starts and ends.

    Without a right span, "no answer" is right; its score is 0.

    :param no_answer: whether "no answer" is one of the possible results
    """
    total = functional.pad(scores.flatten(1), (0, int(no_answer))).logsumexp(1)
    if not any(spans):
        return total.mean()
    right_scores = [
        torch.stack([scores[side, row, at] for row, at in places])
        for side in (0, 1)
        for places in [
            dict.fromkeys((row, span[side]) for row, row_spans in enumerate(spans) for span in row_spans)
        ]
    ]
    return (total[0] - right_scores[0].logsumexp(0) + total[1] - right_scores[1].logsumexp(0)) / 2
