"""Searching 100,000 vectors of real text: NumPy, and FAISS flat, IVF and HNSW with dense's defaults.

    python benchmarks/vector_search.py --passages FILE --model FOLDER [--vectors FILE] [--copies SHARE]

The texts are overlapping windows of the passages, 32 wordpieces each, every window beginning in the middle of
the one before, so that neighbours are near and hard to tell apart. Questions are first sentences of passages
that are not among the texts. With --copies, such a share of the vectors becomes copies of 20 of them, as of
sentences that stand in many passages. Recall is that of the exact 100 best, in dense's order of ties. Every
contestant answers the same questions one by one, on one thread, in the same process, its candidates scored
exactly as dense does; the median counts. Prints a Markdown table. The model is a dense model, or any encoder,
whose token states are then averaged.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # read by NumPy

import numpy as np
import torch
from dense_size import recall

from dense.models.bi_encoder import DenseModel
from dense.models.resolve import ModelIdentity
from dense.search import faiss_index
from dense.search.exact import Candidates, ExactSearch, rank
from dense.search.faiss_index import ApproximateSearch, FlatSearch, Parameters
from dense.search.store import VectorFolder, VectorWriter, describe_vectors
from sparta.base.records import Passage
from sparta.data.corpus import open_corpus
from sparta.shards.folder import SHARD_SIZE

WINDOW, STEP = 32, 16
DEPTH = 100
QUESTION_BLOCK = 50  # every so many passages one is kept for questions


def open_any(folder: str) -> DenseModel:
    """A dense model, or a new one on a plain encoder."""
    if "dense" in (Path(folder) / "config.json").read_text(encoding="utf-8"):
        return DenseModel.load(Path(folder))
    return DenseModel.from_encoder(folder).eval()


def windows(model: DenseModel, passages: Iterator[Passage]) -> Iterator[str]:
    """Overlapping pieces of the texts."""
    for passage in passages:
        offsets = model.tokenizer.encode(passage.text, add_special_tokens=False).offsets
        for start in range(0, max(1, len(offsets) - STEP), STEP):
            piece = offsets[start : start + WINDOW]
            yield passage.text[piece[0][0] : piece[-1][1]]


def encode(given: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of n windows and of the questions; kept in --vectors for another time."""
    kept = Path(given.vectors) if given.vectors else None
    if kept and kept.is_file():
        stored = np.load(kept)
        return stored["texts"][: given.n], stored["questions"][: given.questions]
    torch.set_num_threads(os.cpu_count() or 1)  # one thread is for what is measured
    model = open_any(given.model)
    reader = enumerate(open_corpus(given.passages))
    asked: list[Passage] = []
    texts: list[str] = []
    for i, passage in reader:
        if i % QUESTION_BLOCK == 0 and len(asked) < given.questions:
            asked.append(Passage(passage.passage_id, passage.text.partition(". ")[0]))
            continue
        texts += windows(model, iter([passage]))
        if len(texts) >= given.n and len(asked) >= given.questions:
            break
    parts = []
    started = time.monotonic()
    for block in itertools.batched(texts[: given.n], SHARD_SIZE):
        parts.append(model.encode_passages([Passage("", text) for text in block])[:, 0])
        done = sum(map(len, parts))
        print(f"\r{done:,} texts, {done / (time.monotonic() - started):.0f} a second", end="", flush=True)
    print()
    found = np.concatenate(parts), model.encode_questions([p.text for p in asked])
    if kept:
        np.savez(kept, texts=found[0], questions=found[1])
    return found


def store(vectors: np.ndarray, folder: Path) -> VectorFolder:
    """A folder of shards, as an index holds them."""
    manifest = describe_vectors(ModelIdentity("benchmark", ""), vectors.shape[1], "float16", "passage")
    writer = VectorWriter(folder, manifest)
    for start in range(0, len(vectors), SHARD_SIZE):
        part = vectors[start : start + SHARD_SIZE]
        positions = np.arange(start, start + len(part))
        writer.add(positions, positions.astype(np.uint64), part)
    return VectorFolder(folder)


def copied(vectors: np.ndarray, share: float) -> np.ndarray:
    """The vectors, a share of them replaced by copies of 20."""
    rng = np.random.default_rng(1)
    chosen = rng.permutation(len(vectors))[: int(share * len(vectors))]
    made = vectors.copy()
    made[chosen] = vectors[rng.choice(len(vectors), 20, replace=False)[rng.integers(0, 20, len(chosen))]]
    return made


def measure(
    search: Candidates, vectors: VectorFolder, questions: np.ndarray, turns: int
) -> tuple[list[np.ndarray], float]:
    """The rows found, and milliseconds a question: the median of all questions and turns."""
    list(rank(search, vectors, questions[:5], DEPTH, len(vectors)))
    times = []
    for _ in range(turns):
        for question in questions:
            started = time.perf_counter()
            list(rank(search, vectors, question[None], DEPTH, len(vectors)))
            times.append(time.perf_counter() - started)
    found = [rows for rows, _ in rank(search, vectors, questions, DEPTH, len(vectors))]
    return found, 1000 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument(
        "--vectors", help="keep the vectors in this .npz, and take them from it if it is there"
    )
    parser.add_argument("--copies", type=float, default=0.0, help="share of vectors that are copies")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="2,000 texts, 20 questions, one turn")
    given = parser.parse_args()
    if given.quick:
        given.n, given.questions, given.turns = 2000, 20, 1
    texts, questions = encode(given)
    texts = copied(texts, given.copies)
    n, everything = len(texts), np.arange(len(texts))
    print(f"{n:,} vectors of {texts.shape[1]}, {len(questions)} questions, the best {DEPTH}, one thread")
    print("| | recall@100 | ms/query | build s | bytes beside the vectors |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        vectors = store(texts, Path(work) / "vectors")
        exact, ms = measure(ExactSearch(vectors, everything), vectors, questions, 1)
        print(f"| NumPy, exact | 1.0000 | {ms:.2f} | 0.0 | 0 |", flush=True)
        started = time.monotonic()
        flat = FlatSearch(vectors, everything)
        seconds = time.monotonic() - started
        found, ms = measure(flat, vectors, questions, given.turns)
        print(f"| flat | {recall(found, exact):.4f} | {ms:.2f} | {seconds:.1f} | 0 |", flush=True)
        for kind in ("ivf", "hnsw"):
            parameters = Parameters.default(kind, n)
            started = time.monotonic()
            nodes = faiss_index.nodes_of(vectors) if parameters.distinct else None
            index = faiss_index.build(parameters, vectors, nodes)
            seconds = time.monotonic() - started
            faiss_index.write(index, Path(work) / kind)
            size = (Path(work) / kind).stat().st_size + (nodes.nbytes if nodes is not None else 0)
            search = ApproximateSearch(index, parameters, everything, nodes)
            found, ms = measure(search, vectors, questions, given.turns)
            chosen = ", ".join(f"{k} {v}" for k, v in asdict(parameters).items() if v and k != "kind")
            row = f"{recall(found, exact):.4f} | {ms:.2f} | {seconds:.1f} | {size:,}"
            print(f"| {kind} ({chosen}) | {row} |", flush=True)


if __name__ == "__main__":
    main()
