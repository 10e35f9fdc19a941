"""Jobs that encode blocks, and the executor that runs a job in this process (the other: `RayCluster`)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sparta.base.records import Advance
from sparta.shards.folder import Block

type Facts = dict[str, Any]
"""The metadata of a written shard; `count` is its number of passages."""
type Work[T] = Callable[[Block, Advance | None], T]


class ShardJob(Protocol):
    """A job that writes the shards of one encoding into `folder`, an absolute path.

    Jobs can be pickled with their model.
    """

    @property
    def folder(self) -> Path:
        """The folder for the shards."""

    def open(self, device: str) -> Work[Facts]:
        """Return a function that encodes a block on a device and writes its shard."""


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Encodes in this process, one block at a time on each device."""

    devices: Sequence[str]

    def run(self, job: ShardJob, blocks: Iterable[Block], advance: Advance | None = None) -> Generator[Facts]:
        """Encode and write all blocks; yield the facts of each shard after it was written.

        Errors of the job are raised here. A resumed job then encodes the unfinished blocks.

        :param advance: called after each batch with the number of newly finished passages
        """
        first, *others = self.devices
        works = [job.open(first), *(deepcopy(job).open(device) for device in others)]
        return work_ahead(works, blocks, advance)


def work_ahead[T](
    work_functions: Sequence[Work[T]], blocks: Iterable[Block], advance: Advance | None = None
) -> Generator[T]:
    """Process blocks round-robin and yield the results in order.

    Each work function runs in its thread, one block ahead. If the caller stops early (Ctrl-C, a bad
    record), running work stops at its next batch.
    """
    pools = [ThreadPoolExecutor(1) for _ in work_functions]
    waiting: deque[Future[T]] = deque()
    stop = threading.Event()

    def check_stop(count: int) -> None:
        if stop.is_set():
            raise InterruptedError
        if advance:
            advance(count)

    try:
        for turn, block in enumerate(blocks):
            worker_index = turn % len(pools)
            waiting.append(pools[worker_index].submit(work_functions[worker_index], block, check_stop))
            if len(waiting) > len(pools):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        stop.set()
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=True)
