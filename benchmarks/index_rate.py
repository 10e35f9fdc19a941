"""Writing an index from ready vectors: sparta beside Pyserini's own indexer, on the same file, in one run.

    python benchmarks/index_rate.py [--documents 20000] [--terms 500] [--vectors FILE] [--quick]

Without --vectors the vectors are made: `terms` distinct wordpieces a document, drawn with a Zipf-like
distribution, impacts 1 to 255 with the mean (176) of real unpruned vectors. Pyserini repeats every term
`impact` times, so its rate falls as impacts grow. Pyserini runs in a process of its own, with its own Java;
the start-up of each is measured apart, warm, and taken off. sparta's seconds are the median of three runs, as
are those of both start-ups. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from sparta.lucene.java_runtime import find_runtime
from sparta.lucene.jvm import build_archive, jar_paths

VOCABULARY = 30000
MEAN_IMPACT = 176
TURNS = range(3)


def make_vectors(path: Path, documents: int, terms: int) -> int:
    """Write JSON vectors; the number of postings."""
    rng = np.random.default_rng(7)
    likelihood = 1 / (np.arange(VOCABULARY) + 50)
    keys = np.log(likelihood)
    with path.open("w", encoding="utf-8") as out:
        for number in range(documents):
            chosen = np.argpartition(-(keys + rng.gumbel(size=VOCABULARY)), terms)[:terms]
            impacts = np.clip(rng.normal(MEAN_IMPACT, 40, terms), 1, 255).astype(int)
            vector = {f"t{t}": int(i) for t, i in zip(chosen, impacts, strict=True)}
            out.write(json.dumps({"id": f"d{number}", "contents": "", "vector": vector}) + "\n")
    return documents * terms


def count_postings(path: Path) -> int:
    with path.open(encoding="utf-8") as lines:
        return sum(len(json.loads(line)["vector"]) for line in lines)


def seconds_of(command: list[str], **environment: str) -> float:
    started = time.monotonic()
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} … failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return time.monotonic() - started


def sparta_seconds(vectors: Path, index: Path, threads: int) -> float:
    return seconds_of(
        [
            *(sys.executable, "-m", "cli._sparta", "index", "--vectors", str(vectors), "--index", str(index)),
            *("--threads", str(threads)),
        ]
    )


def pyserini_seconds(folder: Path, index: Path, threads: int) -> float:
    """Anserini's indexer, which `python -m pyserini.index.lucene` calls, on the Java that sparta uses."""
    java = find_runtime().home / "bin" / "java"
    anserini = jar_paths()[0]  # pyserini is installed: it is its jar
    return seconds_of(
        [
            *(str(java), "-cp", str(anserini), "io.anserini.index.IndexCollection"),
            *("-collection", "JsonVectorCollection", "-input", str(folder), "-index", str(index)),
            *(
                "-generator",
                "DefaultLuceneDocumentGenerator",
                "-threads",
                str(threads),
                "-impact",
                "-pretokenized",
            ),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=20000)
    parser.add_argument("--terms", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vectors", type=Path, help="a JSONL file of vectors instead of made ones")
    parser.add_argument("--quick", action="store_true", help="1,000 documents of 200 terms")
    given = parser.parse_args()
    documents, terms = (1000, 200) if given.quick else (given.documents, given.terms)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "vectors"
        folder.mkdir()
        path = folder / "vectors.jsonl"
        if given.vectors:
            path.symlink_to(given.vectors.resolve())
            postings = count_postings(path)
        else:
            postings = make_vectors(path, documents, terms)
        empty = Path(work) / "empty"
        empty.mkdir()
        (empty / "one.jsonl").write_text(
            '{"id": "x", "contents": "", "vector": {"t1": 1}}\n', encoding="utf-8"
        )
        of = Path(work)
        build_archive()  # else it is made in the background, beside what is measured
        one = empty / "one.jsonl"
        sparta_seconds(one, of / "cold", given.threads)  # once, uncounted: files come from the disk
        start_sparta = median(sparta_seconds(one, of / f"s0{i}", given.threads) for i in TURNS)
        pyserini_seconds(empty, of / "p-cold", given.threads)
        start_pyserini = median(pyserini_seconds(empty, of / f"p0{i}", given.threads) for i in TURNS)
        ours = median(sparta_seconds(path, of / f"s{i}", given.threads) for i in TURNS) - start_sparta
        theirs = pyserini_seconds(folder, of / "p", given.threads) - start_pyserini
    print(f"{postings:,} postings, {given.threads} threads; start-up of each taken off")
    print("| | seconds | postings/s |")
    print("|---|---|---|")
    print(f"| sparta index --vectors | {ours:.1f} | {postings / ours:,.0f} |")
    print(f"| Pyserini (Anserini IndexCollection) | {theirs:.1f} | {postings / theirs:,.0f} |")
    print(f"\nsparta is {theirs / ours:.1f} times as fast")


if __name__ == "__main__":
    main()
