"""Where blocks are encoded: by this process, or elsewhere. A job says what is done, an executor where."""

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
"""What is known of a shard that was written; `count` is its number of passages."""
type Work[T] = Callable[[Block, Advance | None], T]


class ShardJob(Protocol):
    """Writes the shards of one encoding into `folder`, an absolute path; can be pickled, with its model."""

    @property
    def folder(self) -> Path:
        """Where the shards go."""

    def open(self, device: str) -> Work[Facts]:
        """Return what encodes a block on a device and writes its shard."""


class Executor(Protocol):
    """Has the blocks of a job encoded, and gives the facts of each shard once it is written, in any order.

    What the work raises is raised here; blocks that are then not done are left to a job that resumes.
    """

    def run(self, job: ShardJob, blocks: Iterable[Block], advance: Advance | None = None) -> Generator[Facts]:
        """Encode and write all blocks; `advance` is told how many passages are done."""


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Encodes in this process, one block at a time on each device."""

    devices: Sequence[str]

    def run(self, job: ShardJob, blocks: Iterable[Block], advance: Advance | None = None) -> Generator[Facts]:
        """As of `Executor`; a block is given to `advance` batch by batch."""
        first, *others = self.devices
        works = [job.open(first), *(deepcopy(job).open(device) for device in others)]
        return work_ahead(works, blocks, advance)


def work_ahead[T](
    works: Sequence[Work[T]], blocks: Iterable[Block], advance: Advance | None = None
) -> Generator[T]:
    """Do blocks in turn, each work in a thread of its own and one block ahead; results are in order.

    When the caller stops early (Ctrl-C, a bad record), what is being encoded is given up at the next batch.
    """
    pools = [ThreadPoolExecutor(1) for _ in works]
    waiting: deque[Future[T]] = deque()
    stop = threading.Event()

    def beat(n: int) -> None:
        if stop.is_set():
            raise InterruptedError
        if advance:
            advance(n)

    try:
        for turn, block in enumerate(blocks):
            place = turn % len(pools)
            waiting.append(pools[place].submit(works[place], block, beat))
            if len(waiting) > len(pools):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        stop.set()
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=True)
