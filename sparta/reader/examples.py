"""What a reader is trained on: a question, passages, and where in them its answer stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError
from sparta.base.files import numbered_lines
from sparta.data.answers import answer_spans
from sparta.data.jsonlist import json_list
from sparta.data.languages import language_of
from sparta.data.parsing import decoded, parse_object, placed
from sparta.data.qa_formats import QuestionedText, answers_of, read_mrqa, read_squad, reported, stored_form
from sparta.data.sentences import stripped
from sparta.reader.records import Text
from sparta.training.formats import DPR_FORM, context_in_file, form_of
from sparta.training.known import KnownAnswers, keys_of
from sparta.training.paragraphs import context_of

READ_FORM = '{"question", "answers", "passages": [{"title", "text", "spans"}]}'
PASSAGES = 20
"""How many passages of a question are kept."""


@dataclass(frozen=True, slots=True)
class ReadingExample:
    """A question, its answers, passages, and for each passage the spans `(start, end)` of its answers.

    Passages without a span are negatives. `source` names the file.
    """

    question: str
    answers: tuple[str, ...]
    passages: tuple[Text, ...]
    spans: tuple[tuple[tuple[int, int], ...], ...]
    source: str = ""

    def folded(self, fold: Callable[[str], str]) -> ReadingExample:
        """The example as a reader reads it."""
        texts = tuple(Text(fold(text.text), fold(text.title)) for text in self.passages)
        return replace(self, question=fold(self.question), passages=texts)

    @property
    def positives(self) -> list[int]:
        """Which passages hold an answer."""
        return [i for i, own in enumerate(self.spans) if own]


def read_examples(path: Path, language: str = "en") -> list[ReadingExample]:
    """Read SQuAD JSON, MRQA JSONL, DPR JSON, pairs with `answers`, or what `sparta mine-answers` wrote.

    Questions whose answer stands nowhere in their passages, as the language has it, are left out; the others
    are folded as it is.

    :raises InputError: another form, or no question with an answer.
    """
    form = form_of(path)
    if form in ("squad", "mrqa"):
        texts = reported(read_squad(path) if form == "squad" else read_mrqa(path), path.name)
        found = [one for text in texts for one in _of_text(text, path.name)]
    elif form == "dpr":
        found = list(_dpr(path, language))
    elif form == "pairs":
        found = list(_records(path, language))
    else:
        found = []
    kept = [one.folded(language_of(language).fold) for one in found if one.positives]
    if not kept:
        raise InputError(
            "expected questions with an answer that stands in their text, found none",
            where=str(path),
            remedy=f"give SQuAD JSON, MRQA JSONL, DPR JSON, pairs with answers, or lines of {READ_FORM};"
            " for questions without their texts (KILT), find these first: sparta mine-answers",
        )
    return kept


def _of_text(one: QuestionedText, source: str) -> Iterator[ReadingExample]:
    text = (Text(one.text, one.title),)
    for asked, given in zip(one.questions, one.answers, strict=True):
        spans = tuple(dict.fromkeys(filter(None, (stripped(one.text, a, b) for a, b in given))))
        answers = tuple(dict.fromkeys(one.text[a:b] for a, b in spans))
        yield ReadingExample(asked[1], answers, text, (spans,), source)


def _dpr(path: Path, language: str) -> Iterator[ReadingExample]:
    """Yield DPR's questions; positives in which no answer is found are neither positive nor negative."""
    known = KnownAnswers()
    for number, record in enumerate(json_list(path, DPR_FORM)):
        with stored_form(f"{path}: question {number + 1}", DPR_FORM):
            known.add(_text(record["question"]), map(context_in_file, record["positive_ctxs"]))
    for number, record in enumerate(json_list(path, DPR_FORM)):
        with stored_form(f"{path}: question {number + 1}", DPR_FORM):
            contexts = [
                *record["positive_ctxs"],
                *record.get("hard_negative_ctxs", ()),
                *record.get("negative_ctxs", ()),
            ]
            question, answers = _text(record["question"]), answers_of(record["answers"])
            read = [_passage(one) for one in contexts]
            keys = [keys_of(p.text, p.passage_id) for p in map(context_in_file, contexts)]
            spans = [tuple(answer_spans(one.text, answers, language=language)) for one in read]
            right = known.right(question)
            kept = [i for i, own in enumerate(spans) if own or right.isdisjoint(keys[i])]
            example = matched(question, answers, [read[i] for i in kept], path.name, [spans[i] for i in kept])
        yield example


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is wanted, not {type(value).__name__}")
    return value


def _passage(record: dict[str, Any]) -> Text:
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
    """An example with the given spans; where none are given, every mention of an answer is one (distant
    supervision). Of more passages than `PASSAGES`, those with a span stay first.
    """
    found = [
        tuple(answer_spans(text.text, answers, language=language) if own is None else own)
        for text, own in zip(texts, spans or [None] * len(texts), strict=True)
    ]
    order = (
        sorted(range(len(texts)), key=lambda i: not found[i]) if len(texts) > PASSAGES else range(len(texts))
    )
    kept = sorted(order[:PASSAGES])
    return ReadingExample(
        question, tuple(answers), tuple(texts[i] for i in kept), tuple(found[i] for i in kept), source
    )


def _given_spans(passage: dict[str, Any]) -> list[tuple[int, int]] | None:
    if "spans" not in passage:
        return None
    spans, text = [(int(a), int(b)) for a, b in passage["spans"]], _text(passage["text"])
    if not all(0 <= a < b <= len(text) for a, b in spans):
        raise ValueError(f"spans outside a text of {len(text)} characters")
    return list(filter(None, (stripped(text, a, b) for a, b in spans)))


def _records(path: Path, language: str) -> Iterator[ReadingExample]:
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        with placed(where), stored_form(where, f"pairs with answers, or {READ_FORM}"):
            record = parse_object(decoded(line))
            answers = answers_of(record.get("answers"))
            if not answers:
                continue
            if "passages" in record:
                question, texts = _text(record["question"]), [_passage(p) for p in record["passages"]]
                spans = [_given_spans(p) for p in record["passages"]]
                example = matched(question, answers, texts, path.name, spans, language=language)
            else:
                example = _pair(record, answers, path.name, language)
        yield example


def _pair(record: dict[str, Any], answers: tuple[str, ...], source: str, language: str) -> ReadingExample:
    """Mentions within the positive sentence; without any, those elsewhere in its context."""
    text = _text(record.get("context") or record["positive"])
    context, (start, end) = context_of(record)
    if not context:
        start, end = 0, len(text)
    spans = answer_spans(text, answers, language=language)
    near = [(a, b) for a, b in spans if start <= a and b <= end]
    passage = Text(text, _text(record.get("title") or ""))
    return ReadingExample(_text(record["question"]), answers, (passage,), (tuple(near or spans),), source)
