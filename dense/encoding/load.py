"""Opening a bi-encoder: without torch for CPUs, or as a torch module."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from dense.encoding.stored_model import StoredDenseModel
from sparta.base.errors import SpartaError
from sparta.base.extras import optional_packages

if TYPE_CHECKING:
    from dense.models.bi_encoder import DenseModel

logger = logging.getLogger(__name__)
_NOT_STORED = OSError, ValueError, RecursionError, LookupError, TypeError, SafetensorError, SpartaError


def open_stored(folder: Path) -> StoredDenseModel | None:
    """Return the model of a folder for a CPU; None if torch must read the folder.

    Torch also reads broken folders, because its errors say what is wrong.
    """
    try:
        return StoredDenseModel(folder)
    except (
        OSError,
        ValueError,
        RecursionError,
        LookupError,
        TypeError,
        SafetensorError,
        SpartaError,
    ) as error:
        logger.debug("%s: torch reads this model: %s", folder, error)
        return None


def load_module(folder: Path, device: str) -> DenseModel:
    """Return the model of a folder as a torch module on a device."""
    with optional_packages():
        from dense.models.bi_encoder import DenseModel
        from sparta.neural.encoding import pick_device

    return DenseModel.load(folder).to(pick_device(device))
