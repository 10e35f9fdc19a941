"""What filters cost: searches among 1, 10 and 50 % of the passages beside the unfiltered search, in one run.

    python benchmarks/filters.py [--documents 200000] [--shards FOLDER --questions FILE] [--quick]

Vectors and questions are those of kernel.py; texts are 80 words of 50,000, Zipf-like, questions of BM25 are 6
of them, each at least the 20th most frequent. Metadata: a value that 1 % share, 10 %, 50 %, a number that is
another for each passage, in random order and in the order of the corpus, and titles of 10 passages each.

Milliseconds per query are means over calls with one question each (best of five), k = 10, one thread, warm,
from Python to Java and back. "remembered": the filter was used before; else each call has another filter.
Prints Markdown tables: times, and what the metadata adds to the size and the time of writing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kernel import CLOCKS, CODECS, MadeVectors, RealVectors, folder_mb

from sparta.base.filters import Filter
from sparta.index.inputs.impact_batches import field_terms
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter

WORDS, LENGTH, QUESTION, ROUNDS = 50_000, 80, 6, 5
Search = Callable[[int, Filter | None], object]


def texts(documents: int) -> Iterator[str]:
    rng = np.random.default_rng(3)
    odds = 1 / (np.arange(WORDS) + 10.0)
    odds /= odds.sum()
    for first in range(0, documents, 1000):
        for row in rng.choice(WORDS, (min(1000, documents - first), LENGTH), p=odds).tolist():
            yield " ".join(f"w{word}" for word in row)


def text_questions(number: int) -> list[str]:
    rng = np.random.default_rng(4)
    odds = 1 / (np.arange(20, WORDS) + 10.0)
    rows = rng.choice(np.arange(20, WORDS), (number, QUESTION), p=odds / odds.sum()).tolist()
    return [" ".join(f"w{word}" for word in row) for row in rows]


def records(documents: int) -> Iterator[str]:
    rng = np.random.default_rng(5)
    order = rng.permutation(documents).tolist()
    for i, drawn in enumerate(rng.integers(0, 100, documents).tolist()):
        shared = {"hundredth": f"v{drawn}", "tenth": f"v{drawn % 10}", "half": f"v{drawn % 2}"}
        yield json.dumps(
            {"id": f"d{i}", "title": f"Article {i // 10}", **shared, "number": order[i], "place": i}
        )


def build(path: Path, codec: str, vectors: Any, documents: int, fields: bool) -> tuple[float, float]:
    """Write and merge; seconds without those for making vectors and texts, and megabytes."""
    seconds, position = 0.0, 0
    own, stored = texts(documents), records(documents)
    with ImpactWriter(path, codec=codec, threads=1) as writer:
        writer.add_terms(vectors.terms)
        for rows in vectors.rows(documents):
            for first in range(0, len(rows), 1000):
                last = min(len(rows), first + 1000)
                part = slice(rows.indptr[first], rows.indptr[last])
                raws = [next(stored) for _ in range(first, last)]
                words = [next(own) for _ in range(first, last)]
                started = time.perf_counter()
                writer.add(
                    [f"d{position + i}" for i in range(first, last)],
                    raws,
                    words,
                    np.arange(position + first, position + last),
                    rows.indptr[first : last + 1] - rows.indptr[first],
                    rows.terms[part],
                    rows.impacts[part],
                    fields=field_terms([json.loads(raw) for raw in raws]) if fields else None,
                )
                seconds += time.perf_counter() - started
            position += len(rows)
        started = time.perf_counter()
        writer.commit("")
        writer.force_merge(1)
        writer.commit("")
    return seconds + time.perf_counter() - started, folder_mb(path)


def filters(documents: int) -> dict[str, tuple[str, Callable[[int], dict[str, Any]] | None]]:
    """By what a row is called, its share, and the filter of the i-th call."""
    width = documents // 100

    def stretch(field: str) -> Callable[[int], dict[str, Any]]:
        return lambda i: {field: {"gte": width * (i % 99) + i % 7, "lt": width * (i % 99) + i % 7 + width}}

    return {
        "none": ("100 %", None),
        "value, remembered": ("1 %", lambda _: {"hundredth": "v7"}),
        "value": ("1 %", lambda i: {"hundredth": f"v{i % 100}"}),
        "range": ("1 %", stretch("number")),
        "range, passages side by side": ("1 %", stretch("place")),
        "two values": ("2 %", lambda i: {"hundredth": {"in": [f"v{i % 100}", f"v{(i + 1) % 100}"]}}),
        "value, remembered ": ("10 %", lambda _: {"tenth": "v7"}),
        "value, remembered  ": ("50 %", lambda _: {"half": "v1"}),
        "range ": ("50 %", lambda i: {"number": {"gte": i, "lt": i + documents // 2}}),
    }


def timed(search: Search, number: int, given: argparse.Namespace) -> dict[str, float]:
    """Mean milliseconds per query by row; rows take turns, and in each round a query has another filter."""
    clock, rows = CLOCKS[given.clock], filters(given.documents)
    best = {name: np.full(number, np.inf) for name in rows}
    for again in range(ROUNDS):
        for i in range(number):
            for name, (_, make) in rows.items():
                kept = Filter.of(make(i + 31 * again)) if make else None
                started = clock()
                search(i, kept)
                best[name][i] = min(best[name][i], clock() - started)
    return {name: float(own.mean()) * 1000 for name, own in best.items()}


def searches(searcher: ImpactSearcher, bags: Sequence[Any], asked: Sequence[str]) -> dict[str, Search]:
    return {
        "impact": lambda i, kept: searcher.search_impacts([bags[i]], 10, 1, kept),
        "bm25": lambda i, kept: searcher.search_text([asked[i]], 10, 1, kept),
    }


def warm(
    searcher: ImpactSearcher, bags: Sequence[Any], asked: Sequence[str], given: argparse.Namespace
) -> None:
    made = [make for _, make in filters(given.documents).values()]
    ends = time.perf_counter() + given.warm
    while time.perf_counter() < ends:
        for i in range(len(bags)):
            for make in made:
                for search in searches(searcher, bags, asked).values():
                    search(i, Filter.of(make(i)) if make else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--number", type=int, default=200, help="questions")
    parser.add_argument("--warm", type=float, default=10.0, help="seconds of warming up")
    parser.add_argument("--shards", type=Path, help="a folder of sparta encode")
    parser.add_argument("--questions", type=Path, help="a file of questions, one a line")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: this thread's, for a busy machine"
    )
    parser.add_argument("--codecs", nargs="+", default=list(CODECS))
    parser.add_argument("--work", type=Path, help="where the indexes go, and are found again by the next run")
    parser.add_argument(
        "--without-sizes", action="store_true", help="do not write the indexes without metadata"
    )
    parser.add_argument("--quick", action="store_true", help="5,000 documents, 20 questions")
    given = parser.parse_args()
    if given.quick:
        given.documents, given.number, given.warm = 5000, 20, 1.0
    vectors = RealVectors(given.shards, given.questions) if given.shards else MadeVectors()
    bags, asked = vectors.questions(given.number), text_questions(given.number)
    sizes, rows = [], {name: [share] for name, (share, _) in filters(given.documents).items()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.work or Path(temporary)
        for codec in given.codecs:
            for fields in (True,) if given.without_sizes else (False, True):
                path = folder / f"{codec}-{fields}"
                if path.exists():
                    continue
                seconds, size = build(path, codec, vectors, given.documents, fields)
                rate = given.documents / seconds
                sizes.append(f"| {codec} | {'with' if fields else 'without'} | {size:,.0f} | {rate:,.0f} |")
            with ImpactSearcher(path) as searcher:
                warm(searcher, bags, asked, given)
                for search in searches(searcher, bags, asked).values():
                    for row, mean in timed(search, len(bags), given).items():
                        rows[row].append(f"{mean:.3f}")
    print(f"\n{given.documents:,} documents, {len(bags)} questions, ms/query\n")
    print(
        "| filter | keeps |", " | ".join(f"{c}, {n}" for c in given.codecs for n in ("impact", "bm25")), "|"
    )
    print("|---" * (2 + 2 * len(given.codecs)) + "|")
    for name, cells in rows.items():
        print(f"| {name.strip()} | {' | '.join(cells)} |")
    print("\n| codec | metadata | MB | documents/s |\n|---|---|---|---|")
    print("\n".join(sizes))


if __name__ == "__main__":
    main()
