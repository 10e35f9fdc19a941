"""Opening a model of any supported format, from a folder or a hub id, with a quantizer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparta.base.errors import ModelError
from sparta.base.extras import optional_packages
from sparta.base.records import Passage
from sparta.base.remedies import Command, remedy
from sparta.models.document_encoder import fit_quantizer
from sparta.models.model import SparseModel
from sparta.models.quantize import Quantizer
from sparta.models.resolve import DEFAULT_MODEL, hash_folder, lasting_name, model_folder
from sparta.models.stored_model import open_stored
from sparta.neural.devices import best_device, uses_cpu
from sparta.neural.stored import read_json
from sparta.runtime.calibration import fixed_lines
from sparta.runtime.fallback import first_readable

if TYPE_CHECKING:
    from sparta.models.sparse import SparseEncoder

logger = logging.getLogger(__name__)


def load_model(
    name: str | Path | None = None, *, bits: int | None = None, device: str | None = None
) -> SparseModel:
    """Open a model folder or hub id; None means the default model, which ships with sparta.

    Three formats are supported: sparta's models (config.json with a `sparta` object), sentence-transformers
    SparseEncoder folders with a weight table as query side (modules.json), and plain encoders, read like
    BEIR's SPARTA checkpoints (tied, without bias). A model without a quantizer gets one, calibrated on
    fixed texts in sparta, so that it is the same on every machine.

    On a CPU, OpenVINO encodes with BERT and DistilBERT; torch encodes with other encoders, and on GPUs.

    :param bits: the bits per impact; None means the model's setting. The weight scale stays the same.
    :param device: `cpu`, `cuda:0` or another device of torch; None means a GPU if there is one
    :raises ModelError: the model cannot be loaded.
    """
    folder = model_folder(name)
    _check_kind(folder)
    device = device or best_device()
    if not uses_cpu(device):
        return _module(name, folder, bits).on_device(device)
    return first_readable(
        folder,
        lambda: _named(open_stored(folder), name, folder, bits),
        lambda: _module(name, folder, bits),
    )


def load_module(name: str | Path | None = None, *, bits: int | None = None) -> SparseEncoder:
    """Open a model as a torch module on the CPU, to train, export or inspect it; see `load_model`."""
    folder = model_folder(name)
    _check_kind(folder)
    return _module(name, folder, bits)


def _module(name: str | Path | None, folder: Path, bits: int | None) -> SparseEncoder:
    with optional_packages():
        module = _load(folder)
    return _named(module, name, folder, bits).eval()


def _named[M: SparseModel](model: M, name: str | Path | None, folder: Path, bits: int | None) -> M:
    """Set a model's name, identity and quantizer, and return it."""
    model.name = lasting_name(name or DEFAULT_MODEL)
    model.identity = hash_folder(folder)
    quantizer = model.config.quantizer or fit_quantizer(model, calibration_passages())
    impact_bits = quantizer.bits if bits is None else bits
    model.config = replace(model.config, quantizer=Quantizer(quantizer.max_weight, impact_bits))
    return model


def calibration_passages() -> list[Passage]:
    """Return the fixed texts for calibrating the quantizer of other projects' models."""
    return [Passage(str(i), line) for i, line in enumerate(fixed_lines("calibration.txt"))]


def _load(folder: Path) -> SparseEncoder:
    from sparta.models.foreign import load_beir_sparta, load_sparse_encoder
    from sparta.models.sparta import SpartaModel

    if (folder / "modules.json").is_file():
        return load_sparse_encoder(folder)
    if "sparta" in read_json(folder / "config.json"):
        return SpartaModel.load(folder)
    return load_beir_sparta(folder)


def _check_kind(folder: Path) -> None:
    """Refuse a dense model, and warn of a plain encoder."""
    if (folder / "modules.json").is_file():
        return
    config = read_json(folder / "config.json")
    if "dense" in config and "sparta" not in config:
        raise ModelError(
            "the model is dense, not a SPARTA model",
            where=str(folder),
            remedy=remedy("index with {}, or name a SPARTA model", Command.of("dense index", model=folder)),
        )
    if "sparta" not in config:
        logger.warning(
            "%s: config.json has no sparta object, so the model is read like a SPARTA checkpoint of BEIR",
            folder,
        )


def open_encoder(
    name: str | Path | None, bits: int | None = None, devices: Sequence[str] = ()
) -> SparseModel:
    """Open a model on the first of the devices; without devices, on the best available device."""
    return load_model(name, bits=bits, device=devices[0] if devices else None)
