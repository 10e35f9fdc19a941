"""`dense index` and `dense search` as one types them; kills."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dense.channel.builder import ShardSizes
from dense.channel.sync import build_dense
from dense.channel.table import exists as has_dense
from dense.search.store import open_shard
from sparta.base.errors import Interrupted
from sparta.index.build import delete_passages
from sparta.index.folder import IndexFolder
from sparta.shards.folder import SHARD_SIZE, shard_files, writing
from tests.dense.channel.channels import (
    QUESTIONS,
    SIZE,
    N,
    done,
    rankings,
    refused,
    rounded,
    split_into_rows,
)
from tests.moments import at, ctrl_c
from tests.programs import dense

pytestmark = pytest.mark.usefixtures("one_thread")
SIZES = ShardSizes(largest=SIZE)


@pytest.mark.jvm
def test_the_command_search(made: Path, tmp_path: Path) -> None:
    found = rankings(made, 3)[QUESTIONS[0]]
    said = done(dense, "search", QUESTIONS[0], "--index", made, "-k", 3)
    lines = said.splitlines()
    assert len(lines) == 6
    for rank_, (line, (docid, score)) in enumerate(zip(lines[::2], found, strict=True), 1):
        assert line.split()[0] == str(rank_)
        assert line.endswith(f"[{docid}]  {score:.4g}")
    shown = [
        json.loads(line)
        for line in done(dense, "search", QUESTIONS[0], "--index", made, "-k", 3, "--json").splitlines()
    ]
    assert [(row["id"], row["score"]) for row in shown] == found
    assert [row["rank"] for row in shown] == [1, 2, 3]
    assert list(shown[0]) == ["version", "rank", "id", "score", "title", "text", "metadata", "snippet"]
    queries = tmp_path / "q.tsv"
    queries.write_text("".join(f"q{i}\t{text}\n" for i, text in enumerate(QUESTIONS)))
    run = tmp_path / "run.trec"
    given = ["search", "--queries", queries, "--index", made, "-k", 20]
    assert "80 lines for 4 queries" in done(dense, *given, "--output", run)
    ranked = rankings(made, 20)
    wanted = [(f"q{i}", docid) for i, text in enumerate(QUESTIONS) for docid, _ in ranked[text]]
    assert [(line.split()[0], line.split()[2]) for line in run.read_text().splitlines()] == wanted
    assert run.read_text().splitlines()[0].split()[-1] == "sparta-dense"
    refused("--queries and --output must be used together", *given)
    refused("name either a query or --queries FILE, found neither", "search", "--index", made)


@pytest.mark.jvm
def test_folders_of_vectors_stand_behind_one_option(
    index: Path, model: Path, corpus: Path, tmp_path: Path
) -> None:
    """As the shell writes them for a pattern."""
    parts = [tmp_path / f"shards-{i}" for i in range(3)]
    for i, part in enumerate(parts):
        given = ["encode", "--corpus", corpus, "--model", model, "--output", part, "--quiet"]
        done(dense, *given, "--shard", f"{i}/3")
    refused("these words belong to no option:", "index", "--index", index, *parts)
    assert not has_dense(index)
    said = done(dense, "index", "--index", index, "--quiet", "--vectors", *parts)
    assert f"{N} vectors of model: encoded 0, reused {N}, kept 0, removed 0 in" in said


@pytest.mark.jvm
def test_twice_is_once(index: Path, model: Path) -> None:
    said = done(dense, "index", "--index", index, "--model", model, "--quiet")
    assert f"dense-000001: flat, {N} vectors of model: encoded {N}, reused 0, kept 0, removed 0 in" in said
    files = {p: p.stat().st_mtime_ns for p in index.rglob("*") if p.is_file() and p.name != "lock"}
    said = done(dense, "index", "--index", index, "--quiet")
    assert said == f"{index}/dense-000001: flat, {N} vectors of model: up to date; nothing to do\n"
    assert {p: p.stat().st_mtime_ns for p in index.rglob("*") if p.is_file() and p.name != "lock"} == files
    said = done(dense, "index", "--index", index, "--kind", "ivf", "--quiet")
    assert f"ivf, {N} vectors of model: encoded 0, reused 0, kept {N}, removed 0" in said
    assert "ivf" in done(dense, "index", "--index", index, "--quiet")


@pytest.mark.jvm
def test_ctrl_c_keeps_what_was_encoded(index: Path, model: Path) -> None:
    with at("rename", "shard-00002.*", ctrl_c), pytest.raises(Interrupted, match=f"{2 * SIZE} vectors kept"):
        build_dense(index, str(model), shard_sizes=SIZES)
    with at("rename", "shard-00002.*", ctrl_c):
        result = dense("index", "--index", index, "--model", model, "--quiet")
    assert result.exit_code == 130
    assert result.output == f"interrupted: {2 * SIZE} vectors kept; the same command continues\n"
    assert build_dense(index, str(model)).encoded == N - 2 * SIZE


STOPPER = """
import json, os, sys
from functools import partial
from pathlib import Path

import cli._dense, dense.channel.encode, dense.channel.sync as channel
from dense.channel.builder import ShardSizes
from sparta.runtime.processor import runtime
from tests.stops import copies_at_stops, stop_after_writes

build_dense = channel.build_dense
stop_after_writes()
runtime()  # imported here once, instead of in every child

def run(command):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    cli._dense.main(command)

for line in sys.stdin:
    folder, command, size = json.loads(line)
    channel.build_dense = partial(build_dense, shard_sizes=ShardSizes(largest=size))
    print(copies_at_stops(partial(run, command), Path(folder)), flush=True)
"""


@pytest.fixture(scope="module")
def stopped() -> Iterator[Callable[..., list[Path]]]:
    """Run a command that writes to a folder, and return a copy of it for each file that was written."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "TOKENIZERS_PARALLELISM": "false",
        },
    )

    def stop(folder: Path, command: list[object], shard_size: int = SHARD_SIZE) -> list[Path]:
        assert process.stdin
        assert process.stdout
        words = [str(part) for part in command]
        process.stdin.write(json.dumps([str(folder), words, shard_size]) + "\n")
        process.stdin.flush()
        return [Path(f"{folder}-{number}") for number in range(int(process.stdout.readline()))]

    yield stop
    assert process.stdin
    process.stdin.close()
    process.wait(60)


def shards(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.glob("shard-*")}


def test_a_second_encoding_into_a_folder_is_refused(model: Path, corpus: Path, tmp_path: Path) -> None:
    given = ["encode", "--corpus", corpus, "--model", model, "--output", tmp_path / "v", "--quiet"]
    with writing(tmp_path / "v"):
        result = dense(*given)
    assert (result.exit_code, "another process is writing to this folder" in result.output) == (2, True), (
        result.output
    )
    done(dense, *given)


@pytest.mark.slow
def test_encode_killed_at_every_file(stopped: Any, model: Path, corpus: Path, tmp_path: Path) -> None:
    def command(output: Path) -> list[object]:
        given = ["--corpus", corpus, "--model", model, "--shard-size", SIZE, "--quiet", "--resume"]
        return ["encode", *given, "--output", output]

    killed = stopped(tmp_path / "v", command(tmp_path / "v"))
    whole = shards(tmp_path / "v")
    assert len(whole) == 4
    assert len(killed) == 6
    for moment, output in enumerate(killed):
        kept = shards(output)
        assert kept.items() <= whole.items()
        assert len(kept) == max(0, moment - 1)
        left = sum(len(open_shard(path)) for path in shard_files(output).values())
        assert f"encoded {N - left} passages, kept {left}" in done(dense, *command(output))
        assert shards(output) == whole
        assert not list(output.glob(".sparta-*"))
    assert json.loads((output / "manifest.json").read_text())["complete"]


@pytest.mark.jvm
@pytest.mark.slow
def test_index_killed_at_every_file(stopped: Any, index: Path, model: Path) -> None:
    """Two ways: the first channel, and one that is brought up to date, which search sees meanwhile."""
    killed = stopped(index, ["index", "--index", index, "--model", model, "--kind", "hnsw", "--quiet"], SIZE)
    whole_rankings = rounded(rankings(index))
    # files: the manifest of the vectors, four shards, FAISS, its nodes, rows, the channel's manifest
    assert len(killed) == 9
    for moment, place in enumerate(killed):
        assert not has_dense(place)
        kept = SIZE * max(0, min(moment - 1, 3)) + (N % SIZE if moment > 4 else 0)
        report = build_dense(place, str(model), kind="hnsw", shard_sizes=SIZES)
        assert (report.encoded, report.passages) == (N - kept, N)
        assert rounded(rankings(place)) == whole_rankings
        assert shards(place / "dense-000001/vectors-000001") == shards(index / "dense-000001/vectors-000001")
        assert len(list((place / "dense-000001").iterdir())) == 5
        shutil.rmtree(place)
    delete_passages(IndexFolder(index), ["n1", "n7", "n9"])
    before = rounded(rankings(index))
    killed = stopped(index, ["index", "--index", index, "--quiet"])
    assert len(killed) == 4
    for place in killed:
        assert rounded(rankings(place)) == before
        assert build_dense(place).removed_vectors == 3
        assert rounded(rankings(place)) == before


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_merge_killed_at_every_file(stopped: Any, index: Path, model: Path, kind: str) -> None:
    """Search sees the old shards until the manifest names the merged shard; nothing is encoded again."""
    build_dense(index, str(model), kind=kind)
    split_into_rows(index)
    delete_passages(IndexFolder(index), ["n1", "n7", "n9"])
    before = rounded(rankings(index))
    killed = stopped(index, ["index", "--index", index, "--quiet"])
    # the merged shard, FAISS and its nodes, rows; then the manifest
    assert len(killed) == (3 if kind == "flat" else 5)
    for place in (*killed, index):
        assert rounded(rankings(place)) == before
        assert build_dense(place).encoded == 0
        assert rounded(rankings(place)) == before
        assert len(shard_files(place / "dense-000001/vectors-000001")) == 1
