"""Reading texts with questions from SQuAD JSON and MRQA JSONL, for training and evaluation."""

from __future__ import annotations

import bisect
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparta.base.disk.streams import input_errors, longest_line, numbered_lines, open_decompressed, too_long
from sparta.base.errors import InputError
from sparta.data.parsing import decoded, parse_object, placed, string_field
from sparta.data.sentences import stripped

logger = logging.getLogger(__name__)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
QA_FORMATS = (
    "SQuAD JSON (data, paragraphs, context, qas, id, question, answers, answer_start)"
    " or MRQA JSONL (context, qas, qid, question, detected_answers, char_spans)"
)
_WHOLE_FILE_LINES = 16  # the maximum size of a whole file, in maximum line lengths
_MARK = re.compile(
    r"\[(?:TLE|PAR|SEP|DOC)\]"
    r"|</?(?:P|Li|Ul|Ol|Dl|Dd|Dt|Table|Tr|Td|Th|Th_colspan|H[1-6])(?:[ =_][^<>]{0,40})?>"
)
"""MRQA's marks between titles, paragraphs and documents, and HTML tags from Natural Questions."""


@dataclass(frozen=True, slots=True)
class QuestionedText:
    """A text with questions, each as `(question id, question, start positions of its answers)`.

    Positions count characters. `answers` has, for each question, the spans `(start, end)` of those answers
    that the text contains at the position that the file gives. `named` has all answers of each question as
    strings. `misplaced` counts the answers with a wrong position. `sentences` has the spans of the text's
    sentences, or None if the file does not give them.
    """

    title: str
    text: str
    questions: tuple[tuple[str, str, tuple[int, ...]], ...]
    sentences: tuple[tuple[int, int], ...] | None = None
    answers: tuple[tuple[tuple[int, int], ...], ...] = ()
    named: tuple[tuple[str, ...], ...] = ()
    misplaced: int = 0


def read_squad(path: Path) -> Iterator[QuestionedText]:
    """Yield the paragraphs of a SQuAD JSON file, in order.

    :raises InputError: the file has a different format.
    """
    max_bytes = _WHOLE_FILE_LINES * longest_line()
    with input_errors(path), open_decompressed(path) as stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise too_long(str(path), "a JSON file", max_bytes)
    with placed(str(path)), stored_form(path, QA_FORMATS):
        record = parse_object(decoded(data))
        for article in _list(record, "data", path):
            for paragraph in _list(article, "paragraphs", path):
                text = string_field(paragraph, "context", of="context")
                questions, answers, named, misplaced = [], [], [], 0
                for item in _list(paragraph, "qas", path):
                    placed_answers = [
                        (int(a["answer_start"]), str(a.get("text", ""))) for a in item.get("answers", ())
                    ]
                    named.append(tuple(answer for _, answer in placed_answers if answer.strip()))
                    candidate_spans = (_answer_span(text, begin, answer) for begin, answer in placed_answers)
                    spans = tuple(filter(None, candidate_spans))
                    starts = tuple(start for start, _ in spans)
                    questions.append((str(item["id"]), str(item["question"]).strip(), starts))
                    answers.append(spans)
                    misplaced += len(placed_answers) - len(spans)
                title = str(article.get("title", ""))
                fields = tuple(questions), None, tuple(answers), tuple(named), misplaced
                yield QuestionedText(title, text, *fields)


def _answer_span(text: str, begin: int, answer: str) -> tuple[int, int] | None:
    """Return an answer's span without outer white space; None if the text differs at that position."""
    if begin < 0 or not text.startswith(answer, begin):
        return None
    return stripped(text, begin, begin + len(answer))


def reported(texts: Iterable[QuestionedText], name: str) -> Iterator[QuestionedText]:
    """Yield all texts, then warn if answers have wrong positions."""
    misplaced = 0
    for text in texts:
        misplaced += text.misplaced
        yield text
    if misplaced:
        logger.warning("%s: %s", name, misplacement(misplaced))


def misplacement(answers: int) -> str:
    """Return the warning about answers with wrong positions."""
    subject = "1 answer is" if answers == 1 else f"{answers:,} answers are"
    return (
        f"{subject} not at the position of answer_start (SQuAD) or char_spans (MRQA), and thus ignored\n"
        "  → count positions in characters (code points, not UTF-16 units or bytes)"
    )


def read_mrqa(
    path: Path, sentences: Mapping[str, Sequence[tuple[int, int]]] | None = None
) -> Iterator[QuestionedText]:
    """Yield the contexts of an MRQA JSONL file, in order, without marks for titles, paragraphs and HTML.

    :param sentences: the sentence spans of each question's context by question id, as `read_candidates`
        returns them
    :raises InputError: a line has a different format; the error names the line.
    """
    for line_number, line in numbered_lines(path):
        where = f"{path}:{line_number}"
        with placed(where), stored_form(where, QA_FORMATS):
            record = parse_object(decoded(line))
            if "header" in record:
                continue
            items = _list(record, "qas", where)
            text, moved = unmarked(string_field(record, "context", of="context"))
            questions, answers, named, misplaced = [], [], [], 0
            for item in items:
                spans_and_answers = [
                    (int(start), int(last), answer.get("text"))
                    for answer in item.get("detected_answers", ())
                    for start, last in answer["char_spans"]
                ]
                valid_spans = [
                    (a, b) for a, b, answer in spans_and_answers if _is_there(record["context"], a, b, answer)
                ]
                misplaced += len(spans_and_answers) - len(valid_spans)
                spans = tuple((moved(start), moved(last) + 1) for start, last in valid_spans)
                starts = tuple(start for start, _ in spans)
                questions.append((str(item["qid"]), str(item["question"]).strip(), starts))
                answers.append(spans)
                answer_texts = [
                    answer
                    for answer in _as_list(item.get("answers"))
                    if isinstance(answer, str) and answer.strip()
                ]
                named.append(
                    tuple(dict.fromkeys([*answer_texts, *(text[start:end] for start, end in spans)]))
                )
            sentence_spans = None
            if sentences is not None:
                context_spans = next(
                    (sentences[question_id] for question_id, _, _ in questions if question_id in sentences),
                    (),
                )
                stripped_spans = (stripped(text, moved(start), moved(end)) for start, end in context_spans)
                sentence_spans = tuple(filter(None, stripped_spans))
            questioned_text = QuestionedText(
                "", text, tuple(questions), sentence_spans, tuple(answers), tuple(named), misplaced
            )
        yield questioned_text


def _is_there(context: str, first: int, last: int, answer: Any) -> bool:
    """Return whether an MRQA span lies within its context and has the same letters as its answer, if known.

    Case, marks and articles may differ, since MRQA ignored them when it located the answers.
    """
    if not 0 <= first <= last < len(context) or not context[first : last + 1].strip():
        return False
    return answer is None or _letters(context[first : last + 1]) == _letters(str(answer))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, _ARTICLES.sub(" ", text.casefold())))


def read_candidates(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Return the spans of each question's candidate sentences, from MultiReQA's candidates.json.

    A candidate's id is `SET_question/question/_number`: the ids of all questions on its context, and a
    number.

    :raises InputError: a line has a different format; the error names the line.
    """
    spans_by_context: dict[str, list[tuple[int, int]]] = {}
    for line_number, line in numbered_lines(path):
        where = f"{path}:{line_number}"
        with placed(where), stored_form(where, "MultiReQA's candidate_id, response_start, response_end"):
            record = parse_object(decoded(line))
            queries = record["candidate_id"].rpartition("/")[0].partition("_")[2]
            span = int(record["response_start"]), int(record["response_end"])
            spans_by_context.setdefault(queries, []).append(span)
    return {
        question_id: sorted(spans)
        for queries, spans in spans_by_context.items()
        for question_id in queries.split("/")
    }


def unmarked(context: str) -> tuple[str, Callable[[int], int]]:
    """Replace the marks in an MRQA context by line breaks; leading marks are dropped.

    :return: the text, and a function that maps a position in the context to its position in the text
    """
    spans = list(_between_marks(context))
    starts = [start for start, _ in spans]
    lengths = [end - start + 1 for start, end in spans]  # with the line break
    text_starts = [0, *itertools.accumulate(lengths)]

    def moved(position: int) -> int:
        i = bisect.bisect_right(starts, position) - 1
        return text_starts[i] + min(position - starts[i], lengths[i] - 1) if i >= 0 else 0

    return "\n".join(context[start:end] for start, end in spans), moved


def _between_marks(context: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the texts between marks, without surrounding white space."""
    start = 0
    for mark in (*_MARK.finditer(context), None):
        end = mark.start() if mark else len(context)
        text = context[start:end]
        if text.strip():
            yield start + len(text) - len(text.lstrip()), start + len(text.rstrip())
        start = mark.end() if mark else end


@contextmanager
def stored_form(where: str | Path, form: str) -> Iterator[None]:
    """Convert errors from missing or wrong fields into an InputError that names the expected format."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        problem = f"no field {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise InputError(
            f"invalid format: expected {form} ({problem})",
            where=str(where),
            remedy="correct the file at this place, or convert the file to the expected format",
        ) from error


def answers_of(value: Any) -> tuple[str, ...]:
    """Return answers as a tuple of strings, from a single answer or a list of strings or numbers.

    :raises TypeError: `value` is neither a string nor such a list.
    """
    answers = [value] if isinstance(value, str) else value or ()
    if not isinstance(answers, list | tuple) or not all(
        isinstance(answer, str | int | float) for answer in answers
    ):
        raise TypeError(f"the field answers must be a list of strings, found {value!r:.60}")
    return tuple(map(str, answers))


def _as_list(value: Any) -> list[Any]:
    """Return a list; a value that is not a list becomes its only element."""
    return value if isinstance(value, list) else [value]


def _list(record: Any, key: str, where: str | Path) -> list[Any]:
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, list):
        raise InputError(
            f"the field {key!r} must be a list, found {'none' if value is None else type(value).__name__}",
            where=str(where),
            remedy="use SQuAD JSON (data, paragraphs, qas), MRQA JSONL (context, qas), or a BEIR folder",
        )
    return value
