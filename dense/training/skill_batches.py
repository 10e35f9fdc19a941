"""Makes the training batches of skills: their encoder inputs and their correct results."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from dense.encoding.skills import Skills
from dense.models.skill_config import EXPANDED, LINK, RERANK, SINGLE, SPAN
from dense.models.skill_inputs import Span, TextWindow
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
    """Return the name of the expert that encodes the queries of single or expanded retrieval."""
    return skills.config.reader(task) if skill == SINGLE else "expanded"


def query_key(query: EncoderInput) -> tuple[int, ...]:
    """Return a key that is equal for equal queries: the wordpieces and the position of the mention."""
    return (*query.ids, query.start, query.end)


class SkillBatch(NamedTuple):
    """A training batch of one skill.

    `queries` are questions, expanded queries, or texts with a mention. All share `candidates`: `gold` has the
    place of each query's positive, `masked` the places that are no negatives of the query (in-batch
    negatives). For reranking, `queries` are pairs: `width` per question, the positive first. For spans,
    `queries` are texts, `entities` and `others` their spans as first and last positions. `task` is the task
    of the questions.
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
    """Makes batches for a model: `negatives` hard negatives per query, `spans` other spans per text."""

    def __init__(self, skills: Skills, negatives: int = 1, spans: int = 30) -> None:
        self.skills, self.negatives, self.spans = skills, negatives, spans

    def draw(self, data: SkillSet, rng: random.Random) -> SkillBatch:
        """Return a batch of random examples of a set, without repetition."""
        size = min(data.batch_size, len(data.examples))
        chosen = [data.examples[i] for i in rng.sample(range(len(data.examples)), size)]
        return self.of(chosen, data.skill, rng, data.task)

    def of(
        self, examples: Sequence[SkillExample], skill: str, rng: random.Random, task: str = ""
    ) -> SkillBatch:
        """Return the batch of these examples."""
        if skill in (SPAN, RERANK):
            return (self._spans if skill == SPAN else self._rerank)(examples, skill, rng)
        return self._ranking(examples, skill, rng, task)

    def query(self, example: SkillExample, skill: str, task: str = "") -> EncoderInput:
        """Return the encoder input of an example's query."""
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
        gold = [columns.number(rng.choice(example.positives)) for example in examples]
        for example in examples:
            negatives = rng.sample(example.negatives, min(self.negatives, len(example.negatives)))
            for passage in negatives:
                columns.number(passage)
        queries = [self.query(example, skill, task) for example in examples]
        known = right_of(map(query_key, queries), examples)
        masked = [columns.having(keys) for keys in known]
        candidates = self.skills.passages(columns.passages)
        return SkillBatch(skill, queries, candidates, gold, masked, task=task)

    def _rerank(self, examples: Sequence[SkillExample], skill: str, rng: random.Random) -> SkillBatch:
        """Return each question with a positive and negatives, if needed from other questions' passages."""
        pool = distinct(passage for item in examples for passage in (*item.positives, *item.negatives))
        pairs: list[EncoderInput] = []
        known = right_of((example.query for example in examples), examples)
        for example, right in zip(examples, known, strict=True):
            negatives = [p for p in example.negatives if not is_among(p, right)]
            chosen = rng.sample(negatives, min(self.negatives, len(negatives)))
            if len(chosen) < self.negatives:
                used_keys = right | {key for p in chosen for key in keys_of(p)}
                others = [p for p in pool if not is_among(p, used_keys)]
                chosen += rng.sample(others, min(self.negatives - len(chosen), len(others)))
            while len(chosen) < self.negatives:  # too few passages in the batch: repeat the last negative
                chosen.append(chosen[-1] if chosen else Passage("", ""))
            pairs += [self.skills.pair(example.query, p) for p in (rng.choice(example.positives), *chosen)]
        return SkillBatch(skill, pairs, [], [0] * len(examples), [], 1 + self.negatives)

    def _spans(self, examples: Sequence[SkillExample], skill: str, rng: random.Random) -> SkillBatch:
        """Return texts with their entities and other spans: half overlap an entity, half are anywhere."""
        inputs, entities, others = [], [], []
        for example in examples:
            window, gold = self._window(example, rng)
            gold_set = set(gold)
            candidates = [span for span in window.candidates() if span not in gold_set]
            near = [
                span
                for span in candidates
                if any(span[0] <= entity[1] and span[1] >= entity[0] for entity in gold)
            ]
            chosen = rng.sample(near, min(self.spans // 2, len(near)))
            taken = set(chosen)
            remaining = [span for span in candidates if span not in taken]
            chosen += rng.sample(remaining, min(self.spans - len(chosen), len(remaining)))
            inputs.append(window.input)
            entities.append(gold)
            others.append(chosen)
        return SkillBatch(skill, inputs, [], [], [], 0, entities, others)

    def _window(self, example: SkillExample, rng: random.Random) -> tuple[TextWindow, list[Span]]:
        """Return a random window, with an entity if possible, and the positions of its entities."""
        windows = self.skills.windows(example.query)
        with_spans = [
            (window, [positions for span in example.spans if (positions := window.positions(span))])
            for window in windows
        ]
        return rng.choice([item for item in with_spans if item[1]] or with_spans[:1])
