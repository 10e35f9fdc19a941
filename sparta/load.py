"""Opening a model, whoever made it: a folder or a hub id becomes a `SparseEncoder` with its quantizer."""

from __future__ import annotations

import logging
from importlib.resources import files
from pathlib import Path

from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.foreign import load_beir_sparta, load_sparse_encoder
from sparta.model import SparseEncoder, SpartaModel, fit_quantizer, hash_folder, with_quantizer
from sparta.neural.checkpoint import read_json
from sparta.quantize import Quantizer

logger = logging.getLogger(__name__)

DEFAULT_MODEL = "sparta-minilm-en"
_WANTED = ["*.json", "*.txt", "*.safetensors", "*.bin"]


def default_model_folder() -> Path:
    """Return the model that ships inside the package."""
    return Path(str(files("sparta.resources") / "models" / DEFAULT_MODEL))


def load_model(name: str | Path | None = None, *, bits: int | None = None) -> SparseEncoder:
    """Open a model folder or hub id; None is the model that ships with sparta.

    Three layouts are known: sparta's own (config.json with a `sparta` object), sentence-transformers
    SparseEncoder folders whose query side is a weight table (modules.json), and a plain encoder, read as
    BEIR's SPARTA checkpoints are: tied, without bias. A model without a quantizer is given one, calibrated on
    texts that ship with sparta, so that it is the same on every machine. `bits` other than the model's
    rescales, the scale stays.
    """
    folder = _folder(name)
    model = _load(folder)
    model.name = str(name or DEFAULT_MODEL)
    model.identity = hash_folder(folder)
    quantizer = model.config.quantizer or fit_quantizer(model, calibration_passages())
    return with_quantizer(model.eval(), Quantizer(quantizer.max_weight, bits or quantizer.bits))


def calibration_passages() -> list[Passage]:
    """Return the fixed texts that a foreign model's quantizer is calibrated on."""
    lines = (files("sparta.resources") / "calibration.txt").read_text(encoding="utf-8").splitlines()
    return [Passage(str(i), line) for i, line in enumerate(lines) if line.strip()]


def _folder(name: str | Path | None) -> Path:
    if name is None:
        folder = default_model_folder()
        if not folder.is_dir():
            raise ModelError(
                "the default model is not in this installation",
                where=str(folder),
                remedy="give --model a folder or a hub id, or install sparta again",
            )
        return folder
    path = Path(name)
    if path.is_dir():
        return path
    if path.is_absolute() or str(name).startswith(("./", "../", "~")) or str(name).count("/") != 1:
        raise ModelError(
            "expected a model folder, found none", where=str(name), remedy="check the path given to --model"
        )
    return _download(str(name))


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=_WANTED, ignore_patterns=["onnx/*", "openvino/*"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"expected a model folder or a model on the hub, could not get it: {_first_line(error)}",
            where=name,
            remedy="check the name and the network, or give --model a folder",
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _load(folder: Path) -> SparseEncoder:
    if (folder / "modules.json").is_file():
        return load_sparse_encoder(folder)
    config = read_json(folder / "config.json")
    if "sparta" in config:
        return SpartaModel.load(folder)
    logger.warning(
        "%s: no sparta object in config.json: read as BEIR's SPARTA checkpoints (tied, no bias)", folder
    )
    return load_beir_sparta(folder)
