"""Test sets: a corpus, questions, and which passages answer them; SQuAD, MRQA and MultiReQA as ReQA."""

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
from sparta.base.errors import InputError
from sparta.base.files import numbered_lines, plain_name
from sparta.base.records import Query
from sparta.base.remedies import Command, remedy
from sparta.data.kilt import Evidence
from sparta.data.qa_formats import QuestionedText, misplacement, read_candidates, read_mrqa, read_squad
from sparta.data.queries import read_queries
from sparta.data.sentences import sentence_splitter
from sparta.data.trec import is_beir, read_qrels

logger = logging.getLogger("sparta.hybrid")
Qrels = Mapping[str, Mapping[str, int]]
SAMPLE_SEED = 1
CANDIDATES = "candidates.json"
"""MultiReQA's name for its sentences."""
DOMAINS = {
    **dict.fromkeys(("SQuAD", "SearchQA", "NewsQA", "TriviaQA", "NaturalQuestions", "HotpotQA"), "in-domain"),
    **dict.fromkeys(("BioASQ", "DROP", "DuoRC", "RACE", "RelationExtraction", "TextbookQA"), "out-of-domain"),
}
"""The sets of MultiReQA and of SPARTA (Table 3), as both papers split them."""


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions, and what is known of them: passages (qrels), answers, or both.

    `groups` is {query id: relation} for EntityQuestions. `match` says how answers are looked for: `string` or
    `regex`. `of` is how many questions there were before a sample was drawn, 0 for all. `without_own` says
    that a query's own id is no hit (`own_is_no_hit`). Answers are compared as `language` has it. `evidence`
    is KILT's provenance by query id; `gold` is the same in the terms of an index (`judged`). `supporting` has
    HotpotQA's supporting facts by query id. `left_out` questions of the file have neither answers nor judged
    passages.

    Of a test set, `corpus` is a file that `sparta index` reads, `misplaced` how many answers do not stand
    where the file says, which make no sentence right; `judged` says that people judged its passages, which
    sentences cannot be measured by.

    :raises InputError: two queries have one id.
    """

    name: str
    queries: tuple[Query, ...]
    qrels: Qrels = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    match: str = "string"
    of: int = 0
    without_own: bool = False
    language: str = "en"
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    gold: Gold | None = None
    supporting: Mapping[str, Supporting] = field(default_factory=dict)
    left_out: int = 0
    corpus: Path | None = None
    misplaced: int = 0
    judged: bool = False

    def __post_init__(self) -> None:
        ids: set[str] = set()
        for query in self.queries:
            if query.query_id in ids:
                raise InputError(
                    f"expected queries with ids of their own, found {query.query_id!r} twice",
                    where=self.name,
                    remedy="give every query another id",
                )
            ids.add(query.query_id)

    @property
    def answers(self) -> dict[str, tuple[str, ...]]:
        """Known answers, by query id."""
        return {q.query_id: q.answers for q in self.queries if q.answers}

    def known(self) -> dict[str, int]:
        """How many questions each kind of measure is over."""
        gold = self.gold
        passages = gold.passages if gold else self.qrels
        pages = gold.pages if gold else {}
        kinds = {"answers": self.answers, "judged passages": passages, "pages": pages}
        return {kind: len(own) for kind, own in {**kinds, "supporting facts": self.supporting}.items()}

    def sample(self, size: int) -> QuestionSet:
        """Return a fixed sample: the questions whose hashed ids are the least; a larger one holds it."""
        if size >= len(self.queries):
            return self

        def draw(query_id: str) -> bytes:
            return hashlib.sha256(f"{SAMPLE_SEED}:{query_id}".encode()).digest()

        chosen = set(sorted((q.query_id for q in self.queries), key=draw)[:size])
        return replace(
            self,
            queries=tuple(q for q in self.queries if q.query_id in chosen),
            qrels={q: judged for q, judged in self.qrels.items() if q in chosen},
            evidence={q: sets for q, sets in self.evidence.items() if q in chosen},
            gold=self.gold.of(chosen) if self.gold else None,
            supporting={q: facts for q, facts in self.supporting.items() if q in chosen},
            of=len(self.queries),
        )


def open_test_set(path: Path, work: Path, language: str = "en") -> QuestionSet:
    """Open a BEIR folder (corpus.jsonl, queries.jsonl, qrels/), SQuAD JSON, MRQA JSONL or MultiReQA's folder.

    A folder with questions.jsonl and qrels.tsv beside its corpus, as that of the examples, will do too. One
    of MultiReQA holds candidates.json and the MRQA JSONL that it was made of.

    All but BEIR's become ReQA (SPARTA, §5.1): every sentence of a paragraph is a candidate answer with the
    paragraph as its context, and the sentences in which an answer begins are the right ones. MultiReQA says
    what the sentences are; others are split here, as their `language` has them. Their corpus is written into
    the folder `work`.

    :raises InputError: none of these.
    """
    if path.is_dir():
        if found := _multireqa(path):
            return _reqa(path.name, read_mrqa(found[1], read_candidates(found[0])), work, language)
        return _beir(path)
    if not path.exists():
        raise InputError(
            "no such test set: expected a BEIR folder, SQuAD JSON or MRQA JSONL",
            where=str(path),
            remedy="check the path",
        )
    name = plain_name(path.name)
    if name.endswith(".jsonl"):
        return _reqa(_name_of(path), read_mrqa(path), work, language)
    if name.endswith(".json"):
        return _reqa(_name_of(path), read_squad(path), work, language)
    raise InputError(
        "expected a BEIR folder, SQuAD JSON (.json) or MRQA JSONL (.jsonl), found another name",
        where=str(path),
        remedy="give a file of one of these forms, gzipped or not",
    )


def check_test_set(path: Path) -> None:
    """Refuse, before a model is loaded, what is no test set by its name, files or first line."""
    if path.is_dir():
        if not _multireqa(path):
            _beir(path)
    elif not plain_name(path.name).endswith((".json", ".jsonl")) or not path.exists():
        open_test_set(path, path.parent)
    elif plain_name(path.name).endswith(".jsonl"):
        _refuse_tasks(path)


def _refuse_tasks(path: Path) -> None:
    """Refuse a task of KILT, which has no corpus of its own."""
    _, line = next(numbered_lines(path), (0, b""))
    if line.lstrip().startswith(b"{") and b'"input"' in line and b'"output"' in line:
        raise InputError(
            "expected a test set with its corpus, found a task of KILT, whose corpus is shared",
            where=str(path),
            remedy=remedy(
                "measure it on an index: {}", Command.of("hybrid eval", index="FOLDER", dataset=path)
            ),
        )


def domains_of(paths: Sequence[Path]) -> dict[Path, str]:
    """Return which mean each set counts in, by its name: that of `DOMAINS`, or one if any is not there."""
    names = {path: re.split(r"[^A-Za-z]|Short", path.name)[0] for path in paths}
    known = all(name in DOMAINS for name in names.values())
    return {path: DOMAINS[name] if known else "" for path, name in names.items()}


def names_of(paths: Iterable[Path]) -> dict[Path, str]:
    """Return what test sets are called: by file or folder, or the whole paths where these are the same."""
    names = {path: _name_of(path) for path in paths}
    distinct = len(set(names.values())) == len(names)
    return names if distinct else {path: str(path) for path in names}


def _name_of(path: Path) -> str:
    return path.name if path.is_dir() else re.sub(r"\.jsonl?$", "", plain_name(path.name))


def _multireqa(folder: Path) -> tuple[Path, Path] | None:
    """Return the candidates and the MRQA file of a folder of MultiReQA; None for another folder."""
    files = sorted(folder.iterdir())
    candidates = next((path for path in files if plain_name(path.name) == CANDIDATES), None)
    mrqa = [path for path in files if plain_name(path.name).endswith(".jsonl")]
    if candidates and len(mrqa) != 1:
        raise InputError(
            f"expected one MRQA JSONL beside {candidates.name}, found {len(mrqa)}",
            where=str(folder),
            remedy="put the MRQA file there that the candidates are of, as in BioASQ/BioASQ.jsonl.gz",
        )
    return (candidates, mrqa[0]) if candidates else None


def _beir(folder: Path) -> QuestionSet:
    if (folder / "questions.jsonl").is_file() and (folder / "qrels.tsv").is_file():
        return judged_set(folder.name, folder, folder / "questions.jsonl", folder / "qrels.tsv")
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
    return judged_set(folder.name, corpus, queries, test[0])


def judged_set(name: str, corpus: Path, queries: Path, judgments: Path) -> QuestionSet:
    """Return the queries of a file that are judged.

    :raises InputError: there are none.
    """
    qrels = read_qrels(judgments)
    known = list(read_queries(queries))
    judged_queries = tuple(query for query in known if query.query_id in qrels)
    if not judged_queries:
        raise InputError(
            f"none of the questions is judged in {judgments.name}", where=str(queries), remedy="check the ids"
        )
    warn_of_unknown(name, qrels, known)
    own = {query.query_id: qrels[query.query_id] for query in judged_queries}
    left_out = len(known) - len(judged_queries)
    without_own = own_is_no_hit(judgments, own)
    return QuestionSet(
        name,
        judged_queries,
        own,
        without_own=without_own,
        left_out=left_out,
        corpus=corpus,
        judged=True,
    )


def warn_of_unknown(name: str, qrels: Qrels, queries: Iterable[Query]) -> None:
    """Warn of judged questions without a text, which cannot be measured."""
    if unknown := qrels.keys() - {query.query_id for query in queries}:
        logger.warning(
            "%s: %d of %d judged questions have no text and are not measured, as %s",
            *(name, len(unknown), len(qrels), min(unknown)),
        )


def own_is_no_hit(qrels: Path, judged: Qrels) -> bool:
    """Whether a hit with the query's own id does not count, as in BEIR (ArguAna, Quora).

    Where such a hit is judged relevant, queries and passages are only numbered alike.
    """
    relevant = any(own.get(query_id, 0) > 0 for query_id, own in judged.items())
    return qrels.is_file() and is_beir(qrels) and not relevant


def _reqa(name: str, paragraphs: Iterable[QuestionedText], work: Path, language: str) -> QuestionSet:
    """Write the sentences as a corpus; an answer that no sentence holds leaves its question out.

    A paragraph that comes again, as in files with one question a line, is written once.
    """
    split = sentence_splitter(language)
    queries: list[Query] = []
    left_out = misplaced = 0
    qrels: dict[str, dict[str, int]] = {}
    numbers: dict[Any, int] = {}
    seen: set[str] = set()
    corpus = work / f"{name}.reqa.jsonl"
    with corpus.open("w", encoding="utf-8") as out:
        for paragraph in paragraphs:
            misplaced += paragraph.misplaced
            known = len(numbers)
            number = numbers.setdefault((paragraph.title, paragraph.text, paragraph.sentences), known)
            sentences = split(paragraph.text) if paragraph.sentences is None else paragraph.sentences
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
            for (query_id, question, begins), answers in zip(
                paragraph.questions, paragraph.named, strict=True
            ):
                right = {
                    f"{number}-{i}": 1
                    for i, (start, end) in enumerate(sentences)
                    if any(start <= begin < end for begin in begins)
                }
                if query_id in seen:
                    raise InputError(
                        f"expected questions with ids of their own, found {query_id!r} twice",
                        where=name,
                        remedy="give every question another id",
                    )
                seen.add(query_id)
                if right:
                    queries.append(Query(query_id, question, tuple(dict.fromkeys(answers))))
                    qrels[query_id] = right
                else:
                    left_out += 1
    if not queries:
        raise InputError(
            "expected questions with answers in their paragraphs, found none",
            where=name,
            remedy=misplacement(misplaced)
            if misplaced
            else "give a file with answer_start (SQuAD) or char_spans (MRQA)",
        )
    return QuestionSet(name, tuple(queries), qrels, left_out=left_out, corpus=corpus, misplaced=misplaced)
