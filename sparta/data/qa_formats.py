"""Texts with questions on them: SQuAD JSON and MRQA JSONL, for training and for evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError
from sparta.base.files import numbered_lines, open_maybe_gzip, reading
from sparta.data.parsing import decoded, parse_object, placed

FORMS = (
    "SQuAD JSON (data, paragraphs, context, qas, id, question, answers, answer_start)"
    " or MRQA JSONL (context, qas, qid, question, detected_answers, char_spans)"
)


@dataclass(frozen=True, slots=True)
class AskedText:
    """A text with its questions: `(query id, question, where answers begin)`, in characters."""

    title: str
    text: str
    questions: tuple[tuple[str, str, tuple[int, ...]], ...]


def read_squad(path: Path) -> Iterator[AskedText]:
    """Yield the paragraphs of SQuAD JSON, in order.

    :raises InputError: the file is of another form.
    """
    with placed(str(path)), stored_form(path, FORMS):
        record = parse_object(read_whole(path))
        for article in _list(record, "data", path):
            for paragraph in _list(article, "paragraphs", path):
                questions = tuple(
                    (
                        str(asked["id"]),
                        str(asked["question"]).strip(),
                        tuple(int(answer["answer_start"]) for answer in asked.get("answers", ())),
                    )
                    for asked in _list(paragraph, "qas", path)
                )
                yield AskedText(str(article.get("title", "")), _text(paragraph, path), questions)


def read_mrqa(path: Path) -> Iterator[AskedText]:
    """Yield the contexts of MRQA JSONL, in order.

    :raises InputError: a line is of another form; it is named.
    """
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        with placed(where), stored_form(where, FORMS):
            record = parse_object(decoded(line))
            if "header" in record:
                continue
            questions = tuple(
                (
                    str(asked["qid"]),
                    str(asked["question"]).strip(),
                    tuple(
                        int(span[0])
                        for answer in asked.get("detected_answers", ())
                        for span in answer["char_spans"]
                    ),
                )
                for asked in _list(record, "qas", where)
            )
            found = AskedText("", _text(record, where), questions)
        yield found


def read_whole(path: Path) -> str:
    """Return the text of a file, gzipped or not."""
    with reading(path), open_maybe_gzip(path) as stream:
        return decoded(stream.read())


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


def _list(record: Any, key: str, where: str | Path) -> list[Any]:
    found = record.get(key) if isinstance(record, dict) else None
    if not isinstance(found, list):
        raise InputError(
            f"expected a list {key!r}, found {'none' if found is None else type(found).__name__}",
            where=str(where),
            remedy="give SQuAD JSON (data, paragraphs, qas), MRQA JSONL (context, qas), or a BEIR folder",
        )
    return found


def _text(record: Mapping[str, Any], where: str | Path) -> str:
    text = record.get("context")
    if not isinstance(text, str):
        raise InputError("expected a text 'context', found none", where=str(where), remedy="check the format")
    return text
