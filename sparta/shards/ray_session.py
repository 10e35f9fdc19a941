"""Connecting to a Ray cluster."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparta.base.errors import InputError
from sparta.base.extras import optional_packages
from sparta.base.remedies import Command, Option, remedy

_ADDRESS = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_SECONDS = 5.0
_START = remedy(
    "start a cluster with {}, on every other node with {}; or encode only on this machine, without {}",
    Command.of("ray start", head=True),
    Command.of("ray start", address="HOST:6379"),
    Option("ray"),
)


def ray_module() -> Any:
    """Return the module `ray`.

    :raises MissingPackageError: Ray is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with optional_packages():
        import ray
    return ray


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect the module `ray`, which is returned, to a cluster during the block.

    A connection that the program already has is used and kept.

    :raises InputError: there is no cluster at the address.
    """
    ray = ray_module()
    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"address": address}
    if address == "local":
        settings.update(_node_ip_address="127.0.0.1", include_dashboard=False)
    elif address != "auto":
        _check_reachable(address)
    try:
        ray.init(**settings, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises a bare Exception if its processes do not start
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"the Ray cluster at {address!r} cannot be joined: {reason}", remedy=_START
        ) from error
    ray._private.worker._worker_logs_enabled = False  # otherwise, Ray reports lost workers on standard output
    try:
        yield ray
    finally:
        ray.shutdown()
        ray._private.worker._worker_logs_enabled = True


def _check_reachable(address: str) -> None:
    """Check the address quickly, since Ray would try to connect for minutes."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InputError(
            f"the Ray address must be local, auto or HOST:PORT, found {address!r}",
            remedy=remedy("run the command on a node of the cluster, with {}", Option("ray", "auto")),
        )
    try:
        socket.create_connection((match["host"].strip("[]"), int(match["port"])), _SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at {address!r}: {error}", remedy=_START) from error
