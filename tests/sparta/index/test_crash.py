"""Kills and Ctrl-C in the middle of the commands, as users run them, in processes of their own.

A process takes seconds to import torch. So one is started that has imported everything, and forks a child
for each command before any thread runs; the children are what is killed.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import IndexStateError
from sparta.index.folder import IndexFolder
from sparta.index.generation import IndexState, Progress
from sparta.lucene.bridge import ImpactSearcher
from sparta.search.searcher import Searcher
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

PAUSE = 0.02
SEED = 1
N, SIZE = 48, 4
KILLED = -signal.SIGKILL

NURSERY = """
import json, os, signal, sys, time
from dataclasses import replace

import jnius_config
jnius_config.add_options("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
import cli._sparta, sparta.index.inputs.options, sparta.shards.encode, sparta.index.build
import sparta.index.inputs.sources
from sparta.runtime.processor import runtime
from sparta.base import files
from sparta.models.load import load_model
from sparta.lucene.bridge import ImpactWriter

model, pause, size = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
load_model(model)
runtime()
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the children

def slow(module, name, before=False, after=False, event=None):
    original = getattr(module, name)
    def slowed(*args, **kwargs):
        if before:
            time.sleep(pause)
        result = original(*args, **kwargs)
        if event:
            os.write(events, event)
        if after:
            time.sleep(pause)
        return result
    setattr(module, name, slowed)

slow(files, "_sync", after=True)  # the temporary file is there, and not yet in its place
slow(sparta.shards.encode, "write_shard", before=True, event=b"s")
slow(sparta.index.inputs.sources, "quantized_batch", before=True, event=b"b")
slow(ImpactWriter, "commit", before=True, after=True, event=b"c")
sparta.index.inputs.options._PASSAGES_PER_BATCH = size

for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        events = os.open(order["events"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            cli._sparta.main(order["command"])
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code or 0)
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(99)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Nursery:
    """Runs commands, one at a time, each in a new process."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process, self.folder, self.runs = process, folder, 0

    def run(self, command: list[str], *, after: int, delay: float, send: int) -> tuple[int, bytes, str]:
        """Start a command, let `after` events pass and then some time, send it a signal.

        Returns its exit code, its events and what it said.
        """
        self.runs += 1
        events, log = self.folder / f"events{self.runs}", self.folder / f"log{self.runs}"
        events.touch()
        self._ask({"command": command, "events": str(events), "log": str(log)})
        pid = int(self._line())
        deadline = time.monotonic() + 60
        while events.stat().st_size < after and time.monotonic() < deadline:
            if log.exists() and self._ended(pid):
                break
            time.sleep(0.002)
        time.sleep(delay)
        if not self._ended(pid):
            os.kill(pid, send)
        return int(self._line()), events.read_bytes(), log.read_text() if log.exists() else ""

    def _ask(self, order: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def _line(self) -> str:
        assert self.process.stdout
        watch = threading.Timer(120, self.process.kill)
        watch.start()
        try:
            return self.process.stdout.readline()
        finally:
            watch.cancel()

    @staticmethod
    def _ended(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False


@pytest.fixture(scope="module")
def nursery(tiny_model_folder, tmp_path_factory) -> Iterator[Nursery]:
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    process = subprocess.Popen(
        [sys.executable, "-c", NURSERY, str(tiny_model_folder), str(PAUSE), str(SIZE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "TOKENIZERS_PARALLELISM": "false",
        },
    )
    yield Nursery(process, tmp_path_factory.mktemp("nursery"))
    process.stdin.close()
    process.wait(60)


@pytest.fixture
def here(monkeypatch) -> Callable[..., str]:
    """Run a command in this process to its end, undisturbed."""

    monkeypatch.setattr("sparta.index.inputs.options._PASSAGES_PER_BATCH", SIZE)

    def run(command: list[str]) -> str:
        result = sparta(*command)
        assert result.exit_code == 0, result.output
        return result.output

    return run


@pytest.fixture(scope="module")
def corpus(make_records, write_jsonl, tmp_path_factory) -> Path:
    return write_jsonl(
        tmp_path_factory.mktemp("corpus") / "corpus.jsonl", make_records(N, seed=1, prefix="n")
    )


@pytest.fixture
def encode_command(corpus, tiny_model_folder) -> list[str]:
    return [
        "encode",
        "--corpus",
        str(corpus),
        "--model",
        str(tiny_model_folder),
        "--shard-size",
        str(SIZE),
        "--quiet",
    ]


def moments(seed: int, n: int, last: int) -> list[tuple[int, float]]:
    """Random moments: so many events, and a part of a second later."""
    rng = random.Random(seed)
    return [(rng.randint(0, last), rng.uniform(0, 4 * PAUSE)) for _ in range(n)]


def shards(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.glob("shard-*")}


def test_encode_killed_at_ten_moments(nursery, here, encode_command, tmp_path):
    here([*encode_command, "--output", str(tmp_path / "whole")])
    whole = shards(tmp_path / "whole")
    assert len(whole) == N // SIZE
    killed = 0
    for number, (after, delay) in enumerate(moments(SEED, 10, N // SIZE - 2)):
        output = tmp_path / f"out{number // 2}"  # every second kill hits what was resumed
        command = [*encode_command, "--output", str(output), "--resume"]
        code, events, _ = nursery.run(command, after=after // 2, delay=delay, send=signal.SIGKILL)
        killed += code == KILLED
        assert code in (KILLED, 0)
        done = shards(output) if output.exists() else {}
        assert done.items() <= whole.items()
        assert len(done) >= len(events)  # what was reported is there
        if number % 2:
            said = here(command)
            assert f"encoded {N - SIZE * len(done)} passages" in said
            assert f"kept {SIZE * len(done)}" in said
            assert shards(output) == whole
            assert not list(output.glob(".sparta-*"))
            assert json.loads((output / "manifest.json").read_text())["complete"]
    assert killed == 10


@pytest.fixture
def first(tmp_path, make_records, write_jsonl) -> list[dict[str, Any]]:
    """The index that is there before: the last two passages are in the new corpus as well."""
    return [
        *make_records(9, seed=2, prefix="o"),
        {"id": "n3", "text": "the old moon"},
        {"id": "n40", "text": "old"},
    ]


def ids_of(lucene: Path) -> set[str]:
    with ImpactSearcher(lucene) as reader:
        return set(reader.ids(reader.live()))


def rankings(index: Path) -> tuple[int, dict[str, list[tuple[str, float]]]]:
    asked = ["the moon of the earth", "old city", "year", "who founded google", "water river road"]
    with Searcher(index) as searcher:
        found = searcher.batch_search(asked, asked, 200)
        return searcher.num_docs, {q: [(h.passage_id, h.score) for h in hits] for q, hits in found.items()}


MODES = {
    "create": ["index", "--resume"],
    "create from vectors": ["index", "--resume"],
    "overwrite": ["index", "--overwrite", "--resume"],
    "append": ["index", "--append", "--resume"],
    "update": ["update", "--resume"],
}


@pytest.mark.parametrize(
    ("mode", "seed"),
    [
        *((mode, 0) for mode in MODES),
        *(pytest.param("create", seed, marks=pytest.mark.release) for seed in range(1, 5)),
    ],
)
def test_index_killed_at_random_moments(
    nursery, here, encode_command, corpus, first, write_jsonl, tiny_model_folder, tmp_path, mode, seed
):
    """Two moments of each way to write, the second of what was resumed; before a release, ten of `index`."""
    model = ["--model", str(tiny_model_folder), "--quiet"]
    if mode in ("overwrite", "append", "update"):
        before = first[:9] if mode == "append" else first
        old = write_jsonl(tmp_path / "old.jsonl", before)
        here(["index", "--corpus", str(old), "--index", str(tmp_path / "whole"), *model])
        shutil.copytree(tmp_path / "whole", tmp_path / "index")
    source = ["--corpus", str(corpus), *model]
    if mode == "create from vectors":
        here([*encode_command, "--output", str(tmp_path / "shards")])
        source = ["--vectors", str(tmp_path / "shards"), "--quiet"]
    command = [*MODES[mode], *source, "--commit-seconds", "0"]
    here([*command, "--index", str(tmp_path / "whole")])
    index = IndexFolder(tmp_path / "index")
    old_ids = ids_of(index.lucene_path(index.state().live)) if index.exists() else set()
    lowest = 0
    for after, delay in moments(SEED + 10 * seed + list(MODES).index(mode), 2, 9):
        code, events, said = nursery.run(
            [*command, "--index", str(index.path)], after=after, delay=delay, send=signal.SIGKILL
        )
        assert code == KILLED, said
        committed = events.count(b"c")
        lowest = check_committed(index, mode, old_ids, lowest + SIZE * committed)
    said = here([*command, "--index", str(index.path)])
    assert f"read {N} records = {N} used + 0 skipped" in said
    assert rankings(index.path) == rankings(tmp_path / "whole")
    assert index.state().building is None
    assert index.state().live.complete
    assert sum(p.is_dir() for p in index.path.iterdir()) == 2
    assert not list(index.path.glob(".sparta-*"))
    counts = {name: index.state().live.counts[name] for name in ("passages", "postings", "read", "clipped")}
    assert counts.items() <= IndexFolder(tmp_path / "whole").state().live.counts.items()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.release)])
def test_an_update_of_sentences_killed_at_random_moments(
    nursery, here, write_jsonl, tiny_model_folder, tmp_path, seed
):
    """Batches end inside passages, and all sentences are alike: their order is that of their positions."""

    def passages(name: str, counts: dict[str, int]) -> Path:
        records = [{"id": i, "text": "The moon is old. " * n} for i, n in counts.items()]
        return write_jsonl(tmp_path / name, records)

    old = passages("old.jsonl", {f"p{i}": 5 for i in range(12)})
    new = passages("new.jsonl", {f"p{i}": 2 + i % 6 for i in reversed(range(13))})
    given = ["--unit", "sentence", "--model", str(tiny_model_folder), "--quiet", "--commit-seconds", "0"]
    here(["index", "--corpus", str(old), "--index", str(tmp_path / "whole"), *given])
    shutil.copytree(tmp_path / "whole", tmp_path / "index")
    command = ["update", "--resume", "--corpus", str(new), *given, "--index"]
    here([*command, str(tmp_path / "whole")])
    for after, delay in moments(SEED + 100 + seed, 3, 9):
        code, _, said = nursery.run(
            [*command, str(tmp_path / "index")], after=after, delay=delay, send=signal.SIGKILL
        )
        assert code == KILLED, said
    here([*command, str(tmp_path / "index")])
    folders = [IndexFolder(tmp_path / name) for name in ("index", "whole")]
    ids = [ids_of(folder.lucene_path(folder.state().live)) for folder in folders]
    assert ids[0] == ids[1] == {f"p{i}#{n}" for i in range(13) for n in range(2 + i % 6)}
    assert rankings(tmp_path / "index") == rankings(tmp_path / "whole")


def check_committed(index: IndexFolder, mode: str, old: set[str], least: int) -> int:
    """The index opens and holds all that was reported as committed, and whole passages only; their number."""
    state = index.state() if index.exists() else IndexState()
    written = state.building or state.live
    begun = written is not None and not written.complete
    committed = begun and any(index.lucene_path(written).glob("segments_*"))
    if state.live:
        assert rankings(index.path)[0] >= len(old)
        assert old <= ids_of(index.lucene_path(state.live))
    elif not committed:
        with pytest.raises(IndexStateError, match=r"holds no passages yet|no index here"):
            Searcher(index.path)
    if not committed:
        assert least == 0
        return 0
    lucene = index.lucene_path(written)
    with ImpactSearcher(lucene) as reader:
        progress = Progress.loads(reader.user_data)
    consumed = progress.consumed if progress.job == written.job.id else 0
    assert consumed >= least
    kept = old if mode in ("append", "update") else set()
    assert ids_of(lucene) == kept | {f"n{i}" for i in range(consumed)}
    if not state.live:
        assert rankings(index.path)[0] == consumed
    return consumed


def test_ctrl_c_while_encoding(nursery, here, encode_command, tmp_path):
    output = tmp_path / "out"
    command = [*encode_command, "--output", str(output)]
    code, events, said = nursery.run(command, after=3, delay=PAUSE, send=signal.SIGINT)
    assert code == 130
    assert "Traceback" not in said
    done = len(shards(output))
    assert len(events) <= done < N // SIZE
    assert said == f"interrupted: {SIZE * done} passages kept; the same command with --resume continues\n"
    assert f"kept {SIZE * done}" in here([*command, "--resume"])


def test_ctrl_c_while_indexing(nursery, here, corpus, tiny_model_folder, tmp_path):
    """What was handed over is committed, although the time for a commit has not come."""
    index = tmp_path / "index"
    command = [
        "index",
        "--corpus",
        str(corpus),
        "--model",
        str(tiny_model_folder),
        "--quiet",
        "--index",
        str(index),
    ]
    code, _, said = nursery.run(command, after=4, delay=PAUSE / 2, send=signal.SIGINT)
    assert code == 130
    assert "Traceback" not in said
    folder = IndexFolder(index)
    with ImpactSearcher(folder.lucene_path(folder.state().building)) as reader:
        consumed = Progress.loads(reader.user_data).consumed
        assert reader.num_docs == consumed
    assert 3 * SIZE <= consumed < N
    assert said == f"interrupted: {consumed} passages kept; the same command with --resume continues\n"
    assert f"{N} passages" in here([*command, "--resume"])
    here(
        [
            "index",
            "--corpus",
            str(corpus),
            "--model",
            str(tiny_model_folder),
            "--index",
            str(tmp_path / "whole"),
        ]
    )
    assert rankings(index) == rankings(tmp_path / "whole")
