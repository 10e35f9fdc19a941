"""Hard negatives from an index: passages that rank high for a question and do not answer it (TASER, §3.3)."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import batched
from pathlib import Path
from typing import Any, TextIO, TypedDict, Unpack

from sparta.base.errors import InputError
from sparta.base.files import atomic_path
from sparta.base.records import Advance, Hit, Query
from sparta.base.remedies import Option, remedy
from sparta.data.answers import LABELS, has_answer
from sparta.data.jsonlist import json_list
from sparta.data.qa_formats import answers_of, stored_form
from sparta.data.queries import read_queries
from sparta.data.trec import read_qrels
from sparta.search.searcher import Searcher
from sparta.training.formats import DPR_FORM, context_in_file
from sparta.training.known import Key, KnownAnswers, keys_of

BM25 = "bm25"
QUESTIONS_AT_ONCE = 256
Context = dict[str, Any]
"""A passage as DPR writes it: title, text, passage_id, score."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question whose negatives are wanted, and what is known of its answer.

    `judged` are ids of passages that answer it, `excluded` ids and hashes of passages that must not become
    negatives; `positives` are passages that answer it, and `negatives` those that a file gave it.
    """

    text: str
    answers: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()
    excluded: frozenset[Key] = frozenset()
    positives: tuple[Context, ...] = ()
    negatives: tuple[Context, ...] = ()


@dataclass(slots=True)
class MiningReport:
    """How many questions were written, how many had no passage that answers them, and their negatives."""

    written: int = 0
    left_out: int = 0
    negatives: int = 0


def questions_of_queries(
    queries: Iterable[Query],
    qrels: Mapping[str, Mapping[str, int]],
    excluded: Mapping[str, Mapping[str, int]] | None = None,
) -> Iterator[Question]:
    """Yield questions with answers, judged passages, both or neither; the last are left out, and counted.

    :param excluded: judgments of passages that must not become negatives of a question, those of `qrels` too;
        those of queries of the same text count for all of these
    """
    queries, same = list(queries), defaultdict[str, set[Key]](set)
    for query in queries:
        for judgments in (qrels, excluded or {}):
            same[query.text].update(_right(judgments.get(query.query_id, {})))
    for query in queries:
        judged = _right(qrels.get(query.query_id, {}))
        yield Question(query.text, query.answers, judged, frozenset(same[query.text]))


def _right(judgments: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(i for i, relevance in judgments.items() if relevance > 0)


def questions_of_beir(folder: Path) -> Iterator[Question]:
    """Yield the questions of a BEIR folder that `qrels/train.tsv` judges."""
    qrels = read_qrels(folder / "qrels" / "train.tsv")
    judged = (query for query in read_queries(folder / "queries.jsonl") if query.query_id in qrels)
    return questions_of_queries(judged, qrels)


def questions_of_dpr(path: Path) -> Iterator[Question]:
    """Return the questions of DPR's training JSON, which name their positives.

    Positives of all records of a question are excluded from its negatives: the file is read twice.

    :raises InputError: another form.
    """
    known = KnownAnswers()

    def add(record: Mapping[str, Any]) -> None:
        known.add(str(record["question"]), map(context_in_file, record["positive_ctxs"]))

    def question(record: Mapping[str, Any]) -> Question:
        right = known.right(str(record["question"]))
        given = map(_context, record.get("hard_negative_ctxs", ()))
        return Question(
            str(record["question"]),
            answers_of(record.get("answers")),
            excluded=frozenset(right),
            positives=tuple(map(_context, record["positive_ctxs"])),
            negatives=tuple(one for one in given if right.isdisjoint(_keys(one))),
        )

    for _ in _read_dpr(path, add):
        pass
    return _read_dpr(path, question)


def _read_dpr[T](path: Path, read: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
    for number, record in enumerate(json_list(path, DPR_FORM)):
        with stored_form(f"{path}: question {number + 1}", DPR_FORM):
            made = read(record)
        yield made


class MiningOptions(TypedDict, total=False):
    """Options of mining, with these defaults.

    `channel` (bm25) ranks passages; of the first `depth` (100), those that do not answer the question become
    negatives, at most `negatives` (100). `match` (string) says how answers are looked for, as in
    `has_answer`. With `with_answers`, passages that hold an answer may be negatives: the positives only are
    left out, as in the paper's P2; in a collection other passages hold the answer too, and are then taught as
    wrong. `keep` puts the negatives that the file gave before the mined ones: P1 ∪ P2.
    """

    channel: str
    depth: int
    negatives: int
    match: str
    keep: bool
    with_answers: bool
    threads: int
    advance: Advance | None


def mine_index(
    index: Path | None, questions: Iterable[Question], output: Path, **options: Unpack[MiningOptions]
) -> MiningReport:
    """Write DPR training JSON: each question with a positive and the best passages that do not answer it.

    The positives are the given or judged passages; of a question with answers only, the best passage of BM25
    that holds one, among the first `depth`: DPR's distant supervision. Of the first `depth` passages
    of the channel, those are negatives that are no positive, have the text of none, and hold no answer (P1
    with channel bm25, P2 with dense). Questions without a positive are left out.

    :raises InputError: no question has a positive; the output is not named .json or .json.gz.
    """
    with Miner.writing(index, output, options) as miner:
        for block in batched(questions, QUESTIONS_AT_ONCE):
            for question, positives, hits in miner.ranked(block):
                miner.write(question, positives, hits)
            miner.advance(len(block))
        if not miner.report.written:
            raise InputError(
                "expected questions that a passage of the index answers, found none among"
                f" {miner.report.left_out:,}",
                where=str(miner.lexical.reader.folder.path),
                remedy=remedy("check that the questions fit the index, or raise {}", Option("depth")),
            )
    return miner.report


def check_json_name(output: Path) -> None:
    """Refuse a name by which a training would not know the file as DPR's JSON."""
    if not output.name.removesuffix(".gz").endswith(".json"):
        raise InputError(
            "expected an output named .json or .json.gz, by which training files are known as DPR's",
            where=str(output),
            remedy=f"name it {output.name.split('.')[0]}.json",
        )


class Miner:
    """Finds negatives of questions in an index, and writes them."""

    def __init__(
        self, lexical: Searcher, ranked: Any, out: Callable[[dict[str, Any]], None], options: MiningOptions
    ) -> None:
        self.lexical, self.searcher, self.out, self.report = lexical, ranked, out, MiningReport()
        self.depth, self.most = options.get("depth", 100), options.get("negatives", 100)
        self.match, self.threads = options.get("match", "string"), options.get("threads", 2)
        self.keep, self.with_answers = options.get("keep", False), options.get("with_answers", False)
        self.advance = options.get("advance") or (lambda _: None)

    @classmethod
    @contextmanager
    def writing(cls, index: Path | None, output: Path, options: MiningOptions) -> Iterator[Miner]:
        """Open the channels of an index; the output is there when the block ends well."""
        check_json_name(output)
        channel = options.get("channel", BM25)
        with ExitStack() as stack:
            lexical = stack.enter_context(Searcher(index, channel=BM25))
            ranked = lexical if channel == BM25 else stack.enter_context(open_channel(index, channel))
            yield cls(lexical, ranked, stack.enter_context(json_list_writer(output)), options)

    def write(
        self,
        question: Question,
        positives: Sequence[Context],
        hits: Sequence[Hit],
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a question with its negatives; without positives, leave it out.

        :param more: further fields of the record
        """
        if not positives:
            self.report.left_out += 1
            return
        negatives = self.negatives(question, positives, hits)
        if self.keep:
            negatives = distinct([*question.negatives, *negatives])
        record = {
            "question": question.text,
            "answers": list(question.answers),
            "positive_ctxs": list(positives),
            "negative_ctxs": [],
            "hard_negative_ctxs": negatives,
        }
        self.out({**record, **(more or {})})
        self.report.written += 1
        self.report.negatives += len(negatives)

    def ranked(self, block: Sequence[Question]) -> Iterator[tuple[Question, list[Context], list[Hit]]]:
        """Yield each question with its positives and what the channel found."""
        hits = self._search(self.searcher, [one.text for one in block])
        unjudged = [i for i, one in enumerate(block) if not one.positives and not one.judged]
        if self.searcher is self.lexical:
            lexical = {i: hits[i] for i in unjudged}
        else:
            found = self._search(self.lexical, [block[i].text for i in unjudged]) if unjudged else []
            lexical = dict(zip(unjudged, found, strict=True))
        for i, question in enumerate(block):
            yield question, self._positives(question, lexical.get(i, [])), hits[i]

    def _search(self, searcher: Any, texts: Sequence[str]) -> list[list[Hit]]:
        names = [str(i) for i in range(len(texts))]
        found = searcher.batch_search(texts, names, self.depth, self.threads)
        return [found[name] for name in names]

    def _positives(self, question: Question, lexical: Sequence[Hit]) -> list[Context]:
        if question.positives:
            return list(question.positives)
        if question.judged:
            docids = [docid for docid in self.lexical.docids(list(question.judged)) if docid >= 0]
            return [_context(record, passage_id=record["id"]) for record in self.lexical.records(docids)]
        for hit in lexical:
            passage = _of_hit(hit)
            if self._answers(question, passage):
                return [passage]
        return []

    def _answers(self, question: Question, passage: Context) -> bool:
        language = self.lexical.language
        return has_answer(passage["text"], question.answers, match=self.match, language=language)

    def negatives(
        self, question: Question, positives: Sequence[Context], hits: Sequence[Hit]
    ) -> list[Context]:
        """The best passages of these that are no positive, each text once; without an answer unless those are
        wanted.
        """
        seen: set[Key] = {*question.judged, *question.excluded, *(key for p in positives for key in _keys(p))}
        answers = [answer for answer in question.answers if answer.strip().lower() not in LABELS]
        unlabeled = replace(question, answers=tuple(() if self.with_answers else answers))
        found: list[Context] = []
        for hit in hits:
            if len(found) == self.most:
                break
            passage = _of_hit(hit)
            if seen.isdisjoint(_keys(passage)) and not self._answers(unlabeled, passage):
                seen.update(_keys(passage))
                found.append(passage)
        return found


def open_channel(index: Path | None, channel: str) -> Any:
    """Return a searcher of a channel of an index."""
    if channel == "dense":
        from dense.channel.searcher import DenseSearcher

        return DenseSearcher(index)
    return Searcher(index, channel=channel)


def _of_hit(hit: Hit) -> Context:
    record = {**hit.metadata, "title": hit.title, "contents": hit.text}
    return _context(record, passage_id=hit.passage_id, score=hit.score)


def _context(record: Mapping[str, Any], passage_id: str = "", score: float | None = None) -> Context:
    """A stored record, or a passage of DPR's file, as DPR writes it."""
    stored = context_in_file({**record, "text": record["text"] if "text" in record else record["contents"]})
    context = {**stored._asdict(), "passage_id": passage_id or stored.passage_id}
    score = record.get("score") if score is None else score
    return context if score is None else {**context, "score": float(score)}


def _keys(passage: Context) -> tuple[Key, ...]:
    return keys_of(passage["text"], passage["passage_id"])


def distinct(passages: Iterable[Context]) -> list[Context]:
    """Return the first passage of each title and text."""
    first: dict[tuple[str, str], Context] = {}
    for passage in passages:
        first.setdefault((passage["title"], passage["text"]), passage)
    return list(first.values())


@contextmanager
def json_list_writer(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Give a function that adds an object to a JSON list; the file is there when the block ends well."""
    with atomic_path(path) as temporary, _text(temporary, gz=path.suffix == ".gz") as out:
        out.write("[")
        count = 0

        def write(record: dict[str, Any]) -> None:
            nonlocal count
            out.write(("," if count else "") + "\n" + json.dumps(record, ensure_ascii=False))
            count += 1

        yield write
        out.write("\n]\n")


def _text(path: Path, *, gz: bool) -> TextIO:
    if gz:
        return gzip.open(path, "wt", encoding="utf-8")
    return path.open("w", encoding="utf-8")
