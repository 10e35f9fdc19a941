"""Finds the folder and the identity of a dense model, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from sparta.base.errors import ModelError
from sparta.base.files import raise_if_unreadable
from sparta.base.remedies import Command, Option, remedy
from sparta.models.registered import local_folder
from sparta.models.resolve import (
    default_name,
    find_model,
    folder_with,
    hash_folder,
    installed_folder,
    is_shipped,
    lasting_name,
    model_folder,
)

DEFAULT_DENSE_MODEL = default_name("dense")


class ModelIdentity(NamedTuple):
    """The name that opens a model, and the SHA-256 of its files. Equal hashes mean the same model."""

    name: str
    sha256: str


def dense_model_folder(name: str | Path | None) -> Path:
    """Return the folder of a dense model: shipped, local or from the hub. None is the English default model.

    :raises ModelError: there is no such model.
    """
    if name is not None and not _is_shipped_model(name):
        return model_folder(name)
    return installed_folder(str(name or DEFAULT_DENSE_MODEL))


def bi_encoder_folder(name: str | Path) -> Path | None:
    """Return the folder of a sparta bi-encoder, from its folder, its training folder or a shipped name.

    Returns None for all other names, such as hub ids and encoders.
    """
    return folder_with("dense", dense_model_folder(name) if _is_shipped_model(name) else local_folder(name))


def _is_shipped_model(name: str | Path) -> bool:
    return is_shipped(name, "dense") or is_shipped(name, "multi_task")


def identify(name: str | Path | None) -> ModelIdentity:
    """Return the name and hash of a model, without loading it. The name of a folder is its absolute path."""
    folder = dense_model_folder(name)
    return ModelIdentity(lasting_name(name or DEFAULT_DENSE_MODEL), hash_folder(folder))


def find_dense_model(identity: ModelIdentity) -> ModelIdentity:
    """Return a model's identity with the name that opens it on this machine.

    :raises ModelError: the model is not on this machine.
    """
    return ModelIdentity(find_model(*identity, dense_model_folder), identity.sha256)


def vector_width(name: str | Path | None) -> int:
    """Return the width of a model's vectors, from its configuration file.

    :raises ModelError: the model is no dense model, or has several vectors per passage, which no index
        supports.
    """
    path = dense_model_folder(name) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        codes, width = config["dense"].get("codes", 0), config.get("hidden_size") or config["dim"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise_if_unreadable(path, error)
        raise ModelError(
            f"expected a dense model (config.json with a dense object), failed with {error!r}",
            where=str(path),
            remedy=remedy("name with {} a folder that {} wrote", Option("model"), Command("dense train")),
        ) from error
    if codes:
        raise ModelError(
            f"expected a model with one vector per passage, found a Poly-Encoder with {codes}",
            where=str(path),
            remedy="index with a model that was trained without codes",
        )
    return int(width)
