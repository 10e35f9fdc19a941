"""Skills of one encoder: what each reads, and which expert reads it (Chain-of-Skills, §3.1 and §3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sparta.base.errors import ModelError
from sparta.base.remedies import Command, remedy

SINGLE, EXPANDED, SPAN, LINK, RERANK = "single", "expanded", "span", "link", "rerank"
READ_BY = {
    SINGLE: ("question", "passage"),
    EXPANDED: ("expanded", "passage"),
    SPAN: ("span",),
    LINK: ("mention", "entity"),
    RERANK: ("rerank",),
}
"""The inputs of each skill: queries first, then what is searched for."""
SKILLS = tuple(READ_BY)
_PRETRAINED = {"question": 0, "passage": 1, "mention": 2, "entity": 3, "expanded": 0}
ASSIGNMENTS = {
    "paper": {**_PRETRAINED, "expanded": 4, "rerank": 4, "span": 5},
    "naive": {**_PRETRAINED, "rerank": 4, "span": 5},
    "pretraining": _PRETRAINED,
}
"""Which expert reads which input: the paper's, with expanded queries read as single ones ("naive", §5.1),
and the four experts of pretraining (Figure 3)."""
ATTENTION, FEED_FORWARD, NONE = "attention", "feed-forward", "none"
PLACEMENTS = (ATTENTION, FEED_FORWARD, NONE)


@dataclass(frozen=True, slots=True)
class SkillConfig:
    """The `skills` of a model's config.json.

    `skills` are those that it was trained for; `experts` says which expert reads which input. With
    `placement` attention, the experts are the query, key, value and output matrices of every `period`-th
    layer; with feed-forward, its feed-forward with LayerNorm, as TASER has it; with none, all inputs are read
    by the same weights. `markers` are the tasks whose questions have their name before them; a task with a
    query encoder of its own has an expert "question of TASK" (Maillard et al., 2021, §3.1). Where no others
    were trained, questions of no or another task are read as those of the task `general`.
    """

    skills: tuple[str, ...]
    experts: dict[str, int] = field(default_factory=lambda: dict(ASSIGNMENTS["paper"]))
    placement: str = ATTENTION
    markers: tuple[str, ...] = ()
    general: str = ""

    def __post_init__(self) -> None:
        unknown = sorted({*self.skills} - {*SKILLS})
        if unknown or not self.skills:
            found = ", ".join(unknown) or "none"
            raise ModelError(f"expected skills among {', '.join(SKILLS)}, found {found}")
        if self.placement not in PLACEMENTS:
            raise ModelError(f"expected experts in {', '.join(PLACEMENTS)}, found {self.placement!r}")
        if self.general and _own_reader(self.general) not in self.experts:
            raise ModelError(f"expected an expert for questions of {self.general}, found {self.experts}")
        numbers = list(self.experts.values())
        if any(type(n) is not int or n < 0 for n in numbers):
            raise ModelError(f"expected experts by their numbers, from 0 on, found {self.experts}")
        if (self.experts.get("question"), self.experts.get("passage")) != (0, 1):
            raise ModelError(f"expected expert 0 for questions and 1 for passages, found {self.experts}")
        for skill in self.skills:
            lacking = [one for one in READ_BY[skill] if one not in self.experts]
            if lacking:
                raise ModelError(
                    f"expected an expert for {lacking[0]}, which the skill {skill} reads, found none",
                    remedy="choose the assignment paper or naive",
                )

    @property
    def count(self) -> int:
        """How many experts there are."""
        return max(self.experts.values()) + 1

    @property
    def knows_tasks(self) -> bool:
        """Whether it matters to the model of which task a question is."""
        return bool(self.markers or self.task_readers)

    @property
    def task_readers(self) -> list[str]:
        """What reads the questions of one task each."""
        return [name for name in self.experts if name.startswith(_own_reader(""))]

    def reader(self, task: str = "") -> str:
        """Return what reads questions of a task: its own query encoder, that of `general`, or of all."""
        own = (_own_reader(name) for name in (task, self.general))
        return next((one for one in own if one in self.experts), "question")

    def expert(self, task: str = "") -> int:
        """Return the expert of `reader`."""
        return self.experts[self.reader(task)]

    def for_tasks(
        self, tasks: Sequence[str], *, markers: bool, own_encoders: bool, general: str = ""
    ) -> SkillConfig:
        """Return the same with markers, or with a query encoder, for each of these tasks.

        :param general: the task whose query encoder reads all other questions
        """
        new = [task for task in tasks if own_encoders and _own_reader(task) not in self.experts]
        numbers = {_own_reader(task): self.count + i for i, task in enumerate(new)}
        return replace(
            self,
            experts={**self.experts, **numbers},
            markers=tuple(tasks) if markers else self.markers,
            general=general if own_encoders else self.general,
        )

    def with_tasks_of(self, other: SkillConfig) -> SkillConfig:
        """Return the same with another's query encoders of tasks too.

        They are numbered after the shared experts: the other's first, then those that only this one has.
        """
        own = [*other.task_readers, *self.task_readers]
        shared = {name: n for name, n in self.experts.items() if name not in own}
        first = max(shared.values()) + 1
        return replace(self, experts=shared | {name: first + i for i, name in enumerate(dict.fromkeys(own))})

    def as_dict(self) -> dict[str, Any]:
        """For config.json."""
        return {k: v for k, v in asdict(self).items() if v or k not in ("markers", "general")}

    @staticmethod
    def from_dict(value: Any) -> SkillConfig | None:
        """From config.json; None of a model without skills."""
        if value is None:
            return None
        lists = {k: tuple(value[k]) for k in ("skills", "markers") if k in value}
        return SkillConfig(**{**value, **lists})

    def check(self, skill: str, where: str = "") -> None:
        """Refuse a skill that the model lacks."""
        if skill not in self.skills:
            raise lacks(skill, self.skills, where)


def _own_reader(task: str) -> str:
    return f"question of {task}"


def lacks(skill: str, has: Iterable[str], where: str = "") -> ModelError:
    """Say that a model lacks a skill."""
    return ModelError(
        f"expected a model with the skill {skill}, found one with {', '.join(has) or 'no skills'}",
        where=where,
        remedy=remedy("leave the step out, or run {}", Command.of("dense train-skills", **{skill: "FILE"})),
    )
