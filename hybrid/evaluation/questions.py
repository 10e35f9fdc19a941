"""Reads evaluation questions with answers or judged passages, in the common published formats."""

from __future__ import annotations

import ast
import csv
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hybrid.evaluation.testsets import (
    QuestionSet,
    excludes_query_ids,
    irds_set,
    judged_set,
    question_files,
    warn_of_unknown,
)
from hybrid.evidence.gold import gold_of
from hybrid.evidence.supporting import Supporting, supporting_of
from sparta.base.checks import path_of
from sparta.base.disk.streams import numbered_lines
from sparta.base.errors import InputError
from sparta.base.files import plain_name
from sparta.base.records import Query
from sparta.base.remedies import Option, Remedy, remedy
from sparta.data.files import beginning
from sparta.data.formats.irds import is_irds
from sparta.data.jsonlist import json_list
from sparta.data.kilt import Evidence, evidence_of, well_mapped
from sparta.data.parsing import BadRecordError, decoded, identifier, parse_object, placed, string_field
from sparta.data.qa_formats import QuestionedText, read_mrqa, read_squad
from sparta.data.queries import read_queries, remember_id
from sparta.data.trec import read_qrels
from sparta.index.folder import IndexFolder

QUESTION_FORMATS = (
    "a BEIR folder (queries.jsonl, qrels/test.tsv), a folder with questions.jsonl, EntityQuestions (a folder"
    " of P*.json), or a file: DPR's question<TAB>['answer', …], SQuAD JSON, MRQA JSONL, KILT's JSON lines, or"
    ' JSON lines or a JSON list of {"question", "answers"}; or irds: and the name of a dataset'
)
_LIST_FORM = 'a JSON list of {"question", "answers"}'
_JSON_REMEDY = 'write {"question": "…", "answers": ["…"]}'


def judged(query_set: QuestionSet, index: Path | None, least_bleu: float = 0.0) -> QuestionSet:
    """Return a KILT question set with its provenance mapped to an index; other question sets stay unchanged.

    The provenance becomes gold passages and gold pages of the index.

    :param index: None is an index on a server, whose provenance cannot be mapped
    :param least_bleu: lowest BLEU score of provenance; provenance with a lower score is left out.
        `LEAST_BLEU` is the value for training
    :raises InputError: the index has none of the passages that the set names, or is on a server.
    """
    if not query_set.evidence:
        return query_set
    if index is None:
        raise InputError(
            "KILT's provenance is measured on the folder of an index, not on a server",
            where=query_set.name,
            remedy=remedy(
                "evaluate the index that was pushed: {} in place of {}",
                Option("index", "FOLDER"),
                Option("opensearch"),
            ),
        )
    evidence = {
        query_id: well_mapped(provenance, least_bleu) for query_id, provenance in query_set.evidence.items()
    }
    gold, qrels = gold_of(query_set.name, evidence, index)
    return replace(query_set, gold=gold, qrels=qrels)


def question_sets(
    paths: Sequence[Path],
    index: Path | None,
    matches: Mapping[str, str] | None = None,
    sample: int | None = None,
) -> list[QuestionSet]:
    """Return several sets of questions for an index, ready to measure with.

    :param paths: files and folders of questions; empty means the questions beside the index's corpus. Sets of
        the same name get their paths as names
    :param index: None is an index on a server; `paths` must then name questions
    :param matches: how answers are matched in passages, by the name of the set; the empty name means all sets
    :param sample: use this many questions of each set, drawn with a fixed seed
    :raises InputError: a set is named twice, or a match names an unknown set.
    """
    sets = [questions_of(path) for path in paths]
    if not sets and index is not None:
        sets = [questions_beside(index)]
    if len({each.name for each in sets}) < len(sets):
        sets = [replace(each, name=str(path)) for each, path in zip(sets, paths, strict=True)]
    names = [each.name for each in sets]
    if len({*names}) < len(names):
        raise InputError("a set of questions is named twice", remedy="name each set once")
    matches = matches or {}
    if unknown := matches.keys() - {"", *names}:
        raise InputError(
            f"no set of questions has the name {min(unknown)!r} (sets: {', '.join(names)})",
            remedy=remedy("write {}", Option("match", f"{names[-1]}={matches[min(unknown)]}")),
        )
    sets = [replace(each, match=matches.get(each.name, matches.get("", each.match))) for each in sets]
    return [judged(each.sample(sample), index) for each in sets]


def questions_beside(index: Path) -> QuestionSet:
    """Return the questions in the folder of an index's corpus, with qrels if the folder has qrels.

    `question_files` names the files. If the corpus is a folder, the questions may be inside the folder too.

    :raises InputError: the folder has no questions; the remedy names the option for another question set.
    """
    if dataset := _irds_of(index):
        return irds_set(dataset)
    corpus = _corpus_of(index)
    for folder, queries, qrels in _question_places(corpus) if corpus else ():
        if queries.is_file():
            return _read_set(folder.name, queries, qrels)
    raise InputError(
        "there are no questions (questions.jsonl) next to the index's corpus",
        where=str(corpus.parent if corpus else index),
        remedy=remedy("name a file or folder of questions: {}", Option("dataset", "PATH")),
    )


def set_beside(index: Path) -> QuestionSet:
    """Return an index's corpus as a test set, with the questions and qrels in the corpus's folder.

    :raises InputError: the corpus's folder has no questions and qrels; the remedy is to name a test set.
    """
    if dataset := _irds_of(index):
        return irds_set(dataset)
    corpus = _corpus_of(index) or index
    for folder, queries, qrels in _question_places(corpus) if corpus.exists() else ():
        if queries.is_file() and qrels.is_file():
            return judged_set(folder.name, corpus, queries, qrels)
    raise InputError(
        "there is no corpus with questions and judged passages (qrels.tsv) for this index",
        where=str(corpus.parent),
        remedy="name a test set: a BEIR folder, SQuAD JSON or MRQA JSONL",
    )


def _question_places(corpus: Path) -> Iterator[tuple[Path, Path, Path]]:
    """Yield `(folder, questions file, qrels file)` for each place that may hold questions about a corpus."""
    for folder in (corpus, corpus.parent) if corpus.is_dir() else (corpus.parent,):
        yield folder, *question_files(folder)


def _irds_of(index: Path) -> str:
    """Return the dataset of ir_datasets that an index was built from; empty for another corpus."""
    generation = IndexFolder(index).state().searchable
    return generation.first_source if generation and is_irds(generation.first_source) else ""


def _corpus_of(index: Path) -> Path | None:
    """Return the corpus that an index was built from, without later additions; None if it is unknown."""
    generation = IndexFolder(index).state().searchable
    return generation.corpus if generation else None


def questions_of(path: str | Path) -> QuestionSet:
    """Return the questions of a file or folder in one of `QUESTION_FORMATS`.

    Questions without an id are numbered from 1, by line or item. In EntityQuestions, `P106-1` is the first
    question of relation P106.

    :raises InputError: the path has none of these formats, or a line or item is invalid.
    """
    path = path_of(path, "questions")
    if is_irds(path):
        return irds_set(path)
    if path.is_file():
        name = plain_name(path.name).rpartition(".")[0] or path.name
        questions = list(_read_file(path))
        usable = [question for question in questions if question.query.answers or question.evidence]
        evidence = {question.query.query_id: question.evidence for question in usable if question.evidence}
        supporting = {
            question.query.query_id: question.supporting for question in usable if question.supporting
        }
        answerable = tuple(question.query for question in usable)
        omitted_questions = len(questions) - len(answerable)
        return QuestionSet(
            name, answerable, evidence=evidence, supporting=supporting, omitted_questions=omitted_questions
        )
    queries, qrels = question_files(path)
    if queries.is_file():
        return _read_set(path.name, queries, qrels)
    relations = sorted(path.glob("P*.json"))
    if relations:
        return _entity_questions(path.name, relations)
    raise InputError(
        "the folder has no evaluation questions" if path.exists() else "no such file or folder",
        where=str(path),
        remedy=f"name {QUESTION_FORMATS}",
    )


def _read_set(name: str, queries: Path, qrels: Path) -> QuestionSet:
    """Return the question set of a queries file and a qrels file, without unusable questions."""
    qrels_by_query = read_qrels(qrels) if qrels.is_file() else {}
    all_queries = tuple(read_queries(queries))
    warn_of_unknown(name, qrels_by_query, all_queries)
    queries_used = tuple(query for query in all_queries if query.answers or query.query_id in qrels_by_query)
    if not queries_used:
        raise InputError(
            "no question has answers or judged passages",
            where=str(queries),
            remedy="add answers to the questions, or add a qrels file to the folder",
        )
    set_qrels = {
        query.query_id: qrels_by_query[query.query_id]
        for query in queries_used
        if query.query_id in qrels_by_query
    }
    return QuestionSet(
        name,
        queries_used,
        set_qrels,
        excludes_query_id=excludes_query_ids(qrels, set_qrels),
        omitted_questions=len(all_queries) - len(queries_used),
    )


def _entity_questions(name: str, relations: Sequence[Path]) -> QuestionSet:
    """Return the questions of EntityQuestions, one file per relation: `P106.test.json` is relation P106."""
    queries: list[Query] = []
    groups: dict[str, str] = {}
    for path in relations:
        relation = path.name.split(".")[0]
        for question in _read_items(path):
            query = replace(question.query, query_id=f"{relation}-{question.query.query_id}")
            if query.query_id in groups:
                raise InputError(
                    f"the folder has two files for the relation {relation}",
                    where=str(path),
                    remedy="name a folder with one split only, such as dataset/test",
                )
            queries.append(query)
            groups[query.query_id] = relation
    split = f"EntityQuestions {name}" if name in ("train", "dev", "test") else name
    return QuestionSet(split, tuple(queries), groups=groups)


class _FileQuestion(NamedTuple):
    """A question of a file, with its provenance (KILT) or supporting facts (HotpotQA)."""

    query: Query
    evidence: Evidence = ()
    supporting: Supporting | None = None


def _read_file(path: Path) -> Iterator[_FileQuestion]:
    """Yield the questions of a file; the first character that is not white space decides the format."""
    if path.is_file() and _is_list(beginning(path)):
        yield from _read_items(path)
        return
    lines = numbered_lines(path)
    first = next(lines, None)
    if first is None:
        raise InputError(
            "the file of questions is empty", where=str(path), remedy=f"write {QUESTION_FORMATS}"
        )
    first_text = first[1].removeprefix(b"\xef\xbb\xbf").lstrip()
    is_json = first_text.startswith(b"{")
    if is_json and (paragraphs := _read_paragraphs(path, first_text)):
        yield from _paragraph_questions(path, paragraphs)
        return
    places_by_id: dict[str, str] = {}
    for number, line in itertools.chain([first], lines):
        where = f"{path}:{number}"
        with placed(where):
            text = decoded(line)
            question = (
                _parse_question(parse_object(text), str(number)) if is_json else _parse_row(text, str(number))
            )
            remember_id(question.query.query_id, where, places_by_id)
        yield question


def _is_list(start: bytes) -> bool:
    """Return whether a file that begins with these bytes is a JSON list; a tab shows DPR's TSV."""
    return start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[") and b"\t" not in start


def _read_paragraphs(path: Path, first: bytes) -> Iterator[QuestionedText] | None:
    """Return the texts with questions of a SQuAD JSON or MRQA JSONL file; None for another format.

    :param first: the file's first line
    """
    try:
        record = parse_object(decoded(first))
    except BadRecordError:
        may_be_json = plain_name(path.name).endswith(".json") and not first.rstrip().endswith(b"}")
        return read_squad(path) if may_be_json else None
    if not record.keys().isdisjoint({"question", "text", "input"}):
        return None
    if isinstance(record.get("data"), list):
        return read_squad(path)
    is_mrqa = isinstance(record.get("qas"), list) or isinstance(record.get("header"), dict)
    return read_mrqa(path) if is_mrqa else None


def _paragraph_questions(path: Path, paragraphs: Iterator[QuestionedText]) -> Iterator[_FileQuestion]:
    """Yield the questions of paragraphs with their answers; SQuAD 2.0's impossible questions have none."""
    places_by_id: dict[str, str] = {}
    has_answers = False
    questions = (
        question_and_answers
        for paragraph in paragraphs
        for question_and_answers in zip(paragraph.questions, paragraph.named, strict=True)
    )
    for number, ((query_id, question, _), answers) in enumerate(questions, 1):
        where = f"{path}, question {number}"
        with placed(where):
            remember_id(query_id, where, places_by_id)
        has_answers |= bool(answers)
        yield _FileQuestion(Query(query_id, _as_dpr(question), tuple(dict.fromkeys(answers))))
    if not has_answers:
        raise InputError(
            "no question has an answer",
            where=str(path),
            remedy="name a file with answers: hidden test sets have none",
        )


def _parse_row(line: str, number: str) -> _FileQuestion:
    """Parse a line of DPR's qas files: `question<TAB>['answer', …]`, quoted as by Python's csv module."""
    remedy = "write question<TAB>['answer', 'another'], or JSON lines"
    try:
        columns = next(csv.reader([line], delimiter="\t"), [])
    except csv.Error as error:
        raise BadRecordError("invalid TSV line", str(error), remedy=remedy) from None
    if len(columns) != 2:
        detail = f"expected 2 columns (question, answers), found {len(columns)}"
        raise BadRecordError("wrong number of columns", detail, remedy=remedy)
    try:
        answers = ast.literal_eval(columns[1].strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise BadRecordError(
            "invalid list of answers", f"expected ['answer', …], found {columns[1][:60]!r}", remedy=remedy
        ) from None
    return _FileQuestion(Query(number, _as_dpr(columns[0]), _answers(answers, remedy)))


def _read_items(path: Path) -> Iterator[_FileQuestion]:
    """Yield the questions of a JSON list of `{"question", "answers"}`: DPR's files, EntityQuestions."""
    places_by_id: dict[str, str] = {}
    for number, item in enumerate(json_list(path, _LIST_FORM), 1):
        where = f"{path}, item {number}"
        with placed(where):
            if not isinstance(item, dict):
                detail = f'expected {{"question", "answers"}}, found {_preview(item)}'
                raise BadRecordError("not a JSON object", detail, remedy=_JSON_REMEDY)
            question = _parse_question(item, str(number))
            remember_id(question.query.query_id, where, places_by_id)
        yield question
    if not places_by_id:
        raise InputError(
            f"the list of questions is empty: expected {_LIST_FORM}", where=str(path), remedy=_JSON_REMEDY
        )


def _parse_question(record: Mapping[str, Any], number: str) -> _FileQuestion:
    """Parse a question from a JSON object."""
    has_id = any(record.get(name) is not None for name in ("id", "_id"))
    query_id = identifier(record) if has_id else number
    if "input" in record and "output" in record:
        return _kilt_question(query_id, _as_dpr(string_field(record, "input", of="input")), record["output"])
    text = string_field(record, "question", "text", of="question")
    answers = next((record[name] for name in ("answers", "answer") if name in record), None)
    if answers is None:
        raise BadRecordError(
            "missing answers",
            f"expected the field answers or answer, found {', '.join(record)}",
            remedy=_JSON_REMEDY,
        )
    valid_answers = _answers([answers] if isinstance(answers, str) else answers, _JSON_REMEDY)
    return _FileQuestion(Query(query_id, _as_dpr(text), valid_answers), supporting=supporting_of(record))


def _kilt_question(query_id: str, text: str, outputs: Any) -> _FileQuestion:
    """Return a KILT question with its outputs' distinct answers and provenance; raise if it has neither."""
    output_list = outputs if isinstance(outputs, list) else [outputs]
    values = [output["answer"] for output in output_list if isinstance(output, dict) and output.get("answer")]
    answers = [answer for answer in values if not isinstance(answer, str) or answer.strip()]
    evidence = evidence_of(output_list)
    remedy = 'write KILT\'s format: "output": [{"answer": "…"}]'
    if not (answers or evidence):
        detail = "no output has an answer or provenance"
        raise BadRecordError("missing answers", detail, remedy=remedy)
    valid_answers = _answers(answers, remedy) if answers else ()
    return _FileQuestion(Query(query_id, text, tuple(dict.fromkeys(valid_answers))), evidence)


def _as_dpr(question: str) -> str:
    """Return a question with straight apostrophes, as in DPR; answers and passages stay unchanged."""
    return question.replace("\u2019", "'")


def _answers(value: Any, remedy: str | Remedy) -> tuple[str, ...]:
    """Return a JSON list's answers without blank strings; raise if the value is not a list of strings."""
    if (
        not isinstance(value, list | tuple)
        or not value
        or not all(isinstance(answer, str) for answer in value)
    ):
        raise BadRecordError(
            "answers of the wrong type", f"expected a list of strings, found {_preview(value)}", remedy=remedy
        )
    if not (answers := tuple(filter(str.strip, value))):
        raise BadRecordError("missing answers", f"every answer is blank: {_preview(value)}", remedy=remedy)
    return answers


def _preview(value: Any) -> str:
    """Return the start of a value as JSON, for messages."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"
