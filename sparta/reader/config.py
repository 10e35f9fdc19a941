"""How a reader reads, and where its folder is; needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError, ModelError
from sparta.base.remedies import Command, Option, remedy
from sparta.models.resolve import default_name, folder_with, given_or_shipped

DEFAULT_READER = default_name("reader")


def reader_folder(name: str | Path | None = None, language: str = "en") -> Path:
    """Return the folder of a reader: for None the one that ships for the language, or a named one.

    :raises ModelError: there is none.
    """
    folder = given_or_shipped(name, language, "reader")
    found = folder_with("reader", folder) or folder
    if not (found / "config.json").is_file():
        raise ModelError(
            "expected the folder of a reader (config.json with a `reader` object), found none",
            where=str(name or folder.name),
            remedy="check the path, or make one with: sparta train-reader",
        )
    return found


def path_reader_folder(name: str | Path | None = None, language: str = "en") -> Path:
    """Return the folder of a reader of paths: for None the one that ships for the language, or a named one;
    of a training's output the best in it.

    :raises ModelError: there is none.
    """
    folder = given_or_shipped(name, language, "path_reader")
    found = folder_with("path_reader", folder)
    if found is None:
        raise ModelError(
            "expected a reader of paths (config.json with a `path_reader` object), found none",
            where=str(name or folder.name),
            remedy=remedy("give {} what {} made", Option("path_reader"), Command("sparta train-paths")),
        )
    return found


@dataclass(frozen=True, slots=True)
class ReaderLayout:
    """Lengths in wordpieces: of a window, of what two windows share, of a question and of an answer."""

    max_length: int = 320
    overlap: int = 96
    longest_question: int = 64
    longest_answer: int = 30

    def __post_init__(self) -> None:
        if self.max_length < 2 * self.longest_question or self.overlap >= self.max_length // 2:
            raise InputError(
                f"expected windows of at least {2 * self.longest_question} wordpieces that overlap by less"
                f" than half, found {self.max_length} and {self.overlap}",
                remedy="give the reader longer windows, or a smaller overlap",
            )
        room = self.max_length - self.max_length // 4 - self.longest_question - 4  # what a long title leaves
        if min(self.longest_question, self.longest_answer, self.overlap + 1, room) < 1:
            raise InputError(
                f"expected lengths of at least 1 wordpiece that leave room for a text, found {self}",
                remedy="give the reader longer windows, questions or answers",
            )


@dataclass(frozen=True, slots=True)
class Calibration:
    """Turns the score of an answer into the probability that it is right: `1 / (1 + exp(-(a·score + b)))`.

    Fitted on held-out questions (Platt scaling).
    """

    a: float = 1.0
    b: float = 0.0


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """How a reader reads; `global_tokens` (0: none) let the passages of a question see each other (FiE).

    `passage` turns the score of a span into a probability, `answer` that of an answer, to which the ranker
    adds with this `weight`; without it, an answer's score is shown as it is. With `sum_mentions`, the odds of
    an answer's best mention in each passage add up; without, its best mention alone counts. With global
    tokens they add up anyway.
    """

    layout: ReaderLayout = field(default_factory=ReaderLayout)
    global_tokens: int = 0
    passage: Calibration = field(default_factory=Calibration)
    answer: Calibration | None = None
    weight: float = 0.2
    sum_mentions: bool = False

    @property
    def adds_up(self) -> bool:
        """Whether each passage that is read can make an answer more probable."""
        return self.sum_mentions or bool(self.global_tokens)

    def with_weight(self, weight: float | None) -> ReaderConfig:
        """The same with this weight of the ranker; None is the tuned one, the only one whose scores are
        probabilities.
        """
        if weight is None or weight == self.weight:
            return self
        return replace(self, weight=weight, answer=None)

    @staticmethod
    def from_dict(values: Any, where: str) -> ReaderConfig:
        """Read what `asdict` made.

        :raises ModelError: something else.
        """
        try:
            config = ReaderConfig(
                ReaderLayout(**values["layout"]),
                int(values["global_tokens"]),
                _calibration(values["passage"]),
                _calibration(values["answer"]) if values["answer"] else None,
                float(values.get("weight", 0.2)),
                values.get("sum_mentions", False),
            )
            if not isinstance(config.sum_mentions, bool):
                raise TypeError(f"sum_mentions {config.sum_mentions!r}")
            if config.global_tokens < 0 or not 0 <= config.weight <= 1:
                raise ValueError(f"global_tokens {config.global_tokens}, weight {config.weight:g}")
            return config
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise ModelError(
                f"expected the configuration of a reader ({error})",
                where=where,
                remedy="give a reader that `sparta train-reader` made",
            ) from error


def _calibration(values: dict[str, Any]) -> Calibration:
    found = Calibration(float(values["a"]), float(values["b"]))
    if not (math.isfinite(found.a) and math.isfinite(found.b)):
        raise ValueError(f"a {found.a}, b {found.b}")
    return found
