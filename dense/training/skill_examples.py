"""Training examples of skills, and sets of them."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from dense.models.skill_config import EXPANDED, LINK, SPAN
from dense.models.skill_inputs import Span, check_span
from sparta.base.errors import InputError
from sparta.base.files import by_hash
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.data.parsing import placed
from sparta.training.known import question_key

Key = str | tuple[str, str]
"""The id of a passage, or its title and text."""


@dataclass(frozen=True, slots=True)
class SkillExample:
    """A training example of one skill.

    `query` is a question or, for spans and links, a text with entities at the characters `spans` (a link has
    one span). `evidence` is the passage of an expanded query. `positives` answer the query, `negatives` do
    not. `answers` are strings that a mined negative must not contain.
    """

    query: str
    positives: tuple[Passage, ...] = ()
    negatives: tuple[Passage, ...] = ()
    evidence: Passage | None = None
    spans: tuple[Span, ...] = ()
    answers: tuple[str, ...] = ()

    @property
    def mention_key(self) -> tuple[str, tuple[Span, ...]]:
        """The key of the query and its entities. Examples with the same key share their right passages."""
        return question_key(self.query), self.spans

    def right(self) -> Iterator[Key]:
        """Yield the keys of the passages that must not become negatives: positives and evidence.

        A passage with a title also has the key of its text without one: pairs name negatives by text alone.
        """
        for passage in (*self.positives, *filter(None, [self.evidence])):
            yield from keys_of(passage)
            yield "", passage.text

    def check(self, skill: str) -> None:
        """Raise an error if a skill cannot be trained on the example.

        :raises InputError: a span outside the text, an expanded query without evidence, no positive.
        """
        for span in self.spans:
            check_span(self.query, span)
        if (skill == LINK and len(self.spans) != 1) or (skill == SPAN and not self.spans):
            number = "one entity" if skill == LINK else "at least one entity"
            raise InputError(f"the skill {skill} needs {number} in each text, found {len(self.spans)}")
        if skill == EXPANDED and self.evidence is None:
            raise InputError("an example of the skill expanded needs evidence, found none")
        if skill != SPAN and not self.positives:
            raise InputError("an example needs a positive passage, found none")


@dataclass(frozen=True, slots=True)
class SkillSet:
    """Examples of one skill from one file, with the set's weight and batch size.

    `task` is the class of the file's task, for models that use it (`SkillRecipe.markers`, `query_experts`).
    """

    name: str
    skill: str
    examples: tuple[SkillExample, ...]
    weight: float = 1.0
    batch_size: int = 16
    task: str = ""

    def check(self) -> None:
        """Raise an error if the skill cannot be trained on an example of the set.

        :raises InputError: names the example and what is wrong with it.
        """
        for number, example in enumerate(self.examples, 1):
            with placed(f"{self.name}: example {number:,}"):
                example.check(self.skill)

    def fingerprint(self) -> str:
        """Return a short hash of the skill and the examples."""
        digest = hashlib.sha256(self.skill.encode())
        for example in self.examples:
            texts = [
                (passage.title, passage.text)
                for passage in (*example.positives, *example.negatives, *filter(None, [example.evidence]))
            ]
            digest.update(repr((example.query, example.spans, len(example.positives), texts)).encode())
        return digest.hexdigest()[:16]


def hold_out(sets: Sequence[SkillSet], n: int) -> tuple[list[SkillSet], list[SkillSet]]:
    """Split sets into training examples and held-out examples of `n` queries per set, chosen by their hash.

    A query that is held out in one set is not trained on in any set, in no case or white space. At most half
    of a set's queries are held out.

    :returns: the training sets and the held-out sets
    :raises InputError: fewer than two training examples are left in a set.
    """
    held_out: list[SkillSet] = []
    for data in sets:
        spellings = {question_key(example.query): example.query for example in data.examples}
        queries = by_hash(spellings.values())
        chosen = set(map(question_key, queries[: min(n, len(queries) // 2)]))
        examples = tuple(example for example in data.examples if question_key(example.query) in chosen)
        held_out.append(replace(data, examples=examples))
    held_out_queries = {question_key(example.query) for data in held_out for example in data.examples}
    train = []
    for data in sets:
        examples = tuple(
            example for example in data.examples if question_key(example.query) not in held_out_queries
        )
        train.append(replace(data, examples=examples))
        if len(examples) < 2:
            raise InputError(
                f"training needs 2 examples of {data.skill} that are not held out, found {len(examples)}",
                where=data.name,
                remedy=remedy("use more data, or a smaller {}", Option("held_out")),
            )
    return train, [data for data in held_out if data.examples]


def keys_of(passage: Passage) -> tuple[Key, ...]:
    """Return the keys of a passage: title with text, and id. Passages that share a key count as the same."""
    text = (passage.title, passage.text)
    return (passage.passage_id, text) if passage.passage_id else (text,)


def is_among(passage: Passage, keys: Set[Key]) -> bool:
    """Return whether a passage has one of these keys."""
    return not keys.isdisjoint(keys_of(passage))


def merged(examples: Iterable[SkillExample]) -> list[SkillExample]:
    """Merge examples of the same query, so that a positive of one example is a negative of none.

    This includes examples of a question with different evidence, and the evidence itself.
    """
    same: dict[Hashable, list[SkillExample]] = {}
    known: dict[Hashable, set[Key]] = {}
    for item in examples:
        evidence = (item.evidence.title, item.evidence.text) if item.evidence else None
        same.setdefault((item.query, evidence, item.spans), []).append(item)
        known.setdefault(item.mention_key, set()).update(item.right())
    result = []
    for group in same.values():
        first = group[0]
        positives = distinct(passage for item in group for passage in item.positives)
        right = known[first.mention_key]
        passages = (passage for item in group for passage in item.negatives)
        negatives = distinct(passage for passage in passages if not is_among(passage, right))
        answers = tuple(dict.fromkeys(answer for item in group for answer in item.answers))
        result.append(replace(first, positives=tuple(positives), negatives=tuple(negatives), answers=answers))
    return result


def right_of(keys: Iterable[Hashable], examples: Sequence[SkillExample]) -> list[frozenset[Key]]:
    """Return the keys of all passages that are right for each example's query, in any of the examples.

    :param keys: a key of each example's query as it is encoded. Examples with the same text and mention also
        share their right passages, whatever their evidence.
    """
    known: dict[Hashable, set[Key]] = {}
    query_keys = [(key, e.mention_key) for key, e in zip(keys, examples, strict=True)]
    for keys_of_query, example in zip(query_keys, examples, strict=True):
        for name in keys_of_query:
            known.setdefault(name, set()).update(example.right())
    return [frozenset(known[read] | known[text]) for read, text in query_keys]


def distinct(passages: Iterable[Passage]) -> list[Passage]:
    """Return the passages without those that share a key with an earlier passage, in order."""
    return Columns(passages).passages


class Columns:
    """Distinct passages, numbered in order: the columns of a score matrix."""

    def __init__(self, passages: Iterable[Passage] = ()) -> None:
        self.passages: list[Passage] = []
        self._numbers: dict[Key, int] = {}
        for passage in passages:
            self.number(passage)

    def number(self, passage: Passage) -> int:
        """Return the number of a passage. A passage that shares no key with earlier passages is added."""
        keys = keys_of(passage)
        number = next((self._numbers[key] for key in keys if key in self._numbers), len(self.passages))
        if number == len(self.passages):
            self.passages.append(passage)
        self._numbers.update((key, number) for key in keys if key not in self._numbers)
        return number

    def having(self, keys: Iterable[Key]) -> frozenset[int]:
        """Return the numbers of the passages that have one of these keys."""
        return frozenset(self._numbers[key] for key in keys if key in self._numbers)
