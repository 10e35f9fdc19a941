"""From a corpus to an index for BM25 alone: `sparta index --channels bm25` beside bm25s, in turn.

    python benchmarks/bm25_index.py --corpus wiki.jsonl [--sizes 3000,300000] [--runs 3] [--peer-python PATH]

bm25s reads the same JSON lines (title and text), drops English stop words, stems by PyStemmer, and saves its
index with the records, as ours holds them. --peer-python is an environment with bm25s, PyStemmer and orjson.
Prints medians of seconds.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sparta.base.disk.streams import numbered_lines

BM25S = """
import sys, bm25s, orjson, Stemmer
records = [orjson.loads(line) for line in open(sys.argv[1], "rb")]
texts = [f"{one.get('title') or ''} {one['text']}" for one in records]
tokens = bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
index = bm25s.BM25(k1=0.9, b=0.4)
index.index(tokens, show_progress=False)
index.save(sys.argv[2], corpus=records)
"""


def seconds(*command: object) -> float:
    """How long a command takes."""
    started = time.monotonic()
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True, help="JSON lines, compressed or not")
    parser.add_argument("--sizes", default="3000,300000", help="passages, the first of the corpus")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable)
    given = parser.parse_args()
    print("| passages | sparta, s | bm25s, s | ratio |\n|---|---|---|---|")
    for size in map(int, given.sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            corpus = Path(folder, "corpus.jsonl")
            with corpus.open("wb") as stream:
                lines = [line for _, line in itertools.islice(numbered_lines(given.corpus), size)]
                stream.writelines(line.rstrip(b"\n") + b"\n" for line in lines)
            ours, theirs = [], []
            for run in range(given.runs):
                index = Path(folder, f"sparta-{run}")
                options = ("--corpus", corpus, "--index", index, "--channels", "bm25", "--quiet")
                ours.append(seconds(sys.executable, "-m", "cli._sparta", "index", *options))
                theirs.append(seconds(given.peer_python, "-c", BM25S, corpus, Path(folder, f"bm25s-{run}")))
            a, b = statistics.median(ours), statistics.median(theirs)
            print(f"| {len(lines):,} | {a:.2f} | {b:.2f} | {a / b:.2f} |", flush=True)


if __name__ == "__main__":
    main()
