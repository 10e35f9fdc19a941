"""Training examples of a path reader: a question, its passages, its gold passages, and its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparta.base.disk.streams import numbered_lines
from sparta.base.errors import InputError
from sparta.base.files import plain_name
from sparta.base.records import Passage
from sparta.data.answers import answer_spans, normalized
from sparta.data.jsonlist import json_list
from sparta.data.parsing import decoded, parse_object, placed
from sparta.data.qa_formats import stored_form
from sparta.reader.path_inputs import CHOICES
from sparta.reader.records import Text
from sparta.training.known import KnownAnswers

MINED_FORM = '{"question", "answers", "passages": [{"title", "text", "gold"}]}'
HOTPOT_FORM = (
    'HotpotQA\'s JSON list of {"question", "answer", "supporting_facts": [[title, number], …],'
    ' "context": [[title, [sentence, …]], …]}'
)


@dataclass(frozen=True, slots=True)
class PathPassage:
    """A passage, whether it is gold, the positions of answers in it, and, if known, its sentences.

    `sentences` are `(start, end)` spans; `supporting` says for each sentence whether it supports the answer.
    """

    text: Text
    gold: bool
    spans: tuple[tuple[int, int], ...] = ()
    sentences: tuple[tuple[int, int], ...] = ()
    supporting: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class PathExample:
    """A question with its answers and its passages, gold and not."""

    question: str
    answers: tuple[str, ...]
    passages: tuple[PathPassage, ...]

    @property
    def gold(self) -> list[PathPassage]:
        """The passages that the question needs."""
        return [passage for passage in self.passages if passage.gold]

    @property
    def others(self) -> list[PathPassage]:
        """The passages that the question does not need."""
        return [passage for passage in self.passages if not passage.gold]

    @property
    def choice(self) -> int | None:
        """The index of the answer in `CHOICES` (yes, no); None for another answer."""
        answers = {normalized(answer) for answer in self.answers}
        return next((number for number, answer in enumerate(CHOICES) if answer in answers), None)


def read_path_examples(path: Path) -> list[PathExample]:
    """Read the output of `sparta mine-paths`, or HotpotQA's JSON.

    Every mention of an answer in a gold passage is an answer span. Copies of gold passages are left out. So
    are questions without a gold passage, and HotpotQA's questions with a supporting fact that is no sentence
    of their context.

    :raises InputError: the file has another format, or no question remains
    """
    is_hotpot = plain_name(path.name).endswith(".json")
    read_examples = _hotpot(path) if is_hotpot else _mined(path)
    examples = without_gold_negatives(
        [_matched(example) for example in read_examples if example is not None and example.gold]
    )
    if not examples:
        raise InputError(
            "the file has no questions with evidence passages",
            where=str(path),
            remedy=f"write lines of {MINED_FORM}, as `sparta mine-paths` writes them, or {HOTPOT_FORM}",
        )
    return examples


def without_gold_negatives(examples: Sequence[PathExample]) -> list[PathExample]:
    """Return the examples without negatives that equal a gold passage of the same question."""
    known = KnownAnswers()
    for example in examples:
        known.add(example.question, (Passage("", passage.text.text) for passage in example.gold))

    def kept_passages(example: PathExample) -> tuple[PathPassage, ...]:
        return tuple(
            passage
            for passage in example.passages
            if passage.gold or not known.answers_all([example.question], Passage("", passage.text.text))
        )

    return [replace(example, passages=kept_passages(example)) for example in examples]


def _matched(example: PathExample) -> PathExample:
    """Return the example with the positions of its answers in the gold passages; yes and no have none."""
    if example.choice is not None:
        return example
    passages = (
        replace(passage, spans=tuple(answer_spans(passage.text.text, example.answers)))
        if passage.gold
        else passage
        for passage in example.passages
    )
    return replace(example, passages=tuple(passages))


def _mined(path: Path) -> Iterator[PathExample]:
    """Yield the examples of a file that `sparta mine-paths` wrote."""
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        with placed(where), stored_form(where, MINED_FORM):
            record = parse_object(decoded(line))
            answers = tuple(_of(str, answer) for answer in _of(list, record["answers"]))
            passages = tuple(
                PathPassage(
                    Text(_of(str, passage["text"]), _of(str, passage.get("title") or "")),
                    _of(bool, passage["gold"]),
                )
                for passage in _of(list, record["passages"])
            )
            if not answers:
                raise ValueError("the question has no answer")
            example = PathExample(_of(str, record["question"]), answers, passages)
        yield example


def _hotpot(path: Path) -> Iterator[PathExample | None]:
    """Yield HotpotQA's questions as examples; None if a supporting fact is no sentence of the context."""
    for number, record in enumerate(json_list(path, HOTPOT_FORM), 1):
        with stored_form(f"{path}: question {number}", HOTPOT_FORM):
            facts = {
                (_of(str, title), _of(int, sentence_number))
                for title, sentence_number in _of(list, record["supporting_facts"])
            }
            passages = tuple(
                _of_context(_of(str, title), [_of(str, sentence) for sentence in _of(list, sentences)], facts)
                for title, sentences in _of(list, record["context"])
            )
            answer = _of(str, record["answer"])
            if not answer:
                raise ValueError("the question has no answer")
            n_supporting_sentences = sum(sum(passage.supporting) for passage in passages)
            example = PathExample(_of(str, record["question"]), (answer,), passages)
        yield example if n_supporting_sentences == len(facts) else None


def _of_context(title: str, sentences: Sequence[str], facts: set[tuple[str, int]]) -> PathPassage:
    """Return a paragraph of HotpotQA as a passage; a sentence's string includes the space before it.

    :param facts: the question's supporting facts: title and sentence number
    """
    spans, offset = [], 0
    for sentence in sentences:
        spans.append((offset + len(sentence) - len(sentence.lstrip()), offset + len(sentence.rstrip())))
        offset += len(sentence)
    supporting = [(title, i) in facts for i in range(len(sentences))]
    nonempty = [i for i, (start, end) in enumerate(spans) if start < end]
    return PathPassage(
        Text("".join(sentences), title),
        any(supporting),
        sentences=tuple(spans[i] for i in nonempty),
        supporting=tuple(supporting[i] for i in nonempty),
    )


def _of[T](kind: type[T], value: Any) -> T:
    """Return a value if its type is exactly `kind`; else raise TypeError."""
    if type(value) is not kind:
        raise TypeError(f"a value must be of type {kind.__name__}, found {type(value).__name__}")
    return value
