"""Impact search from 10,000 passages to the 8,841,823 of MS MARCO: time, size, memory and updates.

    sparta encode --corpus first-4096-passages.jsonl --output SHARDS
    python benchmarks/msmarco_size.py --shards SHARDS --questions nq.test.tsv [--documents N ...]
                                      [--lucene 1000000] [--beside CHECKOUT] [--plot FILE.png] [--small]

Vectors and questions are those of benchmarks/kernel.py. They stream into the index: no array is written to
disk, and memory does not grow with the number of documents. Each index is merged to one segment.

Engines: sparta; with --beside, the code of another checkout on the same index; up to --lucene documents, also
sparta on Lucene's own postings format, and Pyserini on that index. Above --lucene, the table multiplies
Lucene's last measured figures by the number of documents and marks them with "≈".

Every engine keeps a process of its own. The engines search in turns, round by round, so other work on the
machine slows all of them. A figure is the best round; `ratio` is sparta's time by the other checkout's time.
`first` opens the index and searches one question in a running Java. Cold means that the page cache holds no
file of the index; `cold` is the mean of the first questions. Memory is the process's own, without the mapped
files. All times are in milliseconds per query, unless the table says otherwise.

Exactness: the rankings of 100 questions must equal sums that NumPy makes from the stream of vectors while the
index is built. At the end, documents are appended in commits of 1,000, then some are deleted, and the new
commits are searched; the table has the mean seconds of a commit.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from kernel import DEPTHS, Rows, Vectors, add_documents, build, folder_mb, vectors_of
from search import Engine, Question, open_anserini, open_sparta, seconds_of
from size_tables import draw, print_tables

from sparta.lucene.bridge import ImpactSearcher, ImpactWriter
from sparta.lucene.jvm import start_jvm

SIZES = (10_000, 100_000, 1_000_000, 8_841_823)
SMALL_SIZES = (2_000, 20_000)
CODECS = {"sparta": "fast", "beside": "fast", "lucene": "lucene", "pyserini": "lucene"}
ROUNDS = 3
CHECKED = 100
COLD_QUESTIONS = 20
CHANGED = 1_000
APPENDED = 100_000
HERE = Path(__file__)


# ---------------------------------------------------------------- building, and the truth


class Truth:
    """The best k documents of some questions by plain sums over streamed vectors."""

    def __init__(self, terms: list[str], questions: list[Question], k: int) -> None:
        number = {term: i for i, term in enumerate(terms)}
        self.weights = np.zeros((len(terms), len(questions)), np.int32)
        for q, question in enumerate(questions):
            for term, weight in question.items():
                if term in number:
                    self.weights[number[term], q] = weight
        self.used = self.weights.any(axis=1)
        self.k = k
        self.best: list[npt.NDArray[np.int64]] = [np.zeros((2, 0), np.int64) for _ in questions]

    def add(self, rows: Rows, position: int) -> None:
        """Add documents, which count from a corpus position."""
        used = self.used[rows.terms]
        ends = np.concatenate([[0], np.cumsum(used)])[rows.indptr]
        shape = (len(rows), len(self.weights))
        matrix = scipy.sparse.csr_matrix((rows.impacts[used], rows.terms[used], ends), shape=shape)
        sums = np.asarray(matrix @ self.weights)
        for q, best in enumerate(self.best):
            least = best[0, -1] if best.shape[1] == self.k else 1
            chosen = np.flatnonzero(sums[:, q] >= least)
            if len(chosen):
                both = np.concatenate([best, [sums[chosen, q], position + chosen]], axis=1)
                self.best[q] = both[:, np.lexsort((both[1], -both[0]))[: self.k]]


class Stream:
    """Vectors that are counted, and added up to the truth, as they pass."""

    def __init__(self, vectors: Vectors, truth: Truth | None) -> None:
        self.vectors, self.truth = vectors, truth
        self.terms = vectors.terms
        self.seconds = 0.0
        self.memory = 0.0

    def rows(self, documents: int) -> Iterator[Rows]:
        """Yield the vectors; `seconds` becomes the processor time of making them."""
        position, started = 0, time.thread_time()
        for rows in self.vectors.rows(documents):
            if self.truth is not None:
                self.truth.add(rows, position)
            position += len(rows)
            self.seconds += time.thread_time() - started
            self.memory = max(self.memory, own_memory_mb())
            yield rows
            started = time.thread_time()


def own_memory_mb() -> float:
    """Return this process's memory without mapped files, in MB."""
    return status_mb("RssAnon") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def status_mb(name: str) -> float | None:
    """Return a figure of this process's memory in MB; None where the system does not tell it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next((line for line in status.splitlines() if line.startswith(name)), None)
    return int(line.split()[1]) * 1024 / 1e6 if line else None


def build_index(work: Path, codec: str, options: argparse.Namespace) -> dict[str, Any]:
    """Build an index and, with sparta's codec, the truth."""
    vectors = vectors_of(options.shards, options.questions, options.top_k)
    documents = options.documents[0]
    questions = read_questions(work)[:CHECKED]
    truth = Truth(vectors.terms, questions, max(DEPTHS)) if codec == "fast" else None
    stream = Stream(vectors, truth)
    started = time.perf_counter()
    postings, _, _ = build(work / codec, codec, stream, documents, threads=2)
    if truth is not None:
        np.savez(work / "truth.npz", *truth.best)
    return {
        "postings": postings,
        "minutes": (time.perf_counter() - started) / 60,
        "rate": postings / (time.process_time() - stream.seconds),
        "memory": max(stream.memory, own_memory_mb()),
    }


# ---------------------------------------------------------------- searching: one process for each engine


def open_engine(name: str, work: Path) -> Engine:
    collection: Any = SimpleNamespace(work=work)
    if name == "pyserini":
        return open_anserini(collection)
    return open_sparta(collection, CODECS[name], ids=True)


def serve(name: str, work: Path) -> None:
    """Answer commands from standard input, one JSON line each, until it ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines print goes to standard error
    questions = read_questions(work)
    start_jvm()
    if name == "pyserini":
        import pyserini.search.lucene  # noqa: F401  its import is no part of opening an index
    engine: Any = None

    def first() -> float:
        nonlocal engine
        started = time.perf_counter()
        engine = open_engine(name, work)
        engine.one(questions[0], DEPTHS[0])
        return 1000 * (time.perf_counter() - started)

    def mean(k: int, threads: int, number: int) -> float:
        chosen = questions[:number]
        return 1000 * seconds_of(lambda: engine.all(chosen, k, threads)) / len(chosen)

    def warm(k: int, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            engine.all(questions, k, 1)

    def singles(k: int) -> list[float]:
        times = [1000 * seconds_of(partial(engine.one, question, k)) for question in questions]
        return [float(p) for p in np.percentile(times, [50, 95, 99])]

    commands: dict[str, Callable[..., Any]] = {
        "first": first,
        "mean": mean,
        "warm": warm,
        "singles": singles,
        "memory": own_memory_mb,
        "wrong": lambda: wrong_rankings(work),
    }
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(commands[command](*arguments)), file=replies, flush=True)


def wrong_rankings(work: Path) -> list[int]:
    """Return the questions whose ranking differs from the truth at any depth."""
    with np.load(work / "truth.npz") as stored:
        truth = [stored[name] for name in stored.files]
    wrong = set()
    with ImpactSearcher(work / "fast") as searcher:
        for k in DEPTHS:
            hits = searcher.search_impacts(read_questions(work)[: len(truth)], k)
            for q, expected in enumerate(truth):
                docids, scores = hits.query(q)
                found = np.stack([scores.astype(np.int64), searcher.positions(docids)])
                if not np.array_equal(found, expected[:, :k]):
                    wrong.add(q)
    return sorted(wrong)


class Server:
    """A process that keeps one engine open. Closing ends it."""

    def __init__(self, name: str, work: Path, options: argparse.Namespace) -> None:
        self.name = name
        command = [sys.executable, str(HERE), "--child", "serve", name, "--work", str(work)]
        environment = dict(os.environ)
        if name == "beside":
            python = options.beside / ".venv" / "bin" / "python"
            command[0] = str(python) if python.exists() else sys.executable
            environment["PYTHONPATH"] = str(options.beside.absolute())
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, command: str, *arguments: object) -> Any:
        """Return the answer to a command."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([command, *arguments]), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}: {command} failed (exit status {self.process.wait()})")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def touch_pages(folder: Path, cached: bool) -> None:
    """Read all files of an index into the page cache, or drop them from it."""
    for file in folder.iterdir():
        with file.open("rb") as stream:
            if cached:
                while stream.read(1 << 24):
                    pass
            else:
                os.fsync(stream.fileno())
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure_cold(names: list[str], work: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return each engine's first query and mean without a page cache, and its first query with one."""
    measured: dict[str, dict[str, float]] = {}
    for name in names:
        folder = work / CODECS[name]
        touch_pages(folder, cached=False)
        server = Server(name, work, options)
        measured[name] = {"cold first": server.ask("first")}
        measured[name]["cold"] = server.ask("mean", DEPTHS[0], 1, COLD_QUESTIONS)
        server.close()
        touch_pages(folder, cached=True)
        server = Server(name, work, options)
        measured[name]["first"] = server.ask("first")
        server.close()
    return measured


def measure_warm(names: list[str], work: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return the best of several rounds, in which the engines take turns."""
    servers = [Server(name, work, options) for name in names]
    for server in servers:
        server.ask("first")
    measured: dict[str, dict[str, float]] = {name: {} for name in names}
    for k in DEPTHS:
        for server in servers:
            server.ask("warm", k, options.warm)
        for threads in (1, 2):
            rounds = [[s.ask("mean", k, threads, options.number) for s in servers] for _ in range(ROUNDS)]
            for server, times in zip(servers, zip(*rounds, strict=True), strict=True):
                measured[server.name][f"{k}/{threads}"] = min(times)
        for server in servers:
            measured[server.name][f"{k}/p50"], _, measured[server.name][f"{k}/p99"] = server.ask("singles", k)
    wrong = servers[0].ask("wrong")
    for server in servers:
        measured[server.name]["memory"] = server.ask("memory")
        server.close()
    if wrong:
        raise SystemExit(f"{work}: the rankings of questions {wrong} are not those of the brute-force sums")
    return measured


# ---------------------------------------------------------------- changing


def change(work: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Append documents in small commits, then delete some; open and search after every tenth commit."""
    vectors = vectors_of(options.shards, options.questions, options.top_k)
    documents = options.documents[0]
    questions = read_questions(work)
    folder = work / "fast"

    def searched(step: str, commit: float) -> dict[str, Any]:
        started = time.perf_counter()
        with ImpactSearcher(folder) as searcher:
            searcher.search_impacts(questions[:1], 10)
            refresh = time.perf_counter() - started
            for _ in range(2):
                searcher.search_impacts(questions, 10)
            seconds = min(seconds_of(lambda: searcher.search_impacts(questions, 10)) for _ in range(ROUNDS))
        return {"step": step, "commit": commit, "refresh": refresh, "ms": 1000 * seconds / len(questions)}

    steps = [searched("as built", 0.0)]
    size = most = folder_mb(folder)
    commits = min(APPENDED, max(CHANGED, documents // 10)) // CHANGED
    done, seconds = 0, 0.0
    with ImpactWriter(folder, threads=2) as writer:
        writer.add_terms(vectors.terms)
        for rows in vectors.rows(commits * CHANGED):
            for first in range(0, len(rows), CHANGED):
                part, position = slice(first, first + CHANGED), documents + done * CHANGED
                started = time.perf_counter()
                add_documents(writer, rows, part, position, "new")
                writer.commit("")
                seconds += time.perf_counter() - started
                most = max(most, folder_mb(folder))
                done += 1
                if done % 10 == 0 or done == commits:
                    steps.append(searched(f"{done * CHANGED:,} appended in {done} commits", seconds / done))
        steps[-1]["disk"] = most / size
        started = time.perf_counter()
        writer.delete([f"d{i}" for i in range(0, documents, max(1, documents // CHANGED))][:CHANGED])
        writer.commit("")
        steps.append(searched(f"{CHANGED:,} deleted", time.perf_counter() - started))
    return steps


# ---------------------------------------------------------------- all sizes


def read_questions(work: Path) -> list[Question]:
    return json.loads((work / "questions.json").read_text(encoding="utf-8"))


def in_child(step: str, codec: str, work: Path, documents: int, options: argparse.Namespace) -> Any:
    """Run a step in a process of its own, whose memory can be measured."""
    command = [sys.executable, str(HERE), "--child", step, codec, "--work", str(work)]
    command += ["--documents", str(documents)]
    if options.shards:
        command += ["--shards", str(options.shards), "--questions", str(options.questions)]
        command += ["--top-k", str(options.top_k)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return json.loads((work / f"{step}.json").read_text(encoding="utf-8"))


def measure(work: Path, documents: int, options: argparse.Namespace) -> dict[str, Any]:
    """Build, search and change the indexes of one size."""
    names = ["sparta", *(["beside"] if options.beside else [])]
    names += ["lucene", "pyserini"] if documents <= options.lucene else []
    built = {}
    for codec in dict.fromkeys(CODECS[name] for name in names):
        path, built_path = work / codec, work / f"built-{codec}.json"
        if not built_path.exists():
            shutil.rmtree(path, ignore_errors=True)
            built_path.write_text(json.dumps(in_child("build", codec, work, documents, options)))
        built[codec] = json.loads(built_path.read_text(encoding="utf-8"))
        built[codec]["GB"] = folder_mb(path) / 1e3
    if options.build_only:
        return {"documents": documents, "built": built}
    cold = measure_cold(names, work, options)
    warm = measure_warm(names, work, options)
    engines = {name: {**cold[name], **warm[name]} for name in names}
    changed = in_child("change", "fast", work, documents, options)
    return {"documents": documents, "built": built, "engines": engines, "changed": changed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--number", type=int, default=300, help="questions")
    parser.add_argument("--warm", type=float, default=5.0, help="seconds of warming up")
    parser.add_argument("--shards", type=Path, help="a folder of sparta encode; else the vectors are made")
    parser.add_argument("--questions", type=Path, help="a file of questions, one a line")
    parser.add_argument("--top-k", type=int, default=500, help="terms per passage of the shards")
    parser.add_argument("--lucene", type=int, default=1_000_000, help="largest size for Lucene's format")
    parser.add_argument("--beside", type=Path, help="another checkout, which searches the same indexes")
    parser.add_argument("--plot", type=Path, help="draw time and size against the documents here")
    parser.add_argument("--work", type=Path, help="where the indexes go; they stay there for the next run")
    parser.add_argument("--build-only", action="store_true", help="only build the indexes in --work")
    parser.add_argument("--small", action="store_true", help="2,000 and 20,000 documents, 60 questions")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.small:
        options.documents, options.number, options.warm = list(SMALL_SIZES), 60, 0.5
    if options.shards and not options.questions:
        raise SystemExit("--shards needs --questions")
    if options.child:
        step, name = options.child
        run_child(step, name, options)
        return
    with tempfile.TemporaryDirectory() as temporary:
        run(options.work or Path(temporary), options)


def run_child(step: str, name: str, options: argparse.Namespace) -> None:
    """Do one step in this process."""
    if step == "serve":
        serve(name, options.work)
        return
    steps: dict[str, Callable[[], Any]] = {
        "build": lambda: build_index(options.work, name, options),
        "change": lambda: change(options.work, options),
    }
    result = steps[step]()
    (options.work / f"{step}.json").write_text(json.dumps(result))


def run(work: Path, options: argparse.Namespace) -> None:
    """Measure all sizes, the smallest first, except those that --work has already measured."""
    results = []
    for documents in sorted(options.documents):
        folder = work / str(documents)
        folder.mkdir(parents=True, exist_ok=True)
        measured = folder / "measured.json"
        if not measured.exists():
            vectors = vectors_of(options.shards, options.questions, options.top_k)
            questions = vectors.questions(options.number)
            del vectors  # their memory is the page cache's
            (folder / "questions.json").write_text(json.dumps(questions), encoding="utf-8")
            result = measure(folder, documents, options)
            if options.build_only:
                continue
            measured.write_text(json.dumps(result), encoding="utf-8")
            for codec in set(CODECS.values()):
                shutil.rmtree(folder / codec, ignore_errors=True)
        results.append(json.loads(measured.read_text(encoding="utf-8")))
        print(f"measured {documents:,} documents", file=sys.stderr, flush=True)
    if results:
        print_tables(results)
        if options.plot:
            draw(results, options.plot)


if __name__ == "__main__":
    main()
