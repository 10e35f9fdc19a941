"""The configuration of readers and the search for their folders, without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError, ModelError
from sparta.base.remedies import Command, Option, remedy
from sparta.models.resolve import default_name, folder_with, named_or_shipped_folder

DEFAULT_READER = default_name("reader")


def reader_folder(name: str | Path | None = None, language: str = "en") -> Path:
    """Return the folder of the named reader, or for None of the language's shipped reader.

    :raises ModelError: there is no such reader.
    """
    folder = named_or_shipped_folder(name, language, "reader")
    model_folder = folder_with("reader", folder) or folder
    if not (model_folder / "config.json").is_file():
        raise ModelError(
            "the folder is not a reader: it has no config.json with a `reader` object"
            if folder.is_dir()
            else "no such folder of a reader",
            where=str(name or folder.name),
            remedy="check the path of the reader, or train a reader with: sparta train-reader",
        )
    return model_folder


def path_reader_folder(name: str | Path | None = None, language: str = "en") -> Path:
    """Return the folder of the named path reader, or for None of the language's shipped path reader.

    For the output folder of a training, return the folder of its best model.

    :raises ModelError: there is no such path reader.
    """
    folder = named_or_shipped_folder(name, language, "path_reader")
    model_folder = folder_with("path_reader", folder)
    if model_folder is None:
        raise ModelError(
            "the folder is not a path reader: it has no config.json with a `path_reader` object"
            if folder.is_dir()
            else "no such folder of a path reader",
            where=str(name or folder.name),
            remedy=remedy("set {} to the output of {}", Option("path_reader"), Command("sparta train-paths")),
        )
    return model_folder


@dataclass(frozen=True, slots=True)
class ReaderLayout:
    """A reader's lengths in wordpieces: window, overlap, longest question and longest answer."""

    max_length: int = 320
    overlap: int = 96
    longest_question: int = 64
    longest_answer: int = 30

    def __post_init__(self) -> None:
        if self.max_length < 2 * self.longest_question or self.overlap >= self.max_length // 2:
            raise InputError(
                f"windows need at least {2 * self.longest_question} wordpieces and an overlap below half,"
                f" found {self.max_length} wordpieces, overlap {self.overlap}",
                remedy="set longer windows, or a smaller overlap",
            )
        longest_title = self.max_length // 4
        room = self.max_length - longest_title - self.longest_question - 4  # for the text
        if min(self.longest_question, self.longest_answer, self.overlap + 1, room) < 1:
            raise InputError(
                f"lengths must be at least 1 wordpiece and leave room for a text, found {self}",
                remedy="set longer windows, or shorter questions",
            )


@dataclass(frozen=True, slots=True)
class Calibration:
    """Converts an answer's score to its probability of being right: `1 / (1 + exp(-(a·score + b)))`.

    `a` and `b` are fitted on held-out questions (Platt scaling).
    """

    a: float = 1.0
    b: float = 0.0


@dataclass(frozen=True, slots=True)
class Abstention:
    """The score below which an answer is probably wrong, for the channel and depth of the calibration."""

    threshold: float
    channel: str
    depth: int


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """A reader's settings; with `global_tokens` above 0, a question's passages attend to each other (FiE).

    `passage` calibrates the score of a span, `answer` the score of an answer, which includes the ranker's
    score with this `weight`. Without `answer`, answers show their uncalibrated scores. `abstention` is the
    threshold below which an answerer abstains; None means that it never abstains. With `sum_mentions`,
    the odds of an answer's best mention in each passage add up; otherwise only the best mention counts. With
    global tokens, the odds always add up.
    """

    layout: ReaderLayout = field(default_factory=ReaderLayout)
    global_tokens: int = 0
    passage: Calibration = field(default_factory=Calibration)
    answer: Calibration | None = None
    weight: float = 0.2
    sum_mentions: bool = False
    abstention: Abstention | None = None

    def threshold_for(self, channel: str, depth: int) -> float:
        """Return the calibrated threshold for a channel and depth; 0 if the reader has none for them."""
        abstention = self.abstention
        if abstention is None or self.answer is None:
            return 0.0
        return abstention.threshold if (abstention.channel, abstention.depth) == (channel, depth) else 0.0

    @property
    def combines_mentions(self) -> bool:
        """Whether every passage with an answer raises the answer's probability."""
        return self.sum_mentions or bool(self.global_tokens)

    def with_weight(self, weight: float | None) -> ReaderConfig:
        """Return the settings with this weight of the ranker; None means the tuned weight.

        Only with the tuned weight are the scores probabilities.
        """
        if weight is None or weight == self.weight:
            return self
        return replace(self, weight=weight, answer=None, abstention=None)

    @staticmethod
    def from_dict(values: Any, where: str) -> ReaderConfig:
        """Return the settings from the dictionary that `asdict` made.

        :raises ModelError: the values are not a reader's settings.
        """
        try:
            config = ReaderConfig(
                ReaderLayout(**values["layout"]),
                int(values["global_tokens"]),
                _calibration(values["passage"]),
                _calibration(values["answer"]) if values["answer"] else None,
                float(values.get("weight", 0.2)),
                values.get("sum_mentions", False),
                _abstention(values["abstention"]) if values.get("abstention") else None,
            )
            if not isinstance(config.sum_mentions, bool):
                raise TypeError(f"sum_mentions must be true or false, found {config.sum_mentions!r}")
            if config.global_tokens < 0 or not 0 <= config.weight <= 1:
                raise ValueError(
                    f"global_tokens must be at least 0 and weight 0 to 1,"
                    f" found {config.global_tokens} and {config.weight:g}"
                )
            return config
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise ModelError(
                f"the configuration of the reader is not valid: {error}",
                where=where,
                remedy="use a reader that `sparta train-reader` trained",
            ) from error


def _abstention(values: dict[str, Any]) -> Abstention:
    abstention = Abstention(float(values["threshold"]), str(values["channel"]), int(values["depth"]))
    if not 0 <= abstention.threshold <= 1:
        raise ValueError(f"the threshold must be 0 to 1, found {abstention.threshold:g}")
    return abstention


def _calibration(values: dict[str, Any]) -> Calibration:
    calibration = Calibration(float(values["a"]), float(values["b"]))
    if not (math.isfinite(calibration.a) and math.isfinite(calibration.b)):
        raise ValueError(
            f"the calibration needs finite numbers, found a = {calibration.a}, b = {calibration.b}"
        )
    return calibration
