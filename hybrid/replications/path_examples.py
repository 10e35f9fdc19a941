"""What a reader of paths is trained on: a question, its passages, which of them are needed, the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError
from sparta.base.files import numbered_lines, plain_name
from sparta.data.answers import answer_spans, normalized
from sparta.data.jsonlist import json_list
from sparta.data.parsing import decoded, parse_object, placed
from sparta.data.qa_formats import stored_form
from sparta.reader.path_reader import CHOICES
from sparta.reader.records import Text

MINED_FORM = '{"question", "answers", "passages": [{"title", "text", "gold"}]}'
HOTPOT_FORM = (
    'HotpotQA\'s JSON list of {"question", "answer", "supporting_facts": [[title, number], …],'
    ' "context": [[title, [sentence, …]], …]}'
)


@dataclass(frozen=True, slots=True)
class PathPassage:
    """A passage: whether the question needs it, where an answer stands in it, and, if known, its sentences
    `(start, end)` with which of them support the answer.
    """

    text: Text
    gold: bool
    spans: tuple[tuple[int, int], ...] = ()
    sentences: tuple[tuple[int, int], ...] = ()
    supporting: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class PathExample:
    """A question, its answers, and passages of which some are needed."""

    question: str
    answers: tuple[str, ...]
    passages: tuple[PathPassage, ...]

    @property
    def gold(self) -> list[PathPassage]:
        """The passages that the question needs."""
        return [one for one in self.passages if one.gold]

    @property
    def others(self) -> list[PathPassage]:
        """The passages that it does not need."""
        return [one for one in self.passages if not one.gold]

    @property
    def choice(self) -> int | None:
        """Which of yes and no the answer is; None where it is neither."""
        said = {normalized(one) for one in self.answers}
        return next((i for i, one in enumerate(CHOICES) if one in said), None)


def read_path_examples(path: Path) -> list[PathExample]:
    """Read what `sparta mine-paths` wrote, or HotpotQA's JSON.

    In a passage that is needed, every mention of an answer is a right one; copies of it are left out.
    Questions without a passage that is needed are left out, and those of HotpotQA with a supporting fact that
    is no sentence of their context.

    :raises InputError: another form, or nothing is left.
    """
    hotpot = plain_name(path.name).endswith(".json")
    found = _hotpot(path) if hotpot else _mined(path)
    kept = _without_gold_negatives([_matched(one) for one in found if one is not None and one.gold])
    if not kept:
        raise InputError(
            "expected questions with passages that they need, found none",
            where=str(path),
            remedy=f"give lines of {MINED_FORM}, as `sparta mine-paths` writes them, or {HOTPOT_FORM}",
        )
    return kept


def _without_gold_negatives(examples: Sequence[PathExample]) -> list[PathExample]:
    """Leave out copies of what a question needs, in this example or in another of the question."""
    needed: dict[str, set[str]] = {}
    for one in examples:
        needed.setdefault(one.question, set()).update(passage.text.text for passage in one.gold)

    def kept(one: PathExample) -> tuple[PathPassage, ...]:
        return tuple(p for p in one.passages if p.gold or p.text.text not in needed[one.question])

    return [replace(one, passages=kept(one)) for one in examples]


def _matched(one: PathExample) -> PathExample:
    """The example with the places of its answers; yes and no have none."""
    if one.choice is not None:
        return one
    passages = (
        replace(p, spans=tuple(answer_spans(p.text.text, one.answers))) if p.gold else p for p in one.passages
    )
    return replace(one, passages=tuple(passages))


def _mined(path: Path) -> Iterator[PathExample]:
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        with placed(where), stored_form(where, MINED_FORM):
            record = parse_object(decoded(line))
            answers = tuple(_of(str, one) for one in _of(list, record["answers"]))
            passages = tuple(
                PathPassage(Text(_of(str, p["text"]), _of(str, p.get("title") or "")), _of(bool, p["gold"]))
                for p in _of(list, record["passages"])
            )
            if not answers:
                raise ValueError("no answer")
            example = PathExample(_of(str, record["question"]), answers, passages)
        yield example


def _hotpot(path: Path) -> Iterator[PathExample | None]:
    for number, record in enumerate(json_list(path, HOTPOT_FORM), 1):
        with stored_form(f"{path}: question {number}", HOTPOT_FORM):
            facts = {
                (_of(str, title), _of(int, which)) for title, which in _of(list, record["supporting_facts"])
            }
            passages = tuple(
                _of_context(_of(str, title), [_of(str, one) for one in _of(list, sentences)], facts)
                for title, sentences in _of(list, record["context"])
            )
            answer = _of(str, record["answer"])
            if not answer:
                raise ValueError("no answer")
            stored = sum(sum(one.supporting) for one in passages)
            example = PathExample(_of(str, record["question"]), (answer,), passages)
        yield example if stored == len(facts) else None


def _of_context(title: str, sentences: Sequence[str], facts: set[tuple[str, int]]) -> PathPassage:
    """A paragraph of HotpotQA's; its sentences begin with the space that parts them."""
    spans, at = [], 0
    for one in sentences:
        spans.append((at + len(one) - len(one.lstrip()), at + len(one.rstrip())))
        at += len(one)
    supporting = [(title, i) in facts for i in range(len(sentences))]
    kept = [i for i, (start, end) in enumerate(spans) if start < end]
    return PathPassage(
        Text("".join(sentences), title),
        any(supporting),
        sentences=tuple(spans[i] for i in kept),
        supporting=tuple(supporting[i] for i in kept),
    )


def _of[T](kind: type[T], value: Any) -> T:
    """A value of this kind, and of no other."""
    if type(value) is not kind:
        raise TypeError(f"{kind.__name__} is wanted, not {type(value).__name__}")
    return value
