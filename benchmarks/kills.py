"""Kills a build and its final merge at five points, and checks that nothing committed is lost.

    sparta encode --corpus passages.jsonl --output SHARDS
    python benchmarks/kills.py --shards SHARDS --questions nq.test.tsv [--documents 1000000] [--work FOLDER]

The shards are copied under new ids until there are enough passages. `sparta index --vectors --optimize`
builds an index of them without a stop. A second index is killed (SIGKILL) three times during the build, each
time some seconds after a new commit, and twice during the merge to one segment that follows. After each kill
the index must hold at least the passages of the last commit that was seen, and the command continues with
--resume. At the end both indexes must give the same rankings, and `sparta verify` must find no damage.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from size_tables import print_table

from sparta.base.manifest import read_manifest, write_manifest
from sparta.lucene.bridge import ImpactSearcher
from sparta.models.prune import prune
from sparta.search.searcher import Searcher
from sparta.shards.store import KIND, WITH_QUERY_NETWORK, read_shards, write_shard

POINTS = (0.1, 0.4, 0.7, 1.0, 1.0)
DEPTH = 100


def write_copies(given: Path, folder: Path, documents: int, top_k: int) -> None:
    """Write shards of at least `documents` passages: those given, then the same under new ids."""
    folder.mkdir(parents=True)
    written, number, copy = 0, 0, 0
    while written < documents:
        for shard in read_shards([given]):
            records = [json.loads(record) for record in shard.records]
            for record in records:
                record["id"] = f"c{copy}-{record['id']}"
            renamed = replace(
                shard,
                number=number,
                first=written,
                passage_ids=tuple(record["id"] for record in records),
                records=tuple(json.dumps(record, ensure_ascii=False) for record in records),
                rows=prune(shard.rows, top_k=top_k),
            )
            write_shard(folder, renamed)
            written, number = written + len(shard), number + 1
            if written >= documents:
                break
        copy += 1
    shutil.copytree(given / "tokenizer", folder / "tokenizer")
    manifest = read_manifest(given, KIND, WITH_QUERY_NETWORK)
    manifest["counts"] |= {"encoded": written, "kept": 0, "elsewhere": 0}
    write_manifest(folder, manifest)


def start(vectors: Path, index: Path) -> subprocess.Popen[bytes]:
    """Start to build or continue an index."""
    command = [sys.executable, "-m", "cli._sparta", "index", "--vectors", str(vectors)]
    command += ["--index", str(index), "--optimize", "--resume", "--quiet"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def committed(index: Path) -> int:
    """Return the number of passages of the last commit."""
    commits = list(index.glob("*/segments_*"))
    if not commits:
        return 0
    with ImpactSearcher(commits[0].parent) as searcher:
        return searcher.num_docs


def kill_at(vectors: Path, index: Path, least: int, documents: int, wait: float) -> tuple[int, bool]:
    """Continue a build, and kill it after the commit of some passages.

    Returns the number of committed passages, and whether the build had come to its merge.
    """
    process = start(vectors, index)
    before = committed(index)
    while True:
        time.sleep(0.5)
        if process.poll() is not None:
            raise SystemExit(f"{index}: the build ended before it could be killed ({process.returncode})")
        seen = committed(index)
        if seen >= least and (seen > before or seen >= documents):
            break
    time.sleep(wait)
    seen = committed(index)
    if process.poll() is not None:
        raise SystemExit(f"{index}: the build ended before it could be killed")
    process.send_signal(signal.SIGKILL)
    process.wait()
    return seen, seen >= documents


def rankings(index: Path, questions: list[str]) -> list[list[tuple[str, float]]]:
    """Return the best hits of each question."""
    with Searcher(index) as searcher:
        return [[(h.passage_id, h.score) for h in searcher.search(question, DEPTH)] for question in questions]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=Path, required=True, help="a folder of sparta encode")
    parser.add_argument("--questions", type=Path, required=True, help="a file of questions, one a line")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--top-k", type=int, default=500, help="terms per passage")
    parser.add_argument("--number", type=int, default=100, help="questions")
    parser.add_argument("--longest", type=float, default=10.0, help="most seconds from a commit to the kill")
    parser.add_argument("--work", type=Path, help="where everything goes")
    options = parser.parse_args()
    questions = options.questions.read_text(encoding="utf-8").splitlines()[: options.number]
    questions = [line.split("\t")[0] for line in questions]
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        vectors, whole, killed = work / "vectors", work / "whole", work / "killed"
        if not vectors.exists():
            write_copies(options.shards, vectors, options.documents, options.top_k)
        started = time.perf_counter()
        if start(vectors, whole).wait():
            raise SystemExit("the build without a kill failed")
        print(f"without a kill: {committed(whole):,} passages in {time.perf_counter() - started:.0f} s")
        documents, rows = committed(whole), []
        for share in POINTS:
            wait = draw.uniform(0.0, options.longest)
            seen, merging = kill_at(vectors, killed, int(share * documents), documents, wait)
            kept = committed(killed)
            if kept < seen:
                raise SystemExit(f"{killed}: {seen:,} passages were committed, {kept:,} are left")
            step = "merge" if merging else "build"
            rows.append([step, f"{seen:,}", f"{wait:.1f}", f"{kept:,}"])
        if start(vectors, killed).wait():
            raise SystemExit("the build did not continue")
        print_table(["killed during the", "committed", "seconds after the commit", "left"], rows)
        command = [sys.executable, "-m", "cli._sparta", "verify", "--index", str(killed)]
        subprocess.run(command, check=True)
        if rankings(whole, questions) != rankings(killed, questions):
            raise SystemExit("the rankings differ from those of the build without a kill")
        print(f"{committed(killed):,} passages, {len(questions)} of {len(questions)} rankings equal")


if __name__ == "__main__":
    main()
