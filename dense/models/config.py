"""The configuration of a bi-encoder: the `dense` object of its config.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tokenizers import Tokenizer

from dense.models.mentions import around_mention
from dense.models.skill_config import NONE, SkillConfig
from dense.models.tasks import with_task
from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.neural.inputs import EncoderInput, InputLayout
from sparta.neural.stored import config_object

FORMAT_VERSION, WITH_SKILLS = 1, 2
BY_SKILL = "skill"
_LEAST = {"codes": 0, "experts": 1, "period": 1, "question_length": 3}
QUESTION, PASSAGE = 0, 1
"""The sides of a bi-encoder, and which expert each has where the side decides."""


@dataclass(frozen=True, slots=True)
class DenseConfig:
    """The `dense` object of a model's config.json.

    `codes` is 0 for one vector per passage, the mean of its token states. A number m > 0 makes a Poly-Encoder
    with m vectors per passage, each a learned attention over the token states (Humeau et al., 2019). SPARTA
    (§5.1) swaps the sides: passages have several vectors. `shared` encoders use the same weights for
    questions and passages. With `routing` (det, seq, tok), every `period`-th layer has `experts` feed-forward
    experts (TASER). `pooling` is `mean` or `cls`; with `cls` the vector is the state of [CLS], as in DPR and
    TASER. With `cosine`, vectors have length 1 times a learned scale; without it the score is the plain dot
    product, as in DPR. The encoder reads the first `question_length` wordpieces of a question. With `skills`,
    one encoder serves several tasks; routing `skill` lets the task choose the expert.
    """

    layout: InputLayout = field(default_factory=InputLayout)
    codes: int = 0
    shared: bool = True
    routing: str = ""
    experts: int = 2
    period: int = 3
    pooling: str = "mean"
    cosine: bool = True
    question_length: int = 64
    format_version: int = FORMAT_VERSION
    skills: SkillConfig | None = None

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if type(value := getattr(self, name)) is not int or value < least:
                raise ModelError(f"expected {name} of at least {least}, found {value!r}")
        if self.pooling not in ("mean", "cls"):
            raise ModelError(f"expected pooling mean or cls, found {self.pooling!r}")
        if self.pooling == "cls" and (self.layout.share_context or self.codes):
            raise ModelError("a shared context or codes need mean pooling, found cls")
        if self.routing and not self.shared:
            raise ModelError("expected one shared encoder with experts, found two encoders")
        if self.skills and (not self.shared or self.codes):
            raise ModelError("a model with skills needs one shared encoder and no codes")
        if (self.routing == BY_SKILL) != bool(self.skills and self.skills.placement != NONE):
            raise ModelError(
                f"routing {BY_SKILL} must go with skills that have experts, found {self.routing!r}"
            )

    def with_skills(self, skills: SkillConfig, period: int = 2) -> DenseConfig:
        """Return a copy with skills, whose experts are in every `period`-th layer."""
        routing = "" if skills.placement == NONE else BY_SKILL
        experts = skills.count if routing else self.experts
        return replace(
            self, skills=skills, routing=routing, experts=experts, period=period, format_version=WITH_SKILLS
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the object for config.json. Without skills, older versions of sparta can read it."""
        value = {k: v for k, v in asdict(self).items() if k != "skills"}
        return {**value, "skills": self.skills.as_dict()} if self.skills else value

    @staticmethod
    def from_dict(value: Any, where: str) -> DenseConfig:
        """Return the configuration from the object in config.json.

        :raises ModelError: the object is invalid, or its format is newer.
        """
        value = config_object(value, "dense", WITH_SKILLS, where)
        try:
            skills = SkillConfig.from_dict(value.get("skills"))
            return DenseConfig(**{**value, "layout": InputLayout(**value["layout"]), "skills": skills})
        except ModelError as error:
            error.where = error.where or where
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"the dense object of the configuration is invalid: {error}", where=where
            ) from error

    def question_input(
        self, text: str, tokenizer: Tokenizer, task: str = "", *, length: int | None = None
    ) -> EncoderInput:
        """Return the encoder input of a question: its first wordpieces, or those around a marked mention.

        :param task: put before the question if the model has a marker for this task
        :param length: largest number of wordpieces, with [CLS] and [SEP]; None is `question_length`
        """
        length = length or self.question_length
        marker = with_task("", task) if self.skills and task in self.skills.markers else ""
        n_marker = len(tokenizer.encode(marker, add_special_tokens=False).ids)
        text = around_mention(text, tokenizer, length - 2 - n_marker)
        layout = InputLayout(answer_segment=0, max_length=length, overlap=0)
        return layout.windows(Passage("", marker + text), tokenizer)[0]

    def question_expert(self, task: str = "") -> int:
        """Return the number of the expert for a task's questions: the task's, or the general expert."""
        return self.skills.expert(task) if self.skills else QUESTION
