"""Check that Java fits into the limits of this process: Java ends the process otherwise.

`ulimit -v`, `-d`, `-s`, `-u` and the container's process limit are read before Java starts. If the address
space is small, Java gets smaller reservations; if even these do not fit, an error names the limit.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

from sparta.base.errors import JavaError
from sparta.lucene.container import container_memory, container_threads

SMALLEST_HEAP = 64 * 2**20
_MB = 2**20
_ADDRESS_SPACE = 2900 * _MB
"""The address space of Java 25 without its heap (measured: 2.5 GB, 1 GB of it for classes), and some room."""
_SMALL_ADDRESS_SPACE = 1700 * _MB
"""The address space with the options of `_SMALL` (measured: 1.4 GB), and room for mapped index files."""
_SMALL = ("-XX:CompressedClassSpaceSize=64m", "-XX:ReservedCodeCacheSize=64m")
_DATA = 256 * _MB
"""Writable memory of Java besides its heap (measured: 100 MB), and room for a batch of queries."""
_STACK = 512 * 2**10
_THREADS = 32
"""The number of Java's threads: 16 on two cores, and more for searching and writing."""


def options_within_limits(heap: int | None) -> list[str]:
    """Return the Java options that make Java fit into the limits of this process.

    :param heap: the heap size in bytes that the user set, or None for Java's own choice
    :raises JavaError: a limit is too low for Java; the message names the limit.
    """
    _check("stack size", resource.getrlimit(resource.RLIMIT_STACK)[0], 0, _STACK, "(ulimit -s unlimited)")
    _check_threads(resource.getrlimit(resource.RLIMIT_NPROC)[0])
    in_use = _memory_in_use()
    data = _room(resource.getrlimit(resource.RLIMIT_DATA)[0], in_use["VmData"])
    space = _room(resource.getrlimit(resource.RLIMIT_AS)[0], in_use["VmSize"])
    smallest = heap or SMALLEST_HEAP
    smaller = ", or lower $SPARTA_JVM_HEAP" if heap else ""
    _check("data size", data, in_use["VmData"], _DATA + smallest, f"(ulimit -d unlimited){smaller}")
    _check(
        "address space",
        space,
        in_use["VmSize"],
        _SMALL_ADDRESS_SPACE + smallest,
        f"(ulimit -v unlimited){smaller}",
    )
    if data is None and (space is None or space > 2 * _ADDRESS_SPACE):
        return []
    is_small = space is not None and space < _ADDRESS_SPACE + max(smallest, _MB * 1024)
    options = list(_SMALL) if is_small else []
    if heap is None:
        room = [] if data is None else [data - _DATA]
        if space is not None:
            room.append(space - (_SMALL_ADDRESS_SPACE if is_small else _ADDRESS_SPACE))
        quarter = usable_memory() // 4
        size = min(*room, quarter) // _MB
        options += [f"-Xmx{size}m", f"-Xms{min(size, 64)}m"]
    return options


def physical_memory() -> int:
    """Return the bytes of memory of this machine; 2^63 if the system does not report them."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on this system
        return 2**63


def usable_memory() -> int:
    """Return the bytes of memory of this machine, or of the container's limit if it is smaller."""
    return min(physical_memory(), container_memory() or 2**63)


def _room(limit: int, in_use: int) -> int | None:
    """Return the number of unused bytes below a limit, or None if there is no limit."""
    return None if limit == resource.RLIM_INFINITY else max(0, limit - in_use)


def _check(name: str, room: int | None, in_use: int, needed: int, remedy: str) -> None:
    if room is None or room < 0 or room >= needed:
        return
    used, more = (f", of which {_size(in_use)} are in use", " more") if in_use else ("", "")
    raise JavaError(
        f"the limit on the {name} is too low for Java: {_size(room + in_use)}{used};"
        f" Java needs {_size(needed)}{more}",
        remedy=f"raise the limit {remedy}",
    )


def _size(count: int) -> str:
    return f"{count / _MB:,.0f} MB" if count >= _MB else f"{count / 1024:,.0f} KB"


def _memory_in_use() -> dict[str, int]:
    """Return VmSize (address space) and VmData (writable memory) in bytes; 0 where unknown."""
    sizes = {"VmSize": 0, "VmData": 0}
    with suppress(OSError):  # no /proc on this system
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in sizes:
                sizes[name] = int(value.split()[0]) * 1024
    return sizes


def _check_threads(limit: int) -> None:
    """Raise if the user or the container may not start as many threads as Java needs."""
    container = container_threads()
    counts = [(*container, "pids.max of the container")] if container else []
    if 0 <= limit < 2**14 and os.getuid() != 0:  # counting takes time, so only low limits are checked
        counts.append((limit, _threads_of_user(os.getuid()), "ulimit -u"))
    for allowed, running, name in counts:
        if allowed - running < _THREADS:
            raise JavaError(
                f"the limit on threads ({name}) is too low for Java: {allowed:,}, {running:,} are running;"
                f" Java needs {_THREADS} more",
                remedy=f"raise the limit ({name}), or end other processes of this user",
            )


def _threads_of_user(user: int) -> int:
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if process.stat().st_uid == user:
                count += sum(1 for _ in (process / "task").iterdir())
    return count
