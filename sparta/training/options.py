"""The options and the result of a training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError
from sparta.base.remedies import Option, Remedy, remedy

TRAIN_LENGTH = 192
PAPER_DECIDES = (
    *("context", "segments", "tied", "lexical", "context_share", "pressure", "terms"),
    *("term_rate", "gain_rate", "mined", "mine_every", "teachers"),
)
"""The options that the paper's recipe fixes."""
_SHORT = 60
"""Error messages show only values with fewer characters than this."""
REPEAT = remedy(
    "repeat the original command with {}, or choose another {}", Option("resume"), Option("output")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """The options that all trainings share, besides data and folder.

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
        """Return the options without a default, and the options that differ from their default."""
        return {
            option.name: value
            for option in fields(self)
            if (value := getattr(self, option.name)) != option.default
            and (option.default_factory is MISSING or value != option.default_factory())
        }

    def __str__(self) -> str:
        changed = ", ".join(f"{name}={value!r}" for name, value in self.changed().items())
        return f"{type(self).__name__}({changed})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions(TrainSettings):
    """The options that the trainings of all retrievers share.

    `mined` adds hard negatives from BM25, and every `mine_every` steps the model mines new ones (0 means
    never). `teachers` are `NAME[=WEIGHT]`; the training distills their scores. Without `context`, an answer
    is encoded without its context. `max_length` is the longest input of the model in wordpieces,
    `train_length` the longest input in training.
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
    """The options for training a SPARTA model.

    `encoder` may be a SPARTA model; the training then continues, and the model itself may stay the best.
    `pressure` is the weight of the vocabulary penalty. With `terms`, the pressure adapts to the number of
    terms of a paragraph; in a model that was trained before it starts at a hundredth of `pressure`, because a
    term that the penalty drives to 0 does not come back. With `segments`, segment 1 marks the answer (SPARTA,
    §4). With `lexical`, a term weighs more if it occurs in the answer, initially by BM25's formula (decision
    0012). `context_share` is the share of an answer's weights that comes from its context (decision 0014),
    by default 0.4 for a new model with shared contexts; a model that is trained further keeps its share.
    `term_rate` and `gain_rate` multiply the learning rates of the term embeddings and of the gains: an
    encoder without pretraining needs a higher rate than its terms tolerate (decision 0024).

    `paper` trains exactly as in the paper: the maximum of eq. 4 over the whole context, segment 1 for the
    answer, query embeddings equal to the encoder's word embeddings, eq. 6 with only a bias, no penalty, no
    teacher, no title, and eq. 7 over negatives sampled for each question, half random and half nearby (§3.2,
    §3.3). It uses 8 negatives, a number that the paper does not give, and the same learning rate for term
    embeddings, bias and encoder. Lengths, steps and learning rate come from the options: the paper has 512
    wordpieces, at most 10,000 steps and 3e-5.
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
        if self.paper and (changed_options := sorted(self.changed().keys() & {*PAPER_DECIDES})):
            raise InputError(
                f"the recipe of the SPARTA paper fixes these options: {', '.join(changed_options)}",
                remedy=remedy(f"omit {{}}, or omit {', '.join(changed_options)}", Option("paper")),
            )
        unused = {"term_rate": ("tied", self.tied), "gain_rate": ("lexical=False", not self.lexical)}
        for name, (setting, is_off) in unused.items():
            if is_off and name in self.changed():
                raise InputError(
                    f"{name} has no effect with {setting}", remedy=f"omit {name}, or omit {setting}"
                )


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """The schedule of a training. Each validation also writes a checkpoint.

    `warmup` is a share of the steps. `clip` limits the gradient norm. A step averages the gradients of
    `accumulate` batches.
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
    """The progress of a training and its best validation so far."""

    step: int = 0
    best: float = -math.inf
    best_step: int = 0


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The best model's folder, its validation figure and step, and the sets of the validation queries.

    `validation` is a fraction from 0 to 1, or the negated rank if the measure is `average-rank`.
    `seconds_per_step` is the median time of this run's steps, without validation; 0 without steps. Two
    results that differ only there are equal.
    """

    folder: Path
    validation: float
    step: int
    validated: tuple[str, ...] = ()
    reached: str = ""
    seconds_per_step: float = field(default=0.0, compare=False)


def fields_of(recipe: TrainSettings, target: type) -> dict[str, Any]:
    """Return the options of a recipe that are also fields of another dataclass."""
    names = {option.name for option in fields(target)}
    return {option.name: getattr(recipe, option.name) for option in fields(recipe) if option.name in names}


def settings_of(recipe: Any) -> dict[str, Any]:
    """Return the settings of a recipe that must not change when its training is resumed."""
    settings = {name: value for name, value in asdict(recipe).items() if name != "device"}
    return {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}


def check_same(
    stored: Mapping[str, Any],
    now: Mapping[str, Any],
    where: Path,
    *,
    remedies: Mapping[str, Remedy] | None = None,
) -> None:
    """Raise InputError if a training on disk was started with different settings.

    :param remedies: the remedy for each setting, used if no other setting differs
    """
    old_settings, new_settings = _flat(stored), _flat(now)
    differing = sorted(
        k for k in {*old_settings, *new_settings} if old_settings.get(k) != new_settings.get(k)
    )
    if differing:
        values = [f"({new_settings.get(k)!r}, was {old_settings.get(k)!r})" for k in differing]
        shown = [f"{k} {v}" if len(v) < _SHORT else k for k, v in zip(differing, values, strict=True)]
        raise InputError(
            f"the settings differ from the settings of the started training: {', '.join(shown)}",
            where=str(where),
            remedy=(remedies or {}).get(",".join(differing), REPEAT),
            facts={"differing": differing},
        )


def _flat(facts: Mapping[str, Any], head: str = "") -> dict[str, Any]:
    """Return nested facts with dotted names, such as `trainer.steps`."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        flat |= _flat(value, f"{head}{name}.") if isinstance(value, Mapping) else {f"{head}{name}": value}
    return flat
