"""What skills are trained on: examples of one skill, in sets."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from dense.models.skill_config import EXPANDED, LINK, SPAN
from dense.models.skill_inputs import Span, check_span
from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.data.parsing import placed

Key = str | tuple[str, str]
"""The id of a passage, or its title and text."""


@dataclass(frozen=True, slots=True)
class SkillExample:
    """One example of one skill.

    `query` is a question or, for spans and links, a text with entities at the characters `spans` (a link has
    one). `evidence` is the passage that an expanded query goes on from. Passages of `positives` and
    `negatives` answer it and do not. `answers` are texts that a mined negative must not hold.
    """

    query: str
    positives: tuple[Passage, ...] = ()
    negatives: tuple[Passage, ...] = ()
    evidence: Passage | None = None
    spans: tuple[Span, ...] = ()
    answers: tuple[str, ...] = ()

    def right(self) -> Iterator[Key]:
        """Yield the keys of the passages that are no negatives: positives, and evidence."""
        return (key for p in (*self.positives, *filter(None, [self.evidence])) for key in keys_of(p))

    def check(self, skill: str) -> None:
        """Refuse what a skill cannot be trained on.

        :raises InputError: a span outside the text, an expanded query without evidence, no positive.
        """
        for span in self.spans:
            check_span(self.query, span)
        if (skill == LINK and len(self.spans) != 1) or (skill == SPAN and not self.spans):
            raise InputError(f"expected entities of the skill {skill}, found {len(self.spans)}")
        if skill == EXPANDED and self.evidence is None:
            raise InputError("expected evidence of an expanded query, found none")
        if skill != SPAN and not self.positives:
            raise InputError("expected a passage that answers, found none")


@dataclass(frozen=True, slots=True)
class SkillSet:
    """Examples of one skill from one file, how often batches are drawn from it, and how large they are.

    `task` is the class of the file's task, where that matters (`SkillRecipe.markers`, `query_experts`).
    """

    name: str
    skill: str
    examples: tuple[SkillExample, ...]
    weight: float = 1.0
    batch_size: int = 16
    task: str = ""

    def check(self) -> None:
        """Refuse a set with an example that its skill cannot be trained on.

        :raises InputError: which example, and what is wrong with it.
        """
        for number, example in enumerate(self.examples, 1):
            with placed(f"{self.name}: example {number:,}"):
                example.check(self.skill)

    def fingerprint(self) -> str:
        """A short hash of what a training sees."""
        digest = hashlib.sha256(self.skill.encode())
        for e in self.examples:
            texts = [(p.title, p.text) for p in (*e.positives, *e.negatives, *filter(None, [e.evidence]))]
            digest.update(repr((e.query, e.spans, len(e.positives), texts)).encode())
        return digest.hexdigest()[:16]


def hold_out(sets: Sequence[SkillSet], n: int) -> tuple[list[SkillSet], list[SkillSet]]:
    """Return what is trained on, and examples of `n` queries of each set, taken by the hash of these.

    No query that is held out in one set is trained on in another. At most half of a set is held out.

    :raises InputError: nothing is left of a set.
    """
    held_out: list[SkillSet] = []
    for one in sets:
        queries = sorted({e.query for e in one.examples}, key=_hash)
        chosen = set(queries[: min(n, len(queries) // 2)])
        own = [e for e in one.examples if e.query in chosen]
        held_out.append(replace(one, examples=tuple(own)))
    taken = {e.query for one in held_out for e in one.examples}
    rest = [replace(s, examples=tuple(e for e in s.examples if e.query not in taken)) for s in sets]
    for one in rest:
        if len(one.examples) < 2:
            raise InputError(
                f"expected examples of {one.skill} beside those that are held out, found {len(one.examples)}",
                where=one.name,
                remedy=remedy("give more data, or a smaller {}", Option("held_out")),
            )
    return rest, [one for one in held_out if one.examples]


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def keys_of(passage: Passage) -> tuple[Key, ...]:
    """Return the keys of a passage: title with whole text, and id. Passages that share a key are the same."""
    text = (passage.title, passage.text)
    return (passage.passage_id, text) if passage.passage_id else (text,)


def is_among(passage: Passage, keys: Set[Key]) -> bool:
    """Return whether a passage has one of these keys."""
    return not keys.isdisjoint(keys_of(passage))


def merged(examples: Iterable[SkillExample]) -> list[SkillExample]:
    """Put together examples of the same query: what is right in one of them is wrong in none.

    Of a question that goes on from several passages, all that is right after one of them is wrong after none,
    and so are these passages.
    """
    same: dict[Hashable, list[SkillExample]] = {}
    known: dict[Hashable, set[Key]] = {}
    for one in examples:
        before = (one.evidence.title, one.evidence.text) if one.evidence else None
        same.setdefault((one.query, before, one.spans), []).append(one)
        known.setdefault((one.query, one.spans), set()).update(one.right())
    made = []
    for own in same.values():
        positives = distinct(p for one in own for p in one.positives)
        right = known[own[0].query, own[0].spans]
        negatives = distinct(n for one in own for n in one.negatives if not is_among(n, right))
        answers = tuple(dict.fromkeys(answer for one in own for answer in one.answers))
        made.append(replace(own[0], positives=tuple(positives), negatives=tuple(negatives), answers=answers))
    return made


def right_of(keys: Iterable[Hashable], examples: Sequence[SkillExample]) -> list[frozenset[Key]]:
    """Return the keys of the passages that are right for each example's query, which may stand in several.

    :param keys: what tells the queries of the examples apart as they are read; examples of the same text and
        mention share their right passages, too, whatever passage they go on from
    """
    known: dict[Hashable, set[Key]] = {}
    names = [(key, (e.query, e.spans)) for key, e in zip(keys, examples, strict=True)]
    for own, example in zip(names, examples, strict=True):
        for name in own:
            known.setdefault(name, set()).update(example.right())
    return [frozenset(known[read] | known[text]) for read, text in names]


def distinct(passages: Iterable[Passage]) -> list[Passage]:
    """Return passages that share no key, in order."""
    return Columns(passages).passages


class Columns:
    """Different passages, and their numbers by key."""

    def __init__(self, passages: Iterable[Passage] = ()) -> None:
        self.passages: list[Passage] = []
        self._numbers: dict[Key, int] = {}
        for passage in passages:
            self.number(passage)

    def number(self, passage: Passage) -> int:
        """Return the number of a passage, which is added if no other shares a key with it."""
        keys = keys_of(passage)
        number = next((self._numbers[key] for key in keys if key in self._numbers), len(self.passages))
        if number == len(self.passages):
            self.passages.append(passage)
        self._numbers.update((key, number) for key in keys if key not in self._numbers)
        return number

    def having(self, keys: Iterable[Key]) -> frozenset[int]:
        """Return the numbers of the passages that have one of these keys."""
        return frozenset(self._numbers[key] for key in keys if key in self._numbers)
