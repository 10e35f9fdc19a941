"""Where a dense model lies, found without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from sparta.base.errors import ModelError
from sparta.base.remedies import Command, Option, remedy
from sparta.models.registered import local_folder
from sparta.models.resolve import (
    default_name,
    find_model,
    folder_with,
    hash_folder,
    installed,
    is_shipped,
    lasting_name,
    model_folder,
    shipped_folder,
)

DEFAULT_DENSE_MODEL = default_name("dense")


class ModelIdentity(NamedTuple):
    """A model: the name to open it by, and the hash of its files. Equal hashes are the same model."""

    name: str
    sha256: str


def dense_model_folder(name: str | Path | None) -> Path:
    """Return the folder of a dense model: the English one for None, one that ships, a given one.

    :raises ModelError: there is none.
    """
    if name is not None and not _ships(name):
        return model_folder(name)
    return installed(shipped_folder(str(name or DEFAULT_DENSE_MODEL)), "dense model")


def bi_encoder_folder(name: str | Path) -> Path | None:
    """Return the folder of a bi-encoder of ours, given that, its training's, or the shipped one's name.

    None for everything else: other encoders, hub ids.
    """
    return folder_with("dense", dense_model_folder(name) if _ships(name) else local_folder(name))


def _ships(name: str | Path) -> bool:
    return is_shipped(name, "dense") or is_shipped(name, "multi_task")


def identify(name: str | Path | None) -> ModelIdentity:
    """Return what a model is, without loading it. A folder is named by its absolute path."""
    folder = dense_model_folder(name)
    return ModelIdentity(lasting_name(name or DEFAULT_DENSE_MODEL), hash_folder(folder))


def find_dense_model(identity: ModelIdentity) -> ModelIdentity:
    """Return a model under the name that opens it here.

    :raises ModelError: it is not here.
    """
    return ModelIdentity(find_model(*identity, dense_model_folder), identity.sha256)


def vector_width(name: str | Path | None) -> int:
    """Return how wide a model's vectors are, from its configuration alone.

    :raises ModelError: no dense model, or one with several vectors a passage, which no index holds.
    """
    path = dense_model_folder(name) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        codes, width = config["dense"].get("codes", 0), config.get("hidden_size") or config["dim"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"expected a dense model (config.json with a dense object), could not read it: {error!r}",
            where=str(path),
            remedy=remedy("give {} a folder that {} wrote", Option("model"), Command("dense train")),
        ) from error
    if codes:
        raise ModelError(
            f"expected a model with one vector a passage, found a Poly-Encoder with {codes}",
            where=str(path),
            remedy="index with a model that was trained without codes",
        )
    return int(width)
