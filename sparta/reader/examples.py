"""Read a reader's training examples: a question, passages, and the spans of the answers in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparta.base.disk.streams import numbered_lines
from sparta.base.errors import InputError
from sparta.data.answers import answer_spans, without_labels
from sparta.data.jsonlist import json_list
from sparta.data.languages import language_of
from sparta.data.parsing import decoded, parse_object, placed
from sparta.data.qa_formats import QuestionedText, answers_of, read_mrqa, read_squad, reported, stored_form
from sparta.data.sentences import stripped
from sparta.reader.records import Text
from sparta.training.formats import DPR_FORM, form_of, passage_in_file
from sparta.training.known import KnownAnswers, keys_of
from sparta.training.paragraphs import positive_in_context

READ_FORM = '{"question", "answers", "passages": [{"title", "text", "spans"}]}'
PASSAGES = 20
"""The largest number of passages per question; further passages are dropped."""


@dataclass(frozen=True, slots=True)
class ReadingExample:
    """A question, its answers, passages, and for each passage the spans `(start, end)` of its answers.

    Passages without a span are negatives. `source` is the name of the file.
    """

    question: str
    answers: tuple[str, ...]
    passages: tuple[Text, ...]
    spans: tuple[tuple[tuple[int, int], ...], ...]
    source: str = ""

    def folded(self, fold: Callable[[str], str]) -> ReadingExample:
        """Return the example with question and passages folded (normalized) for the reader's language."""
        texts = tuple(Text(fold(text.text), fold(text.title)) for text in self.passages)
        return replace(self, question=fold(self.question), passages=texts)

    @property
    def positives(self) -> list[int]:
        """The numbers of the passages that contain an answer."""
        return [number for number, spans in enumerate(self.spans) if spans]


def read_examples(path: Path, language: str = "en") -> list[ReadingExample]:
    """Read SQuAD JSON, MRQA JSONL, DPR JSON, pairs with `answers`, or the output of `sparta mine-answers`.

    Questions without an answer in their passages are left out. The other examples are folded for the
    language.

    :raises InputError: another format, or no question with an answer.
    """
    form = form_of(path)
    if form in ("squad", "mrqa"):
        texts = reported(read_squad(path) if form == "squad" else read_mrqa(path), path.name)
        examples = [example for text in texts for example in _text_examples(text, path.name)]
    elif form == "dpr":
        examples = list(_dpr_examples(path, language))
    elif form == "pairs":
        examples = list(_record_examples(path, language))
    else:
        examples = []
    answerable = [example.folded(language_of(language).fold) for example in examples if example.positives]
    if not answerable:
        raise InputError(
            "no question of the file has an answer in its text",
            where=str(path),
            remedy=f"use SQuAD JSON, MRQA JSONL, DPR JSON, pairs with answers, or lines of {READ_FORM};"
            " for questions without texts (KILT), find the texts first: sparta mine-answers",
        )
    return answerable


def _text_examples(document: QuestionedText, source: str) -> Iterator[ReadingExample]:
    text = (Text(document.text, document.title),)
    for (_, question, _), stored in zip(document.questions, document.answers, strict=True):
        stripped_spans = (stripped(document.text, start, end) for start, end in stored)
        spans = tuple(dict.fromkeys(filter(None, stripped_spans)))
        answers = tuple(dict.fromkeys(document.text[start:end] for start, end in spans))
        yield ReadingExample(question, answers, text, (spans,), source)


def _dpr_examples(path: Path, language: str) -> Iterator[ReadingExample]:
    """Yield DPR's questions.

    Positive passages without an answer are dropped: they are neither positive nor negative.
    """
    known_answers = KnownAnswers()
    for number, record in enumerate(json_list(path, DPR_FORM)):
        with stored_form(f"{path}: question {number + 1}", DPR_FORM):
            known_answers.add(_text(record["question"]), map(passage_in_file, record["positive_ctxs"]))
    for number, record in enumerate(json_list(path, DPR_FORM)):
        with stored_form(f"{path}: question {number + 1}", DPR_FORM):
            contexts = [
                *record["positive_ctxs"],
                *record.get("hard_negative_ctxs", ()),
                *record.get("negative_ctxs", ()),
            ]
            question, answers = _text(record["question"]), _answers_of(record["answers"])
            texts = [_passage_text(context) for context in contexts]
            keys = [*map(keys_of, map(passage_in_file, contexts))]
            match = str(record.get("match") or "string")
            spans = [
                tuple(answer_spans(text.text, answers, match=match, language=language)) for text in texts
            ]
            if match == "regex":  # patterns are no answers that a reader could give
                answers = tuple(
                    dict.fromkeys(
                        text.text[a:b]
                        for text, text_spans in zip(texts, spans, strict=True)
                        for a, b in text_spans
                    )
                )
            right_keys = known_answers.right(question)
            kept_numbers = [
                i for i, text_spans in enumerate(spans) if text_spans or right_keys.isdisjoint(keys[i])
            ]
            example = matched(
                question,
                answers,
                [texts[i] for i in kept_numbers],
                path.name,
                [spans[i] for i in kept_numbers],
            )
        yield example


def _answers_of(value: Any) -> tuple[str, ...]:
    """Return the answers that a text can hold: a label such as "no" would mark any such word."""
    return tuple(without_labels(answers_of(value)))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"titles and texts must be strings, found {type(value).__name__}")
    return value


def _passage_text(record: dict[str, Any]) -> Text:
    return Text(_text(record["text"]), _text(record.get("title") or ""))


def matched(
    question: str,
    answers: Sequence[str],
    texts: Sequence[Text],
    source: str,
    spans: Sequence[Sequence[tuple[int, int]] | None] = (),
    *,
    language: str = "en",
) -> ReadingExample:
    """Return an example with these spans; passages without spans get every mention of an answer.

    Using every mention is distant supervision. If there are more than `PASSAGES` passages, passages with a
    span are kept first.
    """
    all_spans = [
        tuple(answer_spans(text.text, answers, language=language) if text_spans is None else text_spans)
        for text, text_spans in zip(texts, spans or [None] * len(texts), strict=True)
    ]
    order = (
        sorted(range(len(texts)), key=lambda i: not all_spans[i])
        if len(texts) > PASSAGES
        else range(len(texts))
    )
    kept_numbers = sorted(order[:PASSAGES])
    return ReadingExample(
        question,
        tuple(answers),
        tuple(texts[i] for i in kept_numbers),
        tuple(all_spans[i] for i in kept_numbers),
        source,
    )


def _stored_spans(passage: dict[str, Any]) -> list[tuple[int, int]] | None:
    if "spans" not in passage:
        return None
    spans, text = [(int(a), int(b)) for a, b in passage["spans"]], _text(passage["text"])
    if not all(0 <= a < b <= len(text) for a, b in spans):
        raise ValueError(f"a span is outside its text of {len(text)} characters")
    return list(filter(None, (stripped(text, a, b) for a, b in spans)))


def _record_examples(path: Path, language: str) -> Iterator[ReadingExample]:
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        with placed(where), stored_form(where, f"pairs with answers, or {READ_FORM}"):
            record = parse_object(decoded(line))
            answers = _answers_of(record.get("answers"))
            if not answers:
                continue
            if "passages" in record:
                question, texts = (
                    _text(record["question"]),
                    [_passage_text(passage) for passage in record["passages"]],
                )
                spans = [_stored_spans(passage) for passage in record["passages"]]
                example = matched(question, answers, texts, path.name, spans, language=language)
            else:
                example = _pair_example(record, answers, path.name, language)
        yield example


def _pair_example(
    record: dict[str, Any], answers: tuple[str, ...], source: str, language: str
) -> ReadingExample:
    """Return an example from a pair, with the mentions in the positive sentence, or else in its context."""
    text = _text(record.get("context") or record["positive"])
    context, (start, end) = positive_in_context(record)
    if context:
        text = context
    else:
        start, end = 0, len(text)
    spans = answer_spans(text, answers, language=language)
    spans_in_positive = [(a, b) for a, b in spans if start <= a and b <= end]
    passage = Text(text, _text(record.get("title") or ""))
    return ReadingExample(
        _text(record["question"]), answers, (passage,), (tuple(spans_in_positive or spans),), source
    )
