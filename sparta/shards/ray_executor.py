"""Blocks on the workers of a Ray cluster: two in flight on each, and those of a lost worker done again."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from sparta.base.errors import SpartaError
from sparta.base.records import Advance
from sparta.base.remedies import Option, remedy
from sparta.shards.executors import Facts, ShardJob
from sparta.shards.folder import Block, remove_left_overs
from sparta.shards.ray_session import connected, describe_room, ray_module, worker_count
from sparta.shards.ray_worker import BlockWorker, Token, placed_token

if TYPE_CHECKING:
    from ray import ObjectRef

logger = logging.getLogger("sparta.shards")

_AHEAD = 2
"""Blocks that a worker has: one that it encodes and the next."""
_TRIES = 4
"""So many workers may end while they encode the same block, or one after the other before they encode any."""
_NO_BLOCK = -1
_PATIENCE = 600.0
"""Seconds without any worker, while nodes are lost or a cluster grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """A Ray cluster as an `Executor`. Every node has sparta-search[ray] and sees the folder of the shards.

    `address` is `local` (this machine, for as long as the work takes), `auto` (the cluster that this machine
    belongs to) or `host:port`. `workers` None are as many as the cluster has room for. Each worker takes
    `cpus_per_worker` threads, and encodes on a GPU if `gpus_per_worker` is not 0 (0.5: two share one).
    """

    address: str
    workers: int | None = None
    cpus_per_worker: int = 1
    gpus_per_worker: float = 0.0

    def dtype(self, name: str) -> str:
        """Return an arithmetic that all workers share: on GPUs, `auto` is bf16."""
        return "bf16" if name == "auto" and self.gpus_per_worker else name

    def run(self, job: ShardJob, blocks: Iterable[Block], advance: Advance | None = None) -> Generator[Facts]:
        """As of `Executor`. Workers that end, with or without their node, are replaced.

        :raises SpartaError: what a worker raised; also no cluster there, no worker for ten minutes, or four
            workers that ended over the same block.
        """
        blocks = iter(blocks)
        first = next(blocks, None)
        if first is None:  # nothing is left to do, nothing is started
            return
        with connected(self.address), placed_token(job.folder) as token:
            workers = worker_count(self)
            with _Crew(self, workers, job, token) as crew:
                for facts in crew.encode(chain([first], blocks)):
                    if advance:
                        advance(facts["count"])
                    yield facts
            if crew.lost:
                remove_left_overs(job.folder)


@dataclass(eq=False)
class _Worker:
    """An actor, whether it has opened the job, and its blocks in the order in which it does them."""

    actor: Any
    ready: bool = False
    blocks: deque[Block] = field(default_factory=deque)


class _Crew:
    """The workers of one job."""

    def __init__(self, cluster: RayCluster, size: int, job: ShardJob, token: Token) -> None:
        self._ray, self._size = ray_module(), size
        self._given = (
            self._ray.put(job),
            token,
            "cuda" if cluster.gpus_per_worker else "cpu",
            cluster.cpus_per_worker,
        )
        self._actor = self._ray.remote(BlockWorker).options(
            num_cpus=cluster.cpus_per_worker, num_gpus=cluster.gpus_per_worker, scheduling_strategy="SPREAD"
        )
        self._workers: list[_Worker] = []
        self._of: dict[ObjectRef[Any], _Worker] = {}
        self._again: deque[Block] = deque()
        self._ended: Counter[int] = Counter()

    @property
    def lost(self) -> bool:
        """Whether workers ended while they had work."""
        return bool(self._ended)

    def __enter__(self) -> _Crew:
        for _ in range(self._size):
            self._hire()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            self._ray.kill(worker.actor)

    def _hire(self) -> None:
        worker = _Worker(self._actor.remote())
        self._workers.append(worker)
        self._of[worker.actor.open.remote(*self._given)] = worker

    def encode(self, blocks: Iterator[Block]) -> Iterator[Facts]:
        """Give out blocks as workers are free, and yield the facts of each that is done."""
        while self._give_out(blocks):
            done, _ = self._ray.wait(list(self._of), timeout=_PATIENCE)
            if not done and not any(worker.ready for worker in self._workers):
                raise SpartaError(
                    f"expected a worker within {_PATIENCE:.0f} seconds, found none: {describe_room()}",
                    remedy=remedy(
                        "give the cluster nodes, or the workers less; {} keeps what is done",
                        Option("resume", True),
                    ),
                )
            for ref in done:
                yield from self._finished(ref)

    def _give_out(self, blocks: Iterator[Block]) -> bool:
        """Fill up the workers that are there, evenly; whether there is anything to wait for."""
        there = [worker for worker in self._workers if worker.ready]
        for most in range(1, _AHEAD + 1):
            for worker in there:
                if len(worker.blocks) < most and (block := self._next(blocks)):
                    worker.blocks.append(block)
                    self._of[worker.actor.encode.remote(block)] = worker
        return bool(self._again) or any(worker.blocks for worker in self._workers) or not there

    def _next(self, blocks: Iterator[Block]) -> Block | None:
        return self._again.popleft() if self._again else next(blocks, None)

    def _finished(self, ref: ObjectRef[Any]) -> Iterator[Facts]:
        worker = self._of.pop(ref, None)
        if worker is None:  # of a worker that has ended since
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
            del self._ended[_NO_BLOCK]

    def _replace(self, worker: _Worker, error: Exception) -> None:
        """Put the blocks of a worker that ended back, and another in its place."""
        reason = str(error).strip().splitlines()[0]
        number = worker.blocks[0][0] if worker.blocks else _NO_BLOCK
        self._ended[number] += 1
        at = f"at shard {number}" if worker.blocks else "before its first shard"
        if self._ended[number] == _TRIES:
            raise SpartaError(
                f"{_TRIES} workers ended {at}, the last with: {error}",
                remedy=remedy(
                    "if memory ran out, take fewer {}; {} keeps what is done",
                    Option("workers"),
                    Option("resume", True),
                ),
            )
        logger.warning("a worker ended %s, another takes its place: %s", at, reason)
        self._of = {ref: other for ref, other in self._of.items() if other is not worker}
        self._workers.remove(worker)
        self._again.extendleft(reversed(worker.blocks))
        self._ray.kill(worker.actor)
        self._hire()
