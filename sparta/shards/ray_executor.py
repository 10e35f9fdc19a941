"""Running blocks on the workers of a Ray cluster, and repeating the blocks of lost workers."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from sparta.base.disk.new_folders import remove_left_overs
from sparta.base.errors import InputError, SpartaError
from sparta.base.records import Advance
from sparta.base.remedies import Option, remedy
from sparta.shards.executors import Facts, ShardJob
from sparta.shards.folder import Block
from sparta.shards.ray_session import connected
from sparta.shards.ray_worker import BlockWorker, Token, placed_token

if TYPE_CHECKING:
    from ray import ObjectRef

logger = logging.getLogger("sparta.shards")

_AHEAD = 2
"""The maximum number of blocks per worker: the block in progress and the next block."""
_TRIES = 4
"""The job fails after this many workers failed on the same block, or in a row before their first block."""
_NO_BLOCK = -1
_PATIENCE = 600.0
"""The maximum waiting time for a first or a new worker, in seconds."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """A Ray cluster, whose workers encode in place of this process.

    All nodes need sparta-search[ray] and access to the folder of the shards. `address` is `local` (this
    machine, during the job), `auto` (this machine's cluster) or `host:port`. If `workers` is None, the
    cluster gets as many workers as fit. Each worker takes `cpus_per_worker` threads, and encodes on a GPU
    if `gpus_per_worker` is not 0 (0.5: two workers share a GPU).
    """

    address: str
    workers: int | None = None
    cpus_per_worker: int = 1
    gpus_per_worker: float = 0.0

    def dtype(self, name: str) -> str:
        """Return a number format that all workers support: on GPUs, `auto` becomes bf16."""
        return "bf16" if name == "auto" and self.gpus_per_worker else name

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Stay connected to the cluster during the block; `run` uses this connection.

        :raises MissingPackageError: Ray is not installed.
        :raises InputError: the cluster cannot be reached, or no worker fits.
        """
        with connected(self.address) as ray:
            worker_count(self, ray)
            yield

    def run(self, job: ShardJob, blocks: Iterable[Block], advance: Advance | None = None) -> Generator[Facts]:
        """Run the job like `LocalExecutor.run`, but yield the shards in the order of their completion.

        Workers that fail, with or without their node, are replaced.

        :raises SpartaError: a worker raised an error, four workers failed on the same block, or there was
            no worker for ten minutes.
        :raises InputError: the cluster cannot be reached.
        """
        blocks = iter(blocks)
        first = next(blocks, None)
        if first is None:  # all shards exist, so no worker is started
            return
        with connected(self.address) as ray, placed_token(job.folder) as token:
            with Crew(self, worker_count(self, ray), job, token, ray) as crew:
                for facts in crew.encode(chain([first], blocks)):
                    if advance:
                        advance(facts["count"])
                    yield facts
            if crew.lost:
                remove_left_overs(job.folder)


@dataclass(eq=False)
class _Worker:
    """A Ray actor, whether it has opened the job, and its blocks in the order of processing."""

    actor: Any
    ready: bool = False
    blocks: deque[Block] = field(default_factory=deque)


class Crew:
    """The workers of one job."""

    def __init__(self, cluster: RayCluster, size: int, job: ShardJob, token: Token, ray: Any) -> None:
        self._ray, self._size = ray, size
        self._open_arguments = (
            self._ray.put(job),
            token,
            "cuda" if cluster.gpus_per_worker else "cpu",
            cluster.cpus_per_worker,
        )
        self._actor = self._ray.remote(BlockWorker).options(
            num_cpus=cluster.cpus_per_worker, num_gpus=cluster.gpus_per_worker, scheduling_strategy="SPREAD"
        )
        self._workers: list[_Worker] = []
        self._worker_of: dict[ObjectRef[Any], _Worker] = {}
        self._returned: deque[Block] = deque()
        self._failures: Counter[int] = Counter()

    @property
    def lost(self) -> bool:
        """Whether a worker failed during its work."""
        return bool(self._failures)

    def __enter__(self) -> Crew:
        for _ in range(self._size):
            self._hire()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            self._ray.kill(worker.actor)

    def _hire(self) -> None:
        worker = _Worker(self._actor.remote())
        self._workers.append(worker)
        self._worker_of[worker.actor.open.remote(*self._open_arguments)] = worker

    def encode(self, blocks: Iterator[Block]) -> Iterator[Facts]:
        """Assign blocks to free workers, and yield the facts of each finished shard."""
        while self._assign(blocks):
            finished_refs, _ = self._ray.wait(list(self._worker_of), timeout=_PATIENCE)
            if not finished_refs and not any(worker.ready for worker in self._workers):
                raise SpartaError(
                    f"Ray started no worker within {_PATIENCE:.0f} seconds; found {describe_room(self._ray)}",
                    remedy=remedy(
                        "add nodes, or request fewer CPUs and GPUs per worker; {} keeps finished shards",
                        Option("resume", True),
                    ),
                )
            for ref in finished_refs:
                yield from self._finished(ref)

    def _assign(self, blocks: Iterator[Block]) -> bool:
        """Assign blocks evenly to the ready workers; return whether there is work to wait for."""
        ready_workers = [worker for worker in self._workers if worker.ready]
        for block_limit in range(1, _AHEAD + 1):
            for worker in ready_workers:
                if len(worker.blocks) < block_limit and (block := self._next(blocks)):
                    worker.blocks.append(block)
                    self._worker_of[worker.actor.encode.remote(block)] = worker
        return bool(self._returned) or any(worker.blocks for worker in self._workers) or not ready_workers

    def _next(self, blocks: Iterator[Block]) -> Block | None:
        return self._returned.popleft() if self._returned else next(blocks, None)

    def _finished(self, ref: ObjectRef[Any]) -> Iterator[Facts]:
        worker = self._worker_of.pop(ref, None)
        if worker is None:  # the worker failed meanwhile
            return
        errors = self._ray.exceptions
        try:
            facts: Facts = self._ray.get(ref)
        except errors.RayTaskError as error:
            raise error.cause from error
        except errors.RayError as error:
            self._replace(worker, error)
            return
        if worker.ready:
            worker.blocks.popleft()
            yield facts
        else:
            worker.ready = True
            del self._failures[_NO_BLOCK]

    def _replace(self, worker: _Worker, error: Exception) -> None:
        """Put back the blocks of a failed worker, and start a new worker."""
        reason = str(error).strip().splitlines()[0]
        number = worker.blocks[0][0] if worker.blocks else _NO_BLOCK
        self._failures[number] += 1
        stage = f"at shard {number}" if worker.blocks else "before its first shard"
        if self._failures[number] == _TRIES:
            raise SpartaError(
                f"{_TRIES} Ray workers failed {stage}; the last error was: {error}",
                remedy=remedy(
                    "if memory ran out, use fewer {}; {} keeps finished shards",
                    Option("workers"),
                    Option("resume", True),
                ),
            )
        logger.warning("a Ray worker failed %s and is replaced: %s", stage, reason)
        self._worker_of = {
            ref: other_worker for ref, other_worker in self._worker_of.items() if other_worker is not worker
        }
        self._workers.remove(worker)
        self._returned.extendleft(reversed(worker.blocks))
        self._ray.kill(worker.actor)
        self._hire()


def _nodes(ray: Any) -> list[tuple[float, float]]:
    """Return the numbers of CPUs and GPUs of each node."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [(resources.get("CPU", 0.0), resources.get("GPU", 0.0)) for resources in nodes]


def describe_room(ray: Any) -> str:
    """Describe the nodes of the cluster in words."""
    nodes = _nodes(ray)
    cpus, gpus = (sum(node[i] for node in nodes) for i in (0, 1))
    return f"{len(nodes)} nodes with {cpus:g} CPUs and {gpus:g} GPUs"


def worker_count(cluster: RayCluster, ray: Any) -> int:
    """Return the number of workers: as requested (a cluster may still grow), otherwise as many as fit.

    :raises InputError: no worker fits.
    """
    cpus, gpus = cluster.cpus_per_worker, cluster.gpus_per_worker
    workers_per_gpu = int(1 / gpus + _ROUNDING) if 0 < gpus < 1 else 1  # this many workers share a GPU
    capacity = sum(
        int(min(node_cpus // cpus, node_gpus * workers_per_gpu // max(gpus, 1) if gpus else node_cpus))
        for node_cpus, node_gpus in _nodes(ray)
    )
    if not capacity and (cluster.workers is None or cluster.address == "local"):
        raise InputError(
            f"a worker needs a node with {cpus} CPUs and {gpus:g} GPUs, found {describe_room(ray)}",
            remedy=remedy("choose other {} and {}", Option("cpus_per_worker"), Option("gpus_per_worker")),
        )
    return cluster.workers or capacity
