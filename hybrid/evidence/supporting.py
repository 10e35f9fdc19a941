"""HotpotQA's supporting sentences, with measures of the sentences and of the answer (Yang et al., 2018)."""

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
"""Answers that HotpotQA's F1 compares only as a whole."""
_REMEDY = (
    'write HotpotQA\'s format: "supporting_facts": [[title, number], …] and "context": [[title, [sentence,'
    " …]], …]"
)

type Fact = tuple[str, int]
"""A sentence, as (title, number): the title of its paragraph, and its number in the paragraph, from 0."""


@dataclass(frozen=True, slots=True)
class Supporting:
    """The sentences that support the answer to a question, and the sentences of its context, by title."""

    facts: frozenset[Fact]
    sentences: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def supporting_of(record: Mapping[str, Any]) -> Supporting | None:
    """Return the supporting facts of a HotpotQA record; None for a record without `supporting_facts`.

    :raises BadRecordError: the facts or the context have another form.
    """
    if record.get("supporting_facts") is None:
        return None
    facts = _pairs(record, "supporting_facts", "sent_id")
    context = _pairs(record, "context", "sentences")
    if not all(type(number) is int for _, number in facts):
        raise _format_error("supporting_facts")
    if not all(
        isinstance(texts, list) and all(isinstance(text, str) for text in texts) for _, texts in context
    ):
        raise _format_error("context")
    return Supporting(frozenset(facts), {title: tuple(sentences) for title, sentences in context})


def _pairs(record: Mapping[str, Any], name: str, value_key: str) -> list[tuple[str, Any]]:
    """Return a field's (title, value) pairs, from a list of pairs or from two columns (Hugging Face)."""
    value: Any = record.get(name) or []
    if isinstance(value, dict):
        titles, values = value.get("title"), value.get(value_key)
        if not isinstance(titles, list) or not isinstance(values, list) or len(titles) != len(values):
            raise _format_error(name)
        value = list(zip(titles, values, strict=True))
    if not isinstance(value, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        raise _format_error(name)
    return [(title, paired) for title, paired in value]


def _format_error(name: str) -> BadRecordError:
    return BadRecordError("broken supporting facts", f"expected {name} in HotpotQA's format", remedy=_REMEDY)


def facts_of(path: EvidencePath, gold: Supporting, split: Splitter) -> frozenset[Fact]:
    """Return the sentences that a reader of paths marks as supporting, numbered as in HotpotQA.

    The reader marks spans. A marked span selects each sentence of which the span covers at least half; if the
    span covers half of no sentence, it selects the sentence that it covers most. `split` splits the text of
    passages that the context lacks.
    """
    return frozenset(fact for evidence in path.passages for fact in _facts_in(evidence, gold, split))


def _facts_in(evidence: Evidence, gold: Supporting, split: Splitter) -> Iterator[Fact]:
    """Yield the supporting facts of one passage of a path."""
    if not evidence.supporting:
        return
    title, text = evidence.hit.title, text_of(evidence.hit).text
    sentence_spans = _sentence_spans(text, gold.sentences.get(title, ()))
    if not any(start < end for start, end in sentence_spans):
        sentence_spans = split(text)
    for start, end in evidence.supporting:
        overlaps = [max(0, min(end, last) - max(start, first)) for first, last in sentence_spans]
        longest = max(overlaps, default=0)
        covered = [
            number
            for number, (first, last) in enumerate(sentence_spans)
            if overlaps[number] and 2 * overlaps[number] >= last - first
        ]
        yield from ((title, number) for number in covered or ([overlaps.index(longest)] if longest else []))


def _sentence_spans(text: str, sentences: Sequence[str]) -> list[tuple[int, int]]:
    """Return the span of each sentence in a text, in order; `(0, 0)` for a sentence that the text lacks."""
    spans, position = [], 0
    for sentence in map(str.strip, sentences):
        start = text.find(sentence, position) if sentence else -1
        position = start + len(sentence) if start >= 0 else position
        spans.append((start, position) if start >= 0 else (0, 0))
    return spans


def measured(
    questions: Mapping[str, Supporting],
    facts: Mapping[str, Collection[Fact]],
    answers: Mapping[str, str | None],
    expected: Mapping[str, Sequence[str]],
    language: str = "en",
) -> dict[str, dict[str, float]]:
    """Return `{measure: {query id: value}}` for all questions, as HotpotQA's evaluation defines the measures.

    :param facts: predicted sentences by query id; a question without an entry counts 0
    :param answers: predicted answers by query id; without an answer the joint measures are 0
    :param expected: correct answers by query id; the best-matching correct answer counts
    """
    values = {
        query_id: _question_measures(
            supporting, facts.get(query_id), answers.get(query_id), expected.get(query_id, ()), language
        )
        for query_id, supporting in questions.items()
    }
    return {
        name: {query_id: question_values[position] for query_id, question_values in values.items()}
        for position, name in enumerate(OF_SENTENCES)
    }


def _question_measures(
    gold: Supporting,
    facts: Collection[Fact] | None,
    answer: str | None,
    expected: Sequence[str],
    language: str,
) -> tuple[float, float, float, float]:
    """Return the four measures of one question, in the order of `OF_SENTENCES`."""
    if facts is None:
        return 0.0, 0.0, 0.0, 0.0
    predicted = set(facts)
    exact = float(predicted == gold.facts)
    shared_count = len(predicted & gold.facts)
    precision, recall = (
        shared_count / len(sentences) if sentences else 0.0 for sentences in (predicted, gold.facts)
    )
    answer_scores = (
        [_answer_scores(answer, correct, language) for correct in expected] if answer is not None else []
    )
    joint_exact = max((exact * is_equal for is_equal, _, _ in answer_scores), default=0.0)
    joint_f1 = max(
        (
            _f1(precision * answer_precision, recall * answer_recall)
            for _, answer_precision, answer_recall in answer_scores
        ),
        default=0.0,
    )
    return exact, _f1(precision, recall), joint_exact, joint_f1


def _answer_scores(answer: str, expected: str, language: str) -> tuple[float, float, float]:
    """Return whether an answer equals the expected one, and its precision and recall of words."""
    answer_text, expected_text = normalized(answer, language), normalized(expected, language)
    if answer_text != expected_text and not _CLOSED.isdisjoint((answer_text, expected_text)):
        return 0.0, 0.0, 0.0
    words, expected_words = answer_text.split(), expected_text.split()
    shared_count = (Counter(words) & Counter(expected_words)).total()
    return (
        float(answer_text == expected_text),
        shared_count / max(1, len(words)),
        shared_count / max(1, len(expected_words)),
    )


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
