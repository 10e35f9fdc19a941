"""The skills of a model, their inputs, and each input's expert (Chain-of-Skills, §3.1 and §3.2)."""

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
"""The inputs of each skill: first the query side, then the candidates."""
SKILLS = tuple(READ_BY)
_PRETRAINED = {"question": 0, "passage": 1, "mention": 2, "entity": 3, "expanded": 0}
ASSIGNMENTS = {
    "paper": {**_PRETRAINED, "expanded": 4, "rerank": 4, "span": 5},
    "naive": {**_PRETRAINED, "rerank": 4, "span": 5},
    "pretraining": _PRETRAINED,
}
"""Number of the expert that reads each input, by the name of the assignment.

"paper" is the paper's assignment. "naive" (§5.1) encodes expanded queries with the expert for questions.
"pretraining" has the four experts of pretraining (Figure 3)."""
ATTENTION, FEED_FORWARD, ENCODER, NONE = "attention", "feed-forward", "encoder", "none"
PLACEMENTS = (ATTENTION, FEED_FORWARD, ENCODER, NONE)


@dataclass(frozen=True, slots=True)
class SkillConfig:
    """The `skills` object of a model's config.json.

    `skills` are the trained skills. `experts` maps each kind of input to the number of its expert. With
    `placement` attention, the experts are the query, key, value and output matrices of every `period`-th
    layer. With feed-forward, they are its feed-forward with LayerNorm (TASER). With encoder, each expert is a
    separate encoder (DPR; Maillard et al., 2021, §4.1). With none, all inputs share all weights.

    `markers` are the tasks whose names are put before their questions. A task with a separate
    query encoder has an expert "question of TASK" (Maillard et al., 2021, §3.1). If `general` is set,
    questions of no or an unknown task use this task's query encoder.
    """

    skills: tuple[str, ...]
    experts: dict[str, int] = field(default_factory=lambda: dict(ASSIGNMENTS["paper"]))
    placement: str = ATTENTION
    markers: tuple[str, ...] = ()
    general: str = ""

    def __post_init__(self) -> None:
        unknown = sorted({*self.skills} - {*SKILLS})
        if unknown or not self.skills:
            unknown_names = ", ".join(unknown) or "none"
            raise ModelError(f"expected skills of {', '.join(SKILLS)}, found {unknown_names}")
        if self.placement not in PLACEMENTS:
            raise ModelError(f"expected placement {' or '.join(PLACEMENTS)}, found {self.placement!r}")
        if self.general and _task_reader(self.general) not in self.experts:
            raise ModelError(f"expected an expert for questions of {self.general}, found {self.experts}")
        numbers = list(self.experts.values())
        if any(type(n) is not int or n < 0 for n in numbers):
            raise ModelError(f"expected expert numbers of at least 0, found {self.experts}")
        if (self.experts.get("question"), self.experts.get("passage")) != (0, 1):
            raise ModelError(f"expected expert 0 for questions and 1 for passages, found {self.experts}")
        for skill in self.skills:
            lacking = [reader for reader in READ_BY[skill] if reader not in self.experts]
            if lacking:
                raise ModelError(
                    f"the skill {skill} needs an expert for {lacking[0]}, found none",
                    remedy="choose the assignment paper or naive",
                )

    @property
    def count(self) -> int:
        """The number of experts."""
        return max(self.experts.values()) + 1

    @property
    def knows_tasks(self) -> bool:
        """Whether the model encodes a question differently by its task."""
        return bool(self.markers or self.task_readers)

    @property
    def task_readers(self) -> list[str]:
        """The names of the experts that read the questions of a single task."""
        return [name for name in self.experts if name.startswith(_task_reader(""))]

    def reader(self, task: str = "") -> str:
        """Return the name of the expert for a task's questions: the task's, `general`'s, or "question"."""
        readers = (_task_reader(name) for name in (task, self.general))
        return next((reader for reader in readers if reader in self.experts), "question")

    def expert(self, task: str = "") -> int:
        """Return the number of the expert for a task's questions."""
        return self.experts[self.reader(task)]

    def for_tasks(
        self, tasks: Sequence[str], *, markers: bool, own_encoders: bool, general: str = ""
    ) -> SkillConfig:
        """Return a copy with a marker, or with a query encoder, for each of these tasks.

        :param general: the task whose query encoder reads all other questions
        """
        new = [task for task in tasks if own_encoders and _task_reader(task) not in self.experts]
        numbers = {_task_reader(task): self.count + i for i, task in enumerate(new)}
        return replace(
            self,
            experts={**self.experts, **numbers},
            markers=tuple(tasks) if markers else self.markers,
            general=general if own_encoders else self.general,
        )

    def with_tasks_of(self, other: SkillConfig) -> SkillConfig:
        """Return a copy that also has the task query encoders of another configuration.

        Task query encoders are numbered after the shared experts: first the other configuration's, then the
        rest.
        """
        readers = [*other.task_readers, *self.task_readers]
        shared = {name: n for name, n in self.experts.items() if name not in readers}
        first = max(shared.values()) + 1
        return replace(
            self, experts=shared | {name: first + i for i, name in enumerate(dict.fromkeys(readers))}
        )

    def without_unread(self) -> SkillConfig:
        """Return a copy without the experts that the skills do not use; the others are numbered anew."""
        skill_readers = (reader for skill in self.skills for reader in READ_BY[skill])
        used_readers = {"question", "passage", *self.task_readers, *skill_readers}
        kept = {name: n for name, n in self.experts.items() if name in used_readers}
        numbers = {old: new for new, old in enumerate(sorted({*kept.values()}))}
        return replace(self, experts={name: numbers[n] for name, n in kept.items()})

    def as_dict(self) -> dict[str, Any]:
        """Return the object for config.json."""
        return {k: v for k, v in asdict(self).items() if v or k not in ("markers", "general")}

    @staticmethod
    def from_dict(value: Any) -> SkillConfig | None:
        """Return the configuration from the object in config.json; None for a model without skills."""
        if value is None:
            return None
        lists = {k: tuple(value[k]) for k in ("skills", "markers") if k in value}
        return SkillConfig(**{**value, **lists})

    def check(self, skill: str, where: str = "") -> None:
        """Raise a ModelError if the model lacks a skill."""
        if skill not in self.skills:
            raise lacks(skill, self.skills, where)


def _task_reader(task: str) -> str:
    return f"question of {task}"


def lacks(skill: str, has: Iterable[str], where: str = "") -> ModelError:
    """Return the error for a model that lacks a skill."""
    return ModelError(
        f"the model lacks the skill {skill}; its skills: {', '.join(has) or 'none'}",
        where=where,
        remedy=remedy(
            "omit the step of the chain, or train the skill with {}",
            Command.of("dense train-skills", **{skill: "FILE"}),
        ),
    )
