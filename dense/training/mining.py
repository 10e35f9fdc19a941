"""Mines hard negatives from an index: top passages that do not answer the question (TASER, §3.3)."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import batched
from pathlib import Path
from typing import Any, TextIO

from sparta.base.errors import InputError
from sparta.base.files import atomic_path
from sparta.base.records import Advance, Hit, Passage, Query
from sparta.base.remedies import Option, remedy
from sparta.data.answers import has_answer, without_labels
from sparta.data.jsonlist import json_list
from sparta.data.qa_formats import answers_of, stored_form
from sparta.data.queries import read_queries
from sparta.data.trec import read_qrels
from sparta.data.units import check_whole
from sparta.index.channels import DENSE
from sparta.search.searcher import BM25, Searcher
from sparta.training.formats import DPR_FORM, dpr_object, passage_in_file
from sparta.training.known import Key, KnownAnswers, keys_of, question_key

QUESTIONS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Question:
    """A question to mine negatives for, with its known answers and passages.

    `judged` are ids of passages that answer the question. `excluded` are ids and hashes of passages that must
    not become negatives. `positives` are passages that answer the question, `negatives` come from the
    question's file. `match` is the way to search for the answers, as in `has_answer`; empty means the
    `match` of the options.
    """

    text: str
    answers: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()
    excluded: frozenset[Key] = frozenset()
    positives: tuple[Passage, ...] = ()
    negatives: tuple[Passage, ...] = ()
    match: str = ""


@dataclass(slots=True)
class MiningReport:
    """The number of written questions, of questions left out (no passage answers them), and of negatives."""

    written: int = 0
    left_out: int = 0
    negatives: int = 0


def questions_of_queries(
    queries: Iterable[Query],
    qrels: Mapping[str, Mapping[str, int]],
    excluded: Mapping[str, Mapping[str, int]] | None = None,
) -> Iterator[Question]:
    """Yield a question for each query, with its answers and its judged passages (both may be missing).

    Relevant passages are excluded from the negatives of all queries with the same `question_key`.

    :param excluded: judgments of further passages that must not become negatives
    """
    queries, excluded_by_question = list(queries), defaultdict[str, set[Key]](set)
    for query in queries:
        for judgments in (qrels, excluded or {}):
            excluded_by_question[question_key(query.text)].update(
                _relevant_ids(judgments.get(query.query_id, {}))
            )
    for query in queries:
        judged = _relevant_ids(qrels.get(query.query_id, {}))
        excluded_keys = frozenset(excluded_by_question[question_key(query.text)])
        yield Question(query.text, query.answers, judged, excluded_keys)


def _relevant_ids(judgments: Mapping[str, int]) -> tuple[str, ...]:
    """Return the ids of the passages with a relevance above 0."""
    return tuple(i for i, relevance in judgments.items() if relevance > 0)


def questions_of_beir(folder: Path) -> Iterator[Question]:
    """Yield the questions of a BEIR folder that have judgments in `qrels/train.tsv`."""
    qrels = read_qrels(folder / "qrels" / "train.tsv")
    judged = (query for query in read_queries(folder / "queries.jsonl") if query.query_id in qrels)
    return questions_of_queries(judged, qrels)


def questions_of_dpr(path: Path) -> Iterator[Question]:
    """Yield the questions of DPR's training JSON, which contains their positives.

    If several records have the same question, none of their positives becomes a negative. The file is read
    twice.

    :raises InputError: the file has another format.
    """
    known = KnownAnswers()

    def add(record: Mapping[str, Any]) -> None:
        known.add(str(record["question"]), map(passage_in_file, record["positive_ctxs"]))

    def question(record: Mapping[str, Any]) -> Question:
        right = known.right(str(record["question"]))
        hard_negatives = map(_scored, record.get("hard_negative_ctxs", ()))
        return Question(
            str(record["question"]),
            answers_of(record.get("answers")),
            excluded=frozenset(right),
            positives=tuple(map(_scored, record["positive_ctxs"])),
            negatives=tuple(p for p in hard_negatives if right.isdisjoint(keys_of(p))),
            match=str(record.get("match") or ""),
        )

    for _ in _read_dpr(path, add):
        pass
    return _read_dpr(path, question)


def _read_dpr[T](path: Path, read: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
    for number, record in enumerate(json_list(path, DPR_FORM)):
        with stored_form(f"{path}: question {number + 1}", DPR_FORM):
            result = read(record)
        yield result


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningOptions:
    """The options of mining.

    `channel` ranks passages. Of the first `depth` passages, those that do not answer the question become
    negatives, at most `negatives`. `match` is the way to search for answers, as in `has_answer`, unless the
    question's record has a `match`. With `with_answers`, passages that hold an answer may become negatives,
    as in the paper's P2; in a large collection this teaches many right passages as wrong. `keep` puts the
    negatives of the question's file before the mined ones (P1 ∪ P2). `advance` is called with the number of
    questions that were mined since the last call.
    """

    channel: str = BM25
    depth: int = 100
    negatives: int = 100
    match: str = "string"
    keep: bool = False
    with_answers: bool = False
    threads: int = 2
    advance: Advance = lambda _: None


def mine_index(
    index: Path | None, questions: Iterable[Question], output: Path, options: MiningOptions
) -> MiningReport:
    """Write DPR training JSON: each question with its positives and hard negatives from an index.

    Positives are the question's positives or judged passages. A question with answers only takes BM25's best
    passage that holds an answer, among the first `depth` (DPR's distant supervision). Negatives are passages
    among the channel's first `depth` that hold no answer and have no positive's text (P1 with channel bm25,
    P2 with dense). Questions without a positive are left out.

    :raises InputError: no question has a positive, the output is not named .json or .json.gz, or the index is
        of sentences or chunks and a question has positives or judged passages.
    """
    with Miner.writing(index, output, options) as miner:
        for block in batched(questions, QUESTIONS_AT_ONCE):
            if any(question.positives or question.judged for question in block):
                miner.check_whole()
            for question, positives, hits in miner.ranked(block):
                miner.write(question, positives, hits)
            options.advance(len(block))
        if not miner.report.written:
            raise InputError(
                f"no passage of the index answers any of the {miner.report.left_out:,} questions",
                where=str(miner.lexical.reader.folder.path),
                remedy=remedy("check that the questions fit the index, or raise {}", Option("depth")),
            )
    return miner.report


def check_json_name(output: Path) -> None:
    """Raise an InputError unless a file is named .json or .json.gz, which marks DPR's format."""
    if not output.name.removesuffix(".gz").endswith(".json"):
        raise InputError(
            "the output must end in .json or .json.gz, by which training recognizes DPR's files",
            where=str(output),
            remedy=f"name the file {output.name.split('.')[0]}.json",
        )


class Miner:
    """Searches an index for negatives of questions, and writes them."""

    def __init__(
        self, lexical: Searcher, ranked: Any, out: Callable[[dict[str, Any]], None], options: MiningOptions
    ) -> None:
        self.lexical, self.searcher, self.out, self.report = lexical, ranked, out, MiningReport()
        self.options = options

    @classmethod
    @contextmanager
    def writing(cls, index: Path | None, output: Path, options: MiningOptions) -> Iterator[Miner]:
        """Open the channels of an index, and yield a miner. The output file appears if the block succeeds."""
        check_json_name(output)
        channel = options.channel
        with ExitStack() as stack:
            lexical = stack.enter_context(Searcher(index, channel=BM25))
            ranked = lexical if channel == BM25 else stack.enter_context(open_channel(index, channel))
            yield cls(lexical, ranked, stack.enter_context(json_list_writer(output)), options)

    def check_whole(self) -> None:
        """Raise if the index is of pieces of passages: pieces of a right passage would be its negatives."""
        check_whole(self.lexical.unit, self.lexical.reader.folder.path)

    def write(
        self,
        question: Question,
        positives: Sequence[Passage],
        hits: Sequence[Hit],
        extra_fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a question with its positives and negatives. A question without positives is only counted.

        :param hits: the channel's ranking, from which negatives are chosen
        :param extra_fields: further fields of the written record
        """
        if not positives:
            self.report.left_out += 1
            return
        negatives = self.negatives(question, positives, hits)
        if self.options.keep:
            negatives = distinct([*question.negatives, *negatives])
        match = self._match(question)
        record = {
            "question": question.text,
            "answers": list(question.answers),
            **({"match": match} if match != "string" else {}),
            "positive_ctxs": [*map(dpr_object, positives)],
            "negative_ctxs": [],
            "hard_negative_ctxs": [*map(dpr_object, negatives)],
        }
        self.out({**record, **(extra_fields or {})})
        self.report.written += 1
        self.report.negatives += len(negatives)

    def ranked(self, block: Sequence[Question]) -> Iterator[tuple[Question, list[Passage], list[Hit]]]:
        """Yield each question with its positives and the channel's hits."""
        hits = self._search(self.searcher, [question.text for question in block])
        unjudged = [i for i, item in enumerate(block) if not item.positives and not item.judged]
        if self.searcher is self.lexical:
            lexical = {i: hits[i] for i in unjudged}
        else:
            bm25_hits = self._search(self.lexical, [block[i].text for i in unjudged]) if unjudged else []
            lexical = dict(zip(unjudged, bm25_hits, strict=True))
        for i, question in enumerate(block):
            yield question, self._positives(question, lexical.get(i, [])), hits[i]

    def _search(self, searcher: Any, texts: Sequence[str]) -> list[list[Hit]]:
        query_ids = [str(i) for i in range(len(texts))]
        rankings = searcher.batch_search(texts, query_ids, self.options.depth, self.options.threads)
        return [rankings[name] for name in query_ids]

    def _positives(self, question: Question, lexical: Sequence[Hit]) -> list[Passage]:
        if question.positives:
            return list(question.positives)
        if question.judged:
            docids = [docid for docid in self.lexical.docids(list(question.judged)) if docid >= 0]
            return [passage_in_file({**r, "passage_id": r["id"]}) for r in self.lexical.records(docids)]
        for hit in lexical:
            passage = _passage_of(hit)
            if self._answers(question, passage):
                return [passage]
        return []

    def _answers(self, question: Question, passage: Passage) -> bool:
        language = self.lexical.language
        answers = without_labels(question.answers)
        return has_answer(passage.text, answers, match=self._match(question), language=language)

    def _match(self, question: Question) -> str:
        """Return the way to search for a question's answers, as in `has_answer`."""
        return question.match or self.options.match

    def negatives(
        self, question: Question, positives: Sequence[Passage], hits: Sequence[Hit]
    ) -> list[Passage]:
        """Return the first hits that are no positive or duplicate and, without `with_answers`, no answer."""
        used_keys: set[Key] = {
            *question.judged,
            *question.excluded,
            *(key for positive in positives for key in keys_of(positive)),
        }
        negatives: list[Passage] = []
        for hit in hits:
            if len(negatives) == self.options.negatives:
                break
            passage = _passage_of(hit)
            answers = not self.options.with_answers and self._answers(question, passage)
            if used_keys.isdisjoint(keys_of(passage)) and not answers:
                used_keys.update(keys_of(passage))
                negatives.append(passage)
        return negatives


def open_channel(index: Path | None, channel: str) -> Any:
    """Open a searcher of one channel of an index."""
    if channel == DENSE:
        from dense.channel.searcher import DenseSearcher

        return DenseSearcher(index)
    return Searcher(index, channel=channel)


def _passage_of(hit: Hit) -> Passage:
    return Passage(hit.passage_id, hit.text, hit.title, record={"score": float(hit.score)})


def _scored(stored: Mapping[str, Any]) -> Passage:
    """Return a passage of DPR's JSON, with its score in the record if it has one."""
    passage, score = passage_in_file(stored), stored.get("score")
    return passage if score is None else replace(passage, record={"score": float(score)})


def distinct(passages: Iterable[Passage]) -> list[Passage]:
    """Return the passages without duplicates of title and text, in order."""
    first: dict[tuple[str, str], Passage] = {}
    for passage in passages:
        first.setdefault((passage.title, passage.text), passage)
    return list(first.values())


@contextmanager
def json_list_writer(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that adds an object to a JSON list. The file appears if the block succeeds."""
    with atomic_path(path) as temporary, _open_text(temporary, gz=path.suffix == ".gz") as out:
        out.write("[")
        count = 0

        def write(record: dict[str, Any]) -> None:
            nonlocal count
            out.write(("," if count else "") + "\n" + json.dumps(record, ensure_ascii=False))
            count += 1

        yield write
        out.write("\n]\n")


def _open_text(path: Path, *, gz: bool) -> TextIO:
    if gz:
        return gzip.open(path, "wt", encoding="utf-8")
    return path.open("w", encoding="utf-8")
