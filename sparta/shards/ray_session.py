"""A connection to a Ray cluster, and what room it has."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from sparta.base.errors import InputError
from sparta.base.extras import optional_packages
from sparta.base.remedies import Command, Option, remedy

_ADDRESS = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_SECONDS = 5.0
_ROUNDING = 1e-9
_START = remedy(
    "start one with: {}, and on every other node: {}; or encode on this machine only, without {}",
    Command.of("ray start", head=True),
    Command.of("ray start", address="HOST:6379"),
    Option("ray"),
)


class Wanted(Protocol):
    """Where and how many workers, and what each takes."""

    @property
    def address(self) -> str:
        """The cluster."""

    @property
    def workers(self) -> int | None:
        """None: as many as there is room for."""

    @property
    def cpus_per_worker(self) -> int:
        """Threads."""

    @property
    def gpus_per_worker(self) -> float:
        """0: it encodes on its CPUs."""


def ray_module() -> Any:
    """Return Ray; MissingPackageError where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with optional_packages():
        import ray
    return ray


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect to a cluster, and leave it at the end; where the program has Ray running, that is used.

    :raises InputError: no cluster there.
    """
    ray = ray_module()
    if ray.is_initialized():
        yield
        return
    settings: dict[str, Any] = {"address": address}
    if address == "local":
        settings.update(_node_ip_address="127.0.0.1", include_dashboard=False)
    elif address != "auto":
        _check_reachable(address)
    try:
        ray.init(**settings, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises just this where its own processes did not start
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"expected a Ray cluster at {address!r}, could not join it: {reason}", remedy=_START
        ) from error
    ray._private.worker._worker_logs_enabled = False  # it would print of lost workers to standard output
    try:
        yield
    finally:
        ray.shutdown()
        ray._private.worker._worker_logs_enabled = True


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InputError(
            f"expected a Ray address (local, auto or HOST:PORT), found {address!r}",
            remedy=remedy("run the command on a node of the cluster, with {}", Option("ray", "auto")),
        )
    try:
        socket.create_connection((match["host"].strip("[]"), int(match["port"])), _SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"expected a Ray cluster at {address!r}, found that nothing answers there: {error}", remedy=_START
        ) from error


def _nodes() -> list[tuple[float, float]]:
    """CPUs and GPUs of each node."""
    nodes = [node["Resources"] for node in ray_module().nodes() if node["Alive"]]
    return [(found.get("CPU", 0.0), found.get("GPU", 0.0)) for found in nodes]


def describe_room() -> str:
    """The nodes of the cluster, in words."""
    nodes = _nodes()
    cpus, gpus = (sum(node[i] for node in nodes) for i in (0, 1))
    return f"{len(nodes)} nodes with {cpus:g} CPUs and {gpus:g} GPUs"


def worker_count(wanted: Wanted) -> int:
    """How many workers: as many as wanted (a cluster may still grow), else as many as fit.

    :raises InputError: none would fit.
    """
    cpus, gpus = wanted.cpus_per_worker, wanted.gpus_per_worker
    share = int(1 / gpus + _ROUNDING) if 0 < gpus < 1 else 1  # so many workers have one GPU together
    room = sum(int(min(c // cpus, g * share // max(gpus, 1) if gpus else c)) for c, g in _nodes())
    if not room and (wanted.workers is None or wanted.address == "local"):
        raise InputError(
            f"expected a node with {cpus} CPUs and {gpus:g} GPUs for a worker, found {describe_room()}",
            remedy=remedy("choose other {} and {}", Option("cpus_per_worker"), Option("gpus_per_worker")),
        )
    return wanted.workers or room
