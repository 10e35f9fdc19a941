"""Test sets: a corpus, questions and judged passages; converts SQuAD, MRQA and MultiReQA to ReQA."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hybrid.evidence.measures import Gold
from hybrid.evidence.supporting import Supporting
from sparta.base.disk.streams import numbered_lines
from sparta.base.errors import InputError
from sparta.base.files import COMPRESSED, plain_name
from sparta.base.records import Query
from sparta.base.remedies import Command, remedy
from sparta.base.renames import renamed_fields
from sparta.data.answers import without_labels
from sparta.data.formats.irds import check_irds, irds_judgments, irds_name, irds_queries, is_irds
from sparta.data.kilt import Evidence
from sparta.data.qa_formats import QuestionedText, misplacement, read_candidates, read_mrqa, read_squad
from sparta.data.queries import read_queries
from sparta.data.sentences import sentence_splitter
from sparta.data.trec import is_beir, read_qrels

logger = logging.getLogger("sparta.hybrid")
Qrels = Mapping[str, Mapping[str, int]]
SAMPLE_SEED = 1
CANDIDATES = "candidates.json"
"""The name of MultiReQA's file of sentences."""
DOMAINS = {
    **dict.fromkeys(("SQuAD", "SearchQA", "NewsQA", "TriviaQA", "NaturalQuestions", "HotpotQA"), "in-domain"),
    **dict.fromkeys(("BioASQ", "DROP", "DuoRC", "RACE", "RelationExtraction", "TextbookQA"), "out-of-domain"),
}
"""The domains of the sets of MultiReQA and SPARTA (Table 3), as in both papers."""


@renamed_fields(of="sampled_from", left_out="omitted_questions", without_own="excludes_query_id")
@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions with judged passages (qrels), answers, or both.

    `groups` maps query ids to relations, for EntityQuestions. `match` is how answers are matched: `string` or
    `regex`. `sampled_from` is the number of questions before sampling; 0 means that the set is not a sample.
    With `excludes_query_id`, a hit whose passage id is the query's id does not count (see
    `excludes_query_ids`). `language` selects the rules that decide when two answers are equal. `evidence` is
    KILT's provenance by query id; `gold` is the provenance mapped to an index (see `judged`). `supporting`
    has HotpotQA's supporting facts by query id. `omitted_questions` is the number of questions in the file
    that have neither answers nor judged passages.

    For a test set, `corpus` is a file that `sparta index` reads. `misplaced` is the number of answers that
    are not at their stated position; these answers make no sentence relevant. `judged` means that the
    judgments are of whole passages, so that sentences cannot be measured.

    :raises InputError: two queries have the same id.
    """

    name: str
    queries: tuple[Query, ...]
    qrels: Qrels = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    match: str = "string"
    sampled_from: int = 0
    excludes_query_id: bool = False
    language: str = "en"
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    gold: Gold | None = None
    supporting: Mapping[str, Supporting] = field(default_factory=dict)
    omitted_questions: int = 0
    corpus: Path | None = None
    misplaced: int = 0
    judged: bool = False

    def __post_init__(self) -> None:
        ids: set[str] = set()
        for query in self.queries:
            if query.query_id in ids:
                raise InputError(
                    f"two queries have the id {query.query_id!r}",
                    where=self.name,
                    remedy="change the id of one of the two queries",
                )
            ids.add(query.query_id)

    @property
    def answers(self) -> dict[str, tuple[str, ...]]:
        """The known answers, by query id."""
        return {query.query_id: query.answers for query in self.queries if query.answers}

    @property
    def text_answers(self) -> dict[str, list[str]]:
        """The answers that a text can hold, by query id; questions with only labels (yes, no) have none."""
        kept = {query_id: without_labels(answers) for query_id, answers in self.answers.items()}
        return {query_id: answers for query_id, answers in kept.items() if answers}

    def known(self) -> dict[str, int]:
        """Return the number of questions with each kind of data: answers, judged passages, pages, facts."""
        gold = self.gold
        passages = gold.passages if gold else self.qrels
        pages = gold.pages if gold else {}
        kinds = {"answers": self.answers, "judged passages": passages, "pages": pages}
        return {
            kind: len(by_query) for kind, by_query in {**kinds, "supporting facts": self.supporting}.items()
        }

    def sample(self, size: int | None) -> QuestionSet:
        """Return a fixed sample of `size` questions: the questions with the smallest hashed ids.

        A larger sample contains every smaller sample. None returns all questions.
        """
        if size is None or size >= len(self.queries):
            return self

        def hash_of_id(query_id: str) -> bytes:
            return hashlib.sha256(f"{SAMPLE_SEED}:{query_id}".encode()).digest()

        sampled = set(sorted((query.query_id for query in self.queries), key=hash_of_id)[:size])
        return replace(
            self,
            queries=tuple(query for query in self.queries if query.query_id in sampled),
            qrels={id_: judgments for id_, judgments in self.qrels.items() if id_ in sampled},
            evidence={id_: sets for id_, sets in self.evidence.items() if id_ in sampled},
            gold=self.gold.of(sampled) if self.gold else None,
            supporting={id_: facts for id_, facts in self.supporting.items() if id_ in sampled},
            sampled_from=len(self.queries),
        )


def open_test_set(path: Path, work: Path, language: str = "en") -> QuestionSet:
    """Open a test set: a BEIR folder, SQuAD JSON, MRQA JSONL, a MultiReQA folder or `irds:` and a name.

    A BEIR folder has corpus.jsonl, queries.jsonl and qrels/. A folder with a corpus, questions.jsonl and
    qrels.tsv is accepted too. A MultiReQA folder has candidates.json and the MRQA JSONL file that the
    candidates come from.

    All formats except BEIR's become ReQA (SPARTA, §5.1): each sentence of a paragraph is a candidate answer
    with the paragraph as its context. A sentence is relevant if an answer starts in it. MultiReQA provides
    the sentences; other paragraphs are split by the rules of `language`. The corpus is written into the
    folder `work`.

    :raises InputError: the path has none of these formats.
    """
    if is_irds(path):
        check_irds(path, "docs", "queries", "qrels")
        return irds_set(path)
    if path.is_dir():
        if multireqa := _multireqa(path):
            return _reqa(path.name, read_mrqa(multireqa[1], read_candidates(multireqa[0])), work, language)
        return _beir(path)
    if not path.exists():
        raise InputError(
            "no such file or folder",
            where=str(path),
            remedy="name a test set: a BEIR folder, SQuAD JSON or MRQA JSONL",
        )
    name = plain_name(path.name)
    if name.endswith(".jsonl"):
        return _reqa(_name_of(path), read_mrqa(path), work, language)
    if name.endswith(".json"):
        return _reqa(_name_of(path), read_squad(path), work, language)
    raise InputError(
        f"a test set is a BEIR folder, SQuAD JSON (.json) or MRQA JSONL (.jsonl), found {name}",
        where=str(path),
        remedy="name a file with the suffix .json or .jsonl; gzipped files (.gz) are accepted",
    )


def check_test_set(path: Path) -> None:
    """Raise if a path is no test set, by its name, files or first line; runs before a model loads.

    Of a BEIR folder, also reads the queries and judgments.
    """
    if is_irds(path):
        check_irds(path, "docs", "queries", "qrels")
    elif path.is_dir():
        if not _multireqa(path):
            _, queries, judgments = _beir_files(path)
            _judged_queries(path.name, list(read_queries(queries)), read_qrels(judgments), queries, judgments)
    elif not plain_name(path.name).endswith((".json", ".jsonl")) or not path.exists():
        open_test_set(path, path.parent)
    elif plain_name(path.name).endswith(".jsonl"):
        _refuse_tasks(path)


def _refuse_tasks(path: Path) -> None:
    """Raise if a file is a KILT task, because KILT's task files come without a corpus."""
    _, line = next(numbered_lines(path), (0, b""))
    if line.lstrip().startswith(b"{") and b'"input"' in line and b'"output"' in line:
        raise InputError(
            "a KILT task cannot be a test set, because it has no corpus",
            where=str(path),
            remedy=remedy(
                "measure the task on an index: {}", Command.of("hybrid eval", index="FOLDER", dataset=path)
            ),
        )


def domains_of(paths: Sequence[Path]) -> dict[Path, str]:
    """Return each set's domain by `DOMAINS`, from the set's name; the sets' means are computed per domain.

    If one of the sets is unknown, all domains are empty.
    """
    names = {path: re.split(r"[^A-Za-z]|Short", path.name)[0] for path in paths}
    all_known = all(name in DOMAINS for name in names.values())
    return {path: DOMAINS[name] if all_known else "" for path, name in names.items()}


def names_of(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the names of test sets: file or folder names, or whole paths if two names are equal."""
    names = {path: _name_of(path) for path in paths}
    is_distinct = len(set(names.values())) == len(names)
    return names if is_distinct else {path: str(path) for path in names}


def _name_of(path: Path) -> str:
    if is_irds(path):
        return irds_name(path).replace("/", "-")
    return path.name if path.is_dir() else re.sub(r"\.jsonl?$", "", plain_name(path.name))


def _multireqa(folder: Path) -> tuple[Path, Path] | None:
    """Return the candidates file and the MRQA file of a MultiReQA folder; None for another folder."""
    files = sorted(folder.iterdir())
    candidates = next((path for path in files if plain_name(path.name) == CANDIDATES), None)
    mrqa = [path for path in files if plain_name(path.name).endswith(".jsonl")]
    if candidates and len(mrqa) != 1:
        raise InputError(
            f"the folder must have one MRQA JSONL file next to {candidates.name}, found {len(mrqa)}",
            where=str(folder),
            remedy="put the MRQA file of the candidates into the folder, for example BioASQ/BioASQ.jsonl.gz",
        )
    return (candidates, mrqa[0]) if candidates else None


def _beir(folder: Path) -> QuestionSet:
    """Return the test set of a BEIR folder, or of a folder with questions.jsonl and qrels.tsv."""
    return judged_set(folder.name, *_beir_files(folder))


def _beir_files(folder: Path) -> tuple[Path, Path, Path]:
    """Return the corpus, the queries and the judgments of a BEIR folder; the corpus may be the folder."""
    questions, judgments = question_files(folder)
    corpus, queries = (maybe_compressed(folder / name) for name in ("corpus.jsonl", "queries.jsonl"))
    if questions.is_file() and judgments.is_file() and questions != queries:
        return folder, questions, judgments
    missing = [file.name for file in (corpus, queries) if not file.is_file()]
    if missing or not judgments.is_file():
        missing = missing or ["qrels/test.tsv"]
        raise InputError(
            "expected a BEIR folder (corpus.jsonl, queries.jsonl, qrels/test.tsv), "
            f"found no {', '.join(missing)}",
            where=str(folder),
            remedy="add the missing file, or name another folder",
        )
    return corpus, queries, judgments


def question_files(folder: Path) -> tuple[Path, Path]:
    """Return the files of a folder's questions and judgments, whether the files exist or not.

    `questions.jsonl` with `qrels.tsv` come first, then BEIR's files, then `questions.jsonl` alone.

    :raises InputError: BEIR's files are read, and `beir_qrels` cannot decide.
    """
    questions, judgments = (maybe_compressed(folder / name) for name in ("questions.jsonl", "qrels.tsv"))
    queries = maybe_compressed(folder / "queries.jsonl")
    if not queries.is_file() or (questions.is_file() and judgments.is_file()):
        return questions, judgments
    return queries, beir_qrels(folder) or folder / "qrels" / "test.tsv"


def maybe_compressed(path: Path) -> Path:
    """Return a path, or the compressed file that stands in its place."""
    if path.is_file():
        return path
    packed = (path.with_name(path.name + suffix) for suffix in COMPRESSED)
    return next((file for file in packed if file.is_file()), path)


def beir_qrels(folder: Path) -> Path | None:
    """Return the judgments of a BEIR folder: those of the test set, or else the only file in `qrels`.

    :raises InputError: there are several files, and none is `test.tsv`.
    """
    files = sorted((folder / "qrels").iterdir()) if (folder / "qrels").is_dir() else []
    by_name: dict[str, Path] = {}  # of `test.tsv` and `test.tsv.gz`, the first counts
    for path in files:
        if plain_name(path.name).endswith(".tsv"):
            by_name.setdefault(plain_name(path.name), path)
    if "test.tsv" in by_name or not by_name:
        return by_name.get("test.tsv")
    if len(by_name) > 1:
        raise InputError(
            f"{len(by_name)} files in qrels/ ({', '.join(by_name)}), but no test.tsv",
            where=str(folder),
            remedy="copy the one to measure with to qrels/test.tsv",
        )
    return next(iter(by_name.values()))


def judged_set(name: str, corpus: Path, queries: Path, judgments: Path) -> QuestionSet:
    """Return the test set with the judged queries of a file.

    :raises InputError: none of the queries is judged.
    """
    qrels, all_queries = read_qrels(judgments), list(read_queries(queries))
    judged_queries = _judged_queries(name, all_queries, qrels, queries, judgments)
    warn_of_unknown(name, qrels, all_queries)
    return replace(
        judged_queries, corpus=corpus, excludes_query_id=excludes_query_ids(judgments, judged_queries.qrels)
    )


def irds_set(source: str | Path) -> QuestionSet:
    """Return the judged queries of a dataset of ir_datasets, with its documents as the corpus.

    :raises InputError: the dataset is unknown, has no queries or judgments, or cannot be downloaded.
    """
    check_irds(source, "queries", "qrels")
    queries, qrels = irds_queries(source), irds_judgments(source)
    judged_queries = _judged_queries(_name_of(Path(source)), queries, qrels, source, source)
    warn_of_unknown(judged_queries.name, qrels, queries)
    excludes_query_id = irds_name(source).startswith("beir/") and not _is_own_id_relevant(
        judged_queries.qrels
    )
    return replace(judged_queries, corpus=Path(source), excludes_query_id=excludes_query_id)


def _judged_queries(
    name: str, queries: Sequence[Query], qrels: Qrels, where: str | Path, judgments: str | Path
) -> QuestionSet:
    """Return the set of the queries that are judged.

    :param where: the file of the queries, for the error message
    :param judgments: the file of the judgments, for the error message
    :raises InputError: none of the queries is judged.
    """
    judged_queries = tuple(query for query in queries if query.query_id in qrels)
    if not judged_queries:
        raise InputError(
            f"{Path(judgments).name} has no judgment of these queries",
            where=str(where),
            remedy=f"check that the queries and {judgments} have the same query ids",
        )
    set_qrels = {query.query_id: qrels[query.query_id] for query in judged_queries}
    omitted_questions = len(queries) - len(judged_queries)
    return QuestionSet(name, judged_queries, set_qrels, omitted_questions=omitted_questions, judged=True)


def warn_of_unknown(name: str, qrels: Qrels, queries: Iterable[Query]) -> None:
    """Log a warning about judged questions that have no text: these questions are not measured."""
    if unknown := qrels.keys() - {query.query_id for query in queries}:
        logger.warning(
            "%s: %d of %d judged questions have no text and are not measured, for example %s",
            *(name, len(unknown), len(qrels), min(unknown)),
        )


def excludes_query_ids(qrels_file: Path, qrels: Qrels) -> bool:
    """Return whether hits with the query's id do not count, as in BEIR (ArguAna, Quora).

    If the qrels judge a passage with the query's id relevant, queries and passages share ids by chance; then
    such hits count.
    """
    return qrels_file.is_file() and is_beir(qrels_file) and not _is_own_id_relevant(qrels)


def _is_own_id_relevant(qrels: Qrels) -> bool:
    return any(judgments.get(query_id, 0) > 0 for query_id, judgments in qrels.items())


def _reqa(name: str, paragraphs: Iterable[QuestionedText], work: Path, language: str) -> QuestionSet:
    """Write the sentences of paragraphs as a corpus, and return the test set.

    Questions whose answer starts in no sentence are left out. A repeated paragraph, as in files with one
    question per line, is written once.
    """
    split_sentences = sentence_splitter(language)
    queries: list[Query] = []
    omitted_questions = misplaced = 0
    qrels: dict[str, dict[str, int]] = {}
    number_by_paragraph: dict[Any, int] = {}
    seen_ids: set[str] = set()
    corpus = work / f"{name}.reqa.jsonl"
    with corpus.open("w", encoding="utf-8") as stream:
        for paragraph in paragraphs:
            misplaced += paragraph.misplaced
            next_number = len(number_by_paragraph)
            number = number_by_paragraph.setdefault(
                (paragraph.title, paragraph.text, paragraph.sentences), next_number
            )
            sentences = (
                split_sentences(paragraph.text) if paragraph.sentences is None else paragraph.sentences
            )
            for sentence_number, (start, end) in enumerate(sentences) if number == next_number else ():
                record = {
                    "id": f"{number}-{sentence_number}",
                    "title": paragraph.title,
                    "text": paragraph.text[start:end],
                    "context": paragraph.text,
                    "start": start,
                    "end": end,
                }
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
            for (query_id, question, answer_starts), answers in zip(
                paragraph.questions, paragraph.named, strict=True
            ):
                relevant = {
                    f"{number}-{sentence_number}": 1
                    for sentence_number, (start, end) in enumerate(sentences)
                    if any(start <= answer_start < end for answer_start in answer_starts)
                }
                if query_id in seen_ids:
                    raise InputError(
                        f"two questions have the id {query_id!r}",
                        where=name,
                        remedy="change the id of one of the two questions",
                    )
                seen_ids.add(query_id)
                if relevant:
                    queries.append(Query(query_id, question, tuple(dict.fromkeys(answers))))
                    qrels[query_id] = relevant
                else:
                    omitted_questions += 1
    if not queries:
        raise InputError(
            "no question has an answer in its paragraph",
            where=name,
            remedy=misplacement(misplaced)
            if misplaced
            else "name a file with answer positions: answer_start (SQuAD) or char_spans (MRQA)",
        )
    return QuestionSet(
        name, tuple(queries), qrels, omitted_questions=omitted_questions, corpus=corpus, misplaced=misplaced
    )
