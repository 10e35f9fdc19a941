"""What skills are trained on: examples of one skill, in sets."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from dense.models.skill_config import EXPANDED, LINK, SPAN
from dense.models.skill_inputs import Span, check_span
from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.data.parsing import placed


@dataclass(frozen=True, slots=True)
class SkillExample:
    """One example of one skill.

    `query` is a question or, for spans and links, a text with entities at the characters `spans` (a link has
    one). `evidence` is the passage that an expanded query goes on from. Passages of `positives` and
    `negatives` answer it and do not.
    """

    query: str
    positives: tuple[Passage, ...] = ()
    negatives: tuple[Passage, ...] = ()
    evidence: Passage | None = None
    spans: tuple[Span, ...] = ()

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
                remedy="give more data, or a smaller --held-out",
            )
    return rest, [one for one in held_out if one.examples]


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def merged(examples: Iterable[SkillExample]) -> list[SkillExample]:
    """Put together examples of the same query: what is right in one of them is wrong in none."""
    same: dict[Hashable, list[SkillExample]] = {}
    for one in examples:
        before = (one.evidence.title, one.evidence.text) if one.evidence else None
        same.setdefault((one.query, before, one.spans), []).append(one)
    made = []
    for own in same.values():
        positives = distinct(p for one in own for p in one.positives)
        right = {(p.title, p.text) for p in positives}
        negatives = distinct(n for one in own for n in one.negatives if (n.title, n.text) not in right)
        made.append(replace(own[0], positives=tuple(positives), negatives=tuple(negatives)))
    return made


def right_of(keys: Iterable[Hashable], examples: Sequence[SkillExample]) -> list[frozenset[tuple[str, str]]]:
    """Return the titles and texts that are right for each example's query, which may stand in several.

    :param keys: what tells the queries of the examples apart
    """
    known: dict[Hashable, set[tuple[str, str]]] = {}
    asked = list(keys)
    for key, example in zip(asked, examples, strict=True):
        known.setdefault(key, set()).update((p.title, p.text) for p in example.positives)
    return [frozenset(known[key]) for key in asked]


def distinct(passages: Iterable[Passage]) -> list[Passage]:
    """Return passages of different titles or texts, in order."""
    first: dict[tuple[str, str], Passage] = {}
    for one in passages:
        first.setdefault((one.title, one.text), one)
    return list(first.values())
