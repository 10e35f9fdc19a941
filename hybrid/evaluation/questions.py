"""Questions with known answers or judged passages, in the forms that people publish them in."""

from __future__ import annotations

import ast
import csv
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hybrid.evaluation.testsets import QuestionSet, judged_set, own_is_no_hit, warn_of_unknown
from hybrid.evidence.gold import gold_of
from hybrid.evidence.supporting import Supporting, supporting_of
from sparta.base.checks import path_of
from sparta.base.errors import InputError
from sparta.base.files import numbered_lines, plain_name
from sparta.base.records import Query
from sparta.base.remedies import Option, Remedy, remedy
from sparta.data.jsonlist import json_list
from sparta.data.kilt import Evidence, evidence_of, well_mapped
from sparta.data.parsing import BadRecordError, decoded, identifier, parse_object, placed, string_field
from sparta.data.qa_formats import QuestionedText, read_mrqa, read_squad
from sparta.data.queries import read_queries, remember_id
from sparta.data.trec import read_qrels
from sparta.index.folder import IndexFolder

FORMS = (
    "a BEIR folder (queries.jsonl, qrels/test.tsv), a folder with questions.jsonl, EntityQuestions (a folder"
    " of P*.json), or a file: DPR's question<TAB>['answer', …], SQuAD JSON, MRQA JSONL, KILT's JSON lines, or"
    ' JSON lines or a JSON list of {"question", "answers"}'
)
IN_FOLDERS = (("queries.jsonl", "qrels/test.tsv"), ("questions.jsonl", "qrels.tsv"))
"""Questions and judgments in a folder: as BEIR has them, and beside a corpus."""
_LIST_FORM = 'a JSON list of {"question", "answers"}'
_JSON_REMEDY = 'write {"question": "…", "answers": ["…"]}'


def judged(query_set: QuestionSet, index: Path, least_bleu: float = 0.0) -> QuestionSet:
    """Return a set of KILT with its provenance as gold passages and pages of an index; another as it is.

    :param least_bleu: leave out provenance with a lower BLEU score: `LEAST_BLEU` for training
    :raises InputError: the index has none of the passages that the set names.
    """
    if not query_set.evidence:
        return query_set
    evidence = {q: well_mapped(own, least_bleu) for q, own in query_set.evidence.items()}
    gold, qrels = gold_of(query_set.name, evidence, index)
    return replace(query_set, gold=gold, qrels=qrels)


def questions_beside(index: Path) -> QuestionSet:
    """Return the questions that lie beside the corpus of an index, or in it where it is a folder.

    They are those of `IN_FOLDERS`, with qrels or without.

    :raises InputError: there are none; another set can be named.
    """
    corpus = _corpus_of(index)
    for folder, queries, qrels in _places(corpus) if corpus else ():
        if queries.is_file():
            return _known(folder.name, queries, qrels)
    raise InputError(
        "expected questions beside the index's corpus (questions.jsonl), found none",
        where=str(corpus.parent if corpus else index),
        remedy=remedy("name a file or folder of questions: {}", Option("dataset", "PATH")),
    )


def set_beside(index: Path) -> QuestionSet:
    """Return the corpus of an index, with the questions and judged passages that lie beside it or in it.

    :raises InputError: there are none; a test set can be named.
    """
    corpus = _corpus_of(index) or index
    for folder, queries, qrels in _places(corpus) if corpus.exists() else ():
        if queries.is_file() and qrels.is_file():
            return judged_set(folder.name, corpus, queries, qrels)
    raise InputError(
        "expected the corpus of the index, and judged passages beside it (qrels.tsv), found none",
        where=str(corpus.parent),
        remedy="name a test set: a BEIR folder, SQuAD JSON or MRQA JSONL",
    )


def _places(corpus: Path) -> Iterator[tuple[Path, Path, Path]]:
    """Yield folders where questions may lie, and the names that questions and judgments have there."""
    for folder in (corpus, corpus.parent) if corpus.is_dir() else (corpus.parent,):
        for queries, qrels in IN_FOLDERS:
            yield folder, folder / queries, folder / qrels


def _corpus_of(index: Path) -> Path | None:
    """Return what an index was made from, whatever was added later; None where that is unknown."""
    generation = IndexFolder(index).state().searchable
    return generation.corpus if generation else None


def questions_of(path: str | Path) -> QuestionSet:
    """Return the questions of a file or a folder, in one of `FORMS`.

    Questions without an id of their own are numbered: by the line or the item, from 1; in EntityQuestions
    `P106-1` is the first of relation P106.

    :raises InputError: none of these forms; a line or an item of another form.
    """
    path = path_of(path, "questions")
    if path.is_file():
        name = plain_name(path.name).rpartition(".")[0] or path.name
        every = list(_file(path))
        found = [one for one in every if one.query.answers or one.evidence]
        evidence = {one.query.query_id: one.evidence for one in found if one.evidence}
        supporting = {one.query.query_id: one.supporting for one in found if one.supporting}
        asked = tuple(one.query for one in found)
        left_out = len(every) - len(asked)
        return QuestionSet(name, asked, evidence=evidence, supporting=supporting, left_out=left_out)
    for queries, qrels in IN_FOLDERS:
        if (path / queries).is_file():
            return _known(path.name, path / queries, path / qrels)
    relations = sorted(path.glob("P*.json"))
    if relations:
        return _entity_questions(path.name, relations)
    raise InputError(
        f"expected {FORMS}, found neither" if path.exists() else f"no such file or folder: expected {FORMS}",
        where=str(path),
        remedy="complete the folder, or name another",
    )


def _known(name: str, queries: Path, qrels: Path) -> QuestionSet:
    judged = read_qrels(qrels) if qrels.is_file() else {}
    every = tuple(read_queries(queries))
    warn_of_unknown(name, judged, every)
    query_set = tuple(q for q in every if q.answers or q.query_id in judged)
    if not query_set:
        raise InputError(
            "expected questions with answers or judged passages, found none",
            where=str(queries),
            remedy="give them answers, or qrels beside them",
        )
    own = {q.query_id: judged[q.query_id] for q in query_set if q.query_id in judged}
    without_own, left_out = own_is_no_hit(qrels, own), len(every) - len(query_set)
    return QuestionSet(name, query_set, own, without_own=without_own, left_out=left_out)


def _entity_questions(name: str, relations: Sequence[Path]) -> QuestionSet:
    """One file a relation: `P106.test.json` is relation P106."""
    queries: list[Query] = []
    groups: dict[str, str] = {}
    for path in relations:
        relation = path.name.split(".")[0]
        for asked in _items(path):
            own = replace(asked.query, query_id=f"{relation}-{asked.query.query_id}")
            if own.query_id in groups:
                raise InputError(
                    f"expected one file for relation {relation}, found another",
                    where=str(path),
                    remedy="name a folder with one split only, as in dataset/test",
                )
            queries.append(own)
            groups[own.query_id] = relation
    split = f"EntityQuestions {name}" if name in ("train", "dev", "test") else name
    return QuestionSet(split, tuple(queries), groups=groups)


class _Asked(NamedTuple):
    query: Query
    evidence: Evidence = ()
    supporting: Supporting | None = None


def _file(path: Path) -> Iterator[_Asked]:
    """Tell the form by the first character that is not white space."""
    lines = numbered_lines(path)
    first = next(lines, None)
    if first is None:
        raise InputError(
            f"empty file: expected {FORMS}", where=str(path), remedy="check that the file was written whole"
        )
    begin = first[1].removeprefix(b"\xef\xbb\xbf").lstrip()
    if begin.startswith(b"[") and b"\t" not in begin:
        yield from _items(path)
        return
    in_json = begin.startswith(b"{")
    if in_json and (texts := _questioned(path, begin)):
        yield from _on_texts(path, texts)
        return
    seen: dict[str, str] = {}
    for number, line in itertools.chain([first], lines):
        where = f"{path}:{number}"
        with placed(where):
            text = decoded(line)
            asked = _question(parse_object(text), str(number)) if in_json else _row(text, str(number))
            remember_id(asked.query.query_id, where, seen)
        yield asked


def _questioned(path: Path, first: bytes) -> Iterator[QuestionedText] | None:
    """Texts with questions on them, where a file that begins with this line is SQuAD JSON or MRQA JSONL."""
    try:
        record = parse_object(decoded(first))
    except BadRecordError:
        goes_on = plain_name(path.name).endswith(".json") and not first.rstrip().endswith(b"}")
        return read_squad(path) if goes_on else None
    if not record.keys().isdisjoint({"question", "text", "input"}):
        return None
    if isinstance(record.get("data"), list):
        return read_squad(path)
    is_mrqa = isinstance(record.get("qas"), list) or isinstance(record.get("header"), dict)
    return read_mrqa(path) if is_mrqa else None


def _on_texts(path: Path, texts: Iterator[QuestionedText]) -> Iterator[_Asked]:
    """The questions with their answers, wherever these stand; SQuAD 2.0's impossible ones have none."""
    seen: dict[str, str] = {}
    any_answered = False
    asked = (one for text in texts for one in zip(text.questions, text.named, strict=True))
    for number, ((query_id, question, _), answers) in enumerate(asked, 1):
        where = f"{path}, question {number}"
        with placed(where):
            remember_id(query_id, where, seen)
        any_answered |= bool(answers)
        yield _Asked(Query(query_id, _as_dpr(question), tuple(dict.fromkeys(answers))))
    if not any_answered:
        raise InputError(
            "expected questions with answers, found none",
            where=str(path),
            remedy="name another file: the answers of a hidden test set are not in it",
        )


def _row(line: str, number: str) -> _Asked:
    """`question<TAB>['answer', …]`, quoted as Python's csv module does it: DPR's qas files."""
    remedy = "write question<TAB>['answer', 'another'], or JSON lines"
    try:
        columns = next(csv.reader([line], delimiter="\t"), [])
    except csv.Error as error:
        raise BadRecordError("broken line", str(error), remedy=remedy) from None
    if len(columns) != 2:
        detail = f"expected 2 (question, answers), found {len(columns)}"
        raise BadRecordError("wrong number of columns", detail, remedy=remedy)
    try:
        answers = ast.literal_eval(columns[1].strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise BadRecordError(
            "broken answers", f"expected ['answer', …], found {columns[1][:60]!r}", remedy=remedy
        ) from None
    return _Asked(Query(number, _as_dpr(columns[0]), _answers(answers, remedy)))


def _items(path: Path) -> Iterator[_Asked]:
    """A JSON list of `{"question", "answers"}`: DPR's files, EntityQuestions."""
    seen: dict[str, str] = {}
    for number, item in enumerate(json_list(path, _LIST_FORM), 1):
        where = f"{path}, item {number}"
        with placed(where):
            if not isinstance(item, dict):
                detail = f'expected {{"question", "answers"}}, found {_kind(item)}'
                raise BadRecordError("not an object", detail, remedy=_JSON_REMEDY)
            asked = _question(item, str(number))
            remember_id(asked.query.query_id, where, seen)
        yield asked
    if not seen:
        raise InputError(f"expected {_LIST_FORM}, found []", where=str(path), remedy=_JSON_REMEDY)


def _question(record: Mapping[str, Any], number: str) -> _Asked:
    has_id = any(record.get(name) is not None for name in ("id", "_id"))
    own = identifier(record) if has_id else number
    if "input" in record and "output" in record:
        return _of_kilt(own, _as_dpr(string_field(record, "input", of="input")), record["output"])
    text = string_field(record, "question", "text", of="question")
    answers = next((record[name] for name in ("answers", "answer") if name in record), None)
    if answers is None:
        raise BadRecordError(
            "missing answers",
            f"expected the field answers or answer, found {', '.join(record)}",
            remedy=_JSON_REMEDY,
        )
    known = _answers([answers] if isinstance(answers, str) else answers, _JSON_REMEDY)
    return _Asked(Query(own, _as_dpr(text), known), supporting=supporting_of(record))


def _of_kilt(query_id: str, text: str, outputs: Any) -> _Asked:
    """A question of KILT: the answers of its outputs, each once, and their provenance; either will do."""
    listed = outputs if isinstance(outputs, list) else [outputs]
    said = [one["answer"] for one in listed if isinstance(one, dict) and one.get("answer")]
    answers = [one for one in said if not isinstance(one, str) or one.strip()]
    evidence = evidence_of(listed)
    remedy = 'write "output": [{"answer": "…"}], as KILT does'
    if not (answers or evidence):
        detail = "expected an output with an answer or with provenance, found neither"
        raise BadRecordError("missing answers", detail, remedy=remedy)
    known = _answers(answers, remedy) if answers else ()
    return _Asked(Query(query_id, text, tuple(dict.fromkeys(known))), evidence)


def _as_dpr(question: str) -> str:
    """Return a question with DPR's apostrophes; DPR changes neither answers nor texts."""
    return question.replace("\u2019", "'")


def _answers(value: Any, remedy: str | Remedy) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(a, str) for a in value):
        raise BadRecordError(
            "wrong type", f"expected a list of answers, each a string, found {_kind(value)}", remedy=remedy
        )
    if not (known := tuple(filter(str.strip, value))):
        raise BadRecordError("no answer", f"expected a text, found {_kind(value)}", remedy=remedy)
    return known


def _kind(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
