"""Small sets of each skill, and a training of the tiny model on them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from dense.models.tasks import class_of
from dense.training.skill_examples import SkillExample, SkillSet
from dense.training.skill_train import SkillRecipe, SkillTraining
from sparta.base.records import Passage

NAMES = ["larry page", "einstein", "jupiter", "the king", "google", "paris", "sergey brin", "the queen"]


def sets_of(words: list[str], n: int = 24, size: int = 4) -> list[SkillSet]:
    """A passage has a name as title; what asks for it has its words, a mention its name."""
    rng = random.Random(5)
    passages = [
        Passage(str(i), f"{NAMES[i % len(NAMES)]} {' '.join(rng.sample(words, 6))}", NAMES[i % len(NAMES)])
        for i in range(n)
    ]
    single, expanded, link, span, rerank = [], [], [], [], []
    for i, one in enumerate(passages):
        own = one.text.split()[-3:]
        others = tuple(p for p in (passages[(i + 1) % n], passages[(i + 3) % n]))
        question = " ".join(own)
        single.append(SkillExample(f"who {question}", (one,), others[:1]))
        expanded.append(SkillExample(f"what {question}", (one,), (), evidence=others[1]))
        before = " ".join(rng.sample(words, 2 + i % 3))
        text = f"{before} {one.title} {question}"
        place = (len(before) + 1, len(before) + 1 + len(one.title))
        link.append(SkillExample(text, (one,), (), spans=(place,)))
        span.append(SkillExample(f"{text} .", spans=(place,)))
        rerank.append(SkillExample(f"when {question}", (one,), others))
    made = {"single": single, "expanded": expanded, "span": span, "link": link, "rerank": rerank}
    return [SkillSet(name, name, tuple(own), 1.0, size) for name, own in made.items()]


def recipe(encoder: str, **changes: Any) -> SkillRecipe:
    usual: dict[str, Any] = {
        "encoder": encoder,
        "steps": 8,
        "learning_rate": 2e-3,
        "max_length": 64,
        "spans": 12,
        "held_out": 4,
        "validate_every": 4,
        "checkpoint_every": 2,
        "seed": 3,
        "device": "cpu",
    }
    return SkillRecipe(**{**usual, **changes})


def training(encoder: str, sets: list[SkillSet], folder: Path, **changes: Any) -> SkillTraining:
    return SkillTraining(recipe(encoder, **changes), sets, folder)


def of_tasks(words: list[str]) -> list[SkillSet]:
    """The sets of two tasks: fact checking and dialogue."""
    single = sets_of(words)[0]
    return [
        replace(single, name=name, task=class_of(name)) for name in ("fever.train.jsonl", "wow.train.jsonl")
    ]
