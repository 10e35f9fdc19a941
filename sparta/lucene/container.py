"""Limits of this process's control groups, which containers and systemd set: processors, memory, threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath

_SYSTEM = Path("/")


@lru_cache
def container_processors(system: Path = _SYSTEM) -> int | None:
    """Return the processors of the smallest quota, rounded up; None if there is no quota.

    :param system: the folder that holds `sys/fs/cgroup` and `proc/self/cgroup`
    """
    limits = _limits(system, "cpu", ["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"])
    quotas = [max(1, math.ceil(quota / period)) for quota, period in limits if quota > 0]
    return min(quotas, default=None)


def container_memory(system: Path = _SYSTEM) -> int | None:
    """Return the bytes of memory of the smallest limit, or None if there is no limit."""
    limits = _limits(system, "memory", ["memory.max"], ["memory.limit_in_bytes"])
    return min((limit for (limit,) in limits), default=None)


def container_threads(system: Path = _SYSTEM) -> tuple[int, int] | None:
    """Return the limit on threads that leaves the least room, and its running threads; None without limit."""
    pairs = [(most, running) for most, running in _limits(system, "pids", ["pids.max", "pids.current"])]
    return min(pairs, key=lambda pair: pair[0] - pair[1], default=None)


def _limits(system: Path, controller: str, *file_lists: list[str]) -> Iterator[list[int]]:
    """Yield the numbers in files of each control group that limits this process.

    :param file_lists: the names of the files in version 2 of control groups, then those in version 1
    """
    for folder in _groups(system, controller):
        for files in file_lists:
            with suppress(OSError, ValueError):  # no such file, or the word "max": no limit
                yield [int(word) for name in files for word in (folder / name).read_text().split()]


def _groups(system: Path, controller: str) -> list[Path]:
    """Return the folders of this process's control groups, of both versions, with all folders above them."""
    root = system / "sys/fs/cgroup"
    groups = [root, root / controller]
    with suppress(OSError, ValueError):
        for line in (system / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            group = PurePosixPath(path.lstrip("/"))
            if ".." in group.parts or (controllers and controller not in controllers.split(",")):
                continue
            base = root / controller if controllers else root
            groups += [base / folder for folder in (group, *group.parents)]
    return groups
