"""An index in a real OpenSearch beside the same index here: rankings, a killed push, a killed node.

    scripts/opensearch.sh start 3
    python benchmarks/opensearch.py --shards FOLDER --passages FILE --questions FILE [--documents 50000]
                                    [--top-k 100] [--seconds 120] [--work FOLDER] [--quick]

Texts are real (--passages: records with `title` and `text`); vectors are those of `sparta encode` in
--shards, cut to their --top-k strongest terms and, beyond their number, mixtures of two of them
(benchmarks/kernel.py): a text and its vector do not belong together. Questions are the first column of a TSV.

1. `sparta push` is killed (-9) when a third of the passages is there, and repeated: every passage must be
   there once.
2. The top 10 of 300 questions by impacts, by BM25 and by both must be ours: ids, order and scores.
3. A loop asks the questions, by impacts and by both, while node 3 is killed (-9) and later started again;
   each answer is compared. `wrong` are answers that differ, `failed` those that raised.

Prints Markdown tables. Nodes, client and everything else share this machine.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kernel import RealVectors
from size_tables import print_table

from hybrid.opensearch.searcher import open_opensearch
from hybrid.opensearch.server import Server
from hybrid.opensearch.state import count, indices_of, refresh, scan
from hybrid.retrieval.searcher import open_retriever
from sparta.base.errors import SpartaError
from sparta.index.pipeline import build_index_from_vectors
from sparta.search.retriever import Retriever
from sparta.search.searcher import Searcher

ROOT = Path(__file__).parents[1]
NODES = ROOT / "scripts" / "opensearch.sh"
NAME = "benchmark"
CHANNELS = ("impact", "bm25", "bm25=1.2,impact")
K, QUESTIONS = 10, 300


def records(path: Path, vectors: RealVectors, documents: int) -> Iterator[dict[str, Any]]:
    """Yield texts of the file with the vectors, in order."""
    terms = np.array(vectors.terms, dtype=object)
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open() as lines:
        for rows in vectors.rows(documents):
            for i, line in zip(range(len(rows)), lines, strict=False):
                one, part = json.loads(line), slice(rows.indptr[i], rows.indptr[i + 1])
                vector = dict(zip(terms[rows.terms[part]], rows.impacts[part].tolist(), strict=True))
                yield {"id": one["_id"], "title": one["title"], "contents": one["text"], "vector": vector}


def make_index(given: argparse.Namespace, work: Path) -> Path:
    """Write the vectors, and the index from them, unless both are there."""
    index, file = work / "index", work / "vectors.jsonl"
    if not index.exists():
        vectors = RealVectors(given.shards, None, given.top_k)
        with file.open("w", encoding="utf-8") as out:
            for record in records(given.passages, vectors, given.documents):
                out.write(json.dumps(record, ensure_ascii=False) + "\n")
        build_index_from_vectors(index, [file])
        file.unlink()
    return index


def push(index: Path, urls: str) -> subprocess.Popen[str]:
    """Start `sparta push`."""
    command = [sys.executable, "-m", "cli._sparta", "push", "--index", str(index), "--quiet"]
    return subprocess.Popen(
        [*command, "--opensearch", urls, "--name", NAME],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def pushed(server: Server) -> int:
    """Return how many passages of the benchmark are visible, in an index with the alias or without."""
    found = server.request("GET", f"/{NAME}-*/_mapping", ignore=(404,))
    total = 0
    for index in found if "error" not in found else ():
        refresh(server, index)
        total += count(server, index)
    return total


def interrupted_push(index: Path, server: Server, documents: int) -> list[str]:
    """Kill a push at a third, repeat it, and say what is there."""
    server.request("DELETE", f"/{NAME}-*", ignore=(404,))
    first = push(index, server.where)
    while pushed(server) < documents // 3:
        if first.poll() is not None:
            raise SystemExit("the push ended before it was killed: more --documents")
        time.sleep(0.5)
    first.send_signal(signal.SIGKILL)
    first.wait()
    there = pushed(server)
    started = time.monotonic()
    second = push(index, server.where)
    said, _ = second.communicate()
    seconds = time.monotonic() - started
    if second.returncode:
        raise SystemExit("the second push failed")
    print(said.strip(), file=sys.stderr)
    (name,) = indices_of(server, NAME)
    ids = [one.passage_id for one in scan(server, name)]
    size = int(server.request("GET", f"/{name}/_stats/store")["_all"]["primaries"]["store"]["size_in_bytes"])
    return [
        f"{there:,}",
        f"{len(ids):,}",
        f"{len(ids) - len(set(ids)):,}",
        f"{seconds:.0f}",
        f"{(documents - there) / seconds:.0f}",
        f"{size / 1e6:.0f}",
    ]


def run(retriever: Retriever, questions: Sequence[str]) -> dict[str, Any]:
    """Return rankings, with the ms/query of one question at a time."""
    times: list[float] = []
    found: dict[str, Any] = {}
    for question in questions:
        started = time.perf_counter()
        found.update(retriever.run([question], [question], K))
        times.append(1000 * (time.perf_counter() - started))
    return {"found": found, "p50": np.percentile(times, 50), "p99": np.percentile(times, 99)}


def compared(index: Path, server: Server, questions: Sequence[str]) -> Iterator[list[str]]:
    """Yield a row for each channel: equal rankings, and latencies."""
    for channels in CHANNELS:
        with open_retriever(index, channels) as ours:
            run(ours, questions)
            here = run(ours, questions)
        there_searcher = open_opensearch(server, NAME, channels)
        run(there_searcher, questions[:50])
        there = run(there_searcher, questions)
        ids = [[p.passage_id for p in one["found"][q]] for one in (here, there) for q in questions]
        same_ids = sum(a == b for a, b in zip(ids[: len(questions)], ids[len(questions) :], strict=True))
        same = sum(here["found"][q] == there["found"][q] for q in questions)
        ties = sum(len({p.score for p in here["found"][q]}) < len(here["found"][q]) for q in questions)
        yield [
            channels,
            *(f"{n:,}" for n in (len(questions), ties, same_ids, same)),
            *(f"{one[p]:.1f}" for one in (here, there) for p in ("p50", "p99")),
        ]


def under_load(index: Path, server: Server, questions: Sequence[str], seconds: float) -> list[str]:
    """Ask while node 3 is killed after a fifth of the time and starts again after three."""
    expected, searchers = {}, {}
    for channels in (CHANNELS[0], CHANNELS[2]):
        with open_retriever(index, channels) as ours:
            expected[channels] = ours.run(questions, questions, K)
        searchers[channels] = open_opensearch(server, NAME, channels)
    started = time.monotonic()
    steps = [(seconds / 5, ["kill", "3"]), (3 * seconds / 5, ["start", "3"])]
    asked = wrong = failed = 0
    times: list[float] = []
    for question in itertools.cycle(questions):
        elapsed = time.monotonic() - started
        if steps and elapsed > steps[0][0]:
            subprocess.Popen([str(NODES), *steps.pop(0)[1]], stdout=subprocess.DEVNULL)
        if elapsed > seconds and not steps:
            break
        for channels, searcher in searchers.items():
            before = time.perf_counter()
            try:
                found = searcher.run([question], [question], K)[question]
                wrong += found != expected[channels][question]
            except SpartaError as error:
                print(error, file=sys.stderr)
                failed += 1
            times.append(1000 * (time.perf_counter() - before))
            asked += 1
    longest = [float(np.percentile(times, p)) for p in (50, 99, 100)]
    return [f"{asked:,}", f"{wrong:,}", f"{failed:,}", *(f"{ms:,.1f}" for ms in longest)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--passages", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--work", type=Path, help="where the index is kept for another run")
    parser.add_argument("--skip", choices=["push", "load"], action="append", default=[])
    parser.add_argument("--quick", action="store_true", help="6,000 documents, 30 questions, 40 seconds")
    given = parser.parse_args()
    asked = QUESTIONS
    if given.quick:
        given.documents, asked, given.seconds = 6000, 30, 40
    lines = given.questions.read_text(encoding="utf-8").splitlines()
    questions = list(dict.fromkeys(line.split("\t")[0] for line in lines))[:asked]
    urls = subprocess.run([str(NODES), "urls"], check=True, capture_output=True, text=True).stdout.strip()
    server = Server(os.environ.get("SPARTA_OPENSEARCH_URL") or urls)
    with tempfile.TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        index = make_index(given, work)
        with Searcher(index) as searcher:
            documents = searcher.num_docs
        if "push" not in given.skip:
            row = interrupted_push(index, server, documents)
            heads = ["passages at kill -9", "after the second push", "twice", "s of the second"]
            print_table([*heads, "passages/s", "MB"], [row])
        heads = ["channels", "questions", "with ties", "same ids", "same ids and scores"]
        heads += ["ms here p50", "p99", "there p50", "p99"]
        print_table(heads, list(compared(index, server, questions)))
        if "load" not in given.skip:
            row = under_load(index, server, questions, given.seconds)
            print_table(["searches", "wrong", "failed", "ms p50", "p99", "longest"], [row])


if __name__ == "__main__":
    main()
