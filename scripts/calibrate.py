"""Write the calibrated ranges of the models that ship with sparta: python scripts/calibrate.py.

Each model's folder gets activations.npz, so that no installation has to measure the ranges. Run it after the
weights or the configuration of a model, or the calibration texts, have changed.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import sparta
from dense.encoding.stored_model import StoredDenseModel
from sparta.models.folders.cross_encoder import CrossEncoder
from sparta.models.load import load_model
from sparta.models.resolve import default_name
from sparta.neural.stored import read_json
from sparta.reader.stored_reader import StoredReader
from sparta.runtime.calibration import FILE

MODELS = Path(sparta.__file__).parent / "resources" / "models"


def open_in_8_bits(folder: Path) -> bool:
    """Open a shipped model in 8 bits. Returns whether it can compute in 8 bits."""
    config = read_json(folder / "config.json")
    if "sparta" in config:
        load_model(folder, device="cpu").backend("int8")
    elif "dense" in config:
        StoredDenseModel(folder).encode_passages([], "int8")
    elif "reader" in config:
        StoredReader(folder, "int8")
    elif folder.name == default_name("reranker"):
        CrossEncoder(folder, "int8")
    else:
        return False
    return True


def main() -> None:
    for folder in sorted(path for path in MODELS.iterdir() if path.is_dir()):
        (folder / FILE).unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as cache:
            os.environ["XDG_CACHE_HOME"] = cache
            if open_in_8_bits(folder):
                [measured] = Path(cache).rglob("*.npz")
                (folder / FILE).write_bytes(measured.read_bytes())
                print(folder.name, (folder / FILE).stat().st_size)


if __name__ == "__main__":
    main()
