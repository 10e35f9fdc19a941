"""Models that are Python distributions.

Shipped models are found by the name of their package. Models of other projects are registered by the entry
point group `sparta.models`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sparta.base.errors import ModelError
from sparta.base.extras import Installation

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "sparta.models"
PACKAGE = "sparta_model_"
"""The beginning of the package names of shipped models."""


def package_folder(name: str, installation: Installation) -> Path | None:
    """Return the folder of a shipped model in its package, or None if the package is not installed."""
    folder = installation.package_folder(PACKAGE + name.replace("-", "_"))
    return folder and folder / "model"


def how_to_install(name: str) -> str:
    """Return how to install a shipped model: the command, if the working folder is in a clone."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        source = folder / "models" / name
        if (source / "pyproject.toml").is_file():
            path = os.path.relpath(source)
            return f"pip install {path if path.startswith('.') else f'./{path}'}"
    return f"in a clone of sparta's repository, whose folder models/ has {name}: pip install ./models/{name}"


def looks_like_path(name: str) -> bool:
    """Return whether a name can only be a path, and neither a registered name nor a hub id."""
    return Path(name).is_absolute() or name.startswith(("./", "../", "~")) or name.count("/") > 1


def local_folder(name: str | Path) -> Path:
    """Return the path itself, or the folder that is registered under the name.

    Entry points are scanned (about 80 ms) only if the name is not a folder and does not look like a path.

    :raises ModelError: the entry point fails, or returns no folder.
    """
    path = Path(name)
    if path.is_dir() or looks_like_path(str(name)):
        return path
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=str(name)):
        return _provided(point)
    return path


def _provided(point: EntryPoint) -> Path:
    """Return the folder of an entry point, which is a path or a function that returns a path."""
    distribution = point.dist.name if point.dist else "unknown"
    where = f"{point.value} (distribution {distribution})"
    remedy = f"update or remove the distribution {distribution}, or name the model's folder"
    try:
        provided = point.load()
        provided = provided() if callable(provided) else provided
    except Exception as error:  # code of another distribution may fail in any way
        raise ModelError(
            f"the model {point.name!r} of the Python package {distribution} failed to load: {error!r}",
            where=where,
            remedy=remedy,
        ) from error
    if not isinstance(provided, str | os.PathLike) or not Path(provided).is_dir():
        raise ModelError(
            f"the model {point.name!r} of the Python package {distribution} is not a folder: {provided!r}",
            where=where,
            remedy=remedy,
        )
    return Path(provided)
