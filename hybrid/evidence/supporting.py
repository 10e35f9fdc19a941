"""HotpotQA's supporting sentences, and the measures of them and of the answer (Yang et al., 2018)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybrid.multihop.paths import Evidence, EvidencePath
from sparta.data.answers import normalized
from sparta.data.parsing import BadRecordError
from sparta.data.sentences import Splitter
from sparta.reader.records import text_of

OF_SENTENCES = ("sup_EM", "sup_F1", "joint_EM", "joint_F1")
_CLOSED = frozenset(("yes", "no", "noanswer"))
"""Answers that share no words with others, as HotpotQA counts them."""
_REMEDY = (
    'write "supporting_facts": [[title, number], …] and "context": [[title, [sentence, …]], …], as HotpotQA'
    " does"
)

type Fact = tuple[str, int]
"""A sentence: the title of its paragraph, and its number in the paragraph, from 0."""


@dataclass(frozen=True, slots=True)
class Supporting:
    """The facts that support the answer of a question, and the sentences of its context, by title."""

    facts: frozenset[Fact]
    sentences: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def supporting_of(record: Mapping[str, Any]) -> Supporting | None:
    """Return the supporting facts of a record of HotpotQA; None for a record without the field.

    :raises BadRecordError: facts or a context of another form.
    """
    if record.get("supporting_facts") is None:
        return None
    facts = _pairs(record, "supporting_facts", "sent_id")
    context = _pairs(record, "context", "sentences")
    if not all(type(number) is int for _, number in facts):
        raise _broken("supporting_facts")
    if not all(isinstance(own, list) and all(isinstance(s, str) for s in own) for _, own in context):
        raise _broken("context")
    return Supporting(frozenset(facts), {title: tuple(sentences) for title, sentences in context})


def _pairs(record: Mapping[str, Any], name: str, second: str) -> list[tuple[str, Any]]:
    """The pairs (title, value) of a field: a list of them, or columns as Hugging Face stores them."""
    value: Any = record.get(name) or []
    if isinstance(value, dict):
        titles, others = value.get("title"), value.get(second)
        if not isinstance(titles, list) or not isinstance(others, list) or len(titles) != len(others):
            raise _broken(name)
        value = list(zip(titles, others, strict=True))
    if not isinstance(value, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        raise _broken(name)
    return [(title, one) for title, one in value]


def _broken(name: str) -> BadRecordError:
    return BadRecordError("broken supporting facts", f"expected {name} of HotpotQA's form", remedy=_REMEDY)


def facts_of(path: EvidencePath, known: Supporting, split: Splitter) -> frozenset[Fact]:
    """Return the sentences that a reader of paths calls supporting, numbered as HotpotQA numbers them.

    A supporting span is each sentence of the context of which it covers at least half, else the sentence of
    which it covers most. `split` numbers the sentences of passages that the context lacks.
    """
    return frozenset(fact for one in path.passages for fact in _facts_in(one, known, split))


def _facts_in(one: Evidence, known: Supporting, split: Splitter) -> Iterator[Fact]:
    if not one.supporting:
        return
    title, text = one.hit.title, text_of(one.hit).text
    sentences = _places(text, known.sentences.get(title, ()))
    if not any(start < end for start, end in sentences):
        sentences = split(text)
    for start, end in one.supporting:
        shared = [max(0, min(end, last) - max(start, first)) for first, last in sentences]
        most = max(shared, default=0)
        halves = [i for i, (a, b) in enumerate(sentences) if shared[i] and 2 * shared[i] >= b - a]
        yield from ((title, i) for i in halves or ([shared.index(most)] if most else []))


def _places(text: str, sentences: Sequence[str]) -> list[tuple[int, int]]:
    """Return where sentences stand in a text, in order; `(0, 0)` for a sentence that does not."""
    places, at = [], 0
    for sentence in map(str.strip, sentences):
        start = text.find(sentence, at) if sentence else -1
        at = start + len(sentence) if start >= 0 else at
        places.append((start, at) if start >= 0 else (0, 0))
    return places


def measured(
    questions: Mapping[str, Supporting],
    facts: Mapping[str, Collection[Fact]],
    answers: Mapping[str, str | None],
    expected: Mapping[str, Sequence[str]],
    language: str = "en",
) -> dict[str, dict[str, float]]:
    """Return `{measure: {query id: value}}` of all questions, as HotpotQA's evaluation defines them.

    :param facts: predicted sentences by query id; a question without any entry counts 0
    :param answers: predicted answers by query id; without an answer the joint measures are 0
    :param expected: right answers by query id; the best of several counts
    """
    values = {
        q: _of_question(own, facts.get(q), answers.get(q), expected.get(q, ()), language)
        for q, own in questions.items()
    }
    return {name: {q: one[i] for q, one in values.items()} for i, name in enumerate(OF_SENTENCES)}


def _of_question(
    known: Supporting,
    facts: Collection[Fact] | None,
    answer: str | None,
    expected: Sequence[str],
    language: str,
) -> tuple[float, float, float, float]:
    if facts is None:
        return 0.0, 0.0, 0.0, 0.0
    found = set(facts)
    exact = float(found == known.facts)
    shared = len(found & known.facts)
    precision, recall = (shared / len(own) if own else 0.0 for own in (found, known.facts))
    of_answers = [_of_answer(answer, one, language) for one in expected] if answer is not None else []
    joint_exact = max((exact * same for same, _, _ in of_answers), default=0.0)
    joint_f1 = max((_f1(precision * p, recall * r) for _, p, r in of_answers), default=0.0)
    return exact, _f1(precision, recall), joint_exact, joint_f1


def _of_answer(answer: str, expected: str, language: str) -> tuple[float, float, float]:
    """Whether an answer is the expected one, and precision and recall of its words."""
    said, right = normalized(answer, language), normalized(expected, language)
    if said != right and not _CLOSED.isdisjoint((said, right)):
        return 0.0, 0.0, 0.0
    words, others = said.split(), right.split()
    shared = (Counter(words) & Counter(others)).total()
    return float(said == right), shared / max(1, len(words)), shared / max(1, len(others))


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
