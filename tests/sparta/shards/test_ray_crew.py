"""The workers of a cluster, without Ray: what is given out, what is done again, what is said."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparta.base.errors import InputError, ModelError, SpartaError
from sparta.base.remedies import Option
from sparta.shards.ray_executor import Crew, RayCluster, worker_count
from sparta.shards.ray_worker import BlockWorker, Token, placed_token
from tests.programs import Program, dense, sparta

pytestmark = pytest.mark.usefixtures("own_logger")


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class Actor:
    """Encodes at once or, when its time has come, ends with all that it was given."""

    def __init__(self, ray: FakeRay) -> None:
        self.ray, self.given, self.ended = ray, [], False
        self.open = self.encode = SimpleNamespace(remote=self._call)

    def _call(self, *arguments: Any) -> tuple[Actor, int]:
        self.given.append(arguments)
        self.ray.most = max(self.ray.most, len(self.given) - self.ray.taken[self])
        return self, len(self.given) - 1


class FakeRay:
    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(
        self,
        *,
        deadly: float = 0.0,
        seed: int = 0,
        error: Exception | None = None,
        nodes: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.random, self.deadly, self.error = random.Random(seed), deadly, error
        self.cpus_and_gpus = nodes
        self.taken: defaultdict[Actor, int] = defaultdict(int)
        self.order: dict[Actor, int] = {}
        self.killed: list[Actor] = []
        self.hired, self.most = 0, 0

    def nodes(self) -> list[dict[str, Any]]:
        """A node without GPUs does not list them; a node that was lost stays in the list."""
        resources = [{"CPU": float(c), **({"GPU": float(g)} if g else {})} for c, g in self.cpus_and_gpus]
        lost = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
        return [lost, *({"Alive": True, "Resources": own} for own in resources)]

    def put(self, job: Any) -> Any:
        return job

    def remote(self, _: type) -> Any:
        return SimpleNamespace(options=lambda **__: SimpleNamespace(remote=self._hire))

    def _hire(self) -> Actor:
        self.hired += 1
        return Actor(self)

    def wait(self, refs: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        assert timeout > 0
        ready = [(actor, i) for actor, i in refs if actor.ended or i == self.taken[actor]]
        return [self.random.choice(ready)] if ready else [], []

    def get(self, ref: tuple[Actor, int]) -> Any:
        actor, i = ref
        if actor.ended or self.random.random() < self.deadly:
            actor.ended = True
            raise RayError("The actor died\nand more")
        self.taken[actor] += 1
        if i and self.error:
            raise RayTaskError(self.error)
        if i:
            number, _, passages = actor.given[i][0]
            return {"number": number, "count": len(passages)}
        return None

    def kill(self, actor: Actor) -> None:
        self.killed.append(actor)


BLOCKS = [(n, 3 * n, ["passage"] * 3) for n in range(40)]


def encoded(ray: FakeRay, workers: int) -> list[int]:
    job: Any = SimpleNamespace(folder=Path())
    with Crew(RayCluster(address="auto"), workers, job, Token(Path(), ()), ray) as crew:
        return [facts["number"] for facts in crew.encode(iter(BLOCKS))]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_each_block_is_done_once_whoever_ends(workers: int) -> None:
    finished = 0
    for seed in range(40):
        ray = FakeRay(deadly=0.1, seed=seed)
        with suppress(SpartaError):  # by chance four ended over the same block
            assert sorted(encoded(ray, workers)) == list(range(40))
            finished += 1
        assert ray.most <= 2
        assert len(ray.killed) >= ray.hired > workers
    assert finished > 30


def test_a_block_that_ends_every_worker_is_not_tried_for_ever() -> None:
    class Deadly(FakeRay):
        def get(self, ref: Any) -> Any:
            actor, i = ref
            if i and actor.given[i][0][0] == 7:
                actor.ended = True
            return super().get(ref)

    ray = Deadly()
    with pytest.raises(SpartaError, match="4 Ray workers failed at shard 7") as caught:
        encoded(ray, 3)
    assert Option("resume", True) in caught.value.remedy.options
    assert len(ray.killed) >= ray.hired == 3 + 3


def test_workers_that_never_start() -> None:
    class Full(FakeRay):
        def wait(self, refs: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
            return [], []

    with pytest.raises(SpartaError, match="4 Ray workers failed before its first shard"):
        encoded(FakeRay(deadly=1.0), 2)
    told = "Ray started no worker within 600 seconds; found 1 nodes with 2 CPUs and 0 GPUs"
    with pytest.raises(SpartaError, match=told):
        encoded(Full(nodes=[(2, 0)]), 2)


def test_some_that_do_not_start_end_nothing() -> None:
    """Every second worker ends before its first shard, every other after it, on nodes that come and go."""

    class Changing(FakeRay):
        def get(self, ref: Any) -> Any:
            actor, i = ref
            number = self.order.setdefault(actor, len(self.order))
            actor.ended |= i == (0 if number % 2 else 2)
            return super().get(ref)

    ray = Changing()
    assert sorted(encoded(ray, 1)) == list(range(40))
    assert ray.hired > 40


def test_what_a_worker_raises_is_raised() -> None:
    error = ModelError("the model gave infinite term weights", where="here", remedy="do this")
    ray = FakeRay(error=error)
    with pytest.raises(ModelError) as caught:
        encoded(ray, 2)
    assert caught.value is error
    assert len(ray.killed) == ray.hired == 2


def test_a_folder_that_a_node_does_not_see(tmp_path: Path) -> None:
    job: Any = SimpleNamespace(folder=tmp_path, open=lambda device: lambda block, advance: (device, block))
    worker = BlockWorker()
    with placed_token(tmp_path) as token:
        worker.open(job, token, "cpu", 1)
        assert worker.encode(BLOCKS[0]) == ("cpu", BLOCKS[0])
        other = Token(token.path, ("sparta-search 0", "torch 0"))
        with pytest.raises(SpartaError, match=r"but the encoding needs sparta-search 0 and torch 0"):
            worker.open(job, other, "cpu", 1)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="must be on all nodes") as caught:
        worker.open(job, token, "cpu", 1)
    assert caught.value.where == str(tmp_path)
    assert Option("shard", "I/N") in caught.value.remedy.options


@pytest.mark.parametrize(("there", "gpus", "room"), [(1, 0.2, 5), (2, 0.1, 20), (4, 0.7, 4), (5, 2, 2)])
def test_workers_share_gpus_whole_and_each_lies_on_one(there: int, gpus: float, room: int) -> None:
    ray = FakeRay(nodes=[(64, there)])
    assert worker_count(RayCluster(address="auto", gpus_per_worker=gpus), ray) == room


@pytest.mark.parametrize(
    ("cpus", "gpus", "room"), [(1, 0, 10), (2, 0, 4), (3, 0, 3), (1, 1, 4), (1, 0.5, 5), (9, 0, 0)]
)
def test_as_many_workers_as_there_is_room_for(cpus: int, gpus: float, room: int) -> None:
    ray = FakeRay(nodes=[(3, 4), (3, 0), (4, 1)])

    def cluster(address: str, workers: int | None) -> RayCluster:
        return RayCluster(address=address, workers=workers, cpus_per_worker=cpus, gpus_per_worker=gpus)

    assert worker_count(cluster("auto", 60), ray) == 60, "a cluster may grow"
    if room:
        assert worker_count(cluster("auto", None), ray) == room
        assert worker_count(cluster("local", 2), ray) == 2
        return
    for wanted in (cluster("auto", None), cluster("local", 2)):
        with pytest.raises(
            InputError, match=r"a worker needs a node .* found 3 nodes with 10 CPUs and 5 GPUs"
        ):
            worker_count(wanted, ray)


def test_auto_means_the_same_on_all_gpus() -> None:
    assert RayCluster(address="auto", gpus_per_worker=0.5).dtype("auto") == "bf16"
    assert RayCluster(address="auto", gpus_per_worker=1).dtype("fp16") == "fp16"
    assert RayCluster(address="auto").dtype("auto") == "auto"


@pytest.fixture
def ran(make_records: Any, write_jsonl: Any, tiny_model_folder: Path, tmp_path: Path) -> Any:
    corpus = write_jsonl(tmp_path / "corpus.jsonl", make_records(3))

    def run(*more: str, program: Program = sparta, model: Path = tiny_model_folder) -> Any:
        given = ["encode", "--corpus", corpus, "--model", model, "--output", tmp_path / "out", *more]
        return program(*given)

    return run


@pytest.mark.parametrize("option", ["--workers", "--cpus-per-worker", "--gpus-per-worker"])
def test_options_of_a_cluster_need_one(ran: Any, option: str) -> None:
    for program in (sparta, dense):
        result = ran(option, "1", program=program)
        assert (result.exit_code, f"{option} needs --ray" in result.stderr) == (2, True)


def test_a_cluster_has_its_own_devices(ran: Any) -> None:
    result = ran("--ray", "auto", "--device", "cpu")
    assert (result.exit_code, "--ray cannot be combined with --device" in result.stderr) == (2, True)


def test_without_ray(ran: Any, tmp_path: Path, make_tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output folder is not made, so that the same command can run without --ray."""
    from dense.models.bi_encoder import DenseConfig, DenseModel
    from sparta.neural.inputs import InputLayout

    tiny = make_tiny_model()
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(InputLayout())).save_pretrained(tmp_path / "dense")
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    for options in ({}, {"program": dense, "model": tmp_path / "dense"}):
        result = ran("--ray", "local", **options)
        assert result.exit_code == 1, result.output
        assert "pip install 'sparta-search[ray]'" in result.stderr
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://127.0.0.1:10001", "the Ray address must be"),
        ("127.0.0.1:1", "no Ray cluster answers"),
        ("127.0.0.1:99999", "no Ray cluster answers"),
        ("nowhere.invalid:6379", "no Ray cluster answers"),
    ],
)
def test_no_cluster_at_the_address(ran: Any, tmp_path: Path, address: str, said: str) -> None:
    pytest.importorskip("ray")
    result = ran("--ray", address)
    assert (result.exit_code, said in result.stderr) == (2, True), result.output
    assert not (tmp_path / "out").exists()
