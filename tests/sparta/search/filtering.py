"""Records with metadata of every kind, random filters, and what they keep by plain means."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping
from typing import Any

from sparta.base.records import Hit

WORDS = ["moon", "sun", "earth", "river", "king", "city", "star", "ocean", "old", "new"]
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
LONG = "é" * 300
TEXTS = ["en", "de", "fr", "", LONG, LONG + "x", "2020-05-01", "1e3", "café", "a\nb", "x" * 256, "x" * 257]


def random_record(rng: random.Random, passage_id: str) -> dict[str, Any]:
    """A record of few words, so that ties are many; every field is missing now and then."""
    words = rng.choices(WORDS, k=rng.randint(1, 6))
    record: dict[str, Any] = {
        "title": rng.choice(["Moon", "Sun", "Earth", ""]),
        "lang": rng.choice(TEXTS),
        "year": rng.choice([1990, 1991, 1992, 2000, -5, 0, "1991", "1992.0", 1990.5, 2**53 + 1]),
        "price": rng.choice([1.5, -0.0, 0.1, 1e300, 2.0, 10**20, 10**400, "3", True, None]),
        "tags": rng.sample(["a", "b", "c", "d", 7, 2.5], rng.randint(0, 4)),
        "flag": rng.random() < 0.5,
        "odd": rng.choice([{"x": 1}, [["y"]], [None], [], None, "plain"]),
        "author": rng.choice(
            [
                {"name": "Ada", "born": 1815},
                {"name": ["Ada", "Bob"]},
                [{"name": "Bob"}, {"born": 1990.0}],
                "Ada",
                {},
            ]
        ),
        "author.name": rng.choice(["Eve", None, None]),
    }
    kept = {name: value for name, value in record.items() if rng.random() < 0.9}
    vector = {word: words.count(word) * 3 for word in words}
    return {"id": passage_id, "contents": " ".join(words), "vector": vector, **kept}


FIELDS = ["title", "lang", "year", "price", "tags", "flag", "author.name", "author.born", "odd.x"]


def random_filter(rng: random.Random, level: int = 0) -> dict[str, Any]:
    """One to three conditions of every kind, also combined."""
    conditions = random_conditions(rng)
    while level < 3 and rng.random() < 0.4:
        parts = [random_filter(rng, level + 1) for _ in range(rng.randint(1, 3))]
        conditions |= rng.choice([{"or": parts}, {"and": parts}, {"not": parts}, {"not": parts[0]}])
    return conditions


def random_conditions(rng: random.Random) -> dict[str, Any]:
    """One to three conditions on fields."""
    conditions: dict[str, Any] = {}
    for name in rng.sample(FIELDS, rng.randint(1, 3)):
        kind = rng.random()
        values = {
            "title": ["Moon", "Sun", "none"],
            "lang": TEXTS,
            "tags": ["a", "b", 7, "zz"],
            "author.name": ["Ada", "Bob", "Eve"],
            "author.born": [1815, 1990, "1990"],
        }.get(name, [1990, "1991", 2.0, 1e300, True, 0, "true", 10**20, 10**400])
        if kind < 0.4:
            conditions[name] = rng.choice(values)
        elif kind < 0.6:
            conditions[name] = {"in": rng.sample(values, 2)}
        elif kind < 0.85:
            low, high = sorted(rng.choice([-6, 0, 0.1, 1990, 1991, 1992.5, 2001, 1e10]) for _ in range(2))
            bounds = {rng.choice(["gt", "gte"]): low, rng.choice(["lt", "lte"]): high}
            conditions[name] = dict(rng.sample(sorted(bounds.items()), rng.randint(1, 2)))
        else:
            low_text, high_text = sorted(
                rng.choice(["", "a", "b", "en", "c\0", "é", "Moon", "2"]) for _ in range(2)
            )
            conditions[name] = {rng.choice(["gt", "gte"]): low_text, rng.choice(["lt", "lte"]): high_text}
        if rng.random() < 0.1:
            conditions[name] = {"exists": rng.random() < 0.5}
        if rng.random() < 0.2:
            conditions[name] = {"not": conditions[name]}
    return conditions


def texts_of(record: Mapping[str, Any], name: str) -> list[str]:
    """The values of a field as texts, those of objects by their path; what is no value has none."""
    own = _texts(record.get(name), name)
    for end in [i for i, letter in enumerate(name) if letter == "."]:
        outer = record.get(name[:end])
        for part in outer if isinstance(outer, list) else [outer]:
            own += texts_of(part, name[end + 1 :]) if isinstance(part, dict) else []
    return own


def _texts(value: Any, name: str) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if any(not isinstance(one, str | int | float) for one in values) or (name == "title" and value == ""):
        return []
    return [value if isinstance(value, str) else _number(value) for value in values]


def _number(value: float) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return json.dumps(float(value) if abs(value) in (10**20,) else value)


def keeps(record: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    """Whether a record passes a filter, by plain comparisons."""
    return all(_passes(record, name, wanted) for name, wanted in conditions.items())


def _passes(record: Mapping[str, Any], name: str, wanted: Any) -> bool:
    if name in ("and", "or", "not"):
        held = [keeps(record, part) for part in (wanted if isinstance(wanted, list) else [wanted])]
        return {"and": all(held), "or": any(held), "not": not any(held)}[name]
    if isinstance(wanted, dict) and "not" in wanted:
        return not _passes(record, name, wanted["not"])
    if isinstance(wanted, dict) and "exists" in wanted:
        return bool(texts_of(record, name)) is wanted["exists"]
    return any(_holds(text, wanted) for text in texts_of(record, name))


def _holds(text: str, wanted: Any) -> bool:
    if not isinstance(wanted, dict):
        return text in texts_of({"v": wanted}, "v")
    if "in" in wanted:
        return any(_holds(text, one) for one in wanted["in"])
    if all(isinstance(bound, str) for bound in wanted.values()):
        value: Any = text.encode()
        bounds: dict[str, Any] = {name: bound.encode() for name, bound in wanted.items()}
    else:
        if not NUMBER.fullmatch(text) or math.isinf(float(text)):
            return False
        value, bounds = float(text), wanted
    tests = {"gt": value.__gt__, "gte": value.__ge__, "lt": value.__lt__, "lte": value.__le__}
    return all(tests[name](type(value)(bound)) for name, bound in bounds.items())


def record_of(hit: Hit) -> dict[str, Any]:
    """What filters look at."""
    return {"title": hit.title, **hit.metadata}


def group_of(hit: Hit, name: str) -> Any:
    """What collapsing compares: the set of a field's values; itself where there is none."""
    return frozenset(texts_of(record_of(hit), name)) or hit.passage_id
