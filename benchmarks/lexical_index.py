"""What lexical terms cost an index: size, dictionary, memory and speed, with and without them.

    python benchmarks/lexical_index.py --corpus FILE --shards FOLDER --questions FILE [--documents N ...]

The passages and their lexical terms are the corpus's. The vectors of the network are those of the shards,
drawn at random for each passage, so that a few thousand encoded passages suffice: sizes depend on how many
passages have a term. Indexes are merged into one segment. `dictionary` is the size of Lucene's files of
terms, `heap` what Java's heap holds after opening, `ms/query` the best of five rounds over the questions on
one thread, the two indexes in turns. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from sparta.data.corpus import open_corpus
from sparta.data.languages import Language
from sparta.index.build import write_index
from sparta.index.folder import IndexFolder
from sparta.index.generation import Job
from sparta.index.inputs.impact_batches import ImpactBatch, quantized_batch
from sparta.index.jobs import Source, WriteOptions
from sparta.models.load import load_model
from sparta.models.prune import SparseRows, prune
from sparta.models.query_encoder import QuerySide
from sparta.search.retriever import Page
from sparta.search.searcher import Searcher
from sparta.shards.store import EncodedShard, read_shards, stored_object

BATCH = 512
ROUNDS = 5
QUESTIONS = 500
DICTIONARY = {".tim", ".tip", ".tmd"}


def source(corpus: Path, n: int, rows: SparseRows, side: QuerySide) -> Source:
    """Return the first `n` passages of a corpus, each with a random row."""

    def batches(done: int, last_id: str = "") -> Iterator[ImpactBatch]:
        rng = np.random.default_rng(0)
        passages = itertools.islice(open_corpus(corpus), n)
        for number, block in enumerate(itertools.batched(passages, BATCH)):
            objects = tuple(map(stored_object, block))
            records = tuple(json.dumps(stored, ensure_ascii=False) for stored in objects)
            ids = tuple(passage.passage_id for passage in block)
            drawn = rows.take(rng.integers(0, len(rows), len(block)))
            yield quantized_batch(
                EncodedShard(number, number * BATCH, ids, records, drawn, 0, objects), side, Language()
            )

    return Source(Job(source=str(corpus), sha256=str(bool(side.lexical))), side, batches)


def heap() -> int:
    """Return the bytes of live objects in Java's heap."""
    from jnius import autoclass

    autoclass("java.lang.System").gc()
    runtime = autoclass("java.lang.Runtime").getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def sizes(index: IndexFolder) -> tuple[float, float]:
    """Return the megabytes of the Lucene index, and of its dictionaries."""
    files = list(index.lucene_path(index.require_live()).iterdir())
    dictionary = sum(file.stat().st_size for file in files if file.suffix in DICTIONARY)
    return sum(file.stat().st_size for file in files) / 1e6, dictionary / 1e6


def seconds(searcher: Searcher, questions: list[str], k: int) -> float:
    begun = time.perf_counter()
    searcher.rank(questions, Page(k))
    return (time.perf_counter() - begun) / len(questions)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--model")
    arguments = parser.parse_args()
    side = load_model(arguments.model).query_side()
    if side.lexical is None:
        raise SystemExit("the model has no lexical terms")
    rows = prune(
        SparseRows.concatenate([shard.rows for shard in read_shards([arguments.shards])]),
        top_k=arguments.top_k,
    )
    lines = arguments.questions.read_text(encoding="utf-8").splitlines()[:QUESTIONS]
    questions = [line.split("\t")[0] for line in lines]
    print(
        "| passages | lexical terms | postings/passage | terms | MB | dictionary, MB | heap, MB |"
        " ms/query, k 10 | k 1000 |"
    )
    print("|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as temporary:
        for n in arguments.documents:
            measure(arguments.corpus, n, rows, side, questions, Path(temporary))


def measure(
    corpus: Path, n: int, rows: SparseRows, side: QuerySide, questions: list[str], work: Path
) -> None:
    sides = {"no": replace(side, lexical=None), "yes": side}
    lines: dict[str, list[str]] = {}
    searchers: dict[str, Searcher] = {}
    for name, own in sides.items():
        index = IndexFolder(work / f"{n}-{name}")
        report = write_index(index, source(corpus, n, rows, own), WriteOptions(optimize=True))
        size, dictionary = sizes(index)
        before = heap()
        searchers[name] = Searcher(index.path)
        with searchers[name].reader.snapshot() as snapshot:
            snapshot.lucene.search_impacts([{"the": 1}], 1)
            opened = heap() - before
            terms = sum(len(page.terms) for page in snapshot.lucene.postings())
        postings = report.written["postings"] / report.written["passages"]
        lines[name] = [
            f"{postings:.0f}",
            f"{terms:,}",
            f"{size:.1f}",
            f"{dictionary:.1f}",
            f"{opened / 1e6:.1f}",
        ]
    for k in (10, 1000):
        best = dict.fromkeys(sides, float("inf"))
        for _ in range(ROUNDS):
            for name, searcher in searchers.items():
                best[name] = min(best[name], seconds(searcher, questions, k))
        for name in sides:
            lines[name].append(f"{1000 * best[name]:.3f}")
    for name, cells in lines.items():
        searchers[name].close()
        print(f"| {n:,} | {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
