"""Two raylets on this machine: what they write is what one process writes, whoever is lost meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import ModelError
from sparta.shards.ray_executor import RayCluster

pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

N, SIZE = 600, 10
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        made.add_node(num_cpus=1)
        yield made
        made.shutdown()


@pytest.fixture(scope="module")
def corpus(make_records: Any, write_jsonl: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", make_records(N, seed=1))


@pytest.fixture
def encode(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> Callable[..., tuple[Path, Any]]:
    from sparta.shards.encode import EncodeOptions, encode_corpus

    def run(
        name: str, address: str | None = None, *, model: Any = str(tiny_model_folder), **more: Any
    ) -> Any:
        where = RayCluster(address=address) if address else None
        options = EncodeOptions(shard_size=SIZE)
        return tmp_path / name, encode_corpus(corpus, tmp_path / name, model, options, cluster=where, **more)

    return run


def contents(folder: Path) -> dict[str, bytes]:
    """All files, also the manifest."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def workers() -> list[Any]:
    return [
        p for p in psutil.process_iter(["cmdline"]) if "ray::BlockWorker" in (p.info["cmdline"] or [""])[0]
    ]


class Once:
    """An `advance` that does something when so many passages are done."""

    def __init__(self, at: int, action: Callable[[], object]) -> None:
        self.at, self.action, self.done = at, action, 0
        self.acted = False

    def __call__(self, n: int) -> None:
        self.done += n
        if self.done >= self.at and not self.acted:
            self.acted = True
            self.action()


def test_a_worker_is_killed(encode: Any, cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    whole, straight = encode("whole")
    killed = Once(100, lambda: workers()[0].kill())
    folder, report = encode("out", cluster.address, advance=killed)
    assert contents(folder) == contents(whole)
    assert (report, killed.done) == (straight, N)
    assert "a worker ended at shard" in caplog.text


def test_what_a_worker_raises(encode: Any, cluster: Any, tiny_model: Any) -> None:
    tiny_model.bias.data.fill_(float("inf"))
    with pytest.raises(ModelError, match="expected finite weights") as caught:
        encode("out", cluster.address, model=tiny_model)
    assert caught.value.remedy == "encode with --dtype bf16 or --dtype fp32"


def test_the_driver_is_killed(
    encode: Any, cluster: Any, corpus: Path, tiny_model_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    given = ["--corpus", corpus, "--model", tiny_model_folder, "--output", folder, "--shard-size", SIZE]
    command = [sys.executable, "-m", "cli._sparta", "encode", *map(str, given), "--ray", cluster.address]
    driver = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    while not list(folder.glob("shard-*")):
        assert driver.poll() is None
        time.sleep(0.005)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    end = time.monotonic() + 30
    while workers() and time.monotonic() < end:
        time.sleep(0.1)
    assert workers() == [], "they end with their driver"
    kept = len(list(folder.glob("shard-*"))) * SIZE
    assert 0 < kept < N
    resumed = subprocess.run(
        [*command, "--resume"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert f"encoded {N - kept} passages" in resumed.stdout
    assert f"kept {kept}" in resumed.stdout
    whole = contents(encode("whole")[0])
    found = contents(folder)
    del whole["manifest.json"], found["manifest.json"]  # counts what was kept
    assert found == whole


def test_a_raylet_is_removed(encode: Any, cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    node = next(iter(cluster.worker_nodes))
    removed = Once(100, lambda: cluster.remove_node(node, allow_graceful=False))
    folder, report = encode("out", cluster.address, advance=removed)
    assert removed.acted
    assert "a worker ended" in caplog.text
    whole, straight = encode("whole")
    assert contents(folder) == contents(whole)
    assert report == straight
