"""Texts with questions on them: SQuAD JSON and MRQA JSONL, for training and for evaluation."""

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

from sparta.base.errors import InputError
from sparta.base.files import longest_line, numbered_lines, open_decompressed, reading, too_long
from sparta.data.parsing import decoded, parse_object, placed, string_field
from sparta.data.sentences import stripped

logger = logging.getLogger(__name__)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
FORMS = (
    "SQuAD JSON (data, paragraphs, context, qas, id, question, answers, answer_start)"
    " or MRQA JSONL (context, qas, qid, question, detected_answers, char_spans)"
)
_WHOLE_FILE_LINES = 16  # a file that is read as a whole may be as long as so many of the longest lines
_MARK = re.compile(
    r"\[(?:TLE|PAR|SEP|DOC)\]"
    r"|</?(?:P|Li|Ul|Ol|Dl|Dd|Dt|Table|Tr|Td|Th|Th_colspan|H[1-6])(?:[ =_][^<>]{0,40})?>"
)
"""What MRQA writes between titles, paragraphs and documents, and what Natural Questions leaves of HTML."""


@dataclass(frozen=True, slots=True)
class QuestionedText:
    """A text with its questions: `(query id, question, where answers begin)`, in characters.

    `answers` are each question's answers, as spans `(start, before end)`, of those that stand where the file
    says; the questions' places are theirs. `named` has all answers, as texts, and `misplaced` counts those
    that stand elsewhere or nowhere. `sentences` are the spans of the text's sentences, if the file has them,
    else None.
    """

    title: str
    text: str
    questions: tuple[tuple[str, str, tuple[int, ...]], ...]
    sentences: tuple[tuple[int, int], ...] | None = None
    answers: tuple[tuple[tuple[int, int], ...], ...] = ()
    named: tuple[tuple[str, ...], ...] = ()
    misplaced: int = 0


def read_squad(path: Path) -> Iterator[QuestionedText]:
    """Yield the paragraphs of SQuAD JSON, in order.

    :raises InputError: the file is of another form.
    """
    limit = _WHOLE_FILE_LINES * longest_line()
    with reading(path), open_decompressed(path) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise too_long(str(path), "a JSON file", limit)
    with placed(str(path)), stored_form(path, FORMS):
        record = parse_object(decoded(data))
        for article in _list(record, "data", path):
            for paragraph in _list(article, "paragraphs", path):
                text = string_field(paragraph, "context", of="context")
                questions, answers, named, misplaced = [], [], [], 0
                for item in _list(paragraph, "qas", path):
                    given = [
                        (int(a["answer_start"]), str(a.get("text", ""))) for a in item.get("answers", ())
                    ]
                    named.append(tuple(answer for _, answer in given if answer.strip()))
                    found = (_standing(text, begin, answer) for begin, answer in given)
                    spans = tuple(filter(None, found))
                    begins = tuple(start for start, _ in spans)
                    questions.append((str(item["id"]), str(item["question"]).strip(), begins))
                    answers.append(spans)
                    misplaced += len(given) - len(spans)
                title = str(article.get("title", ""))
                parts = tuple(questions), None, tuple(answers), tuple(named), misplaced
                yield QuestionedText(title, text, *parts)


def _standing(text: str, begin: int, answer: str) -> tuple[int, int] | None:
    """The span of an answer without the white space around it; None if the text has another thing there."""
    if begin < 0 or not text.startswith(answer, begin):
        return None
    return stripped(text, begin, begin + len(answer))


def reported(texts: Iterable[QuestionedText], name: str) -> Iterator[QuestionedText]:
    """Yield all texts, and warn at the end of answers that do not stand where the file says."""
    misplaced = 0
    for one in texts:
        misplaced += one.misplaced
        yield one
    if misplaced:
        logger.warning("%s: %s", name, misplacement(misplaced))


def misplacement(answers: int) -> str:
    """The warning for answers that do not stand where their file says."""
    said = "1 answer does" if answers == 1 else f"{answers:,} answers do"
    return (
        f"{said} not stand at answer_start (SQuAD) or char_spans (MRQA), and no sentence is right by them\n"
        "  → count the places in characters (code points, not UTF-16 or bytes)"
    )


def read_mrqa(
    path: Path, sentences: Mapping[str, Sequence[tuple[int, int]]] | None = None
) -> Iterator[QuestionedText]:
    """Yield the contexts of MRQA JSONL, in order, without the marks of titles, paragraphs and HTML in them.

    :param sentences: by query id, where the sentences of its context lie, as `read_candidates` returns it
    :raises InputError: a line is of another form; it is named.
    """
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        with placed(where), stored_form(where, FORMS):
            record = parse_object(decoded(line))
            if "header" in record:
                continue
            items = _list(record, "qas", where)
            text, moved = _unmarked(string_field(record, "context", of="context"))
            questions, answers, named, misplaced = [], [], [], 0
            for item in items:
                found = [
                    (int(start), int(last), answer.get("text"))
                    for answer in item.get("detected_answers", ())
                    for start, last in answer["char_spans"]
                ]
                right = [(a, b) for a, b, answer in found if _is_there(record["context"], a, b, answer)]
                misplaced += len(found) - len(right)
                spans = tuple((moved(start), moved(last) + 1) for start, last in right)
                begins = tuple(start for start, _ in spans)
                questions.append((str(item["qid"]), str(item["question"]).strip(), begins))
                answers.append(spans)
                known = [one for one in _as_list(item.get("answers")) if isinstance(one, str) and one.strip()]
                named.append(tuple(dict.fromkeys([*known, *(text[start:end] for start, end in spans)])))
            own = None
            if sentences is not None:
                listed = next((sentences[asked[0]] for asked in questions if asked[0] in sentences), ())
                inside = (stripped(text, moved(start), moved(end)) for start, end in listed)
                own = tuple(filter(None, inside))
            one = QuestionedText("", text, tuple(questions), own, tuple(answers), tuple(named), misplaced)
        yield one


def _is_there(context: str, first: int, last: int, answer: Any) -> bool:
    """Return whether a span of MRQA is within its context and has the letters of a known answer.

    Case, marks and articles may differ: MRQA found its answers without them.
    """
    if not 0 <= first <= last < len(context) or not context[first : last + 1].strip():
        return False
    return answer is None or _letters(context[first : last + 1]) == _letters(str(answer))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, _ARTICLES.sub(" ", text.casefold())))


def read_candidates(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Return where the candidate sentences of each query's context lie, from MultiReQA's candidates.json.

    A candidate's id is `SET_query/query/_number`: the ids of all queries on its context, and its number.

    :raises InputError: a line is of another form; it is named.
    """
    contexts: dict[str, list[tuple[int, int]]] = {}
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        with placed(where), stored_form(where, "MultiReQA's candidate_id, response_start, response_end"):
            record = parse_object(decoded(line))
            queries = record["candidate_id"].rpartition("/")[0].partition("_")[2]
            span = int(record["response_start"]), int(record["response_end"])
            contexts.setdefault(queries, []).append(span)
    return {query: sorted(own) for queries, own in contexts.items() for query in queries.split("/")}


def _unmarked(context: str) -> tuple[str, Callable[[int], int]]:
    """Put a line break in place of the marks in an MRQA context (and none before the first words).

    :return: the text, and a function from a place in the context to the place in the text.
    """
    spans = list(_between_marks(context))
    starts = [start for start, _ in spans]
    lengths = [end - start + 1 for start, end in spans]  # with the line break
    moved_to = [0, *itertools.accumulate(lengths)]

    def moved(place: int) -> int:
        i = bisect.bisect_right(starts, place) - 1
        return moved_to[i] + min(place - starts[i], lengths[i] - 1) if i >= 0 else 0

    return "\n".join(context[start:end] for start, end in spans), moved


def _between_marks(context: str) -> Iterator[tuple[int, int]]:
    """Yield where the texts between marks lie, without surrounding white space."""
    at = 0
    for mark in (*_MARK.finditer(context), None):
        end = mark.start() if mark else len(context)
        text = context[at:end]
        if text.strip():
            yield at + len(text) - len(text.lstrip()), at + len(text.rstrip())
        at = mark.end() if mark else end


@contextmanager
def stored_form(where: str | Path, form: str) -> Iterator[None]:
    """Say of a file that lacks something, or has another kind of it, that it is not of the form."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(
            f"expected {form}, found something else ({type(error).__name__}: {error})",
            where=str(where),
            remedy="look at the place that the message names",
        ) from error


def answers_of(value: Any) -> tuple[str, ...]:
    """Answers, or one by itself; each a text, or a number."""
    answers = [value] if isinstance(value, str) else value or ()
    if not isinstance(answers, list | tuple) or not all(
        isinstance(one, str | int | float) for one in answers
    ):
        raise TypeError(f"answers are wanted as a list of texts, not {value!r:.60}")
    return tuple(map(str, answers))


def _as_list(value: Any) -> list[Any]:
    """A list, or what stands in place of one with a single item."""
    return value if isinstance(value, list) else [value]


def _list(record: Any, key: str, where: str | Path) -> list[Any]:
    found = record.get(key) if isinstance(record, dict) else None
    if not isinstance(found, list):
        raise InputError(
            f"expected a list {key!r}, found {'none' if found is None else type(found).__name__}",
            where=str(where),
            remedy="give SQuAD JSON (data, paragraphs, qas), MRQA JSONL (context, qas), or a BEIR folder",
        )
    return found
