"""Impact search: sparta beside Pyserini/Anserini, PISA, Seismic and NumPy; same vectors and questions, in one
run.

    pip install pyterrier-pisa pyseismic-lsr
    python benchmarks/search.py --shards FOLDER --questions FILE [--documents 200000] [--engines …] [--quick]

Vectors and questions are those of benchmarks/kernel.py: shards of `sparta encode` (continued by mixtures),
or made ones. One thread, warm. `mean` is the best of three rounds over all questions, in the fastest way an
engine offers (its batch call where it has one); percentiles are over calls with one question each and
include crossing into the engine and back. PISA's figure is that of the fastest of its algorithms; its
single calls carry a pandas frame each, so only its mean is shown. Exact engines must return sparta's
scores; Seismic's recall against them is shown. Engines that are not installed are left out, and named.
Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from kernel import MadeVectors, RealVectors, Rows, _joined, build

from sparta.lucene import ImpactSearcher

Question = dict[str, float]
DEPTHS = (10, 1000)
PISA_ALGORITHMS = ("maxscore", "wand", "block_max_wand", "block_max_maxscore", "ranked_or")
ROUNDS = 3


class Engine(NamedTuple):
    """`all(questions, k)` gives scores, best first, for each question; `one` is timed for percentiles."""

    name: str
    all: Callable[[list[Question], int], list[np.ndarray]]
    one: Callable[[Question, int], object] | None
    size_mb: float
    build_seconds: float


class Collection:
    """The vectors, once as rows and once as columns."""

    def __init__(self, vectors: MadeVectors | RealVectors, documents: int, work: Path) -> None:
        self.vectors, self.documents, self.work = vectors, documents, work
        self._rows: Rows | None = None

    @property
    def rows(self) -> Rows:
        """All documents."""
        if self._rows is None:
            self._rows = _joined(list(self.vectors.rows(self.documents)))
        return self._rows

    def dictionaries(self):
        """Each document as `{term: impact}`."""
        terms = np.array(self.vectors.terms, dtype=object)
        rows = self.rows
        for i in range(self.documents):
            part = slice(rows.indptr[i], rows.indptr[i + 1])
            yield f"d{i}", dict(zip(terms[rows.terms[part]], rows.impacts[part].tolist(), strict=True))


def folder_mb(path: Path) -> float:
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) / 1e6


def per_question(hits: Any) -> list[np.ndarray]:
    return [hits.query(q)[1] for q in range(len(hits))]


def sparta(collection: Collection, codec: str = "sparta") -> Engine:
    path = collection.work / codec
    _, seconds = build(path, codec, collection.vectors, collection.documents, 2)
    searcher = ImpactSearcher(path)
    return Engine(
        f"sparta ({codec} codec)",
        lambda questions, k: per_question(searcher.search_impacts(questions, k)),
        lambda question, k: searcher.search_impacts([question], k),
        folder_mb(path),
        seconds,
    )


def anserini(collection: Collection) -> Engine:
    """Pyserini's LuceneImpactSearcher on a stock index that sparta's writer made."""
    path = collection.work / "lucene"
    seconds = 0.0
    if not path.exists():
        _, seconds = build(path, "lucene", collection.vectors, collection.documents, 2)
    ImpactSearcher(path).close()  # Java is ours from here on
    from pyserini.search.lucene import LuceneImpactSearcher

    class Bags:
        """Questions are bags already."""

        def __init__(self) -> None:
            self.bags: dict[str, Question] = {}

        def encode(self, name: str) -> dict[str, int]:
            return {term: int(weight) for term, weight in self.bags[name].items()}

    bags = Bags()
    searcher = LuceneImpactSearcher(str(path), bags, min_idf=-1)

    def everything(questions: list[Question], k: int) -> list[np.ndarray]:
        names = [str(i) for i in range(len(questions))]
        bags.bags = dict(zip(names, questions, strict=True))
        found = searcher.batch_search(names, names, k=k, threads=1)
        return [np.array([hit.score for hit in found[name]]) for name in names]

    def one(question: Question, k: int) -> object:
        bags.bags = {"q": question}
        return searcher.search("q", k)

    return Engine("Pyserini 2.2 (Anserini, Lucene 10.4)", everything, one, folder_mb(path), seconds)


def pisa(collection: Collection) -> list[Engine]:
    import pandas as pd
    from pyterrier_pisa import PisaIndex

    path = collection.work / "pisa"
    started = time.perf_counter()
    index = PisaIndex(str(path), stemmer="none", stops="none", threads=2)
    index.toks_indexer(scale=1.0).index({"docno": d, "toks": toks} for d, toks in collection.dictionaries())
    seconds = time.perf_counter() - started

    def engine(algorithm: str) -> Engine:
        kept: dict[int, Any] = {}

        def everything(questions: list[Question], k: int) -> list[np.ndarray]:
            if k not in kept:
                kept[k] = index.quantized(num_results=k, query_algorithm=algorithm, toks_scale=1.0, threads=1)
            frame = pd.DataFrame({"qid": [str(i) for i in range(len(questions))], "query_toks": questions})
            found = kept[k](frame)
            scores = {qid: group["score"].to_numpy() for qid, group in found.groupby("qid")}
            return [scores.get(str(i), np.empty(0)) for i in range(len(questions))]

        return Engine(f"PISA 0.4.9 ({algorithm})", everything, None, folder_mb(path), seconds)

    return [engine(algorithm) for algorithm in PISA_ALGORITHMS]


def seismic(collection: Collection) -> Engine:
    from seismic import SeismicDataset, SeismicIndex, get_seismic_string

    kind = get_seismic_string()
    started = time.perf_counter()
    dataset = SeismicDataset()
    for docno, toks in collection.dictionaries():
        dataset.add_document(
            docno, np.array(list(toks), dtype=kind), np.array(list(toks.values()), dtype=np.float32)
        )
    index = SeismicIndex.build_from_dataset(dataset, n_postings=6000, summary_energy=0.4, num_threads=2)
    seconds = time.perf_counter() - started

    def one(question: Question, k: int) -> list[tuple[str, float, str]]:
        terms = np.array(list(question), dtype=kind)
        weights = np.array(list(question.values()), dtype=np.float32)
        return index.search("q", terms, weights, k=k, query_cut=len(question), heap_factor=0.7)

    def everything(questions: list[Question], k: int) -> list[np.ndarray]:
        found = index.batch_search(
            np.array([str(i) for i in range(len(questions))], dtype=kind),
            [np.array(list(q), dtype=kind) for q in questions],
            [np.array(list(q.values()), dtype=np.float32) for q in questions],
            k=k,
            query_cut=32,
            heap_factor=0.7,
            num_threads=1,
        )
        return [np.array([hit[1] for hit in hits]) for hits in found]

    return Engine("Seismic (approximate)", everything, one, float("nan"), seconds)


def numpy(collection: Collection) -> Engine:
    """Term at a time over columns, as NumPy does it best: one gather and add a term, one partition."""
    started = time.perf_counter()
    rows = collection.rows
    shape = (collection.documents, len(collection.vectors.terms))
    columns = scipy.sparse.csr_matrix((rows.impacts, rows.terms, rows.indptr), shape=shape).tocsc()
    seconds = time.perf_counter() - started
    number = {term: i for i, term in enumerate(collection.vectors.terms)}

    def one(question: Question, k: int) -> np.ndarray:
        scores = np.zeros(collection.documents, dtype=np.int32)
        for term, weight in question.items():
            column = number.get(term)
            if column is not None:
                part = slice(columns.indptr[column], columns.indptr[column + 1])
                scores[columns.indices[part]] += columns.data[part] * int(weight)
        k = min(k, len(scores))
        best = scores[np.argpartition(-scores, k - 1)[:k]]
        best = np.sort(best)[::-1]
        return best[best > 0].astype(np.float64)

    size = (columns.data.nbytes + columns.indices.nbytes) / 1e6
    return Engine("NumPy, term at a time", lambda qs, k: [one(q, k) for q in qs], one, size, seconds)


def seconds_of(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def measure(engine: Engine, questions: list[Question], k: int, warm: float) -> tuple[float, list[float]]:
    """Mean over all questions and times of single ones, milliseconds."""
    until = time.perf_counter() + warm
    while time.perf_counter() < until:
        engine.all(questions, k)
    mean = min(seconds_of(lambda: engine.all(questions, k)) for _ in range(ROUNDS)) * 1000 / len(questions)
    if engine.one is None:
        return mean, []
    singles = [
        min(seconds_of(lambda q=q: engine.one(q, k)) for _ in range(ROUNDS)) * 1000  # type: ignore[misc]
        for q in questions
    ]
    return min(mean, float(np.mean(singles))), singles


def agreement(exact: list[np.ndarray], found: list[np.ndarray]) -> float:
    """Share of the exact scores that were found, ties counting as found."""
    hit = total = 0
    for want, got in zip(exact, found, strict=True):
        total += len(want)
        hit += int((got[: len(want)] >= want[-1] - 0.5).sum()) if len(want) else 0
    return hit / max(1, total)


def open_engines(collection: Collection, wanted: list[str]) -> list[Engine]:
    makers: dict[str, Callable[[Collection], Engine | list[Engine]]] = {
        "sparta": sparta,
        "lucene": lambda c: sparta(c, "lucene"),
        "anserini": anserini,
        "pisa": pisa,
        "seismic": seismic,
        "numpy": numpy,
    }
    engines: list[Engine] = []
    for name in wanted:
        try:
            made = makers[name](collection)
        except ImportError as error:
            print(f"left out: {name} ({error})")
            continue
        engines += made if isinstance(made, list) else [made]
    return engines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--number", type=int, default=300, help="questions")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds of warming up")
    parser.add_argument("--shards", type=Path, help="a folder of sparta encode")
    parser.add_argument("--questions", type=Path, help="a file of questions, one a line")
    parser.add_argument(
        "--engines", nargs="+", default=["sparta", "lucene", "anserini", "pisa", "numpy", "seismic"]
    )
    parser.add_argument("--quick", action="store_true", help="20,000 documents, 60 questions")
    given = parser.parse_args()
    if given.quick:
        given.documents, given.number, given.warm = 20_000, 60, 1.0
    vectors = RealVectors(given.shards, given.questions) if given.shards else MadeVectors()
    questions = vectors.questions(given.number)
    with tempfile.TemporaryDirectory() as work:
        collection = Collection(vectors, given.documents, Path(work))
        engines = open_engines(collection, given.engines)
        postings = len(collection.rows.terms)
        print(
            f"\n{given.documents:,} documents, {postings:,} postings, {len(questions)} questions, 1 thread\n"
        )
        print("| engine | k | mean ms | p50 | p95 | p99 | scores found | index MB | build s |")
        print("|---|---|---|---|---|---|---|---|---|")
        for k in DEPTHS:
            exact = engines[0].all(questions, k)
            for engine in engines:
                mean, singles = measure(engine, questions, k, given.warm)
                p50, p95, p99 = np.percentile(singles, [50, 95, 99]) if singles else [float("nan")] * 3
                share = agreement(exact, engine.all(questions, k))
                print(
                    f"| {engine.name} | {k} | {mean:.3f} | {p50:.3f} | {p95:.3f} | {p99:.3f} "
                    f"| {100 * share:.1f} % | {engine.size_mb:.0f} | {engine.build_seconds:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
