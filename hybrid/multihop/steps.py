"""Chains as files: the steps, their order, their numbers."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter
from importlib.resources import files
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError
from sparta.base.files import reading
from sparta.base.filters import Filter

RETRIEVE, EXPAND, LINK, RERANK, READ = "retrieve", "expand", "link", "rerank", "read"
STEP_SKILLS = {RETRIEVE: "", EXPAND: "expanded", LINK: "link", RERANK: "rerank", READ: ""}
"""What a step does, and which skill of the model that takes; a link also takes the skill `span`."""
MODEL, TITLE, TEXT, TITLES, LINKS, TERMS = "model", "title", "text", "titles", "links", "terms"
WAYS = {
    RETRIEVE: (MODEL,),
    EXPAND: (MODEL, TITLE, TEXT),
    LINK: (MODEL, TITLES, LINKS),
    RERANK: (MODEL, TERMS),
    READ: (MODEL,),
}
"""By what a step may be done: by the model's skill, or without a model."""
_FINDS = ("evidence", "depth", "weight")
SETTINGS = {
    RETRIEVE: ("channel", "filter", *_FINDS),
    EXPAND: ("channel", "filter", *_FINDS),
    LINK: _FINDS,
    RERANK: ("channel", "promote", "weight", "keep", "candidates"),
    READ: ("weight", "candidates"),
}
"""What a step reads beside its name, `skill`, `by` and `after`; a `channel` where no model does it."""
CHAINS = ("hop", "hop-read", "hotpot", "named", "single", "tabletext")
READ_PATHS = 20
"""How many paths a step `read` reads without `candidates`."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain.

    `retrieve` finds passages for the question by `channel`; `expand` for the question with each passage of
    the step before it; `link` finds what the entities of the question, or of those passages, mean: `depth`
    passages each. Their scores are multiplied by `weight`.

    `rerank` puts together what the steps `after` which it comes found, multiplies what both retrieval and
    links found by `promote` (α, eq. 7), adds `weight` (β, eq. 8) times the reranking score, and keeps the
    `keep` best paths; with a weight of 0 nothing is reranked. What a step found for the question may go on
    from every path, in a later hop too. Reranking takes most of the time: with `candidates`, only so many
    of the best paths before it are reranked, and the others left out.

    `read` comes last: a reader of paths reads the best ones (`candidates`, without it 20), adds `weight`
    times what it scores each passage, and gives each path an answer. The others stay behind these.

    `by` says what does it: `model`, or, without one, of `link` the `titles` of the index in a text, or the
    titles in the passage's metadata `links`; of `expand` a search by `channel` for the question with the
    passage's `title` or its `text`; of `rerank` the question's `terms`, as `channel` scores them in the
    passages: the share of the question that a passage adds to those of its path.

    With a `filter`, a `retrieve` or an `expand` finds only passages whose metadata is so. Without
    `evidence`, what a step finds leads on, as a table row does, and is not itself what is looked for.
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

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise InputError(f"expected the name of a step as a text of one line, found {self.name!r}")
        if not isinstance(self.skill, str) or self.skill not in STEP_SKILLS:
            raise InputError(
                f"expected a step of {', '.join(STEP_SKILLS)}, found {self.skill!r}",
                remedy=f"correct the skill of step {self.name!r}",
            )
        if self.by not in WAYS[self.skill]:
            raise InputError(
                f"expected step {self.name!r} by {' or '.join(WAYS[self.skill])}, found {self.by!r}",
                remedy=f"correct `by` of the step, which is of the kind {self.skill}",
            )
        self._check_values()
        wanted = {RETRIEVE: (0, 0), EXPAND: (1, 1), LINK: (0, 1), RERANK: (1, 9), READ: (1, 1)}[self.skill]
        if not wanted[0] <= len(self.after) <= wanted[1]:
            counts = " to ".join(map(str, dict.fromkeys(wanted)))
            few = len(self.after) < wanted[0]
            raise InputError(
                f"expected {counts} steps after which {self.name!r} ({self.skill}) comes, found"
                f" {len(self.after)}",
                remedy='name them: after = ["first"]' if few else _too_many(wanted[1]),
            )

    def _check_values(self) -> None:
        def refuse(name: str, expected: str) -> None:
            found = getattr(self, name)
            raise InputError(
                f"expected {name} of step {self.name!r} as {expected}, found"
                f" {'the text ' if isinstance(found, str) else ''}{found!r}",
                remedy="write it without quotes"
                if isinstance(found, str)
                else f"correct `{name}` of the step",
            )

        for name in ("depth", "keep", "candidates"):
            value = getattr(self, name)
            if not (name == "candidates" and value is None) and (type(value) is not int or value < 1):
                refuse(name, "a number from 1 on")
        for name in ("promote", "weight"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
                refuse(name, "a number from 0 on")
        for name in ("channel", "filter"):
            if not isinstance(getattr(self, name), str):
                refuse(name, "a text")
        if not isinstance(self.evidence, bool):
            refuse("evidence", "true or false")
        if self.filter:
            Filter.parse([self.filter])

    @property
    def by_model(self) -> bool:
        """Whether the model does it; a rerank without weight does nothing by it."""
        skilled = bool(STEP_SKILLS[self.skill])
        return skilled and self.by == MODEL and not (self.skill == RERANK and not self.weight)


def _too_many(most: int) -> str:
    return f"name {most} at most in `after`" if most else "leave `after` out of the step"


def ordered(steps: Sequence[Step]) -> list[Step]:
    """Return steps so that each comes after those that it needs; the last one gives the paths.

    A rerank comes after what finds passages, and this after a rerank or at the beginning; a step `read` comes
    after a rerank, and is the last.

    :raises InputError: no steps, two of one name, a step after an unknown one, in a circle, or of the wrong
        kind; several that no other needs.
    """
    named = {step.name: step for step in steps}
    if not steps or len(named) < len(steps):
        raise InputError(f"expected steps of different names, found {[s.name for s in steps]}")
    for step in steps:
        for name in step.after:
            if name not in named:
                raise InputError(
                    f"expected steps that are there after which {step.name!r} comes, found {name!r}",
                    remedy=f"name one of {', '.join(named)}",
                )
            if named[name].skill == READ or (named[name].skill == RERANK) == (step.skill == RERANK):
                kind = "retrieve, expand or link" if step.skill == RERANK else "rerank"
                raise InputError(f"expected {step.name!r} to come after {kind}, found {name!r} before it")
        sources = {source for name in step.after for source in named[name].after}
        if step.skill == RERANK and len(sources) > 1:
            raise InputError(
                f"expected steps before {step.name!r} that go on from the same rerank, found them after"
                f" {' and '.join(sorted(sources))}"
            )
    try:
        order = list(TopologicalSorter({s.name: s.after for s in steps}).static_order())
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise InputError(f"expected steps in an order, found a circle: {circle}") from None
    needed = {name for step in steps for name in step.after}
    last = [name for name in order if name not in needed]
    if len(last) != 1 or named[last[0]].skill not in (RERANK, READ):
        several = sum(named[name].skill in (RERANK, READ) for name in last) > 1
        raise InputError(
            f"expected one last step, a rerank or a read, found {', '.join(last)}",
            remedy="let one come after the steps of both, and leave the other out"
            if several
            else "put the branches together by a step rerank (weight = 0 does no more than that)",
        )
    return [named[name] for name in order]


_NAME_ONE = f"name a file of steps, or a chain that ships: {', '.join(CHAINS)}"


def read_chain(name: str | Path) -> list[Step]:
    """Return the steps of a TOML file of `[[step]]` tables, or of a chain that ships, in their order.

    :raises InputError: no such file, no TOML, unknown keys, or what `ordered` refuses.
    """
    if not str(name):
        raise InputError("expected the name of a chain, found none", remedy=_NAME_ONE)
    path = Path(str(files("hybrid.multihop") / f"{name}.toml")) if str(name) in CHAINS else Path(name)
    try:
        with reading(path):
            raw = path.read_bytes()
    except InputError as error:
        error.remedy = _NAME_ONE
        raise
    try:
        return ordered(_steps(tomllib.loads(raw.decode("utf-8-sig"))))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"expected a chain in TOML, could not read it: {error}", where=str(path)) from error
    except InputError as error:
        error.where = error.where or str(path)
        raise


def _steps(value: Mapping[str, Any]) -> list[Step]:
    tables = value.get("step")
    if set(value) != {"step"} or not isinstance(tables, list):
        raise InputError(f"expected [[step]] tables and nothing else, found {', '.join(value) or 'nothing'}")
    known = {one.name for one in fields(Step)}
    steps = []
    for table in tables:
        if not isinstance(table, dict) or not {"name", "skill"} <= set(table):
            found = ", ".join(table) if isinstance(table, dict) else repr(table)
            raise InputError(f"expected a step with a name and a skill, found {found or 'neither'}")
        if unknown := [one for one in table if one not in known]:
            meant = difflib.get_close_matches(unknown[0], known, 1)
            raise InputError(
                f"expected settings of step {table['name']!r} among {', '.join(sorted(known))}, found"
                f" {unknown[0]!r}",
                remedy=f"write {meant[0]}" if meant else "leave it out",
            )
        after = table.get("after", [])
        if not isinstance(after, list) or not all(isinstance(one, str) for one in after):
            raise InputError(f"expected names of steps, found {after!r}")
        step = Step(**{**table, "after": tuple(after)})
        _check_read(step, table)
        steps.append(step)
    return steps


def _check_read(step: Step, table: Mapping[str, Any]) -> None:
    """Refuse settings that a step does not read, which would be without effect."""
    read = {"name", "skill", "after", "by", *SETTINGS[step.skill]}
    if step.skill != RETRIEVE and step.by == MODEL:
        read.discard("channel")
    if unread := [name for name in table if name not in read]:
        raise InputError(
            f"expected settings that step {step.name!r} ({step.skill} by {step.by}) reads, found {unread[0]}",
            remedy=f"leave it out, or give it to another step; this one reads"
            f" {', '.join(name for name in SETTINGS[step.skill] if name in read)}",
        )
