"""Opening a bi-encoder: without torch for CPUs, or as a torch module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dense.encoding.stored_model import StoredDenseModel
from sparta.base.extras import optional_packages
from sparta.runtime.fallback import opened_on

if TYPE_CHECKING:
    from dense.models.bi_encoder import DenseModel


def load_dense(folder: Path, device: str) -> DenseModel | StoredDenseModel:
    """Return the model of a folder on a device: for OpenVINO on a CPU, or as a torch module."""
    return opened_on(
        folder,
        device,
        lambda: StoredDenseModel(folder).for_passages(),
        lambda opened: load_module(folder, opened),
    )


def load_module(folder: Path, device: str) -> DenseModel:
    """Return the model of a folder as a torch module on a device."""
    with optional_packages():
        from dense.models.bi_encoder import DenseModel

    return moved(DenseModel.load(folder), device)


def moved(model: DenseModel, device: str) -> DenseModel:
    """Return a torch module on a device."""
    from sparta.neural.encoding import pick_device

    return model.to(pick_device(device))
