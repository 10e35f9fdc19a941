"""Choosing the device that encodes, without importing torch where a CPU encodes."""

from __future__ import annotations

import logging
import platform
from importlib.util import find_spec
from pathlib import Path

from sparta.base.errors import InputError
from sparta.base.extras import optional_packages
from sparta.base.remedies import Option, remedy

logger = logging.getLogger(__name__)


def parse_devices(text: str | None) -> tuple[str, ...]:
    """Parse comma-separated device names such as `cuda:0,cuda:1`.

    :raises InputError: torch cannot use a device.
    """
    names = tuple(name.strip() for name in text.split(",")) if text is not None else ()
    for name in names:
        if not name:
            raise InputError(
                f"expected a device or several, separated by commas, found {text!r}",
                remedy=remedy("name a device, as in {}, or omit the option", Option("device", "cpu")),
            )
        if not uses_cpu(name):
            _check(name)
    return names


def _check(name: str) -> None:
    with optional_packages():
        from sparta.neural.encoding import pick_device
    pick_device(name)


def best_device() -> str:
    """Return the first available of CUDA, MPS and CPU. Torch is imported only if there may be a GPU."""
    if not may_have_gpu():
        return "cpu"
    if not find_spec("torch"):
        logger.warning(
            "the GPU is not used, because torch is not installed: pip install 'sparta-search[gpu]'"
        )
        return "cpu"
    from sparta.neural.encoding import pick_device

    return str(pick_device())


def uses_cpu(device: str) -> bool:
    """Return whether a device is the CPU."""
    return device.lower().partition(":")[0] == "cpu"


def may_have_gpu() -> bool:
    """Return whether the machine has the driver of a GPU; on a Mac, whether it has Apple's processor."""
    if platform.system() == "Darwin":
        return platform.machine() == "arm64"
    return any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))
