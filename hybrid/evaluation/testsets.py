"""Test sets: a corpus, questions, and which passages answer them; BEIR folders, SQuAD and MRQA as ReQA."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sparta.base.errors import InputError
from sparta.base.files import plain_name
from sparta.base.records import Query
from sparta.data.qa_formats import QuestionedText, read_mrqa, read_squad
from sparta.data.queries import read_queries
from sparta.data.sentences import sentence_splitter
from sparta.data.trec import read_qrels

Qrels = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class TestSet:
    """`corpus` is a file that `sparta index` reads; `qrels` is {query id: {passage id: relevance}}.

    `left_out` is how many questions of the set have no judged passage. In a BEIR folder a query may be a
    passage too (`beir`): that passage is no hit.
    """

    name: str
    corpus: Path
    queries: tuple[Query, ...]
    qrels: Qrels
    left_out: int = 0
    beir: bool = False


def open_test_set(path: Path, work: Path) -> TestSet:
    """Open a BEIR folder (corpus.jsonl, queries.jsonl, qrels/), SQuAD JSON or MRQA JSONL.

    A folder with questions.jsonl and qrels.tsv beside its corpus, as that of the examples, will do too.

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
    name = plain_name(path.name)
    if name.endswith(".jsonl"):
        return _reqa(name.removesuffix(".jsonl"), read_mrqa(path), work)
    if name.endswith(".json"):
        return _reqa(name.removesuffix(".json"), read_squad(path), work)
    raise InputError(
        "expected a BEIR folder, SQuAD JSON (.json) or MRQA JSONL (.jsonl), found another name",
        where=str(path),
        remedy="give a file of one of these forms, gzipped or not",
    )


def check_test_set(path: Path) -> None:
    """Refuse, before a model is loaded, what is no test set by its name or by the files in its folder."""
    if path.is_dir():
        _beir(path)
    elif not plain_name(path.name).endswith((".json", ".jsonl")) or not path.exists():
        open_test_set(path, path.parent)


def _beir(folder: Path) -> TestSet:
    if (folder / "questions.jsonl").is_file() and (folder / "qrels.tsv").is_file():
        return _judged(folder, folder, folder / "questions.jsonl", folder / "qrels.tsv")
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
    return _judged(folder, corpus, queries, test[0])


def _judged(folder: Path, corpus: Path, queries: Path, judgments: Path) -> TestSet:
    qrels = read_qrels(judgments)
    known = list(read_queries(queries))
    judged_queries = tuple(query for query in known if query.query_id in qrels)
    if not judged_queries:
        raise InputError(
            f"none of the questions is judged in {judgments.name}", where=str(folder), remedy="check the ids"
        )
    own = {query.query_id: qrels[query.query_id] for query in judged_queries}
    return TestSet(folder.name, corpus, judged_queries, own, len(known) - len(judged_queries), beir=True)


def _reqa(name: str, paragraphs: Iterable[QuestionedText], work: Path) -> TestSet:
    """Write the sentences as a corpus; an answer that no sentence holds leaves its question out.

    A paragraph that comes again, as in files with one question a line, is written once.
    """
    spans = sentence_splitter("en")
    queries: list[Query] = []
    left_out = 0
    qrels: dict[str, dict[str, int]] = {}
    numbers: dict[tuple[str, str], int] = {}
    corpus = work / f"{name}.reqa.jsonl"
    with corpus.open("w", encoding="utf-8") as out:
        for paragraph in paragraphs:
            known = len(numbers)
            number = numbers.setdefault((paragraph.title, paragraph.text), known)
            sentences = spans(paragraph.text)
            for i, (start, end) in enumerate(sentences) if number == known else ():
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
                else:
                    left_out += 1
    if not queries:
        raise InputError(
            "expected questions with answers in their paragraphs, found none",
            where=name,
            remedy="give a file with answer_start (SQuAD) or char_spans (MRQA)",
        )
    return TestSet(name, corpus, tuple(queries), qrels, left_out)
