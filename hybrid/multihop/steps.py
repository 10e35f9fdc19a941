"""Reads chains from files and checks the order and the settings of the steps."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter
from importlib.resources import files
from pathlib import Path
from typing import Any

from sparta.base.disk.streams import input_errors
from sparta.base.errors import InputError
from sparta.base.filters import Filter

RETRIEVE, EXPAND, LINK, RERANK, READ = "retrieve", "expand", "link", "rerank", "read"
STEP_SKILLS = {RETRIEVE: "", EXPAND: "expanded", LINK: "link", RERANK: "rerank", READ: ""}
"""The model's skill that each kind of step needs. The kind `link` also needs the skill `span`."""
MODEL, TITLE, TEXT, TITLES, LINKS, TERMS = "model", "title", "text", "titles", "links", "terms"
WAYS = {
    RETRIEVE: (MODEL,),
    EXPAND: (MODEL, TITLE, TEXT),
    LINK: (MODEL, TITLES, LINKS),
    RERANK: (MODEL, TERMS),
    READ: (MODEL,),
}
"""The methods (`by`) of each kind of step: `model`, or methods without a model."""
_FINDS = ("evidence", "depth", "weight")
SETTINGS = {
    RETRIEVE: ("channel", "filter", *_FINDS),
    EXPAND: ("channel", "filter", *_FINDS),
    LINK: _FINDS,
    RERANK: ("channel", "promote", "weight", "keep", "candidates"),
    READ: ("weight", "candidates", "threshold"),
}
"""The settings of each kind of step, in addition to `name`, `skill`, `by` and `after`.

Except for `retrieve`, the setting `channel` applies only to steps without a model.
"""
CHAINS = ("hop", "hop-read", "hotpot", "named", "single", "tabletext")
PER_PASSAGE, PER_PATH = "passage", "path"
READ_PATHS = 20
"""The number of paths that a step `read` reads if it has no setting `candidates`."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain.

    `retrieve` finds passages for the question in `channel`. `expand` finds passages for the question combined
    with each passage of the step before it. `link` finds passages about the entities in the question, or in
    the passages of the step before it. Each search returns `depth` passages; `weight` multiplies their
    scores.

    `rerank` combines the passages of the steps in `after`. It multiplies the scores of passages that are both
    retrieved and linked by `promote` (Chain-of-Skills, α in Eq. 7), adds `weight` (β in Eq. 8) times the
    reranking score, and keeps the `keep` best paths. With weight 0 the step computes no reranking scores.
    Passages that a step found for the question can extend every path, also in later hops. Reranking takes
    most of the time: with `candidates`, the step reranks only this number of best paths and drops the other
    paths.

    `read` is the last step. A path reader reads the best paths (`candidates`, by default 20), adds
    `weight` times its score of each passage, and gives each path an answer. The reader's `threshold` is
    subtracted from the score of each `passage`, or once from the sum of a `path` (Chain-of-Skills, Appendix
    C). Unread paths rank behind read paths.

    `by` names the method: `model`, or a method without a model. `link` without a model looks for the index's
    `titles` in the text, or follows the titles in the passage's metadata field `links`. `expand` without a
    model searches `channel` for the question with the passage's `title` or `text`. `rerank` without a model
    uses the question's `terms` with their scores in `channel`: the score is the share of the question that a
    passage adds to its path.

    With a `filter`, `retrieve` and `expand` find only passages whose metadata match. If `evidence` is false,
    the step's passages only lead to evidence and are not evidence, as table rows are.
    """

    name: str
    skill: str
    after: tuple[str, ...] = ()
    by: str = MODEL
    channel: str = ""
    filter: str = ""
    evidence: bool = True
    depth: int = 100
    promote: float = 1.0
    weight: float = 1.0
    keep: int = 100
    candidates: int | None = None
    threshold: str = PER_PASSAGE

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise InputError(f"the name of a step must be one line of text, found {self.name!r}")
        if not isinstance(self.skill, str) or self.skill not in STEP_SKILLS:
            raise InputError(
                f"unknown skill {self.skill!r}; known skills: {', '.join(STEP_SKILLS)}",
                remedy=f"correct the skill of step {self.name!r}",
            )
        if self.by not in WAYS[self.skill]:
            raise InputError(
                f"`by` of step {self.name!r} must be {' or '.join(WAYS[self.skill])}, found {self.by!r}",
                remedy=f"correct `by`: the skill of step {self.name!r} is {self.skill}",
            )
        self._check_values()
        if self.threshold not in (PER_PASSAGE, PER_PATH):
            raise InputError(
                f"`threshold` of step {self.name!r} must be passage or path, found {self.threshold!r}",
                remedy="correct `threshold` of the step",
            )
        limits = {RETRIEVE: (0, 0), EXPAND: (1, 1), LINK: (0, 1), RERANK: (1, 9), READ: (1, 1)}[self.skill]
        if not limits[0] <= len(self.after) <= limits[1]:
            counts = " to ".join(map(str, dict.fromkeys(limits)))
            has_too_few = len(self.after) < limits[0]
            raise InputError(
                f"`after` of step {self.name!r} ({self.skill}) must name {counts} steps, found"
                f" {len(self.after)}",
                remedy='name the steps: after = ["first"]' if has_too_few else _after_remedy(limits[1]),
            )
        _check_read(
            self, [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        )

    def _check_values(self) -> None:
        """Raise if a setting has the wrong type or is out of range."""

        def refuse(name: str, expected: str) -> None:
            value = getattr(self, name)
            raise InputError(
                f"`{name}` of step {self.name!r} must be {expected}, found"
                f" {'the text ' if isinstance(value, str) else ''}{value!r}",
                remedy=f"write `{name}` without quotes"
                if isinstance(value, str)
                else f"correct `{name}` of the step",
            )

        for name in ("depth", "keep", "candidates"):
            value = getattr(self, name)
            if not (name == "candidates" and value is None) and (type(value) is not int or value < 1):
                refuse(name, "a whole number of at least 1")
        for name in ("promote", "weight"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
                refuse(name, "a number from 0 to 1e6")
        for name in ("channel", "filter"):
            if not isinstance(getattr(self, name), str):
                refuse(name, "a text")
        if not isinstance(self.evidence, bool):
            refuse("evidence", "true or false")
        if self.filter:
            Filter.parse([self.filter])

    @property
    def by_model(self) -> bool:
        """Whether the step uses the model; a rerank step with weight 0 does not use the model."""
        needs_skill = bool(STEP_SKILLS[self.skill])
        return needs_skill and self.by == MODEL and not (self.skill == RERANK and not self.weight)


def _after_remedy(limit: int) -> str:
    return f"name at most {limit} steps in `after`" if limit else "remove `after` from the step"


def ordered(steps: Sequence[Step]) -> list[Step]:
    """Return the steps in running order: each step comes after the steps in its `after`.

    The last step makes the final paths. A rerank comes after steps that find passages. Steps that find
    passages come after a rerank, or first. A step `read` comes after a rerank, and last.

    :raises InputError: there are no steps, two steps share a name, a step comes after an unknown step or
        after a step of the wrong kind, the steps form a cycle, or the chain has several last steps.
    """
    steps_by_name = {step.name: step for step in steps}
    if not steps or len(steps_by_name) < len(steps):
        raise InputError(f"the steps need distinct names, found {[step.name for step in steps]}")
    for step in steps:
        for name in step.after:
            if name not in steps_by_name:
                raise InputError(
                    f"step {step.name!r} comes after the unknown step {name!r}",
                    remedy=f"name one of the steps {', '.join(steps_by_name)}",
                )
            if steps_by_name[name].skill == READ or (steps_by_name[name].skill == RERANK) == (
                step.skill == RERANK
            ):
                kind = "retrieve, expand or link" if step.skill == RERANK else "rerank"
                raise InputError(
                    f"step {step.name!r} must come after a step {kind}, but comes after {name!r}"
                    f" ({steps_by_name[name].skill})"
                )
        sources = {source for name in step.after for source in steps_by_name[name].after}
        if step.skill == RERANK and len(sources) > 1:
            raise InputError(
                f"the steps in `after` of {step.name!r} must come from one rerank, found"
                f" {' and '.join(sorted(sources))}"
            )
    try:
        order = list(TopologicalSorter({step.name: step.after for step in steps}).static_order())
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise InputError(f"the steps form a cycle: {circle}") from None
    earlier_steps = {name for step in steps for name in step.after}
    last_names = [name for name in order if name not in earlier_steps]
    if len(last_names) != 1 or steps_by_name[last_names[0]].skill not in (RERANK, READ):
        has_two_ends = sum(steps_by_name[name].skill in (RERANK, READ) for name in last_names) > 1
        raise InputError(
            f"a chain needs one last step, a rerank or a read, found {', '.join(last_names)}",
            remedy="merge the two last steps into one that comes after the steps of both"
            if has_two_ends
            else "add a step rerank that joins the branches (weight = 0 only joins, without reranking)",
        )
    return [steps_by_name[name] for name in order]


_CHAIN_REMEDY = f"name a file of steps, or an included chain: {', '.join(CHAINS)}"


def read_chain(name: str | Path) -> list[Step]:
    """Return the steps of a chain in running order.

    :param name: a TOML file of `[[step]]` tables, or the name of an included chain
    :raises InputError: the file does not exist or is not TOML, has unknown keys, or `ordered` refuses the
        steps.
    """
    if not str(name):
        raise InputError("the name of the chain is empty", remedy=_CHAIN_REMEDY)
    path = Path(str(files("hybrid.multihop") / f"{name}.toml")) if str(name) in CHAINS else Path(name)
    try:
        with input_errors(path):
            raw = path.read_bytes()
    except InputError as error:
        error.remedy = _CHAIN_REMEDY
        raise
    try:
        return ordered(_steps(tomllib.loads(raw.decode("utf-8-sig"))))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the file of the chain is not valid TOML: {error}", where=str(path)) from error
    except InputError as error:
        error.where = error.where or str(path)
        raise


def _steps(value: Mapping[str, Any]) -> list[Step]:
    """Return the steps of a parsed TOML file, in file order."""
    tables = value.get("step")
    if set(value) != {"step"} or not isinstance(tables, list):
        raise InputError(f"a chain consists of [[step]] tables, found {', '.join(value) or 'an empty file'}")
    setting_names = {field.name for field in fields(Step)}
    steps = []
    for table in tables:
        if not isinstance(table, dict) or not {"name", "skill"} <= set(table):
            keys = ", ".join(table) if isinstance(table, dict) else repr(table)
            raise InputError(f"a step needs `name` and `skill`, found {keys or 'an empty step'}")
        if unknown := [name for name in table if name not in setting_names]:
            suggestions = difflib.get_close_matches(unknown[0], setting_names, 1)
            raise InputError(
                f"unknown setting {unknown[0]!r} of step {table['name']!r}",
                remedy=f"write {suggestions[0]}"
                if suggestions
                else f"use only the settings {', '.join(sorted(setting_names))}",
            )
        after = table.get("after", [])
        if not isinstance(after, list) or not all(isinstance(name, str) for name in after):
            raise InputError(f"`after` must be a list of step names, found {after!r}")
        step = Step(**{**table, "after": tuple(after)})
        _check_read(step, table)  # also settings that have their default
        steps.append(step)
    return steps


def _check_read(step: Step, names: Iterable[str]) -> None:
    """Raise if the step does not use one of these settings."""
    used_names = {"name", "skill", "after", "by", *SETTINGS[step.skill]}
    if step.skill != RETRIEVE and step.by == MODEL:
        used_names.discard("channel")
    if unused_names := [name for name in names if name not in used_names]:
        raise InputError(
            f"step {step.name!r} ({step.skill} by {step.by}) does not use the setting {unused_names[0]}",
            remedy=f"remove the setting, or move it to another step. Settings of step {step.name!r}:"
            f" {', '.join(name for name in SETTINGS[step.skill] if name in used_names)}",
        )
