"""Test sets: a corpus, questions, and which passages answer them; BEIR folders, SQuAD and MRQA as ReQA."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparta.base.corpus import decoded, parse_object, placed
from sparta.base.errors import InputError
from sparta.base.files import numbered_lines, unreadable
from sparta.base.queries import read_queries
from sparta.base.records import Query
from sparta.base.trec import read_qrels
from sparta.sentences import sentence_splitter

Qrels = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class TestSet:
    """`corpus` is a file that `sparta index` reads; `qrels` is {query id: {passage id: relevance}}."""

    name: str
    corpus: Path
    queries: tuple[Query, ...]
    qrels: Qrels


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A text with its questions: `(query id, question, where answers begin)`."""

    title: str
    text: str
    questions: tuple[tuple[str, str, tuple[int, ...]], ...]


def open_test_set(path: Path, work: Path) -> TestSet:
    """Open a BEIR folder (corpus.jsonl, queries.jsonl, qrels/), SQuAD JSON or MRQA JSONL.

    The last two become ReQA (SPARTA, §5.1): every sentence of a paragraph is a candidate answer with the
    paragraph as its context, and the sentences in which an answer begins are the right ones. Their corpus is
    written into the folder `work`.

    :raises InputError: none of these.
    """
    if path.is_dir():
        return _beir(path)
    if not path.exists():
        raise InputError(
            "no such test set: expected a BEIR folder, SQuAD JSON or MRQA JSONL",
            where=str(path),
            remedy="check the path",
        )
    name = path.name.removesuffix(".gz")
    if name.endswith(".jsonl"):
        return _reqa(name.removesuffix(".jsonl"), _mrqa(path), work)
    if name.endswith(".json"):
        return _reqa(name.removesuffix(".json"), _squad(path), work)
    raise InputError(
        "expected a BEIR folder, SQuAD JSON (.json) or MRQA JSONL (.jsonl), found another name",
        where=str(path),
        remedy="give a file of one of these forms, gzipped or not",
    )


def _beir(folder: Path) -> TestSet:
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    judged = sorted((folder / "qrels").glob("*.tsv")) if (folder / "qrels").is_dir() else []
    test = [path for path in judged if path.stem == "test"] or judged
    missing = [p.name for p in (corpus, queries) if not p.is_file()] + ([] if test else ["qrels/test.tsv"])
    if missing or len(test) > 1:
        found = (
            f"no {', '.join(missing)}" if missing else f"{len(test)} files in qrels/, none of them test.tsv"
        )
        raise InputError(
            f"expected a BEIR folder (corpus.jsonl, queries.jsonl, qrels/test.tsv), found {found}",
            where=str(folder),
            remedy="complete the folder, or name another",
        )
    qrels = read_qrels(test[0])
    asked = tuple(query for query in read_queries(queries) if query.query_id in qrels)
    if not asked:
        raise InputError(
            f"none of the questions is judged in {test[0].name}", where=str(folder), remedy="check the ids"
        )
    return TestSet(folder.name, corpus, asked, qrels)


def _reqa(name: str, paragraphs: Iterable[Paragraph], work: Path) -> TestSet:
    """Write the sentences as a corpus; an answer that no sentence holds leaves its question out."""
    spans = sentence_splitter("en")
    queries: list[Query] = []
    qrels: dict[str, dict[str, int]] = {}
    corpus = work / f"{name}.reqa.jsonl"
    with corpus.open("w", encoding="utf-8") as out:
        for number, paragraph in enumerate(paragraphs):
            sentences = spans(paragraph.text)
            for i, (start, end) in enumerate(sentences):
                record = {
                    "id": f"{number}-{i}",
                    "title": paragraph.title,
                    "text": paragraph.text[start:end],
                    "context": paragraph.text,
                    "start": start,
                    "end": end,
                }
                out.write(json.dumps(record, ensure_ascii=False) + "\n")
            for query_id, question, begins in paragraph.questions:
                right = {
                    f"{number}-{i}": 1
                    for i, (start, end) in enumerate(sentences)
                    if any(start <= begin < end for begin in begins)
                }
                if query_id in qrels:
                    raise InputError(
                        f"expected questions with ids of their own, found {query_id!r} twice",
                        where=name,
                        remedy="give every question another id",
                    )
                if right:
                    queries.append(Query(query_id, question))
                    qrels[query_id] = right
    if not queries:
        raise InputError(
            "expected questions with answers in their paragraphs, found none",
            where=name,
            remedy="give a file with answer_start (SQuAD) or char_spans (MRQA)",
        )
    return TestSet(name, corpus, tuple(queries), qrels)


def _squad(path: Path) -> Iterator[Paragraph]:
    with placed(str(path)), _form(path):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from error
        record = parse_object(decoded(gzip.decompress(data) if path.suffix == ".gz" else data))
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
                yield Paragraph(str(article.get("title", "")), _text(paragraph, path), questions)


def _mrqa(path: Path) -> Iterator[Paragraph]:
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        with placed(where), _form(where):
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
            found = Paragraph("", _text(record, where), questions)
        yield found


@contextmanager
def _form(where: str | Path) -> Iterator[None]:
    """Say of a file that lacks something, or has another kind of it, that it is not of the form."""
    try:
        yield
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        EOFError,
        OSError,
        zlib.error,
    ) as error:
        raise InputError(
            f"expected SQuAD JSON or MRQA JSONL, found something else ({type(error).__name__}: {error})",
            where=str(where),
            remedy="SQuAD has data, paragraphs, qas, id, question, answers;"
            " MRQA has context, qas, qid, question, detected_answers, char_spans",
        ) from error


def _list(record: Any, key: str, where: str | Path) -> list[Any]:
    found = record.get(key) if isinstance(record, dict) else None
    if not isinstance(found, list):
        raise InputError(
            f"expected a list {key!r}, found {type(found).__name__}",
            where=str(where),
            remedy="give SQuAD JSON (data, paragraphs, qas) or MRQA JSONL (context, qas)",
        )
    return found


def _text(record: Mapping[str, Any], where: str | Path) -> str:
    text = record.get("context")
    if not isinstance(text, str):
        raise InputError("expected a text 'context', found none", where=str(where), remedy="check the format")
    return text
