"""Searching impacts: Lucene's own format beside sparta's, on the same vectors and questions, in one run.

    python benchmarks/kernel.py [--documents 200000] [--shards FOLDER] [--questions FILE] [--lexical CORPUS]
                                [--quick]

With --shards the vectors are those of `sparta encode`, and --questions has one question a line (what
follows a tab is ignored). When there are fewer passages than --documents, the rest are mixtures: half the
terms of one real vector, half of another. With --lexical, document i also has the lexical terms of passage
i of a corpus, and so have the queries. Without --shards the vectors are made: 500 of 30,000 terms a
document, Zipf-like, mean impact 176, and questions of 11.75 terms on average that have 1.35 postings per
document.

One thread, warm. The mean is of the best of five calls with all questions; percentiles are over calls with
one question each, best of three, and include crossing from Python to Java and back. Every answer of the one
format is compared with that of the other. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from sparta.lucene.bridge import ImpactSearcher, ImpactWriter

CODECS = ("lucene", "fast")
DEPTHS = (10, 1000)
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}
CHUNK = 10_000
MOST_LEXICAL = 200_000
VOCABULARY, TERMS, QUESTION_TERMS, QUESTION_POSTINGS, MEAN_IMPACT = 30_000, 500, 11.75, 1.35, 176


class Vectors(Protocol):
    """Documents as vectors over `terms`."""

    terms: list[str]

    def rows(self, documents: int) -> Iterator[Rows]:
        """Yield the vectors of the first documents, in chunks."""


@dataclass(frozen=True)
class Rows:
    """Vectors of some documents, `indptr (n + 1,)`, `terms (m,)`, `impacts (m,)`, int32."""

    indptr: np.ndarray
    terms: np.ndarray
    impacts: np.ndarray

    def __len__(self) -> int:
        return len(self.indptr) - 1


class MadeVectors:
    """Terms with Zipf-like document frequencies, each document's chosen independently."""

    def __init__(self) -> None:
        ranks = np.arange(VOCABULARY)
        self.density = np.minimum(0.97, _scaled_to(1 / (ranks + 25.0), TERMS))
        self.terms = [f"t{i}" for i in ranks]

    def rows(self, documents: int) -> Iterator[Rows]:
        """Vectors, in chunks."""
        rng = np.random.default_rng(7)
        for first in range(0, documents, CHUNK):
            n = min(CHUNK, documents - first)
            columns = [
                np.flatnonzero(rng.random(n) < p)
                if p > 0.05
                else np.unique(rng.integers(0, n, rng.poisson(n * p)))
                for p in self.density
            ]
            docs = np.concatenate(columns)
            terms = np.repeat(np.arange(VOCABULARY, dtype=np.int32), [len(c) for c in columns])
            order = np.argsort(docs, kind="stable")
            indptr = np.concatenate([[0], np.cumsum(np.bincount(docs, minlength=n))])
            impacts = np.clip(rng.normal(MEAN_IMPACT, 40, len(terms)), 1, 255)
            yield Rows(indptr.astype(np.int32), terms[order], impacts.astype(np.int32))

    def questions(self, number: int) -> list[dict[str, int]]:
        """Terms drawn by a power of their density such that a question has the postings it should."""
        rng = np.random.default_rng(8)
        wanted = QUESTION_POSTINGS / QUESTION_TERMS
        low, high = 0.0, 3.0
        for _ in range(40):
            middle = (low + high) / 2
            odds = self.density**middle
            low, high = (middle, high) if (odds @ self.density) / odds.sum() < wanted else (low, middle)
        odds = self.density**low
        odds /= odds.sum()
        questions = []
        for _ in range(number):
            n = int(np.clip(rng.normal(QUESTION_TERMS, 2.5), 4, 25))
            bag: dict[str, int] = {}
            for term in rng.choice(VOCABULARY, n, p=odds):
                bag[self.terms[term]] = bag.get(self.terms[term], 0) + 1
            questions.append(bag)
        return questions


class RealVectors:
    """Shards of `sparta encode`, continued by mixtures."""

    def __init__(self, folder: Path, questions: Path | None, top_k: int | None = None) -> None:
        from sparta.index.inputs.sources import vectors_source
        from sparta.models.prune import prune
        from sparta.shards.store import read_shards

        source = vectors_source([folder])
        parts = []
        for shard in read_shards([folder]):
            rows = prune(shard.rows, top_k=top_k)
            impacts, _ = source.side.quantizer.quantize(rows.weights)
            parts.append(Rows(rows.indptr, rows.term_ids, impacts))
        self.real = _joined(parts)
        self.terms = source.side.vocabulary()
        self._query = replace(source.side, lexical=None).query_tokenizer()
        self._questions = questions

    def rows(self, documents: int) -> Iterator[Rows]:
        """Vectors, in chunks."""
        rng = np.random.default_rng(7)
        real = min(documents, len(self.real))
        for first in range(0, real, CHUNK):
            yield _taken(self.real, np.arange(first, min(real, first + CHUNK)))
        for first in range(real, documents, CHUNK):
            n = min(CHUNK, documents - first)
            yield _mixed(self.real, rng.integers(0, len(self.real), (2, n)), rng)

    def questions(self, number: int) -> list[dict[str, int]]:
        """Questions of the file, in a fixed random order."""
        if self._questions is None:
            raise SystemExit("--shards needs --questions")
        lines = self._questions.read_text(encoding="utf-8").splitlines()
        random.Random(8).shuffle(lines)
        return [self._query.terms(line.split("\t")[0]) for line in lines[:number]]


class LexicalVectors(RealVectors):
    """The same, with lexical terms: document i has those of passage i of a corpus."""

    def __init__(self, folder: Path, questions: Path | None, top_k: int | None, corpus: Path) -> None:
        super().__init__(folder, questions, top_k)
        from sparta.data.corpus import open_corpus
        from sparta.index.inputs.sources import vectors_source
        from sparta.models.load import load_model

        side = vectors_source([folder]).side  # shards of earlier releases have no lexical terms
        lexical = side.lexical or load_model(side.model).lexical
        if lexical is None:
            raise SystemExit("the model has no lexical terms")
        self._query = replace(side, lexical=lexical).query_tokenizer()
        self._searched = ~lexical.unsearched
        pieces, number = len(self.terms), dict[str, int]()
        indptr, weights, ids = [0], list[float](), list[int]()
        for passage in itertools.islice(open_corpus(corpus), MOST_LEXICAL):
            terms = lexical.passage_terms(passage)
            ids += [pieces + number.setdefault(term, len(number)) for term in terms]
            weights += terms.values()
            indptr.append(len(ids))
        impacts, _ = side.quantizer.quantize(np.array(weights, np.float32))
        self._lexical = Rows(np.array(indptr), np.array(ids, np.int32), impacts)
        self.terms = [*self.terms, *number]

    def rows(self, documents: int) -> Iterator[Rows]:
        """Vectors, in chunks; wordpieces that no query looks up are left out."""
        first = 0
        for rows in super().rows(documents):
            n = len(rows)
            docs = np.repeat(np.arange(n), np.diff(rows.indptr))
            keep = self._searched[rows.terms]
            own = _taken(self._lexical, np.arange(first, first + n))
            docs = np.concatenate([docs[keep], np.repeat(np.arange(n), np.diff(own.indptr))])
            order = np.argsort(docs, kind="stable")
            yield Rows(
                np.concatenate([[0], np.cumsum(np.bincount(docs, minlength=n))]).astype(np.int32),
                np.concatenate([rows.terms[keep], own.terms])[order],
                np.concatenate([rows.impacts[keep], own.impacts])[order],
            )
            first += n


def vectors_of(
    shards: Path | None, questions: Path | None, top_k: int | None, lexical: Path | None = None
) -> MadeVectors | RealVectors:
    """Return the vectors that the options name."""
    if shards and lexical:
        return LexicalVectors(shards, questions, top_k, lexical)
    return RealVectors(shards, questions, top_k) if shards else MadeVectors()


def _scaled_to(shape: np.ndarray, total: float) -> np.ndarray:
    """Scale so that the sum, capped at 0.97 each, is `total`."""
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(0.97, shape * middle).sum() < total else (low, middle)
    return shape * low


def _joined(parts: list[Rows]) -> Rows:
    ends = np.cumsum([0] + [len(p.terms) for p in parts])
    indptr = np.concatenate([[0], *(p.indptr[1:] + end for p, end in zip(parts, ends, strict=False))])
    return Rows(
        indptr.astype(np.int64),
        np.concatenate([p.terms for p in parts]).astype(np.int32),
        np.concatenate([p.impacts for p in parts]).astype(np.int32),
    )


def _taken(rows: Rows, chosen: np.ndarray) -> Rows:
    lengths = np.diff(rows.indptr)[chosen]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    at = np.repeat(rows.indptr[chosen] - indptr[:-1], lengths) + np.arange(indptr[-1])
    return Rows(indptr, rows.terms[at], rows.impacts[at])


def _mixed(rows: Rows, parents: np.ndarray, rng: np.random.Generator) -> Rows:
    """Of each pair of parents: the terms of the one that a coin says, and of the other the rest."""
    size = int(rows.terms.max()) + 1
    side = rng.random(size) < 0.5  # one coin a term and chunk: a term comes from the same parent
    n = parents.shape[1]
    both = [_taken(rows, p) for p in parents]
    docs = np.concatenate([np.repeat(np.arange(n), np.diff(b.indptr)) for b in both])
    terms = np.concatenate([b.terms for b in both])
    impacts = np.concatenate([b.impacts for b in both])
    first = np.arange(len(docs)) < len(both[0].terms)
    keep = side[terms] == first
    docs, terms, impacts = docs[keep], terms[keep], impacts[keep]
    order = np.argsort(docs, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(docs, minlength=n))]).astype(np.int32)
    return Rows(indptr, terms[order], impacts[order])


def add_documents(writer: ImpactWriter, rows: Rows, part: slice, position: int, prefix: str) -> None:
    """Add a part of some documents, at the corpus positions from `position` on, which their ids end with."""
    positions = np.arange(position, position + part.stop - part.start)
    postings = slice(rows.indptr[part.start], rows.indptr[part.stop])
    writer.add(
        [f"{prefix}{i}" for i in positions],
        [""] * len(positions),
        [""] * len(positions),
        positions,
        rows.indptr[part.start : part.stop + 1] - rows.indptr[part.start],
        rows.terms[postings],
        rows.impacts[postings],
    )


def build(path: Path, codec: str, vectors: Vectors, documents: int, threads: int) -> tuple[int, float, float]:
    """Write and merge to one segment; postings, and seconds to the first commit and to the end, without those
    spent on making the vectors.
    """
    postings, position, seconds = 0, 0, 0.0
    with ImpactWriter(path, codec=codec, threads=threads) as writer:
        writer.add_terms(vectors.terms)
        for rows in vectors.rows(documents):
            n = len(rows)
            started = time.perf_counter()
            for first in range(0, n, 1000):
                add_documents(writer, rows, slice(first, min(n, first + 1000)), position + first, "d")
            seconds += time.perf_counter() - started
            position += n
            postings += len(rows.terms)
        started = time.perf_counter()
        writer.commit("")
        flushed = seconds + time.perf_counter() - started
        writer.force_merge(1)
        writer.commit("")
        return postings, flushed, seconds + time.perf_counter() - started


def folder_mb(path: Path) -> float:
    """Return the size of a folder's files in MB (10**6 bytes)."""
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) / 1e6


def timed(
    searcher: ImpactSearcher,
    questions: list[dict[str, int]],
    k: int,
    seconds: float,
    clock: Callable[[], float],
) -> tuple[float, list[float]]:
    """Mean of one batch, and the times of single calls, all in milliseconds."""
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        searcher.search_impacts(questions, k)
    mean = min(_milliseconds(searcher, questions, k, clock) for _ in range(5)) / len(questions)
    return mean, [min(_milliseconds(searcher, [q], k, clock) for _ in range(3)) for q in questions]


def _milliseconds(
    searcher: ImpactSearcher, questions: list[dict[str, int]], k: int, clock: Callable[[], float]
) -> float:
    started = clock()
    searcher.search_impacts(questions, k)
    return (clock() - started) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--number", type=int, default=500, help="questions")
    parser.add_argument("--threads", type=int, default=2, help="threads for writing")
    parser.add_argument("--warm", type=float, default=10.0, help="seconds of warming up")
    parser.add_argument("--shards", type=Path, help="a folder of sparta encode")
    parser.add_argument("--top-k", type=int, help="of the shards: only the strongest terms of a passage")
    parser.add_argument("--questions", type=Path, help="a file of questions, one a line")
    parser.add_argument("--lexical", type=Path, help="a corpus whose lexical terms the documents have")
    parser.add_argument("--work", type=Path, help="where the indexes go, and are found again by the next run")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: this thread's, for a busy machine"
    )
    parser.add_argument("--codecs", nargs="+", default=list(CODECS))
    parser.add_argument("--quick", action="store_true", help="20,000 documents, 100 questions")
    given = parser.parse_args()
    if given.quick:
        given.documents, given.number, given.warm = 20_000, 100, 1.0
    vectors = vectors_of(given.shards, given.questions, given.top_k, given.lexical)
    questions = vectors.questions(given.number)
    with tempfile.TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        run(work, vectors, questions, given)


def run(
    work: Path,
    vectors: MadeVectors | RealVectors,
    questions: list[dict[str, int]],
    given: argparse.Namespace,
) -> None:
    built: dict[str, tuple[int, float, float]] = {}
    work.mkdir(parents=True, exist_ok=True)
    made = {name: str(getattr(given, name)) for name in ("documents", "shards", "top_k", "lexical")}
    stored = work / "made.json"
    if stored.exists() and json.loads(stored.read_text()) != made:
        raise SystemExit(f"{work}: expected indexes of {made}, found {stored.read_text()}")
    stored.write_text(json.dumps(made))
    for codec in given.codecs:
        if not (work / codec).exists():
            built[codec] = build(work / codec, codec, vectors, given.documents, given.threads)
    with_indexes = {codec: ImpactSearcher(work / codec) for codec in given.codecs}
    print(f"\n{given.documents:,} documents, {len(questions)} questions\n")
    print("| format | k | mean ms | p50 | p95 | p99 | size MB | postings/s | merged to one segment |")
    print("|---|---|---|---|---|---|---|---|---|")
    for k in DEPTHS:
        answers = []
        for codec, searcher in with_indexes.items():
            mean, singles = timed(searcher, questions, k, given.warm, CLOCKS[given.clock])
            p50, p95, p99 = np.percentile(singles, [50, 95, 99])
            size = folder_mb(work / codec)
            postings, *seconds = built.get(codec, (0, 1.0, 1.0))
            rates = " | ".join(f"{postings / s:,.0f}" for s in seconds)
            print(
                f"| {codec} | {k} | {mean:.3f} | {p50:.3f} | {p95:.3f} | {p99:.3f} | {size:.0f} | {rates} |",
                flush=True,
            )
            answers.append(searcher.search_impacts(questions, k))
        found: list[tuple[np.ndarray, np.ndarray]] = [
            (hits.scores, searcher.positions(hits.docids))
            for searcher, hits in zip(with_indexes.values(), answers, strict=True)
        ]
        for other in found[1:]:
            if not (np.array_equal(found[0][0], other[0]) and np.array_equal(found[0][1], other[1])):
                raise SystemExit("the answers differ")


if __name__ == "__main__":
    main()
