"""`sparta serve` under load, beside Pyserini's REST server and OpenSearch, on one machine with the load.

    python benchmarks/service.py [--shards FOLDER --questions FILE] [--documents 200000] [--seconds 60]
                                 [--requests 200000] [--skip-pyserini] [--opensearch URL/INDEX --work FOLDER]
    python benchmarks/service.py --shards FOLDER --vectors FOLDER [--documents 200000] [--seconds 60]
    python benchmarks/service.py --health [--beside CHECKOUT] [--pairs 5] [--seconds 10]

Two indexes: that of examples/ (as `make demo` makes it, asked its 60 questions), and with --shards one of
`--documents` passages: the vectors of `sparta encode`, 500 terms each, continued by mixtures as in
benchmarks/kernel.py, with the real passages' records, asked the first column of --questions.

16 connections ask for 10 hits with their records for --seconds (benchmarks/http_load.py, a process of its
own); every answer is compared with the first one to the same question ("changed"). On the example index they
go on to --requests in all, for the memory of the server. Then ten times the connections for ten seconds, and
16 again. Pyserini serves the same impacts from a copy of each index in Lucene's format; it gets the
questions' terms ready made, and its cache is off. OpenSearch is one that holds what `sparta push` wrote
of the larger index, which --work keeps, and answers the same terms.

With --health, only the example index is served: 64 busy connections for the throughput, then 400 while new
connections ask /health ten times a second. Another checkout of sparta, which builds
its own index, is measured in turn with this one.

With --vectors (of `dense encode`, the same corpus), only the index of `--documents` passages is served, with
a dense channel: the vector of a mixture is that of its record's passage, mixed with that of another one (0.8
and 0.2). Each channel, and a fusion, is asked by 16 connections for --seconds.

Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import psutil
from kernel import CHUNK, RealVectors

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
PYTHON = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
K, CONNECTIONS, TIMES = 10, 16, 10
PYSERINI = """
from sparta.lucene.jvm import start_jvm
start_jvm()  # the Java that sparta has
from pyserini.server.rest.app import main
main()
"""
HEAD = (
    "server",
    "connections",
    "requests",
    "requests/s",
    "p50 ms",
    "p99 ms",
    "highest ms",
    "not 200",
    "memory MB",
)


@contextmanager
def started(
    command: list[str], port: int, path: str, log: Path, checkout: Path = ROOT
) -> Iterator[psutil.Process]:
    """A server of a checkout, as soon as it answers."""
    variables = {**PYTHON, "PYTHONPATH": str(checkout)}
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, env=variables, cwd=checkout, stdout=stream, stderr=subprocess.STDOUT
        )
    try:
        ends = time.monotonic() + 180
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60).read()
                break
            except OSError as error:
                if process.poll() is not None or time.monotonic() > ends:
                    raise SystemExit(f"no server: {error}\n{log.read_text()[-2000:]}") from None
                time.sleep(0.2)
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def load(plan: dict[str, Any], connections: int, seconds: float, requests: int = 0) -> dict[str, Any]:
    """Run a load in a process of its own."""
    more = {"connections": connections, "seconds": seconds, "count": requests}
    done = subprocess.run(
        [sys.executable, str(HERE / "http_load.py")],
        input=json.dumps({"host": "127.0.0.1", **plan, **more}),
        capture_output=True,
        text=True,
        check=True,
        env=PYTHON,
    )
    return dict(json.loads(done.stdout))


def row(name: str, connections: int, found: dict[str, Any], memory: str = "") -> None:
    """Print a line of the table."""
    answered = sum(found["statuses"].values())
    others = [f"{n:,} x {status}" for status, n in found["statuses"].items() if status != "200"]
    others += [f"{found[kind]:,} {kind}" for kind in ("changed", "broken") if found[kind]]
    rate = found["statuses"].get("200", 0) / found["seconds"]
    times = [f"{found['ms'][name]:.1f}" for name in ("p50", "p99", "max")]
    cells = [name, connections, f"{answered:,}", f"{rate:,.0f}", *times, ", ".join(others) or "none", memory]
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def post(port: int, path: str, body: dict[str, Any]) -> str:
    """A whole request."""
    text = json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(text.encode())}\r\n\r\n{text}"


def add_vectors(index: Path, vectors: Path, work: Path) -> None:
    """Give each mixture a vector: that of its record's passage, mixed with that of another passage."""
    from dense.channel.passages import LivePassages
    from dense.channel.sync import build_dense
    from dense.search.store import VectorFolder, VectorWriter
    from sparta.index.folder import IndexFolder

    folder = IndexFolder(index)
    live = folder.require_live()
    real = VectorFolder(vectors)
    manifest = {**real.manifest, "complete": True}
    manifest.pop("checksum", None)
    generator = np.random.default_rng(0)
    with LivePassages.open(folder.lucene_path(live), live.analysis) as passages:
        hashes = passages.hashes(live.unit)
        for first in range(0, len(passages), CHUNK):
            positions = passages.positions[first : first + CHUNK]
            others = generator.integers(0, len(real), len(positions))
            mixed = 0.8 * real.take(positions % len(real)) + 0.2 * real.take(others)
            writer = VectorWriter(work / "mixed-vectors", manifest)
            writer.add(positions, hashes[first : first + CHUNK], mixed.astype(np.float32))
    build_dense(index, vectors=[work / "mixed-vectors"])


def measure_channels(index: Path, questions: list[str], given: argparse.Namespace, work: Path) -> None:
    """Requests a second of each channel and of a fusion, and the server's processor time per request."""
    port = free_port()
    command = [sys.executable, "-m", "cli._sparta", "serve", "--index", str(index), "--port", str(port)]
    print("| channels | requests/s | p50 ms | p99 ms | processor ms/request | not 200 | memory MB |")
    print("|---" * 7, "|", sep="")
    with started([*command, "--log-level", "warning"], port, "/ready", work / "serve.log") as server:
        for channels in ("impact", "bm25", "dense", "impact,dense"):
            requests = [
                post(port, "/search", {"query": question, "k": K, "channels": channels})
                for question in questions
            ]
            plan = {"port": port, "requests": requests}
            load(plan, CONNECTIONS, max(2.0, given.seconds / 5))
            before = sum(server.cpu_times()[:2])
            found = load(plan, CONNECTIONS, given.seconds)
            n, n_all = found["statuses"].get("200", 0), sum(found["statuses"].values())
            processor_ms = (sum(server.cpu_times()[:2]) - before) / max(1, n_all) * 1000
            times = [f"{found['ms'][name]:.1f}" for name in ("p50", "p99")]
            memory = f"{server.memory_info().rss / 1e6:.0f}"
            rate = f"{n / found['seconds']:,.0f}"
            cells = [channels, rate, *times, f"{processor_ms:.2f}", f"{n_all - n:,}", memory]
            print("|", " | ".join(cells), "|", flush=True)


def measure_sparta(
    name: str, index: Path, questions: list[str], given: argparse.Namespace, work: Path
) -> None:
    """Sixteen connections, as many requests as wanted, ten times the connections, and sixteen again."""
    port = free_port()
    command = [sys.executable, "-m", "cli._sparta", "serve", "--index", str(index), "--port", str(port)]
    plan = {
        "port": port,
        "requests": [post(port, "/search", {"query": question, "k": K}) for question in questions],
        "same": ['"hits":', '"took_ms"'],
    }
    with started([*command, "--log-level", "warning"], port, "/ready", work / "serve.log") as server:

        def memory() -> float:
            return float(server.memory_info().rss / 1e6)

        load(plan, CONNECTIONS, given.seconds / 10)  # to warm up
        before = memory()
        found = load(plan, CONNECTIONS, given.seconds)
        row(f"sparta, {name}", CONNECTIONS, found, f"{before:.0f} → {memory():.0f}")
        answered = sum(found["statuses"].values())
        if given.requests > answered and "example" in name:
            more = load(plan, CONNECTIONS, given.seconds * 2, given.requests - answered)
            total = answered + sum(more["statuses"].values())
            row(f"sparta, {name}, to {total:,} requests", CONNECTIONS, more, f"{before:.0f} → {memory():.0f}")
        seconds = min(10.0, given.seconds)
        row(f"sparta, {name}, ten times", TIMES * CONNECTIONS, load(plan, TIMES * CONNECTIONS, seconds))
        row(f"sparta, {name}, after it", CONNECTIONS, load(plan, CONNECTIONS, seconds), f"→ {memory():.0f}")


def new_connections(port: int, seconds: float) -> list[float]:
    """Ask /health on a new connection ten times a second, once all others are open; milliseconds of each."""
    time.sleep(1.5)
    times, ends = [], time.monotonic() + seconds
    while (began := time.monotonic()) < ends:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60).read()
        took = time.monotonic() - began
        times.append(took * 1000)
        time.sleep(max(0.0, 0.1 - took))
    return times


def measure_health(index: Path, questions: list[str], given: argparse.Namespace, work: Path) -> None:
    """Throughput of 64 connections, and /health for new connections beside 400 busy ones."""
    checkouts = {"this checkout": ROOT, **({str(given.beside): given.beside} if given.beside else {})}
    measured: dict[str, list[tuple[float, ...]]] = {name: [] for name in checkouts}
    indexes = {name: index if checkout == ROOT else work / "beside" for name, checkout in checkouts.items()}
    if given.beside and not indexes[str(given.beside)].exists():
        build = [sys.executable, "-m", "cli._sparta", "index", "--corpus", str(ROOT / "examples/wiki.jsonl")]
        build += ["--index", str(work / "beside")]  # an older checkout may not read an index of this one
        variables = {**PYTHON, "PYTHONPATH": str(given.beside)}
        subprocess.run(build, env=variables, cwd=given.beside, check=True, capture_output=True)
    for _ in range(given.pairs):
        for name, checkout in checkouts.items():
            port = free_port()
            command = [sys.executable, "-m", "cli._sparta", "serve", "--index", str(indexes[name])]
            command += ["--port", str(port), "--log-level", "warning"]
            requests = [post(port, "/search", {"query": question, "k": K}) for question in questions]
            plan = {"port": port, "requests": requests}
            with (
                started(command, port, "/ready", work / "serve.log", checkout),
                ThreadPoolExecutor(1) as beside,
            ):
                load(plan, 64, given.seconds / 5)
                few = load(plan, 64, given.seconds)
                probes = beside.submit(new_connections, port, given.seconds)
                many = load(plan, 400, given.seconds + 2)
                times = probes.result()
            rates = [found["statuses"].get("200", 0) / found["seconds"] for found in (few, many)]
            measured[name].append((*rates, float(np.median(times)), max(times)))
    print("| checkout | requests/s, 64 | requests/s, 400 | /health p50 ms | /health highest ms |")
    print("|---" * 5, "|", sep="")
    for name, rows in measured.items():
        medians = np.median(np.array(rows), axis=0)
        print("|", " | ".join([name, *(f"{value:,.0f}" for value in medians)]), "|")


def terms_of(index: Path, questions: list[str]) -> list[dict[str, int]]:
    from sparta.index.folder import IndexFolder

    folder = IndexFolder(index)
    tokenizer = folder.query_side(folder.require_live()).query_tokenizer()
    return [tokenizer.terms(question) for question in questions]


def measure_pyserini(
    name: str, index: Path, questions: list[str], given: argparse.Namespace, work: Path
) -> None:
    """Its REST server, which searches impacts too."""
    from sparta.index.folder import IndexFolder

    folder = IndexFolder(index)
    encoder = work / "questions.jsonl"
    encoded = zip(questions, terms_of(index, questions), strict=True)
    lines = (json.dumps({"contents": text, "vector": terms}) + "\n" for text, terms in encoded)
    encoder.write_text("".join(lines))
    path = {"path": str(folder.lucene_path(folder.require_live()).resolve())}
    impacts = {**path, "index_type": "impact", "encoder": str(encoder), "base_index": "texts"}
    indexes = {"examples": impacts, "texts": {**path, "index_type": "tf"}}  # the records come from the latter
    config = work / "pyserini.yaml"
    config.write_text(json.dumps({"indexes": indexes}))
    port = free_port()
    command = [sys.executable, "-c", PYSERINI, "--host", "127.0.0.1", "--port", str(port)]
    command += [
        "--config",
        str(config),
        "--no-access-log",
        "--no-prebuilt-indexes",
        "--search-cache-size",
        "0",
    ]
    paths = [f"/v1/examples/search?query={quote(question)}&hits={K}" for question in questions]
    plan = {
        "port": port,
        "requests": [f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n" for path in paths],
        "same": ['"candidates":', "}"],
    }
    with started(command, port, paths[0], work / "pyserini.log") as server:
        seconds = min(20.0, given.seconds)
        load(plan, CONNECTIONS, seconds / 10)
        found = load(plan, CONNECTIONS, seconds)
        row(f"Pyserini REST, {name}", CONNECTIONS, found, f"→ {server.memory_info().rss / 1e6:.0f}")


def measure_opensearch(name: str, index: Path, questions: list[str], given: argparse.Namespace) -> None:
    """A node that holds the same vectors."""
    from hybrid.opensearch.queries import RANK_FEATURE, impacts_query

    place, kind = urlsplit(given.opensearch), given.opensearch_query
    bags = [
        {term: n for term, n in bag.items() if kind != RANK_FEATURE or "." not in term}
        for bag in terms_of(index, questions)
    ]
    bodies = [{"size": K, "query": impacts_query(bag, kind)[0]} for bag in bags if bag]
    port = place.port or 9200
    plan = {"port": port, "requests": [post(port, f"{place.path}/_search", body) for body in bodies]}
    plan |= {"host": place.hostname, "same": ['"hits":[', "]}"]}
    load(plan, CONNECTIONS, given.seconds / 10)
    row(f"OpenSearch, {name}", CONNECTIONS, load(plan, CONNECTIONS, min(20.0, given.seconds)))


def build_example(path: Path, codec: str) -> None:
    """The index of examples/, as `make demo` makes it."""
    command = [
        sys.executable,
        "-m",
        "cli._sparta",
        "index",
        "--corpus",
        str(ROOT / "examples" / "wiki.jsonl"),
    ]
    more = ["--index", str(path), "--codec", codec, "--quiet"]
    subprocess.run([*command, *more], env=PYTHON, check=True, stdout=subprocess.DEVNULL)


def build_mixtures(path: Path, shards: Path, documents: int, top_k: int, codec: str) -> None:
    """An index of so many passages: real ones, then mixtures of their vectors with their records."""
    from sparta.index.build import write_index
    from sparta.index.folder import IndexFolder
    from sparta.index.inputs.impact_batches import ImpactBatch, searched_text
    from sparta.index.inputs.sources import vectors_source
    from sparta.index.jobs import WriteOptions
    from sparta.shards.store import read_shards

    lines = (line for shard in read_shards([shards]) for line in shard.records)
    records = [*map(json.loads, itertools.islice(lines, documents))]
    texts = [*map(searched_text, records)]

    def batches(_done: int, _last_id: str) -> Iterator[ImpactBatch]:
        position = 0
        for rows in RealVectors(shards, None, top_k).rows(documents):
            for first in range(0, len(rows), 1000):
                last = min(first + 1000, len(rows))
                part = slice(rows.indptr[first], rows.indptr[last])
                numbers = range(position + first, position + last)
                own = [{**records[n % len(records)], "id": f"m{n}"} for n in numbers]
                yield ImpactBatch(
                    [record["id"] for record in own],
                    [json.dumps(record) for record in own],
                    [texts[n % len(texts)] for n in numbers],
                    (rows.indptr[first : last + 1] - rows.indptr[first]).astype(np.int32),
                    rows.terms[part].astype(np.int32),
                    rows.impacts[part].astype(np.int32),
                )
            position += len(rows)

    assert CHUNK % 1000 == 0
    options = WriteOptions(optimize=True, codec=codec)
    source = dataclasses.replace(vectors_source([shards]), batches=batches)
    write_index(IndexFolder(path), source, options)


def example_questions() -> list[str]:
    lines = (ROOT / "examples" / "questions.jsonl").read_text().splitlines()
    return [json.loads(line)["text"] for line in lines]


def large_index(
    given: argparse.Namespace, work: Path, vectors: Path | None = None, codec: str = "fast"
) -> Path:
    """The index of `--documents` passages, with a dense channel if there are vectors."""
    large = work / f"mixtures-{given.documents}{'' if codec == 'fast' else f'-{codec}'}"
    if not large.exists():
        build_mixtures(large, given.shards, given.documents, given.top_k, codec)
    if vectors and not any(large.glob("dense-*")):
        add_vectors(large, vectors, work)
    return large


def large_questions(given: argparse.Namespace) -> list[str]:
    """The first column of --questions, or the questions of the examples."""
    if not given.questions:
        return example_questions()
    lines = given.questions.read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[0] for line in lines[:2000]]


def measure_large(given: argparse.Namespace, work: Path) -> None:
    """The servers of the index of `--documents` passages."""
    name, questions = f"{given.documents:,} passages", large_questions(given)
    index = large_index(given, work)
    measure_sparta(name, index, questions, given, work)
    if not given.skip_pyserini:
        measure_pyserini(name, large_index(given, work, codec="lucene"), questions, given, work)
    if given.opensearch:
        measure_opensearch(name, index, questions, given)


def main() -> None:
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__ or "")[0])
    parser.add_argument("--shards", type=Path)
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--vectors", type=Path, help="Vectors of the shards' corpus: measure each channel.")
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--top-k", type=int, default=500, help="terms of a passage that count")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--opensearch", metavar="URL/INDEX", help="A node with the larger index.")
    parser.add_argument(
        "--opensearch-query", choices=("neural_sparse", "rank_feature"), default="neural_sparse"
    )
    parser.add_argument("--skip-pyserini", action="store_true")
    parser.add_argument("--health", action="store_true")
    parser.add_argument("--beside", type=Path, help="With --health: another checkout.")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--work", type=Path, help="Folder that keeps the indexes, for the next time.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (given.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        if given.vectors and not given.shards:
            parser.error("--vectors needs --shards, of the same corpus")
        questions = example_questions()
        for codec in () if given.vectors else ("fast", "lucene"):
            if not (work / codec).exists():
                build_example(work / codec, codec)
        if given.health:
            measure_health(work / "fast", questions, given, work)
            return
        if given.vectors:
            measure_channels(large_index(given, work, given.vectors), large_questions(given), given, work)
            return
        print("|", " | ".join(HEAD), "|")
        print("|---" * len(HEAD), "|", sep="")
        measure_sparta("examples", work / "fast", questions, given, work)
        if not given.skip_pyserini:
            measure_pyserini("examples", work / "lucene", questions, given, work)
        if given.shards:
            measure_large(given, work)


if __name__ == "__main__":
    main()
