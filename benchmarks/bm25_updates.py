"""Time of changing an index for BM25: updates of one passage, and the first search with many deletions.

    python benchmarks/bm25_updates.py [--documents 200000] [--updates 20] [--folder FOLDER]

To compare two versions, run the script in the environment of each, one after the other. An index that another
version left in FOLDER is used as it is. Prints medians in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from sparta.lucene.bridge import ImpactSearcher, ImpactWriter

WORDS, LENGTH = 200_000, 60


def texts_of(source: np.random.Generator, n: int) -> list[str]:
    """Texts of words whose frequencies follow Zipf's law."""
    ranks = np.minimum(source.zipf(1.2, (n, LENGTH)), WORDS)
    return [" ".join(f"w{rank}" for rank in row) for row in ranks.tolist()]


def write(writer: ImpactWriter, ids: range, texts: list[str], *, update: bool) -> None:
    n = len(ids)
    writer.add([str(i) for i in ids], texts, texts, ids, [0] * (n + 1), [], [], update=update)


def build(folder: Path, source: np.random.Generator, documents: int) -> None:
    with ImpactWriter(folder) as writer:
        for start in range(0, documents, 10_000):
            ids = range(start, min(start + 10_000, documents))
            write(writer, ids, texts_of(source, len(ids)), update=False)
        writer.commit("")


def milliseconds(begun: float) -> float:
    return 1000 * (time.perf_counter() - begun)


def searched(folder: Path, queries: list[str]) -> tuple[ImpactSearcher, float, float]:
    """An open searcher, the time of opening with the first search, and that of a later search."""
    begun = time.perf_counter()
    searcher = ImpactSearcher(folder)
    searcher.search_text(queries[:1], 10)
    first = milliseconds(begun)
    begun = time.perf_counter()
    for query in queries[1:]:
        searcher.search_text([query], 10)
    return searcher, first, milliseconds(begun) / (len(queries) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="keep the index here, or take the index that is here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure(options.folder or Path(temporary, "index"), options.documents, options.updates)


def measure(folder: Path, documents: int, updates: int) -> None:
    source = np.random.default_rng(1)
    if not folder.exists():
        begun = time.perf_counter()
        build(folder, source, documents)
        print(f"index {documents:,} passages: {milliseconds(begun):.0f} ms")
    queries = [" ".join(text.split()[:6]) for text in texts_of(source, 200)]
    open_searcher, first, later = searched(folder, queries)
    print(f"before changes: open and first search {first:.1f} ms, later {later:.3f} ms/query")
    changing, searching = [], []
    for i in range(updates):
        begun = time.perf_counter()
        with ImpactWriter(folder) as writer:
            write(writer, range(i, i + 1), texts_of(source, 1), update=True)
            writer.commit("")
        changing.append(milliseconds(begun))
        newer, first, _ = searched(folder, queries[:2])
        searching.append(first)
        open_searcher.close()
        open_searcher = newer
    open_searcher.close()
    both = [a + b for a, b in zip(changing, searching, strict=True)]
    medians = [statistics.median(times) for times in (changing, searching, both)]
    print("update one passage {:.1f} ms, open and first search {:.1f} ms, both {:.1f} ms".format(*medians))
    with ImpactWriter(folder) as writer:
        writer.remove([str(i) for i in range(0, documents, 10)])
        writer.commit("")
    searcher, first, later = searched(folder, queries)
    print(f"a tenth deleted: open and first search {first:.1f} ms, later {later:.3f} ms/query")
    searcher.close()


if __name__ == "__main__":
    main()
