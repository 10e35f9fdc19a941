"""Limits of control groups: of containers and of systemd, in versions 1 and 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparta.lucene.container import container_memory, container_processors, container_threads

UNIT = "system.slice/sparta.service"


@pytest.mark.parametrize(
    ("function", "files", "membership", "expected"),
    [
        (container_processors, {"cpu.max": "150000 100000"}, "0::/", 2),
        (container_processors, {"cpu.max": "max 100000"}, "0::/", None),
        (container_processors, {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, "", 1),
        (container_processors, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "", None),
        (container_processors, {}, "0::/", None),
        (container_processors, {f"{UNIT}/cpu.max": "200000 100000"}, f"0::/{UNIT}", 2),
        (
            container_processors,
            {f"{UNIT}/cpu.max": "max 100000", "system.slice/cpu.max": "300000 100000", "cpu.max": "4 1"},
            f"0::/{UNIT}",
            3,
        ),
        (
            container_processors,
            {"cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"},
            "3:cpu,cpuacct:/a\n2:memory:/b",
            2,
        ),
        (container_processors, {"../cpu.max": "1 1"}, "0::/../x", None),
        (container_memory, {"memory.max": "4096"}, "0::/", 4096),
        (container_memory, {"memory.max": "max"}, "0::/", None),
        (container_memory, {f"{UNIT}/memory.max": "4096", "memory.max": "8192"}, f"0::/{UNIT}", 4096),
        (container_memory, {"memory/b/memory.limit_in_bytes": "1"}, "3:cpu:/a\n2:memory:/b", 1),
        (container_memory, {"memory.max": "5"}, f"0::/{UNIT}", 5),
        (container_threads, {"pids.max": "max", "pids.current": "3"}, "0::/", None),
        (
            container_threads,
            {
                f"{UNIT}/pids.max": "100",
                f"{UNIT}/pids.current": "3",
                "system.slice/pids.max": "200",
                "system.slice/pids.current": "190",
            },
            f"0::/{UNIT}",
            (200, 190),
        ),
    ],
)
def test_the_smallest_limit_of_the_groups_of_a_process_counts(
    function: Callable[[Path], Any], files: dict[str, str], membership: str, expected: Any, tmp_path: Path
) -> None:
    group = tmp_path / "proc" / "self" / "cgroup"
    texts = {group: membership, **{tmp_path / "sys/fs/cgroup" / name: text for name, text in files.items()}}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert function(tmp_path) == expected
