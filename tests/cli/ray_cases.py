"""Encoding on Ray: what its workers write is what one process writes, whoever is lost meanwhile."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from sparta.shards.ray_executor import RayCluster
from tests.programs import Program, dense, sparta

pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread", "own_logger")]

N, SIZE = 600, 10
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def our_code() -> Iterator[None]:
    """What the processes of Ray import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # as nice as the tests themselves
        yield


def free_ports() -> dict[str, int]:
    """Ports for the helpers of a raylet, which else waits for them, and on a busy machine gives up."""
    names = (
        "metrics_agent_port",
        "metrics_export_port",
        "dashboard_agent_listen_port",
        "runtime_env_agent_port",
    )
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
        return {name: one.getsockname()[1] for name, one in zip(names, sockets, strict=True)}


@pytest.fixture(scope="module")
def cluster(our_code: None) -> Iterator[Any]:
    """Two raylets, each with room for one worker."""
    from ray.cluster_utils import Cluster

    made = Cluster()
    for _ in range(2):
        made.add_node(num_cpus=1, include_dashboard=False, **free_ports())
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def corpus(make_records: Any, write_jsonl: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", make_records(N, seed=1))


@pytest.fixture
def command(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> Callable[..., list[str]]:
    def words(output: str, *more: object, model: Path = tiny_model_folder) -> list[str]:
        given = ["--corpus", corpus, "--model", model, "--output", tmp_path / output, "--shard-size", SIZE]
        return ["encode", *(str(part) for part in (*given, *more))]

    return words


def ran(words: list[str], program: Program = sparta) -> Result:
    return program(*words)


def contents(folder: Path) -> dict[str, bytes]:
    """All files, also the manifest."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def workers() -> list[Any]:
    """The processes of actors."""
    named = ((p, p.info["cmdline"] or [""]) for p in psutil.process_iter(["cmdline"]))
    return [process for process, words in named if words[0].startswith("ray::BlockWorker")]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


class Mishaps:
    """An `advance` that does one thing after the other, each when both workers have blocks."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self.actions, self.done, self.calls = list(actions), 0, 0

    def __call__(self, n: int) -> None:
        self.done += n
        if not self.actions:
            return
        if self.calls == 0:
            wait_for(lambda: len(workers()) == 2 and not any(".open" in p.cmdline()[0] for p in workers()))
        self.calls += 1
        if self.calls == 10:
            self.actions.pop(0)()
            self.calls = -4  # so many blocks may be done that nobody has been told of


def test_vectors_on_this_machine(command: Any, make_tiny_model: Any, tmp_path: Path) -> None:
    from dense.models.bi_encoder import DenseConfig, DenseModel
    from sparta.neural.inputs import InputLayout

    tiny = make_tiny_model()
    layout = InputLayout(use_title=True, max_length=8, overlap=2)  # some passages are cut, which is counted
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout)).save_pretrained(tmp_path / "dense")
    one, two = (
        ran(command(name, *more, model=tmp_path / "dense"), dense)
        for name, more in (("one", []), ("two", ["--ray", "local"]))
    )
    assert "cut to the model's longest input" in one.stdout
    assert two.output == one.output.replace("one:", "two:")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_what_a_worker_raises(command: Any, cluster: Any, tiny_model: Any, tmp_path: Path) -> None:
    tiny_model.bias.data.fill_(float("inf"))
    tiny_model.save_pretrained(tmp_path / "bad")
    result = ran(command("out", "--ray", cluster.address, "--workers", 1, model=tmp_path / "bad"))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: the model gave infinite term weights")
    assert result.stderr.endswith("→ encode with --dtype fp32, or copy the model folder again\n")


def test_the_driver_is_killed(command: Any, cluster: Any, tmp_path: Path) -> None:
    words, folder = command("out", "--ray", cluster.address), tmp_path / "out"
    driver = subprocess.Popen([sys.executable, "-m", "cli._sparta", *words, "--workers", "1"], cwd=ROOT)
    wait_for(lambda: bool(list(folder.glob("shard-*"))))
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    wait_for(lambda: workers() == [])  # they end with their driver
    kept = len(list(folder.glob("shard-*"))) * SIZE
    assert 0 < kept < N
    resumed = ran([*words, "--resume"])
    assert f"encoded {N - kept} passages" in resumed.stdout, resumed.output
    assert f"kept {kept}" in resumed.stdout
    ran(command("whole"))
    whole, found = contents(tmp_path / "whole"), contents(folder)
    del whole["manifest.json"], found["manifest.json"]  # it counts what was kept
    assert found == whole


def test_workers_and_a_raylet_are_lost(
    command: Any, cluster: Any, corpus: Path, tiny_model_folder: Path, tmp_path: Path
) -> None:
    from sparta.shards.encode import EncodeOptions, encode_corpus

    node = next(iter(cluster.worker_nodes))
    mishaps = Mishaps(
        lambda: [process.kill() for process in workers()],
        lambda: cluster.remove_node(node, allow_graceful=False),
    )
    encode_corpus(
        corpus,
        tmp_path / "out",
        str(tiny_model_folder),
        EncodeOptions(shard_size=SIZE),
        advance=mishaps,
        cluster=RayCluster(address=cluster.address),
    )
    assert (mishaps.actions, mishaps.done) == ([], N)
    assert not node.any_processes_alive()
    ran(command("whole"))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
