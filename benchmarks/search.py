"""Impact search: sparta beside Pyserini/Anserini, PISA, Seismic and NumPy; same vectors and questions, in one
run.

    pip install pyterrier-pisa pyseismic-lsr
    python benchmarks/search.py --shards FOLDER --questions FILE [--documents 200000] [--top-k 500]
                                [--lexical CORPUS] [--engines …] [--plot FILE.png] [--quick]

Vectors and questions are those of benchmarks/kernel.py: shards of `sparta encode` (continued by mixtures),
or made ones. Every engine builds and searches in processes of its own, one at a time, and opens its index
from disk to search, so that the memory shown is what searching takes. Warm, one thread, then two.

`mean` is the best of three rounds over all questions in the fastest way an engine offers (its batch call);
percentiles are over calls with one question each, best of three, and include crossing into the engine and
back. The first row is sparta as it ships: the queries of the shards' model, with passage ids, which the peers
give too, Pyserini with an object for each hit; below it, the same index with all query weights 1. The other
rows of sparta give arrays of document numbers and scores only, as NumPy does. All peers get the same integer
query weights. PISA is called below its pandas
layer, with the fastest of its algorithms at each depth. Exact engines must return sparta's scores; Seismic is
approximate, and `found` is its share of the exact answers. Engines that are not installed are left out, and
named.

Pyserini searches the index in Lucene's format that sparta wrote; the rate of its own indexer is that of the
first 10,000 documents, as JSON on disk, its start-up taken off. PISA and Seismic are built through their
Python packages, from dictionaries. sparta's two rates are to the commit, which is where Pyserini's indexer
ends, and with a merge into one segment. With --plot, the engines search 10,000 to 1,000,000 documents
instead. Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import scipy.sparse
from index_rate import pyserini_seconds
from kernel import CHUNK, MadeVectors, RealVectors, Rows, build, folder_mb, vectors_of

from sparta.lucene.bridge import ImpactSearcher

Question = dict[str, int]
DEPTHS = (10, 1000)
PISA_ALGORITHMS = ("maxscore", "wand", "block_max_wand", "block_max_maxscore", "ranked_or")
ROUNDS = 3
SAMPLE = 10_000
GROWTH = (10_000, 50_000, 200_000, 1_000_000)
HERE = Path(__file__)


class Engine(NamedTuple):
    """`all(questions, k, threads)` gives scores, best first, for each question; `one` asks one."""

    name: str
    all: Callable[[list[Question], int, int], list[np.ndarray]]
    one: Callable[[Question, int], object]


class Collection:
    """Vectors and questions on disk, as all engines read them."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.terms: list[str] = json.loads((work / "vocabulary.json").read_text())
        self.asked: list[Question] = json.loads((work / "questions.json").read_text())
        parts = (np.load(work / f"{name}.npy", mmap_mode="r") for name in ("indptr", "terms", "impacts"))
        self.indptr, self.term_ids, self.impacts = parts

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @staticmethod
    def write(work: Path, vectors: MadeVectors | RealVectors, documents: int, questions: int) -> None:
        """Write the first `documents` vectors, a chunk at a time."""
        (work / "vocabulary.json").write_text(json.dumps(vectors.terms))
        (work / "questions.json").write_text(json.dumps(vectors.questions(questions)))
        ends = [np.zeros(1, np.int64)]
        with (work / "terms").open("wb") as terms, (work / "impacts").open("wb") as impacts:
            for rows in vectors.rows(documents):
                ends.append(ends[-1][-1] + rows.indptr[1:])
                rows.terms.astype(np.int32).tofile(terms)
                rows.impacts.astype(np.int32).tofile(impacts)
        np.save(work / "indptr.npy", np.concatenate(ends))
        for name in ("terms", "impacts"):
            np.save(work / f"{name}.npy", np.memmap(work / name, np.int32, "r"))
            (work / name).unlink()

    def rows(self, documents: int) -> Iterator[Rows]:
        """Yield vectors in chunks."""
        for first in range(0, documents, CHUNK):
            indptr = self.indptr[first : min(first + CHUNK, documents) + 1]
            part = slice(indptr[0], indptr[-1])
            yield Rows((indptr - indptr[0]).astype(np.int32), self.term_ids[part], self.impacts[part])

    def dictionaries(self, documents: int | None = None) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield each document as `{term: impact}`."""
        terms = np.array(self.terms, dtype=object)
        number = 0
        for rows in self.rows(documents or len(self)):
            for i in range(len(rows)):
                part = slice(rows.indptr[i], rows.indptr[i + 1])
                vector = zip(terms[rows.terms[part]], rows.impacts[part].tolist(), strict=True)
                yield f"d{number}", dict(vector)
                number += 1


# ---------------------------------------------------------------- building


CODECS = {"sparta": "fast", "lucene": "lucene"}


def build_sparta(collection: Collection, folder: str = "sparta") -> tuple[float, float]:
    """Write to the first commit, as Pyserini does, and merge to one segment; seconds of each."""
    if (collection.work / folder).exists():
        return math.nan, math.nan
    return build(collection.work / folder, CODECS[folder], collection, len(collection), 2)[1:]


def build_anserini(collection: Collection) -> float:
    """Pyserini's own indexer on the first documents, its start-up taken off, scaled to all."""
    documents = min(SAMPLE, len(collection))
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for name, n in (("one", 1), ("sample", documents)):
            (work / name).mkdir()
            with (work / name / "vectors.jsonl").open("w") as out:
                for docno, vector in collection.dictionaries(n):
                    out.write(json.dumps({"id": docno, "contents": "", "vector": vector}) + "\n")
        start = pyserini_seconds(work / "one", work / "index0", 2)
        seconds = pyserini_seconds(work / "sample", work / "index1", 2) - start
    return seconds * float(collection.indptr[-1]) / float(collection.indptr[documents])


def build_pisa(collection: Collection) -> float:
    from pyterrier_pisa import PisaIndex

    started = time.perf_counter()
    index = PisaIndex(str(collection.work / "pisa"), stemmer="none", stops="none", threads=2)
    documents = ({"docno": docno, "toks": toks} for docno, toks in collection.dictionaries())
    index.toks_indexer(scale=1.0).index(documents)
    return time.perf_counter() - started


def build_seismic(collection: Collection) -> float:
    from seismic import SeismicDataset, SeismicIndex, get_seismic_string

    kind = get_seismic_string()
    started = time.perf_counter()
    dataset = SeismicDataset()
    for docno, toks in collection.dictionaries():
        values = np.array(list(toks.values()), dtype=np.float32)
        dataset.add_document(docno, np.array(list(toks), dtype=kind), values)
    index = SeismicIndex.build_from_dataset(dataset, n_postings=1000, summary_energy=0.4, num_threads=2)
    seconds = time.perf_counter() - started
    (collection.work / "seismic").mkdir()
    index.save(str(collection.work / "seismic" / "vectors"))
    return seconds


def build_numpy(collection: Collection) -> float:
    started = time.perf_counter()
    shape = (len(collection), len(collection.terms))
    matrix = (np.asarray(collection.impacts), np.asarray(collection.term_ids), collection.indptr)
    columns = scipy.sparse.csr_matrix(matrix, shape=shape).tocsc()
    seconds = time.perf_counter() - started
    folder = collection.work / "numpy"
    folder.mkdir()
    np.save(folder / "indptr.npy", columns.indptr)
    np.save(folder / "docs.npy", columns.indices.astype(np.int32))
    np.save(folder / "impacts.npy", columns.data.astype(np.int32))
    return seconds


# ---------------------------------------------------------------- searching


def open_sparta(collection: Collection, folder: str = "sparta", ids: bool = False, more: str = "") -> Engine:
    searcher = ImpactSearcher(collection.work / folder)

    def everything(questions: list[Question], k: int, threads: int) -> list[np.ndarray]:
        hits = searcher.search_impacts(questions, k, threads)
        if ids:
            searcher.ids(hits.docids)
        return [hits.query(q)[1] for q in range(len(hits))]

    name = f"sparta ({folder} codec{', with passage ids' if ids else ''}{more})"
    return Engine(name, everything, lambda q, k: everything([q], k, 1))


def open_anserini(collection: Collection) -> Engine:
    """Pyserini's LuceneImpactSearcher on a stock index that sparta's writer made."""
    path = collection.work / "lucene"
    ImpactSearcher(path).close()  # Java is ours from here on
    from pyserini.search.lucene import LuceneImpactSearcher

    class Bags:
        """Questions are bags already."""

        def __init__(self) -> None:
            self.bags: dict[str, Question] = {}

        def encode(self, name: str) -> dict[str, int]:
            return self.bags[name]

    bags = Bags()
    searcher = LuceneImpactSearcher(str(path), bags, min_idf=-1)

    def everything(questions: list[Question], k: int, threads: int) -> list[np.ndarray]:
        names = [str(i) for i in range(len(questions))]
        bags.bags = dict(zip(names, questions, strict=True))
        found = searcher.batch_search(names, names, k=k, threads=threads)
        return [np.array([hit.score for hit in found[name]]) for name in names]

    def one(question: Question, k: int) -> object:
        bags.bags = {"q": question}
        return searcher.search("q", k)

    return Engine("Pyserini 2.2 (Anserini, Lucene 10.4)", everything, one)


def open_pisa(collection: Collection) -> list[Engine]:
    from pyterrier_pisa import PisaIndex, PisaQueryAlgorithm, _pisathon

    index = PisaIndex(str(collection.work / "pisa"), stemmer="none", stops="none", threads=2)
    context = index.quantized(toks_scale=1.0)._ctxt

    def engine(algorithm: str) -> Engine:
        name = PisaQueryAlgorithm(algorithm).value

        def everything(questions: list[Question], k: int, threads: int) -> list[np.ndarray]:
            room = len(questions) * k
            numbers, docnos = np.empty(room, np.int32), np.empty(room, object)
            ranks, scores = np.empty(room, np.int32), np.empty(room, np.float32)
            size = _pisathon.retrieve(
                context,
                name,
                [(i, {term: float(weight) for term, weight in q.items()}) for i, q in enumerate(questions)],
                k=k,
                threads=threads,
                query_weighted=1,
                pretokenised=True,
                result_qidxs=numbers,
                result_docnos=docnos,
                result_ranks=ranks,
                result_scores=scores,
            )
            order = np.lexsort((ranks[:size], numbers[:size]))
            ends = np.searchsorted(numbers[:size][order], np.arange(1, len(questions)))
            return np.split(scores[:size][order], ends)

        return Engine(f"PISA 0.4.9 ({algorithm})", everything, lambda q, k: everything([q], k, 1))

    return [engine(algorithm) for algorithm in PISA_ALGORITHMS]


def open_seismic(collection: Collection) -> Engine:
    from seismic import SeismicIndex, get_seismic_string

    kind = get_seismic_string()
    index = SeismicIndex.load(str(collection.work / "seismic" / "vectors.index.seismic"))

    def one(question: Question, k: int) -> list[tuple[str, float, str]]:
        terms = np.array(list(question), dtype=kind)
        weights = np.array(list(question.values()), dtype=np.float32)
        return index.search("q", terms, weights, k=k, query_cut=len(question), heap_factor=0.7)

    def everything(questions: list[Question], k: int, threads: int) -> list[np.ndarray]:
        found = index.batch_search(
            np.array([str(i) for i in range(len(questions))], dtype=kind),
            [np.array(list(q), dtype=kind) for q in questions],
            [np.array(list(q.values()), dtype=np.float32) for q in questions],
            k=k,
            query_cut=max(map(len, questions)),
            heap_factor=0.7,
            num_threads=threads,
        )
        return [np.array([hit[1] for hit in hits]) for hits in found]

    return Engine("Seismic 0.5.2 (approximate)", everything, one)


def open_numpy(collection: Collection) -> Engine:
    """Term at a time over columns, as NumPy does it best: one gather and add a term, one partition."""
    folder = collection.work / "numpy"
    indptr, docs, impacts = (np.load(folder / f"{name}.npy") for name in ("indptr", "docs", "impacts"))
    number = {term: i for i, term in enumerate(collection.terms)}

    def one(question: Question, k: int) -> np.ndarray:
        scores = np.zeros(len(collection), dtype=np.int32)
        for term, weight in question.items():
            column = number.get(term)
            if column is not None:
                part = slice(indptr[column], indptr[column + 1])
                scores[docs[part]] += impacts[part] * np.int32(weight)
        k = min(k, len(scores))
        best = -np.sort(-scores[np.argpartition(-scores, k - 1)[:k]])
        return best[best > 0].astype(np.float64)

    def everything(questions: list[Question], k: int, threads: int) -> list[np.ndarray]:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda q: one(q, k), questions))

    return Engine("NumPy, term at a time", everything, one)


Build = Callable[[Collection], float | tuple[float, float]]


ENGINES: dict[str, tuple[Build, Callable[[Collection], Engine | list[Engine]]]] = {
    "sparta-ids": (build_sparta, lambda collection: open_sparta(collection, ids=True)),
    "sparta-ones": (
        build_sparta,
        lambda collection: open_sparta(collection, ids=True, more=", weights of 1"),
    ),
    "sparta": (build_sparta, open_sparta),
    "lucene": (
        lambda collection: build_sparta(collection, "lucene"),
        lambda collection: open_sparta(collection, "lucene"),
    ),
    "anserini": (build_anserini, open_anserini),
    "pisa": (build_pisa, open_pisa),
    "seismic": (build_seismic, open_seismic),
    "numpy": (build_numpy, open_numpy),
}
FOLDER = {"anserini": "lucene", "sparta-ids": "sparta", "sparta-ones": "sparta"}
OTHER_SCORES = ("seismic", "sparta-ones")  # approximate; other weights


# ---------------------------------------------------------------- measuring, in a process for each engine


def seconds_of(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def mean_ms(engine: Engine, questions: list[Question], k: int, threads: int) -> float:
    seconds = min(seconds_of(lambda: engine.all(questions, k, threads)) for _ in range(ROUNDS))
    return seconds * 1000 / len(questions)


def measured(engine: Engine, questions: list[Question], k: int, warm: float) -> dict[str, Any]:
    until = time.perf_counter() + warm
    while time.perf_counter() < until:
        engine.all(questions, k, 1)
    mean = mean_ms(engine, questions, k, 1)
    singles = [
        min(seconds_of(lambda q=q: engine.one(q, k)) for _ in range(ROUNDS)) * 1000  # type: ignore[misc]
        for q in questions
    ]
    p50, p95, p99 = np.percentile(singles, [50, 95, 99])
    single = float(np.mean(singles))
    return {
        "mean": min(mean, single),
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "single": single,
        "two": mean_ms(engine, questions, k, 2),
    }


def child(name: str, step: str, work: Path, warm: float) -> None:
    collection = Collection(work)
    maker, opener = ENGINES[name]
    if step == "build":
        result: Any = maker(collection)
    else:
        opened = opener(collection)
        engines = opened if isinstance(opened, list) else [opened]
        result = []
        queries = collection.asked
        if name == "sparta-ones":
            queries = [dict.fromkeys(query, 1) for query in queries]
        for k in DEPTHS:
            rows = [(e, measured(e, queries, k, warm)) for e in engines]
            engine, best = min(rows, key=lambda row: row[1]["mean"])
            scores = engine.all(queries, k, 1)
            np.savez(work / f"{name}-{k}.npz", *scores)
            memory = psutil.Process().memory_info().rss / 1e6
            result.append({"name": engine.name, "k": k, **best, "rss": memory})
    (work / f"{name}-{step}.json").write_text(json.dumps(result))


def in_child(name: str, step: str, work: Path, warm: float) -> Any:
    """Run one step; None when the engine is not installed."""
    command = [sys.executable, str(HERE), "--child", name, step, "--work", str(work), "--warm", str(warm)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        if "ModuleNotFoundError" not in reason:
            raise SystemExit(f"{name}: {step} failed:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
        print(f"left out: {name} ({reason})", flush=True)
        return None
    return json.loads((work / f"{name}-{step}.json").read_text())


def agreement(exact: list[np.ndarray], found: list[np.ndarray]) -> float:
    """Share of the exact answers that were found, ties counting as found."""
    hit = total = 0
    for want, got in zip(exact, found, strict=True):
        total += len(want)
        hit += int((got[: len(want)] >= want[-1] - 0.5).sum()) if len(want) else 0
    return hit / max(1, total)


def same(exact: list[np.ndarray], found: list[np.ndarray]) -> bool:
    return all(len(a) == len(b) and np.allclose(a, b) for a, b in zip(exact, found, strict=True))


def scores_of(work: Path, name: str, k: int) -> list[np.ndarray]:
    with np.load(work / f"{name}-{k}.npz") as stored:
        return [stored[f"arr_{i}"] for i in range(len(stored.files))]


def compare(work: Path, wanted: list[str], warm: float) -> None:
    collection = Collection(work)
    postings = int(collection.indptr[-1])
    rates: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for name in wanted:
        seconds = in_child(name, "build", work, warm)
        if seconds is None:
            continue
        parts = seconds if isinstance(seconds, list) else [seconds]
        rates[name] = ", ".join(f"{postings / s / 1e6:.2f}" for s in parts if not math.isnan(s))
        if rates[name]:
            print(f"built {name}: {rates[name]} M postings/s", flush=True)
        rows += [{**row, "engine": name} for row in in_child(name, "search", work, warm)]
    print(f"\n{len(collection):,} documents, {postings:,} postings, {len(collection.asked)} questions\n")
    print(
        "| engine | k | mean ms | p50 | p95 | p99 | 2 threads | found | index MB | built, M postings/s "
        "| memory MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: row["k"]):
        name, k = row["engine"], row["k"]
        exact, found = scores_of(work, wanted[0], k), scores_of(work, name, k)
        if name not in OTHER_SCORES and not same(exact, found):
            raise SystemExit(f"{name} does not return the scores of {wanted[0]}")
        share = "–" if name == "sparta-ones" else f"{100 * agreement(exact, found):.1f} %"
        size = folder_mb(work / FOLDER.get(name, name))
        print(
            f"| {row['name']} | {k} | {row['mean']:.3f} | {row['p50']:.3f} | {row['p95']:.3f} "
            f"| {row['p99']:.3f} | {row['two']:.3f} | {share} | {size:.0f} "
            f"| {rates[name]} | {row['rss']:.0f} |",
            flush=True,
        )


def grow(
    work: Path,
    vectors: MadeVectors | RealVectors,
    questions: int,
    warm: float,
    engines: list[str],
    plot: Path,
) -> None:
    """Cost against the number of documents, as a table and a plot."""
    found: dict[tuple[str, int], list[tuple[int, float]]] = {}
    print("\n| documents | engine | k | mean ms |\n|---|---|---|---|")
    for documents in GROWTH:
        folder = work / str(documents)
        folder.mkdir()
        Collection.write(folder, vectors, documents, questions)
        for name in engines:
            if name != "anserini":  # it searches the index of lucene
                in_child(name, "build", folder, warm)
            for row in in_child(name, "search", folder, warm) or ():
                found.setdefault((row["name"], row["k"]), []).append((documents, row["mean"]))
                print(f"| {documents:,} | {row['name']} | {row['k']} | {row['mean']:.3f} |", flush=True)
        for file in sorted(folder.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
    draw(found, plot)


def draw(found: dict[tuple[str, int], list[tuple[int, float]]], plot: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(DEPTHS), figsize=(11, 3.6), sharey=True, layout="constrained")
    for axis, k in zip(axes, DEPTHS, strict=True):
        for (name, depth), points in found.items():
            if depth == k:
                axis.loglog(*zip(*points, strict=True), marker="o", label=name)
        axis.set(title=f"top {k:,}", xlabel="documents (500 terms each)")
        axis.grid(which="major", alpha=0.3)
    axes[0].set_ylabel("mean ms/query, one thread")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    figure.savefig(plot, dpi=120)
    print(f"plot: {plot}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--number", type=int, default=300, help="questions")
    parser.add_argument("--warm", type=float, default=10.0, help="seconds of warming up")
    parser.add_argument("--shards", type=Path, help="a folder of sparta encode")
    parser.add_argument("--top-k", type=int, help="of the shards: only the strongest terms of a passage")
    parser.add_argument("--questions", type=Path, help="a file of questions, one a line")
    parser.add_argument("--lexical", type=Path, help="a corpus whose lexical terms the documents have")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--plot", type=Path, help="also: the cost as documents grow, drawn here")
    parser.add_argument("--quick", action="store_true", help="20,000 documents, 60 questions")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        name, step = given.child
        child(name, step, given.work, given.warm)
        return
    if given.quick:
        given.documents, given.number, given.warm = 20_000, 60, 2.0
    vectors = vectors_of(given.shards, given.questions, given.top_k, given.lexical)
    with tempfile.TemporaryDirectory(dir=given.work) as temporary:
        work = Path(temporary)
        if given.plot:
            grow(work, vectors, given.number, given.warm, given.engines, given.plot)
        else:
            Collection.write(work, vectors, given.documents, given.number)
            compare(work, given.engines, given.warm)


if __name__ == "__main__":
    main()
