"""Opening a model of any supported format, from a folder or a hub id, with a quantizer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.base.remedies import Command, remedy
from sparta.models.document_encoder import fit_quantizer
from sparta.models.foreign import load_beir_sparta, load_sparse_encoder
from sparta.models.quantize import Quantizer
from sparta.models.resolve import DEFAULT_MODEL, hash_folder, lasting_name, model_folder
from sparta.models.sparse import SparseEncoder
from sparta.models.sparta import SpartaModel
from sparta.neural.checkpoint import read_json
from sparta.neural.encoding import pick_device

logger = logging.getLogger(__name__)


def load_model(name: str | Path | None = None, *, bits: int | None = None) -> SparseEncoder:
    """Open a model folder or hub id; None means the default model, which ships with sparta.

    Three formats are supported: sparta's models (config.json with a `sparta` object), sentence-transformers
    SparseEncoder folders with a weight table as query side (modules.json), and plain encoders, read like
    BEIR's SPARTA checkpoints (tied, without bias). A model without a quantizer gets one, calibrated on
    fixed texts in sparta, so that it is the same on every machine.

    :param bits: the bits per impact; None means the model's setting. The weight scale stays the same.
    :raises ModelError: the model cannot be loaded.
    """
    folder = model_folder(name)
    model = _load(folder)
    model.name = lasting_name(name or DEFAULT_MODEL)
    model.identity = hash_folder(folder)
    quantizer = model.config.quantizer or fit_quantizer(model, calibration_passages())
    impact_bits = quantizer.bits if bits is None else bits
    model.config = replace(model.config, quantizer=Quantizer(quantizer.max_weight, impact_bits))
    return model.eval()


def calibration_passages() -> list[Passage]:
    """Return the fixed texts for calibrating the quantizer of other projects' models."""
    lines = (files("sparta.resources") / "calibration.txt").read_text(encoding="utf-8").splitlines()
    return [Passage(str(i), line) for i, line in enumerate(lines) if line.strip()]


def _load(folder: Path) -> SparseEncoder:
    if (folder / "modules.json").is_file():
        return load_sparse_encoder(folder)
    config = read_json(folder / "config.json")
    if "sparta" in config:
        return SpartaModel.load(folder)
    if "dense" in config:
        raise ModelError(
            "the model is dense, not a SPARTA model",
            where=str(folder),
            remedy=remedy("index with {}, or name a SPARTA model", Command.of("dense index", model=folder)),
        )
    logger.warning(
        "%s: config.json has no sparta object, so the model is read like a SPARTA checkpoint of BEIR", folder
    )
    return load_beir_sparta(folder)


def open_encoder(
    name: str | Path | None, bits: int | None = None, devices: Sequence[str] = ()
) -> SparseEncoder:
    """Open a model on the first of the devices; without devices, on the best available device."""
    return load_model(name, bits=bits).to(pick_device(devices[0] if devices else None))
