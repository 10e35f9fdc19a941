"""What the trainings of all readers share: options, epochs, learning rates by layer, the loss of spans."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy
from sparta.reader.path_reader import PathReader
from sparta.reader.span_reader import SpanReader
from sparta.reader.windows import Window
from sparta.training.options import TrainSettings
from sparta.training.run import TrainingRun, rate_groups, trainer_config

HEAD_RATE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRecipe(TrainSettings):
    """Options that the trainings of all readers share.

    A batch has `batch_size` questions. `layer_decay` multiplies the learning rate once for every layer above.
    """

    batch_size: int
    layer_decay: float = 1.0
    held_out: int
    dropout: float = 0.0


class ReadingTraining[M: SpanReader | PathReader, E](TrainingRun[M]):
    """The training of a reader on examples `E`.

    Parameters whose names begin with one of `heads` learn faster, layers below the highest slower.
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
        """Heads, and the encoder layer by layer; what is no part of a layer learns as one below all does."""

        def factor(name: str) -> float:
            if name.startswith(self.heads):
                return HEAD_RATE
            parts = name.split(".")
            layer = int(parts[parts.index("layer") + 1]) if "layer" in parts else -1
            return float(self.settings.layer_decay ** (self.model.encoder_depth - 1 - layer))

        return rate_groups(self.model.named_parameters(), factor)

    def numbers(self, step: int) -> tuple[list[int], random.Random]:
        """Return the numbers of a batch's examples, and what else it draws from: a function of the step."""
        size = self.settings.batch_size
        epoch, at = divmod(step, len(self.examples) // size)
        if self._epoch[0] != epoch:
            draw = random.Random(f"{self.schedule.seed} epoch {epoch}")
            shuffled = draw.sample(range(len(self.examples)), len(self.examples))
            self._epoch = epoch, self.cut(shuffled, size, draw)
        return self._epoch[1][at], random.Random(f"{self.schedule.seed} {step}")

    def cut(self, order: Sequence[int], size: int, draw: random.Random) -> list[list[int]]:
        """Cut an epoch's examples into batches."""
        return [[*order[i : i + size]] for i in range(0, len(order) - size + 1, size)]


def check_enough(examples: Sequence[Any], batch_size: int) -> None:
    """Refuse fewer examples than a batch has."""
    if len(examples) < batch_size:
        raise InputError(
            f"expected a batch of {batch_size} questions to train on, found {len(examples)}",
            remedy=remedy("give more data, or a smaller {} or {}", Option("batch_size"), Option("held_out")),
        )


def check_different(files: Sequence[Path]) -> None:
    """Refuse a file that is named twice."""
    if len({path.resolve() for path in files}) < len(files):
        raise InputError("expected different files, found one twice", remedy="name each file once")


def targets(window: Window, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """First and last position in the window of each answer that it holds as a whole.

    An answer may begin or end with what no wordpiece has, as a control character, which tokenizers drop: it
    is whole where a wordpiece stands before it and one behind it.
    """
    found, offsets = [], window.offsets
    for start, end in spans:
        inside = [i for i, (a, b) in enumerate(offsets) if a < end and b > start]
        if not inside:
            continue
        first, last = inside[0], inside[-1]
        begun = first > 0 or offsets[first][0] <= start
        ended = last < len(offsets) - 1 or offsets[last][1] >= end
        if begun and ended:
            found.append((window.text_start + first, window.text_start + last))
    return found


def span_loss(
    scores: torch.Tensor, spans: Sequence[Sequence[tuple[int, int]]], *, no_answer: bool = True
) -> torch.Tensor:
    """`scores (2, windows, length)`; without a right span, "no answer", whose score is 0, is right.

    :param no_answer: whether that is among what may be right
    """
    total = functional.pad(scores.flatten(1), (0, int(no_answer))).logsumexp(1)
    if not any(spans):
        return total.mean()
    right = [
        torch.stack([scores[side, row, at] for row, at in places])
        for side in (0, 1)
        for places in [dict.fromkeys((row, pair[side]) for row, own in enumerate(spans) for pair in own)]
    ]
    return (total[0] - right[0].logsumexp(0) + total[1] - right[1].logsumexp(0)) / 2
