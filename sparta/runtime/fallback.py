"""Opening a model: on a CPU with OpenVINO; on a GPU, or if OpenVINO cannot read the model, with torch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from sparta.base.errors import InputError, MissingPackageError, ModelError, ReplacedError, SpartaError
from sparta.base.extras import optional_packages
from sparta.neural.devices import best_device, uses_cpu
from sparta.runtime.processor import ForkedError

logger = logging.getLogger(__name__)
_NOT_READABLE = OSError, ValueError, RuntimeError, LookupError, TypeError, SafetensorError, SpartaError


def opened_on[S, M](
    folder: Path, device: str | None, stored: Callable[[], S], by_torch: Callable[[str], M]
) -> S | M:
    """Return `by_torch(device)`; on a CPU, return what `stored()` or else `by_torch("cpu")` reads.

    :param device: None means a GPU if there is one
    """
    device = device or best_device()
    if not uses_cpu(device):
        return by_torch(device)
    return first_readable(folder, stored, lambda: by_torch("cpu"))


def first_readable[S, M](folder: Path, read: Callable[[], S], by_torch: Callable[[], M]) -> S | M:
    """Return `read()`; if OpenVINO cannot read the model, return `by_torch()`.

    If the model is replaced while it is read, the new one is read.

    Torch reads encoders of more architectures. It also reads broken folders, because its errors say what is
    wrong.

    :raises ModelError: OpenVINO cannot read the model, and torch is not installed; the error says why.
    """
    try:
        return read()
    except (MissingPackageError, ForkedError, InputError):  # an option is wrong, not the folder
        raise
    except ReplacedError:  # by other files, which are whole by now
        return read()
    except _NOT_READABLE as first_error:
        error, reason = first_error, getattr(first_error, "message", str(first_error))
        logger.debug("%s: torch reads this model: %s", folder, reason)
    try:
        with optional_packages():
            return by_torch()
    except MissingPackageError as missing:
        if isinstance(error, SpartaError) and error.remedy:
            raise error from None  # torch could not read this folder either
        if isinstance(error, SafetensorError):
            raise ModelError(
                f"the weights cannot be read: {reason}",
                where=str(folder),
                remedy="copy the complete model folder again",
            ) from error
        raise ModelError(
            f"OpenVINO cannot read this model ({reason}), and torch is not installed",
            where=str(folder),
            remedy=missing.remedy,
        ) from missing
