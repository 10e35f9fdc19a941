"""Dense search from 341,354 to 8,841,823 vectors: recall, time, memory and build time of each kind of index.

    dense encode --corpus passages.jsonl --output VECTORS
    python benchmarks/dense_size.py --vectors VECTORS --questions nq.test.tsv [--documents N ...]
                                    [--kinds ivf ivfpq hnsw ...] [--work FOLDER] [--small]

The first vectors are those of the folder. The others are copies of them, moved in a random direction. How far
they are moved is chosen so that the distance to the tenth neighbor keeps its distribution; the first table
compares quantiles of it. The vectors stream into shards, as those of an index, and no step holds all of them.

The truth is the exact top 1000 of every question, by dense's own exact search. Each kind is built in a
process of its own on all processors, and written to disk. Another process reads it and answers the questions
one by one on one thread, with its defaults, for 10, 100 and 1000 hits. The time includes the exact scores of
the candidates, whose vectors are read from the shards. `flat`, `ivf`, `ivfpq` and `hnsw` are the kinds of
`dense index`; `hnsw-sq8` is HNSW on 8-bit numbers, with the parameters of `hnsw`. Memory is the process's
own, without the page cache.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
from msmarco_size import own_memory_mb, status_mb
from size_tables import print_table

from dense.encoding.question_encoder import open_question_encoder
from dense.models.resolve import dense_model_folder, find_dense_model
from dense.search import faiss_index
from dense.search.exact import Candidates, ExactSearch, rank
from dense.search.faiss_index import ApproximateSearch, FlatSearch, Parameters
from dense.search.store import Floats, VectorFolder, VectorWriter, open_finished
from sparta.shards.folder import SHARD_SIZE

SIZES = (341_354, 1_000_000, 8_841_823)
KINDS = ("flat", "ivf", "ivfpq", "hnsw", "hnsw-sq8")
DEPTHS = (10, 100, 1000)
NEIGHBOR = 10
SAMPLE = 1_000
QUANTILES = (5, 25, 50, 75, 95)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
HERE = Path(__file__)
faiss_module: Any = importlib.import_module("faiss")  # its methods are added at run time


# ---------------------------------------------------------------- vectors


def neighbor_distances(folder: VectorFolder, rows: Any) -> Floats:
    """Return the Euclidean distance of some rows to their tenth nearest other row."""
    own = folder.take(rows)
    own_squares = (own**2).sum(1)
    nearest = np.full((len(rows), NEIGHBOR + 1), np.inf, np.float32)
    for block in folder.blocks(np.arange(len(folder))):
        squares = own_squares[:, None] + (block**2).sum(1) - 2 * own @ block.T
        least = np.partition(squares, NEIGHBOR, axis=1)[:, : NEIGHBOR + 1]
        nearest = np.partition(np.concatenate([nearest, least], axis=1), NEIGHBOR, axis=1)[:, : NEIGHBOR + 1]
    return np.sqrt(np.maximum(0, nearest.max(1)))


def scale_of_moves(distances: Floats, copies: float, length: float) -> float:
    """Return the factor of distances at which moved copies keep the median distance to the tenth neighbor.

    Copies of one vector, moved by r and s in random directions of many dimensions, have the inner product of
    the vector with itself. Their own lengths are taken back to that of the vector.

    :param length: the length of the vectors
    """
    rng = np.random.default_rng(3)
    if copies <= NEIGHBOR:  # the tenth neighbor is a copy of another vector
        return 2**-0.5
    own = rng.choice(distances, 2_000)
    others = rng.choice(distances, (2_000, int(copies)))

    def median(scale: float) -> float:
        lengths = [length**2 + (scale * moves) ** 2 for moves in (own[:, None], others)]
        cosines = length**2 / np.sqrt(lengths[0] * lengths[1])
        return float(np.median(np.sort(length * np.sqrt(2 - 2 * cosines), axis=1)[:, NEIGHBOR - 1]))

    target = float(np.median(distances))
    return float(scipy.optimize.brentq(lambda scale: median(scale) - target, 0.0, 4.0))


def made_vectors(real: VectorFolder, documents: int, distances: Floats) -> Iterator[Floats]:
    """Yield shards of vectors: first the real ones, then moved copies of the length of their originals."""
    rng = np.random.default_rng(7)
    kept = np.concatenate(list(real.blocks(np.arange(min(documents, len(real))))))
    length = float(np.linalg.norm(kept[:SAMPLE], axis=1).mean())
    scale = scale_of_moves(distances, documents / len(real) - 1, length)
    for start in range(0, documents, SHARD_SIZE):
        n = min(SHARD_SIZE, documents - start)
        part = kept[start : start + n]
        if missing := n - len(part):
            originals = kept[rng.integers(0, len(kept), missing)]
            moves = rng.standard_normal(originals.shape, np.float32)
            lengths = scale * rng.choice(distances, missing)
            moves *= (lengths / np.linalg.norm(moves, axis=1))[:, None]
            moved = originals + moves
            moved *= (np.linalg.norm(originals, axis=1) / np.linalg.norm(moved, axis=1))[:, None]
            part = np.concatenate([part, moved])
        yield part


def write_vectors(real: VectorFolder, documents: int, folder: Path, distances: Floats) -> VectorFolder:
    """Write the vectors of one size, unless the folder has them."""
    done = folder / "done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        writer = VectorWriter(folder, {k: v for k, v in real.manifest.items() if k != "complete"})
        start = 0
        for part in made_vectors(real, documents, distances):
            positions = np.arange(start, start + len(part))
            writer.add(positions, positions.astype(np.uint64), part)
            start += len(part)
        done.touch()
    return VectorFolder(folder)


# ---------------------------------------------------------------- kinds


def parameters_of(kind: str, n: int) -> Parameters:
    """Return the default parameters of a kind; those of `hnsw` for HNSW on other numbers."""
    return Parameters.default(kind.partition("-")[0], n)


def build(kind: str, work: Path) -> dict[str, float]:
    """Build and write an index; return seconds and memory."""
    vectors = VectorFolder(work / "vectors")
    parameters = parameters_of(kind, len(vectors))
    started = time.perf_counter()
    if kind == "hnsw-sq8":
        index = faiss_module.IndexHNSWSQ(
            vectors.width,
            faiss_module.ScalarQuantizer.QT_8bit,
            parameters.links,
            faiss_module.METRIC_INNER_PRODUCT,
        )
        sample = np.random.default_rng(0).permutation(len(vectors))[:100_000]
        index.train(vectors.take(np.sort(sample)))
        index.hnsw.efConstruction = parameters.build_depth
        faiss_index.extend(index, vectors)
    elif kind != "flat":
        nodes = faiss_index.nodes_of(vectors) if parameters.distinct else None
        index = faiss_index.build(parameters, vectors, nodes)
        if nodes is not None:
            np.save(work / f"{kind}.npy", nodes)
    if kind != "flat":
        faiss_index.write(index, work / f"{kind}.faiss")
    return {"minutes": (time.perf_counter() - started) / 60, "peak": peak_memory_mb()}


def peak_memory_mb() -> float:
    """Return the most memory that this process has had, with mapped files, in MB."""
    return status_mb("VmHWM") or math.nan


def search(kind: str, work: Path) -> dict[str, float]:
    """Answer the questions; return recall, times and memory."""
    questions, truth = np.load(work / "questions.npy"), np.load(work / "truth.npy")
    vectors = VectorFolder(work / "vectors")
    rows = np.arange(len(vectors))
    started = time.perf_counter()
    opened: Candidates
    if kind == "flat":
        opened = FlatSearch(vectors, rows)
    else:
        nodes_path = work / f"{kind}.npy"
        nodes = np.load(nodes_path) if nodes_path.exists() else None
        opened = ApproximateSearch.open(
            work / f"{kind}.faiss", parameters_of(kind, len(vectors)), rows, nodes
        )
    seconds = time.perf_counter() - started
    figures = {"open": seconds}
    for depth in DEPTHS:
        rank(opened, vectors, questions[:20], depth, len(vectors))
        found, times = [], []
        for question in questions:
            started = time.perf_counter()
            found.append(rank(opened, vectors, question[None], depth, len(vectors))[0][0])
            times.append(1000 * (time.perf_counter() - started))
        figures[f"recall@{depth}"] = recall(found, list(truth[:, :depth]))
        figures[f"ms@{depth}"] = statistics.mean(times)
        figures[f"p99@{depth}"] = float(np.percentile(times, 99))
    return {**figures, "memory": own_memory_mb()}


def recall(found: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """The mean share of the exact rows that were found."""
    pairs = zip(found, exact, strict=True)
    return statistics.mean(len(np.intersect1d(a, b)) / len(b) for a, b in pairs)


def in_child(step: str, kind: str, work: Path) -> dict[str, float]:
    """Run a step in a process of its own, whose memory can be measured."""
    command = [sys.executable, str(HERE), "--child", step, kind, "--work", str(work)]
    environment = os.environ | (ONE_THREAD if step == "search" else {})
    subprocess.run(command, check=True, env=environment)
    return json.loads((work / f"{step}.json").read_text(encoding="utf-8"))


def measure(real: VectorFolder, documents: int, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Build and search all kinds of one size, except those that --work has already measured."""
    sample = np.random.default_rng(1).permutation(min(documents, len(real)))[:SAMPLE]
    distances = neighbor_distances(real, np.sort(sample))
    vectors = write_vectors(real, documents, work / "vectors", distances)
    if not (work / "truth.npy").exists():
        asked = np.random.default_rng(2).permutation(len(vectors))[:SAMPLE]
        quantiles = [np.percentile(d, QUANTILES) for d in (distances, neighbor_distances(vectors, asked))]
        np.save(work / "quantiles.npy", quantiles)
        questions = questions_of(real, options)
        np.save(work / "questions.npy", questions)
        search = ExactSearch(vectors, np.arange(len(vectors)))
        exact = rank(search, vectors, questions, max(DEPTHS), len(vectors))
        np.save(work / "truth.npy", [rows for rows, _ in exact])
    kinds = {}
    for kind in options.kinds:
        measured = work / f"measured-{kind}.json"
        if not measured.exists():
            figures = {**in_child("build", kind, work), **in_child("search", kind, work)}
            path = work / f"{kind}.faiss"
            figures["GB"] = path.stat().st_size / 1e9 if path.exists() else 0.0
            measured.write_text(json.dumps(figures))
            if not options.keep:
                path.unlink(missing_ok=True)
        kinds[kind] = json.loads(measured.read_text(encoding="utf-8"))
    return {"documents": documents, "quantiles": np.load(work / "quantiles.npy"), "kinds": kinds}


def questions_of(real: VectorFolder, options: argparse.Namespace) -> Floats:
    """Return the vectors of the first questions of the file."""
    lines = options.questions.read_text(encoding="utf-8").splitlines()[: options.number]
    encoder = open_question_encoder(dense_model_folder(find_dense_model(real.model).name))
    return encoder.encode_questions([line.split("\t")[0] for line in lines])


def print_results(results: list[dict[str, Any]]) -> None:
    """Print the Markdown tables."""
    rows = [
        [f"{r['documents']:,}", name, *(f"{q:.3f}" for q in quantiles)]
        for r in results
        for name, quantiles in zip(("vectors of the folder", "all"), r["quantiles"], strict=True)
    ]
    print_table(["vectors", "distance to the tenth neighbor", *(f"{q} %" for q in QUANTILES)], rows)
    rows = [
        [
            f"{r['documents']:,}",
            kind,
            *(f"{f[f'recall@{depth}']:.4f}" for depth in DEPTHS),
            *(f"{f[f'ms@{depth}']:.2f}" for depth in DEPTHS),
            *(f"{f[key]:.2f}" for key in ("p99@100", "open", "minutes", "GB")),
            *(f"{f[key]:,.0f}" for key in ("peak", "memory")),
        ]
        for r in results
        for kind, f in r["kinds"].items()
    ]
    heads = [*(f"recall@{depth}" for depth in DEPTHS), *(f"ms, {depth} hits" for depth in DEPTHS)]
    heads += ["p99 ms, 100 hits", "open s", "build min", "index GB"]
    print_table(["vectors", "kind", *heads, "peak MB of the build", "memory MB of the search"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=Path, help="a folder of dense encode")
    parser.add_argument("--questions", type=Path, help="a file of questions, one a line")
    parser.add_argument("--documents", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS[1:4]))
    parser.add_argument("--number", type=int, default=300, help="questions")
    parser.add_argument("--work", type=Path, help="where everything goes; it stays there for the next run")
    parser.add_argument("--keep", action="store_true", help="keep the indexes in --work, too")
    parser.add_argument("--small", action="store_true", help="4,000 and 20,000 vectors, 60 questions")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        step, kind = options.child
        result = {"build": build, "search": search}[step](kind, options.work)
        (options.work / f"{step}.json").write_text(json.dumps(result))
        return
    if not options.vectors or not options.questions:
        parser.error("--vectors and --questions are needed")
    if options.small:
        options.documents, options.number = [4_000, 20_000], 60
    with tempfile.TemporaryDirectory() as temporary:
        real = open_finished(options.vectors)
        results = []
        for documents in sorted(options.documents):
            work = (options.work or Path(temporary)) / str(documents)
            work.mkdir(parents=True, exist_ok=True)
            results.append(measure(real, documents, work, options))
            print(f"measured {documents:,} vectors", file=sys.stderr, flush=True)
        print_results(results)


if __name__ == "__main__":
    main()
