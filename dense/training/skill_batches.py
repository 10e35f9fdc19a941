"""Batches of one skill of one set: what is read, and what is right."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from dense.models.skill_config import EXPANDED, LINK, RERANK, SINGLE, SPAN
from dense.models.skill_inputs import Span, TextWindow
from dense.models.skills import Skills
from dense.training.skill_examples import (
    Columns,
    SkillExample,
    SkillSet,
    distinct,
    is_among,
    keys_of,
    right_of,
)
from sparta.base.records import Passage
from sparta.neural.inputs import EncoderInput

TARGET_READER = {SINGLE: "passage", EXPANDED: "passage", LINK: "entity"}


def query_reader(skills: Skills, skill: str, task: str = "") -> str:
    """Return what reads the queries of single or expanded retrieval."""
    return skills.config.reader(task) if skill == SINGLE else "expanded"


def query_key(query: EncoderInput) -> tuple[int, ...]:
    """What tells queries apart as they are read: their wordpieces, and where a mention stands."""
    return (*query.ids, query.start, query.end)


class SkillBatch(NamedTuple):
    """What one skill reads in one step.

    `queries` are questions, expanded queries or texts around their mention, and all share `candidates`, of
    which `gold` are the positives and `masked` those that are no negatives of a query (in-batch negatives).
    To rerank, `queries` are pairs, `width` for each question, its positive first. For spans they are texts,
    with `entities` and `others` as first and last positions. `task` is that of the questions.
    """

    skill: str
    queries: list[EncoderInput]
    candidates: list[EncoderInput]
    gold: list[int]
    masked: list[frozenset[int]]
    width: int = 0
    entities: Sequence[list[Span]] = ()
    others: Sequence[list[Span]] = ()
    task: str = ""


class BatchMaker:
    """Makes batches for a model: `negatives` hard ones for each query, `spans` other spans of each text."""

    def __init__(self, skills: Skills, negatives: int = 1, spans: int = 30) -> None:
        self.skills, self.negatives, self.spans = skills, negatives, spans

    def draw(self, one: SkillSet, rng: random.Random) -> SkillBatch:
        """Return a batch of examples of a set, drawn without repetition."""
        size = min(one.batch_size, len(one.examples))
        chosen = [one.examples[i] for i in rng.sample(range(len(one.examples)), size)]
        return self.of(chosen, one.skill, rng, one.task)

    def of(
        self, examples: Sequence[SkillExample], skill: str, rng: random.Random, task: str = ""
    ) -> SkillBatch:
        """Return the batch of these examples."""
        if skill in (SPAN, RERANK):
            return (self._spans if skill == SPAN else self._rerank)(examples, skill, rng)
        return self._ranking(examples, skill, rng, task)

    def query(self, example: SkillExample, skill: str, task: str = "") -> EncoderInput:
        """Return what is read of an example's query."""
        skills = self.skills
        if skill == LINK:
            return skills.mention(example.query, example.spans[0])
        if skill == EXPANDED and example.evidence is not None:
            return skills.pair(example.query, example.evidence)
        return skills.question(example.query, task)

    def _ranking(
        self, examples: Sequence[SkillExample], skill: str, rng: random.Random, task: str
    ) -> SkillBatch:
        columns = Columns()
        gold = [columns.number(rng.choice(e.positives)) for e in examples]
        for example in examples:
            chosen = rng.sample(example.negatives, min(self.negatives, len(example.negatives)))
            for passage in chosen:
                columns.number(passage)
        queries = [self.query(e, skill, task) for e in examples]
        known = right_of(map(query_key, queries), examples)
        masked = [columns.having(keys) for keys in known]
        read = self.skills.passages(columns.passages)
        return SkillBatch(skill, queries, read, gold, masked, task=task)

    def _rerank(self, examples: Sequence[SkillExample], skill: str, rng: random.Random) -> SkillBatch:
        """Each question with a positive and its own negatives; what lacks is taken from other questions."""
        pool = distinct(p for e in examples for p in (*e.positives, *e.negatives))
        pairs: list[EncoderInput] = []
        for example, right in zip(examples, right_of((e.query for e in examples), examples), strict=True):
            own = [p for p in example.negatives if not is_among(p, right)]
            chosen = rng.sample(own, min(self.negatives, len(own)))
            if len(chosen) < self.negatives:
                seen = right | {key for p in chosen for key in keys_of(p)}
                others = [p for p in pool if not is_among(p, seen)]
                chosen += rng.sample(others, min(self.negatives - len(chosen), len(others)))
            while len(chosen) < self.negatives:  # a batch of one question has no other
                chosen.append(chosen[-1] if chosen else Passage("", ""))
            pairs += [self.skills.pair(example.query, p) for p in (rng.choice(example.positives), *chosen)]
        return SkillBatch(skill, pairs, [], [0] * len(examples), [], 1 + self.negatives)

    def _spans(self, examples: Sequence[SkillExample], skill: str, rng: random.Random) -> SkillBatch:
        """Texts with their entities; other spans are half near these, half anywhere."""
        inputs, entities, others = [], [], []
        for example in examples:
            window, own = self._window(example, rng)
            right = set(own)
            candidates = [s for s in window.candidates() if s not in right]
            near = [s for s in candidates if any(s[0] <= e[1] and s[1] >= e[0] for e in own)]
            chosen = rng.sample(near, min(self.spans // 2, len(near)))
            taken = set(chosen)
            rest = [s for s in candidates if s not in taken]
            chosen += rng.sample(rest, min(self.spans - len(chosen), len(rest)))
            inputs.append(window.input)
            entities.append(own)
            others.append(chosen)
        return SkillBatch(skill, inputs, [], [], [], 0, entities, others)

    def _window(self, example: SkillExample, rng: random.Random) -> tuple[TextWindow, list[Span]]:
        """A window of a text, if there is one with an entity, and the positions of its entities."""
        windows = self.skills.windows(example.query)
        found = [(w, [p for s in example.spans if (p := w.positions(s))]) for w in windows]
        return rng.choice([one for one in found if one[1]] or found[:1])
