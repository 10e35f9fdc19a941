"""Options of a training, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError
from sparta.base.remedies import Option, Remedy, remedy

TRAIN_LENGTH = 192
PAPER_DECIDES = (
    *("context", "segments", "tied", "lexical", "context_share", "pressure", "terms"),
    *("term_rate", "gain_rate", "mined", "mine_every", "teachers"),
)
"""Options that the recipe of the paper fixes."""
_SHORT = 60
"""Shorter values of settings stand in the message of an error."""
REPEAT = remedy(
    "repeat the original command with {}, or choose another {}", Option("resume"), Option("output")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """Options that all trainings share, beside data and folder.

    `encoder` is a pretrained encoder (folder or hub id). A step has `accumulate` batches.
    """

    encoder: str | None
    steps: int = 1100
    learning_rate: float = 5e-5
    validate_every: int = 200
    seed: int = 13
    accumulate: int = 1
    device: str | None = None

    def changed(self) -> dict[str, Any]:
        """Return the options that have no default, or another value than their default."""
        return {
            each.name: value
            for each in fields(self)
            if (value := getattr(self, each.name)) != each.default
            and (each.default_factory is MISSING or value != each.default_factory())
        }

    def __str__(self) -> str:
        changed = ", ".join(f"{name}={value!r}" for name, value in self.changed().items())
        return f"{type(self).__name__}({changed})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions(TrainSettings):
    """Options that the trainings of all retrievers share.

    `mined` adds hard negatives from BM25, and every `mine_every` steps the model mines them anew (0: never).
    `teachers` are `NAME[=WEIGHT]`, whose scores are distilled. Without `context`, an answer is read without
    its context. `max_length` is the longest text, in wordpieces, that the model reads at once, `train_length`
    the longest that it is trained on.
    """

    encoder: str
    max_length: int = 256
    train_length: int = TRAIN_LENGTH
    mined: bool = True
    mine_every: int = 0
    teachers: Sequence[str] = ()
    context: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SpartaRecipe(TrainOptions):
    """How a SPARTA model is trained.

    `encoder` may be a SPARTA model, which is then trained further and may itself stay the best. `pressure` is
    the weight of the vocabulary penalty; with `terms` it is adapted to the number of terms of a paragraph, in
    a new model from a hundredth of it: a term that the penalty drives to 0 does not come back. With
    `segments`, segment 1 marks the answer (SPARTA, §4). With `lexical`, a term weighs more when it stands in
    the answer, at first by BM25's measure (decision 0012). `context_share` of an answer's weights are those
    of its context (decision 0014): of a new model that shares contexts 0.4, of one that is trained further
    its own. `term_rate` and `gain_rate` multiply the learning rate of the term embeddings and of the gains:
    an encoder that was not pretrained learns faster than its terms may (decision 0024).

    `paper` trains as printed: the maximum of eq. 4 over all of the context, segment 1 for the answer, query
    embeddings that are the encoder's word embeddings, eq. 6 with a bias alone, no penalty, no teacher, no
    title, and eq. 7 over negatives sampled for each question, half random and half nearby (§3.2, §3.3). It
    has 8 negatives, a number that the paper does not print, and term embeddings and bias learn as fast as the
    encoder. Lengths, steps and learning rate are those of the options: the paper has 512 wordpieces, at most
    10,000 steps and 3e-5.
    """

    learning_rate: float = 1.5e-4
    pressure: float = 0.001
    terms: int | None = None
    segments: bool = False
    tied: bool = False
    lexical: bool = True
    context_share: float | None = None
    term_rate: float = 5.0
    gain_rate: float = 5.0
    full_precision: bool = False
    paper: bool = False

    def __post_init__(self) -> None:
        if self.paper and (others := sorted(self.changed().keys() & {*PAPER_DECIDES})):
            raise InputError(
                f"expected the recipe of the paper, which decides {', '.join(others)}, found others",
                remedy=remedy(f"leave out {{}}, or {', '.join(others)}", Option("paper")),
            )
        unused = {"term_rate": ("tied", self.tied), "gain_rate": ("lexical=False", not self.lexical)}
        for name, (other, without) in unused.items():
            if without and name in self.changed():
                raise InputError(f"{name} has no effect with {other}", remedy=f"leave out {name}, or {other}")


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """How long, how fast, how often; a checkpoint is written at each validation too.

    `warmup` is a share of the steps; `clip` bounds the gradient norm; the gradients of `accumulate` batches
    are averaged in one step.
    """

    steps: int
    learning_rate: float = 3e-5
    warmup: float = 0.1
    clip: float = 1.0
    accumulate: int = 1
    bf16: bool = True
    seed: int = 13
    validate_every: int = 200
    checkpoint_every: int = 200


@dataclass
class TrainerState:
    """How far training got and the best validation so far."""

    step: int = 0
    best: float = -math.inf
    best_step: int = 0


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Where the best model lies and how well it validated, at which step, on queries of which sets."""

    folder: Path
    validation: float
    step: int
    validated: tuple[str, ...] = ()
    reached: str = ""


def fields_of(recipe: TrainSettings, other: type) -> dict[str, Any]:
    """Return the options of a recipe that are fields of another dataclass too."""
    names = {each.name for each in fields(other)}
    return {each.name: getattr(recipe, each.name) for each in fields(recipe) if each.name in names}


def settings_of(recipe: Any) -> dict[str, Any]:
    """Return the settings of a recipe that must be the same when its training is resumed."""
    return {name: value for name, value in asdict(recipe).items() if name != "device"}


def check_same(
    stored: Mapping[str, Any],
    now: Mapping[str, Any],
    where: Path,
    *,
    remedies: Mapping[str, Remedy] | None = None,
) -> None:
    """Raise InputError unless what is on disk was begun with the same settings.

    :param remedies: what to do where a setting is the only one that differs
    """
    before, after = _flat(stored), _flat(now)
    differing = sorted(k for k in {*before, *after} if before.get(k) != after.get(k))
    if differing:
        values = [f"({after.get(k)!r}, was {before.get(k)!r})" for k in differing]
        shown = [f"{k} {v}" if len(v) < _SHORT else k for k, v in zip(differing, values, strict=True)]
        raise InputError(
            f"expected the same settings as before, found another {', '.join(shown)}",
            where=str(where),
            remedy=(remedies or {}).get(",".join(differing), REPEAT),
            facts={"differing": differing},
        )


def _flat(facts: Mapping[str, Any], head: str = "") -> dict[str, Any]:
    """Facts by their full names: those of a mapping follow its name."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        flat |= _flat(value, f"{head}{name}.") if isinstance(value, Mapping) else {f"{head}{name}": value}
    return flat
